"""Writers of aliases: merging, splitting, and their undo."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from crabpath_retrievers.core.changes.maintenance import MergeNodes, MergePair
from crabpath_retrievers.core.graph import Authority, EdgeKind, Vector
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.aliases import IS_PRIMARY_TARGET
from crabpath_retrievers.storage.registry import list_node_columns
from crabpath_retrievers.storage.sql_tools import decode_vector, split_batches
from crabpath_retrievers.storage.write.journal import (
    RowChange,
    restore_episode_credit,
    restore_rows,
    transfer_episode_credit,
    write_journal,
    write_rows,
)
from crabpath_retrievers.storage.write.merge_learned import TargetOf, compute_merge
from crabpath_retrievers.storage.write.nodes import (
    TEXT_EDGE_KINDS,
    find_siblings,
    hide_node,
    queue_index_deletion,
    queue_indexing,
    queue_linking,
    recount_mentions,
    remove_nodes,
    show_nodes,
)
from crabpath_retrievers.storage.write.transaction import Transaction

MERGED_FROM = "merged_from"
"""Metadata field of a kept node: ids and sources of the nodes merged into it."""

_R, _N = s.aliases.c, s.nodes.c


def merge_nodes(tx: Transaction, change: MergeNodes) -> None:
    """Merge near-duplicates; skips pairs that must not be merged, see ``MergeNodes``."""
    tx.increment_versions()
    for pair in change.pairs:
        if _is_mergeable(tx, pair):
            _merge(tx, change.run, pair)


def _is_mergeable(tx: Transaction, pair: MergePair) -> bool:
    """Whether both nodes are visible, and the kept one has at least as much authority."""
    query = sa.select(_N.key, _N.authority).where(_N.key.in_(pair), _N.owner == 0)
    ranks = {key: rank for key, rank in tx.run(query.with_for_update())}
    if len(ranks) < len(set(pair)) or pair.absorbed == pair.keeper:
        return False
    whole = sa.select(sa.exists().where(_R.target.in_(pair), _R.kind == "split"))
    fixed = ranks[pair.absorbed] == Authority.CONSTITUTIONAL.value
    above = ranks[pair.keeper] >= ranks[pair.absorbed]
    return above and not fixed and not tx.scalar(whole)


def _merge(tx: Transaction, run: str, pair: MergePair) -> None:
    names = tx.get_node_ids(pair)
    images = compute_merge(tx, pair.absorbed, lambda _: pair.keeper, textual=True)
    hide_node(tx, pair.absorbed)
    _write_changes(tx, images)
    episodes = transfer_episode_credit(tx, names[pair.absorbed], lambda _: names[pair.keeper])
    mine = _R.target == pair.absorbed
    before = tx.scalars(sa.select(_R.node).where(mine))
    tx.update(s.aliases, mine, target=pair.keeper)
    _insert_aliases(tx, pair.absorbed, [pair.keeper], "merge", run)
    _update_merged_from(tx, [pair.keeper])
    queue_index_deletion(tx, [names[pair.absorbed]])
    inverse = {"node": pair.absorbed, "target": pair.keeper, "before": before}
    inverse |= {"images": images, "episodes": episodes}
    payload = {"run": run, "node": names[pair.absorbed], "keeper": names[pair.keeper]}
    write_journal(tx, "merge_nodes", payload, inverse=inverse)


def undo_merge(tx: Transaction, run: str, inverse: dict[str, Any]) -> None:
    """Undo a merge: show the node again, with what was learned about it before."""
    node, keeper = inverse["node"], inverse["target"]
    own = sa.and_(_R.node == node, _R.kind == "merge", _R.run == run)
    stands = tx.scalar(sa.select(_R.target).where(own))
    if stands is None:
        return  # restored by another change, or deleted
    _delete_aliases(tx, [node])
    former = sa.and_(_R.node.in_(inverse["before"]), _R.target == keeper)
    tx.update(s.aliases, former, target=node)
    _restore_node(tx, node, inverse)
    _update_merged_from(tx, {keeper, stands, node})


def split_node(tx: Transaction, node: str, pieces: Sequence[str], run: str) -> None:
    """Replace a node by its parts; each edge moves to the part nearest to its other end."""
    keys = tx.get_node_keys([node, *pieces])
    order = [keys[piece] for piece in pieces if piece in keys]
    old = keys.get(node)
    rank = tx.scalar(sa.select(_N.authority).where(_N.key == old, _N.owner == 0))
    if rank is None or old is None or not order:  # the node changed in the meantime
        _remove(tx, order)
        return
    tx.increment_versions()
    tx.update(s.nodes, _N.key.in_(order), authority=rank)
    siblings = find_siblings(tx, [node])
    vectors = _get_vectors(tx, order)
    images = compute_merge(tx, old, _choose_nearest(tx, vectors))
    own = (s.edges.c.source == old) | (s.edges.c.target == old)
    query = sa.select(s.edges).where(own, s.edges.c.kind.in_(TEXT_EDGE_KINDS))
    images += [("edges", row, None) for row in tx.dicts(query)]
    hide_node(tx, old)
    _write_changes(tx, images)
    ids = {key: name for name, key in keys.items()}
    episodes = transfer_episode_credit(tx, node, lambda vector: ids[_find_nearest(vectors, vector)])
    _insert_aliases(tx, old, order, "split", run)
    queue_index_deletion(tx, [node])
    queue_linking(tx, siblings)
    inverse = {"node": old, "parts": order, "images": images, "episodes": episodes}
    payload = {"run": run, "node": node, "parts": list(pieces)}
    write_journal(tx, "split_node", payload, inverse=inverse)


def undo_split(tx: Transaction, inverse: dict[str, Any]) -> None:
    """Undo a split: show the node again, and move to it what was learned about its parts."""
    node, order = inverse["node"], inverse["parts"]
    own = sa.and_(_R.node == node, _R.target.in_(order), _R.kind == "split")
    if not tx.delete(s.aliases, own):
        return
    _restore_node(tx, node, inverse)
    _merge_parts(tx, node, order)


def _restore_node(tx: Transaction, node: int, inverse: dict[str, Any]) -> None:
    """Show a node again and undo row changes; it is queued for the index."""
    tx.increment_versions()
    show_nodes(tx, [node])
    queue_indexing(tx, tx.get_node_ids([node]).values(), "index")
    given: list[RowChange] = [(table, before, after) for table, before, after in inverse["images"]]
    _recount_mentions(tx, restore_rows(tx, given))
    restore_episode_credit(tx, inverse["episodes"])


def release_aliases(tx: Transaction, kept: Sequence[str], gone: Sequence[str]) -> None:
    """Dissolve the aliases of nodes that are about to change, to be removed or to retire.

    What was learned about parts moves to the split node. Near-duplicates of a changed node are
    shown again; of a removed one, the oldest takes over what was learned.

    Args:
        tx: The transaction.
        kept: Ids of nodes that are about to be written.
        gone: Ids of nodes that are about to be removed or to retire.
    """
    keys, going = tx.get_node_keys([*kept, *gone]), tx.get_node_keys(gone)
    rows = _find_relations(tx, keys.values())
    if not rows:
        return
    tx.increment_versions()
    busy = set(keys.values())
    for node in sorted({row.node for row in rows if row.kind == "split" and row.node in busy}):
        order = [row.target for row in rows if row.node == node]
        _delete_aliases(tx, [node])
        _merge_parts(tx, node, order)
    merged = [row for row in rows if row.kind == "merge"]
    absorbed = {row.node for row in merged} & busy
    _delete_aliases(tx, absorbed)
    _update_merged_from(tx, {row.target for row in merged if row.node in absorbed} - busy)
    for keeper in sorted({row.target for row in merged} & busy):
        left = [r.node for r in merged if r.target == keeper and r.node not in busy]
        if left:
            _restore_merged(tx, keeper, sorted(left), inherit=keeper in going.values())


def _restore_merged(tx: Transaction, keeper: int, left: Sequence[int], *, inherit: bool) -> None:
    """Show the nodes merged into another one again: all, or with ``inherit`` the oldest."""
    back = left[:1] if inherit else left
    _delete_aliases(tx, back)
    show_nodes(tx, back)
    ids = tx.get_node_ids([keeper, *back])
    if inherit:
        heir = back[0]
        _write_changes(tx, compute_merge(tx, keeper, lambda _: heir))
        transfer_episode_credit(tx, ids[keeper], lambda _: ids[heir])
        tx.update(s.aliases, _R.target == keeper, target=heir)
        _update_merged_from(tx, [heir])
    queue_indexing(tx, [ids[key] for key in back], "return")


def move_learned(tx: Transaction) -> None:
    """Move learned rows of replaced nodes to their targets, after a restore or an import."""
    columns = list_node_columns("overlay", "pair_counts", "usage")
    found = [sa.exists().where(column == _R.node) for column in columns]
    query = sa.select(_R.node, _R.target).where(IS_PRIMARY_TARGET, sa.or_(*found))
    for node, target in tx.run(query.order_by(_R.node)).all():
        heir: TargetOf = lambda _, target=target: target  # type: ignore[misc] # noqa: E731
        _write_changes(tx, compute_merge(tx, node, heir))


def move_parts(tx: Transaction, moved: Sequence[str]) -> None:
    """Set the positions of parts to those of the split nodes that moved."""
    mine = s.aliases.join(s.contents, s.contents.c.node == _R.node)
    place = (
        sa.select(s.contents.c.position)
        .where(s.contents.c.node == sa.bindparam("whole"))
        .scalar_subquery()
    )
    query = sa.select(_R.node, _R.target).select_from(mine.join(s.nodes, _N.key == _R.node))
    found = tx.select_in(query.where(_R.kind == "split"), _N.id, moved)
    rows = [{"whole": whole, "part": part} for whole, part in found]
    if rows:
        update = s.contents.update().where(s.contents.c.node == sa.bindparam("part"))
        tx.run(update.values(position=place), rows)


def _merge_parts(tx: Transaction, node: int, order: Sequence[int]) -> None:
    """Move what was learned about parts to the split node, and remove them."""
    ids = tx.get_node_ids([node, *order])
    for part in order:
        _write_changes(tx, compute_merge(tx, part, lambda _: node))
        if part in ids:
            transfer_episode_credit(tx, ids[part], lambda _: ids[node])
    _remove(tx, order)


def _remove(tx: Transaction, keys: Sequence[int]) -> None:
    ids = list(tx.get_node_ids(keys).values())
    remove_nodes(tx, ids)
    queue_index_deletion(tx, ids)


def _find_relations(tx: Transaction, keys: Iterable[int]) -> Sequence[sa.Row[Any]]:
    """Aliases whose node or target is among these nodes."""
    query = sa.select(s.aliases)
    found = {
        (row.node, row.target): row
        for part in split_batches(keys)
        for row in tx.run(query.where(_R.node.in_(part) | _R.target.in_(part)))
    }
    return sorted(found.values(), key=lambda row: (row.node, row.position))


def _delete_aliases(tx: Transaction, keys: Iterable[int]) -> None:
    tx.delete_in(_R.node, keys)


def _insert_aliases(tx: Transaction, node: int, order: Sequence[int], kind: str, run: str) -> None:
    rows = [
        {"node": node, "target": key, "position": place, "kind": kind, "run": run}
        for place, key in enumerate(order)
    ]
    tx.add(s.aliases, rows)


def _update_merged_from(tx: Transaction, keepers: Iterable[int]) -> None:
    """Update the ``merged_from`` metadata of kept nodes."""
    for keeper in keepers:
        own = s.contents.c.node == keeper
        text = tx.scalar(sa.select(s.contents.c.metadata).where(own))
        if text is None:
            continue
        query = (
            sa.select(_N.id, s.contents.c.source)
            .join(s.aliases, _R.node == _N.key)
            .join(s.contents, s.contents.c.node == _N.key)
            .where(_R.target == keeper, _R.kind == "merge")
            .order_by(_N.key)
        )
        merged_from = [{"id": i, "source": source} for i, source in tx.run(query)]
        metadata = json.loads(text)
        metadata.pop(MERGED_FROM, None)
        new = {**metadata, MERGED_FROM: merged_from} if merged_from else metadata
        tx.update(s.contents, own, metadata=json.dumps(new, ensure_ascii=False))


def _write_changes(tx: Transaction, images: Sequence[RowChange]) -> None:
    write_rows(tx, images)
    _recount_mentions(tx, images)


def _recount_mentions(tx: Transaction, images: Iterable[RowChange]) -> None:
    """Update the mention counts after changes of edges."""
    rows = [row for table, *both in images if table == "edges" for row in both if row]
    mention = EdgeKind.MENTION.value
    recount_mentions(tx, {row["target"] for row in rows if row["kind"] == mention})


def _get_vectors(tx: Transaction, keys: Sequence[int]) -> dict[int, Vector]:
    """Unit vectors of nodes, shape ``[d]``, by key in the given order."""
    rows = tx.select_in(sa.select(_N.key, _N.embedding), _N.key, keys)
    found = {key: decode_vector(vector) for key, vector in rows}
    return {key: found[key] for key in keys}


def _choose_nearest(tx: Transaction, vectors: dict[int, Vector]) -> TargetOf:
    """Choose for another node the nearest of these; the first of them for key 0."""
    first = next(iter(vectors))

    def heir(other: int) -> int:
        found = _get_vectors(tx, [other]) if tx.get_node_ids([other]) else {}
        return _find_nearest(vectors, found[other]) if found else first

    return heir


def _find_nearest(vectors: dict[int, Vector], other: Vector) -> int:
    """Key of the vector with the highest cosine; the first of equals."""
    single = np.asarray(other, dtype=np.float32)
    return max(vectors, key=lambda key: float(vectors[key].astype(np.float32) @ single))
