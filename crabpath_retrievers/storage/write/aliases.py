"""Writer of aliases: merging, splitting, and their undo."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from crabpath_retrievers.core.changes.maintenance import MergeNodes, MergePair
from crabpath_retrievers.core.graph import Authority, EdgeKind, Vector
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.aliases import IS_PRIMARY_TARGET
from crabpath_retrievers.storage.sql_tools import decode_vector, split_batches
from crabpath_retrievers.storage.write.journal import (
    NODE_TABLES,
    RowChange,
    restore_episode_credit,
    restore_rows,
    transfer_episode_credit,
    write_journal,
    write_rows,
)
from crabpath_retrievers.storage.write.merge_learned import LearnedMerge, TargetOf
from crabpath_retrievers.storage.write.nodes import (
    TEXT_EDGE_KINDS,
    NodeWriter,
    queue_index_deletion,
    queue_indexing,
    queue_linking,
)

MERGED_FROM = "merged_from"
"""Metadata field of a kept node: ids and sources of the nodes merged into it."""

_R, _N = s.aliases.c, s.nodes.c


class AliasWriter:
    """Merges and splits nodes on one open transaction."""

    def __init__(
        self, connection: sa.Connection, insert: Callable[..., Any], nodes: NodeWriter
    ) -> None:
        """Write on ``connection``; ``nodes`` is a writer of nodes on the same transaction."""
        self._connection, self._insert, self._nodes = connection, insert, nodes

    def merge(self, change: MergeNodes) -> None:
        """Merge near-duplicates; skips pairs that must not be merged, see ``MergeNodes``."""
        self._increment_versions()
        for pair in change.pairs:
            if self._is_mergeable(pair):
                self._merge(change.run, pair)

    def _is_mergeable(self, pair: MergePair) -> bool:
        """Whether both nodes are visible, and the kept one has at least as much authority."""
        query = sa.select(_N.key, _N.authority).where(_N.key.in_(pair), _N.owner == 0)
        ranks = {key: rank for key, rank in self._connection.execute(query.with_for_update())}
        if len(ranks) < len(set(pair)) or pair.absorbed == pair.keeper:
            return False
        whole = sa.select(sa.exists().where(_R.target.in_(pair), _R.kind == "split"))
        fixed = ranks[pair.absorbed] == Authority.CONSTITUTIONAL.value
        above = ranks[pair.keeper] >= ranks[pair.absorbed]
        return above and not fixed and not self._connection.scalar(whole)

    def _merge(self, run: str, pair: MergePair) -> None:
        names = self._get_ids(pair)
        images = LearnedMerge(self._connection).images(
            pair.absorbed, lambda _: pair.keeper, textual=True
        )
        self._nodes.hide([pair.absorbed])
        self._write_changes(images)
        episodes = transfer_episode_credit(
            self._connection, names[pair.absorbed], lambda _: names[pair.keeper]
        )
        mine = _R.target == pair.absorbed
        before = list(self._connection.scalars(sa.select(_R.node).where(mine)))
        self._connection.execute(s.aliases.update().where(mine).values(target=pair.keeper))
        self._insert_aliases(pair.absorbed, [pair.keeper], "merge", run)
        self._update_merged_from([pair.keeper])
        queue_index_deletion(self._connection, self._insert, [names[pair.absorbed]])
        inverse = {"node": pair.absorbed, "target": pair.keeper, "before": before}
        inverse |= {"images": images, "episodes": episodes}
        payload = {"run": run, "node": names[pair.absorbed], "keeper": names[pair.keeper]}
        write_journal(self._connection, "merge_nodes", payload, inverse=inverse)

    def undo_merge(self, run: str, inverse: dict[str, Any]) -> None:
        """Undo a merge: show the node again, with what was learned about it before."""
        node, keeper = inverse["node"], inverse["target"]
        own = sa.and_(_R.node == node, _R.kind == "merge", _R.run == run)
        stands = self._connection.scalar(sa.select(_R.target).where(own))
        if stands is None:
            return  # restored by another change, or deleted
        self._delete_aliases([node])
        former = sa.and_(_R.node.in_(inverse["before"]), _R.target == keeper)
        self._connection.execute(s.aliases.update().where(former).values(target=node))
        self._restore_node(node, inverse)
        self._update_merged_from({keeper, stands, node})

    def split(self, node: str, pieces: Sequence[str], run: str) -> None:
        """Replace a node by its parts; each edge moves to the part nearest to its other end."""
        keys = self._nodes.keys([node, *pieces])
        order = [keys[piece] for piece in pieces if piece in keys]
        old = keys.get(node)
        whole = sa.select(_N.authority).where(_N.key == old, _N.owner == 0)
        rank = self._connection.scalar(whole)
        if rank is None or old is None or not order:  # the node changed in the meantime
            self._remove(order)
            return
        self._increment_versions()
        self._connection.execute(s.nodes.update().where(_N.key.in_(order)).values(authority=rank))
        siblings = self._nodes.siblings([node])
        vectors = self._get_vectors(order)
        images = LearnedMerge(self._connection).images(
            old, self._choose_nearest(vectors), textual=False
        )
        own = (s.edges.c.source == old) | (s.edges.c.target == old)
        query = sa.select(s.edges).where(own, s.edges.c.kind.in_(TEXT_EDGE_KINDS))
        images += [("edges", dict(row), None) for row in self._connection.execute(query).mappings()]
        self._nodes.hide([old])
        self._write_changes(images)
        ids = {key: name for name, key in keys.items()}
        episodes = transfer_episode_credit(
            self._connection, node, lambda vector: ids[_find_nearest(vectors, vector)]
        )
        self._insert_aliases(old, order, "split", run)
        queue_index_deletion(self._connection, self._insert, [node])
        queue_linking(self._connection, self._insert, siblings)
        inverse = {"node": old, "parts": order, "images": images, "episodes": episodes}
        payload = {"run": run, "node": node, "parts": list(pieces)}
        write_journal(self._connection, "split_node", payload, inverse=inverse)

    def undo_split(self, inverse: dict[str, Any]) -> None:
        """Undo a split: show the node again, and move to it what was learned about its parts."""
        node, order = inverse["node"], inverse["parts"]
        own = sa.and_(_R.node == node, _R.target.in_(order), _R.kind == "split")
        if not self._connection.execute(s.aliases.delete().where(own)).rowcount:
            return
        self._restore_node(node, inverse)
        self._merge_parts(node, order)

    def _restore_node(self, node: int, inverse: dict[str, Any]) -> None:
        """Show a node again and undo row changes; it is queued for the index."""
        self._increment_versions()
        self._nodes.show([node])
        queue_indexing(self._connection, self._insert, self._get_ids([node]).values(), "index")
        given: list[RowChange] = [
            (table, before, after) for table, before, after in inverse["images"]
        ]
        self._recount_mentions(restore_rows(self._connection, self._insert, given))
        restore_episode_credit(self._connection, inverse["episodes"])

    def release(self, kept: Sequence[str], gone: Sequence[str]) -> None:
        """Dissolve the aliases of nodes that are about to change, to be removed or to retire.

        What was learned about parts moves to the split node. Near-duplicates of a changed node are
        shown again; of a removed one, the oldest takes over what was learned.

        Args:
            kept: Ids of nodes that are about to be written.
            gone: Ids of nodes that are about to be removed or to retire.
        """
        keys, going = self._nodes.keys([*kept, *gone]), self._nodes.keys(gone)
        rows = self._find_relations(keys.values())
        if not rows:
            return
        self._increment_versions()
        busy = set(keys.values())
        for node in sorted({row.node for row in rows if row.kind == "split" and row.node in busy}):
            order = [row.target for row in rows if row.node == node]
            self._delete_aliases([node])
            self._merge_parts(node, order)
        merged = [row for row in rows if row.kind == "merge"]
        absorbed = {row.node for row in merged} & busy
        self._delete_aliases(absorbed)
        self._update_merged_from({row.target for row in merged if row.node in absorbed} - busy)
        for keeper in sorted({row.target for row in merged} & busy):
            left = [r.node for r in merged if r.target == keeper and r.node not in busy]
            if left:
                self._restore_merged(keeper, sorted(left), inherit=keeper in going.values())

    def _restore_merged(self, keeper: int, left: Sequence[int], *, inherit: bool) -> None:
        """Show the nodes merged into another one again: all, or with ``inherit`` the oldest."""
        back = left[:1] if inherit else left
        self._delete_aliases(back)
        self._nodes.show(back)
        ids = self._get_ids([keeper, *back])
        if inherit:
            heir = back[0]
            self._write_changes(
                LearnedMerge(self._connection).images(keeper, lambda _: heir, textual=False)
            )
            transfer_episode_credit(self._connection, ids[keeper], lambda _: ids[heir])
            mine = _R.target == keeper
            self._connection.execute(s.aliases.update().where(mine).values(target=heir))
            self._update_merged_from([heir])
        queue_indexing(self._connection, self._insert, [ids[key] for key in back], "return")

    def move_learned(self) -> None:
        """Move learned rows of replaced nodes to their targets, after a restore or an import."""
        columns = [
            NODE_TABLES[table].c[name]
            for table in ("overlay", "pair_counts", "usage")
            for name in ("source", "target", "node")
            if name in NODE_TABLES[table].c
        ]
        found = [sa.exists().where(column == _R.node) for column in columns]
        query = sa.select(_R.node, _R.target).where(IS_PRIMARY_TARGET, sa.or_(*found))
        for node, target in self._connection.execute(query.order_by(_R.node)).all():
            heir: TargetOf = lambda _, target=target: target  # type: ignore[misc] # noqa: E731
            self._write_changes(LearnedMerge(self._connection).images(node, heir, textual=False))

    def move_parts(self, moved: Sequence[str]) -> None:
        """Set the positions of parts to those of the split nodes that moved."""
        mine = s.aliases.join(s.contents, s.contents.c.node == _R.node)
        place = (
            sa.select(s.contents.c.position)
            .where(s.contents.c.node == sa.bindparam("whole"))
            .scalar_subquery()
        )
        query = sa.select(_R.node, _R.target).select_from(mine.join(s.nodes, _N.key == _R.node))
        rows = [
            {"whole": whole, "part": part}
            for some in split_batches(moved)
            for whole, part in self._connection.execute(
                query.where(_R.kind == "split", _N.id.in_(some))
            )
        ]
        if rows:
            update = s.contents.update().where(s.contents.c.node == sa.bindparam("part"))
            self._connection.execute(update.values(position=place), rows)

    def _merge_parts(self, node: int, order: Sequence[int]) -> None:
        """Move what was learned about parts to the split node, and remove them."""
        ids = self._get_ids([node, *order])
        for part in order:
            images = LearnedMerge(self._connection).images(part, lambda _: node, textual=False)
            self._write_changes(images)
            if part in ids:
                transfer_episode_credit(self._connection, ids[part], lambda _: ids[node])
        self._remove(order)

    def _remove(self, keys: Sequence[int]) -> None:
        ids = list(self._get_ids(keys).values())
        self._nodes.remove(ids)
        queue_index_deletion(self._connection, self._insert, ids)

    def _find_relations(self, keys: Iterable[int]) -> Sequence[sa.Row[Any]]:
        """Aliases whose node or target is among these nodes."""
        query = sa.select(s.aliases)
        found = {
            (row.node, row.target): row
            for part in split_batches(keys)
            for row in self._connection.execute(
                query.where(_R.node.in_(part) | _R.target.in_(part))
            )
        }
        return sorted(found.values(), key=lambda row: (row.node, row.position))

    def _delete_aliases(self, keys: Iterable[int]) -> None:
        for part in split_batches(keys):
            self._connection.execute(s.aliases.delete().where(_R.node.in_(part)))

    def _insert_aliases(self, node: int, order: Sequence[int], kind: str, run: str) -> None:
        rows = [
            {"node": node, "target": key, "position": place, "kind": kind, "run": run}
            for place, key in enumerate(order)
        ]
        self._connection.execute(s.aliases.insert(), rows)

    def _update_merged_from(self, keepers: Iterable[int]) -> None:
        """Update the ``merged_from`` metadata of kept nodes."""
        for keeper in keepers:
            metadata_query = sa.select(s.contents.c.metadata).where(s.contents.c.node == keeper)
            text = self._connection.scalar(metadata_query)
            if text is None:
                continue
            query = (
                sa.select(_N.id, s.contents.c.source)
                .join(s.aliases, _R.node == _N.key)
                .join(s.contents, s.contents.c.node == _N.key)
                .where(_R.target == keeper, _R.kind == "merge")
                .order_by(_N.key)
            )
            merged_from = [
                {"id": i, "source": source} for i, source in self._connection.execute(query)
            ]
            metadata = json.loads(text)
            metadata.pop(MERGED_FROM, None)
            new = {**metadata, MERGED_FROM: merged_from} if merged_from else metadata
            update = s.contents.update().where(s.contents.c.node == keeper)
            text = json.dumps(new, ensure_ascii=False)
            self._connection.execute(update.values(metadata=text))

    def _write_changes(self, images: Sequence[RowChange]) -> None:
        write_rows(self._connection, self._insert, images)
        self._recount_mentions(images)

    def _recount_mentions(self, images: Iterable[RowChange]) -> None:
        """Update the mention counts after changes of edges."""
        rows = [row for table, *both in images if table == "edges" for row in both if row]
        mention = EdgeKind.MENTION.value
        self._nodes.recount({row["target"] for row in rows if row["kind"] == mention})

    def _increment_versions(self) -> None:
        """Invalidate caches of all namespaces, and make concurrent learning start again."""
        known = s.namespaces.c.version + 1
        self._connection.execute(s.namespaces.update().values(version=known))

    def _get_ids(self, keys: Iterable[int]) -> dict[int, str]:
        query = sa.select(_N.key, _N.id).where(_N.key.in_(list(keys)))
        return {key: name for key, name in self._connection.execute(query)}

    def _get_vectors(self, keys: Sequence[int]) -> dict[int, Vector]:
        """Unit vectors of nodes, shape ``[d]``, by key in the given order."""
        query = sa.select(_N.key, _N.embedding).where(_N.key.in_(keys))
        found = {key: decode_vector(vector) for key, vector in self._connection.execute(query)}
        return {key: found[key] for key in keys}

    def _choose_nearest(self, vectors: dict[int, Vector]) -> TargetOf:
        """Choose for another node the nearest of these; the first of them for key 0."""
        first = next(iter(vectors))

        def heir(other: int) -> int:
            found = self._get_vectors([other]) if self._get_ids([other]) else {}
            return _find_nearest(vectors, found[other]) if found else first

        return heir


def _find_nearest(vectors: dict[int, Vector], other: Vector) -> int:
    """Key of the vector with the highest cosine; the first of equals."""
    single = np.asarray(other, dtype=np.float32)
    return max(vectors, key=lambda key: float(vectors[key].astype(np.float32) @ single))
