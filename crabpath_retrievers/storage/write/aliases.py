"""Writers of aliases: merging and its undo."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.core.changes.maintenance import MergeNodes, MergePair
from crabpath_retrievers.core.graph import Authority, EdgeKind
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.registry import list_node_columns
from crabpath_retrievers.storage.sql_tools import split_batches
from crabpath_retrievers.storage.write.journal import (
    RowChange,
    restore_episode_credit,
    restore_rows,
    transfer_episode_credit,
    write_journal,
    write_rows,
)
from crabpath_retrievers.storage.write.merge_learned import compute_merge
from crabpath_retrievers.storage.write.nodes import (
    hide_node,
    queue_index_deletion,
    queue_indexing,
    recount_mentions,
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
    fixed = ranks[pair.absorbed] == Authority.CONSTITUTIONAL.value
    above = ranks[pair.keeper] >= ranks[pair.absorbed]
    return above and not fixed


def _merge(tx: Transaction, run: str, pair: MergePair) -> None:
    names = tx.get_node_ids(pair)
    images = compute_merge(tx, pair.absorbed, pair.keeper, textual=True)
    hide_node(tx, pair.absorbed)
    _write_changes(tx, images)
    episodes = transfer_episode_credit(tx, names[pair.absorbed], names[pair.keeper])
    mine = _R.target == pair.absorbed
    before = tx.scalars(sa.select(_R.node).where(mine))
    tx.update(s.aliases, mine, target=pair.keeper)
    tx.add(s.aliases, [{"node": pair.absorbed, "target": pair.keeper, "run": run}])
    _update_merged_from(tx, [pair.keeper])
    queue_index_deletion(tx, [names[pair.absorbed]])
    inverse = {"node": pair.absorbed, "target": pair.keeper, "before": before}
    inverse |= {"images": images, "episodes": episodes}
    payload = {"run": run, "node": names[pair.absorbed], "keeper": names[pair.keeper]}
    write_journal(tx, "merge_nodes", payload, inverse=inverse)


def undo_merge(tx: Transaction, run: str, inverse: dict[str, Any]) -> None:
    """Undo a merge: show the node again, with what was learned about it before."""
    node, keeper = inverse["node"], inverse["target"]
    own = sa.and_(_R.node == node, _R.run == run)
    stands = tx.scalar(sa.select(_R.target).where(own))
    if stands is None:
        return  # restored by another change, or deleted
    _delete_aliases(tx, [node])
    former = sa.and_(_R.node.in_(inverse["before"]), _R.target == keeper)
    tx.update(s.aliases, former, target=node)
    _restore_node(tx, node, inverse)
    _update_merged_from(tx, {keeper, stands, node})


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

    Near-duplicates of a changed node are shown again; of a removed one, the oldest takes over what
    was learned.

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
    absorbed = {row.node for row in rows} & busy
    _delete_aliases(tx, absorbed)
    _update_merged_from(tx, {row.target for row in rows if row.node in absorbed} - busy)
    for keeper in sorted({row.target for row in rows} & busy):
        left = [r.node for r in rows if r.target == keeper and r.node not in busy]
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
        _write_changes(tx, compute_merge(tx, keeper, heir))
        transfer_episode_credit(tx, ids[keeper], ids[heir])
        tx.update(s.aliases, _R.target == keeper, target=heir)
        _update_merged_from(tx, [heir])
    queue_indexing(tx, [ids[key] for key in back], "return")


def move_learned(tx: Transaction) -> None:
    """Move learned rows of replaced nodes to their targets, after a restore or an import."""
    columns = list_node_columns("overlay", "pair_counts", "usage")
    found = [sa.exists().where(column == _R.node) for column in columns]
    query = sa.select(_R.node, _R.target).where(sa.or_(*found))
    for node, target in tx.run(query.order_by(_R.node)).all():
        _write_changes(tx, compute_merge(tx, node, target))


def _find_relations(tx: Transaction, keys: Iterable[int]) -> Sequence[sa.Row[Any]]:
    """Aliases whose node or target is among these nodes, by key of the node."""
    query = sa.select(s.aliases)
    found = {
        row.node: row
        for part in split_batches(keys)
        for row in tx.run(query.where(_R.node.in_(part) | _R.target.in_(part)))
    }
    return [found[node] for node in sorted(found)]


def _delete_aliases(tx: Transaction, keys: Iterable[int]) -> None:
    tx.delete_in(_R.node, keys)


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
            .where(_R.target == keeper)
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
