"""How others come to stand for a node, and how it comes back: merged, split, taken back."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from crabpath_retrievers.changes.maintenance import Merged, MergeNodes
from crabpath_retrievers.graph import Authority, EdgeKind, Vector
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.batching import parts
from crabpath_retrievers.storage.folding import Folding, Heir
from crabpath_retrievers.storage.images import TABLES, Image, restore, write
from crabpath_retrievers.storage.journal import write_down
from crabpath_retrievers.storage.node_writer import TEXTUAL, NodeWriter
from crabpath_retrievers.storage.packing import unpack
from crabpath_retrievers.storage.recollection import hand_over, take_back
from crabpath_retrievers.storage.replaced import ANSWERING
from crabpath_retrievers.storage.waiting import drop_vectors, want_edges, want_vectors

MERGED_FROM = "merged_from"
"""Metadata of a keeper: ids and sources of what it stands for."""

_R, _N = s.aliases.c, s.nodes.c


class Replacing:
    """Writes on one open transaction."""

    def __init__(
        self, connection: sa.Connection, insert: Callable[..., Any], nodes: NodeWriter
    ) -> None:
        """Write on ``connection``; ``nodes`` writes rows of nodes on the same."""
        self._connection, self._insert, self._nodes = connection, insert, nodes

    def merge(self, change: MergeNodes) -> None:
        """Let keepers stand for near-duplicates, unless something forbids it by now."""
        self._learn_again()
        for pair in change.pairs:
            if self._may(pair):
                self._merge(change.run, pair)

    def _may(self, pair: Merged) -> bool:
        """Whether both are seen by all, and the keeper is no less above learning."""
        query = sa.select(_N.key, _N.authority).where(_N.key.in_(pair), _N.owner == 0)
        ranks = {key: rank for key, rank in self._connection.execute(query.with_for_update())}
        if len(ranks) < len(set(pair)) or pair.absorbed == pair.keeper:
            return False
        whole = sa.select(sa.exists().where(_R.target.in_(pair), _R.kind == "split"))
        fixed = ranks[pair.absorbed] == Authority.CONSTITUTIONAL.value
        above = ranks[pair.keeper] >= ranks[pair.absorbed]
        return above and not fixed and not self._connection.scalar(whole)

    def _merge(self, run: str, pair: Merged) -> None:
        names = self._ids(pair)
        images = Folding(self._connection).images(
            pair.absorbed, lambda _: pair.keeper, textual=True
        )
        self._nodes.hide([pair.absorbed])
        self._write(images)
        recalled = hand_over(self._connection, names[pair.absorbed], lambda _: names[pair.keeper])
        mine = _R.target == pair.absorbed
        before = list(self._connection.scalars(sa.select(_R.node).where(mine)))
        self._connection.execute(s.aliases.update().where(mine).values(target=pair.keeper))
        self._stand(pair.absorbed, [pair.keeper], "merge", run)
        self._tell([pair.keeper])
        drop_vectors(self._connection, self._insert, [names[pair.absorbed]])
        inverse = {"node": pair.absorbed, "target": pair.keeper, "before": before}
        inverse |= {"images": images, "episodes": recalled}
        payload = {"run": run, "node": names[pair.absorbed], "keeper": names[pair.keeper]}
        write_down(self._connection, "merge_nodes", payload, inverse=inverse)

    def undo_merge(self, run: str, inverse: dict[str, Any]) -> None:
        """Let a node stand for itself again, with what was known of it then."""
        node, keeper = inverse["node"], inverse["target"]
        own = sa.and_(_R.node == node, _R.kind == "merge", _R.run == run)
        stands = self._connection.scalar(sa.select(_R.target).where(own))
        if stands is None:
            return  # it came back by itself, or is gone
        self._forget_standing([node])
        again = sa.and_(_R.node.in_(inverse["before"]), _R.target == keeper)
        self._connection.execute(s.aliases.update().where(again).values(target=node))
        self._back(node, inverse)
        self._tell({keeper, stands, node})

    def split(self, node: str, pieces: Sequence[str], run: str) -> None:
        """Let parts stand for a node; edges go to the part that is nearest to their other end."""
        keys = self._nodes.keys([node, *pieces])
        order = [keys[piece] for piece in pieces if piece in keys]
        old = keys.get(node)
        whole = sa.select(_N.authority).where(_N.key == old, _N.owner == 0)
        rank = self._connection.scalar(whole)
        if rank is None or old is None or not order:  # it has changed in the meantime
            self._remove(order)
            return
        self._learn_again()
        self._connection.execute(s.nodes.update().where(_N.key.in_(order)).values(authority=rank))
        beside = self._nodes.siblings([node])
        vectors = self._vectors(order)
        images = Folding(self._connection).images(old, self._nearest(vectors), textual=False)
        own = (s.edges.c.source == old) | (s.edges.c.target == old)
        query = sa.select(s.edges).where(own, s.edges.c.kind.in_(TEXTUAL))
        images += [("edges", dict(row), None) for row in self._connection.execute(query).mappings()]
        self._nodes.hide([old])
        self._write(images)
        ids = {key: name for name, key in keys.items()}
        recalled = hand_over(
            self._connection, node, lambda vector: ids[_nearest_of(vectors, vector)]
        )
        self._stand(old, order, "split", run)
        drop_vectors(self._connection, self._insert, [node])
        want_edges(self._connection, self._insert, beside)
        inverse = {"node": old, "parts": order, "images": images, "episodes": recalled}
        payload = {"run": run, "node": node, "parts": list(pieces)}
        write_down(self._connection, "split_node", payload, inverse=inverse)

    def undo_split(self, inverse: dict[str, Any]) -> None:
        """Let a whole stand for itself again; what its parts have learned since goes to it."""
        node, order = inverse["node"], inverse["parts"]
        own = sa.and_(_R.node == node, _R.target.in_(order), _R.kind == "split")
        if not self._connection.execute(s.aliases.delete().where(own)).rowcount:
            return
        self._back(node, inverse)
        self._rejoin(node, order)

    def _back(self, node: int, inverse: dict[str, Any]) -> None:
        """Show a node again as it was; it waits for the index."""
        self._learn_again()
        self._nodes.show([node])
        want_vectors(self._connection, self._insert, self._ids([node]).values(), "index")
        given: list[Image] = [(table, before, after) for table, before, after in inverse["images"]]
        self._recount(restore(self._connection, self._insert, given))
        take_back(self._connection, inverse["episodes"])

    def release(self, kept: Sequence[str], gone: Sequence[str]) -> None:
        """Let nodes stand for nobody, and nobody for them: they change, or go.

        Parts give back to the whole what was learned. Near-duplicates of a node that changes come
        back without it; of one that goes, the oldest inherits all that was learned.

        Args:
            kept: Ids of nodes that are about to be written.
            gone: Of those that are about to be removed or to retire.
        """
        keys, going = self._nodes.keys([*kept, *gone]), self._nodes.keys(gone)
        rows = self._related(keys.values())
        if not rows:
            return
        self._learn_again()
        busy = set(keys.values())
        for node in sorted({row.node for row in rows if row.kind == "split" and row.node in busy}):
            order = [row.target for row in rows if row.node == node]
            self._forget_standing([node])
            self._rejoin(node, order)
        merged = [row for row in rows if row.kind == "merge"]
        absorbed = {row.node for row in merged} & busy
        self._forget_standing(absorbed)
        self._tell({row.target for row in merged if row.node in absorbed} - busy)
        for keeper in sorted({row.target for row in merged} & busy):
            left = [r.node for r in merged if r.target == keeper and r.node not in busy]
            if left:
                self._succeed(keeper, sorted(left), inherit=keeper in going.values())

    def _succeed(self, keeper: int, left: Sequence[int], *, inherit: bool) -> None:
        """What a keeper stood for comes back: all of it, or the oldest in its place."""
        back = left[:1] if inherit else left
        self._forget_standing(back)
        self._nodes.show(back)
        ids = self._ids([keeper, *back])
        if inherit:
            heir = back[0]
            self._write(Folding(self._connection).images(keeper, lambda _: heir, textual=False))
            hand_over(self._connection, ids[keeper], lambda _: ids[heir])
            mine = _R.target == keeper
            self._connection.execute(s.aliases.update().where(mine).values(target=heir))
            self._tell([heir])
        want_vectors(self._connection, self._insert, [ids[key] for key in back], "return")

    def tidy(self) -> None:
        """Hand on what was learned about nodes that others stand for, such as by a snapshot."""
        columns = [
            TABLES[table].c[name]
            for table in ("overlay", "pair_counts", "usage")
            for name in ("source", "target", "node")
            if name in TABLES[table].c
        ]
        found = [sa.exists().where(column == _R.node) for column in columns]
        query = sa.select(_R.node, _R.target).where(ANSWERING, sa.or_(*found))
        for node, standing in self._connection.execute(query.order_by(_R.node)).all():
            heir: Heir = lambda _, standing=standing: standing  # type: ignore[misc] # noqa: E731
            self._write(Folding(self._connection).images(node, heir, textual=False))

    def follow(self, moved: Sequence[str]) -> None:
        """Parts stand where their whole does."""
        mine = s.aliases.join(s.contents, s.contents.c.node == _R.node)
        place = (
            sa.select(s.contents.c.position)
            .where(s.contents.c.node == sa.bindparam("whole"))
            .scalar_subquery()
        )
        query = sa.select(_R.node, _R.target).select_from(mine.join(s.nodes, _N.key == _R.node))
        rows = [
            {"whole": whole, "part": part}
            for some in parts(moved)
            for whole, part in self._connection.execute(
                query.where(_R.kind == "split", _N.id.in_(some))
            )
        ]
        if rows:
            update = s.contents.update().where(s.contents.c.node == sa.bindparam("part"))
            self._connection.execute(update.values(position=place), rows)

    def _rejoin(self, node: int, order: Sequence[int]) -> None:
        """Give a whole what its parts have learned, and remove them."""
        ids = self._ids([node, *order])
        for part in order:
            images = Folding(self._connection).images(part, lambda _: node, textual=False)
            self._write(images)
            if part in ids:
                hand_over(self._connection, ids[part], lambda _: ids[node])
        self._remove(order)

    def _remove(self, keys: Sequence[int]) -> None:
        ids = list(self._ids(keys).values())
        self._nodes.remove(ids)
        drop_vectors(self._connection, self._insert, ids)

    def _related(self, keys: Iterable[int]) -> Sequence[sa.Row[Any]]:
        """All rows of nodes that are among these, or that these stand for."""
        query = sa.select(s.aliases)
        found = {
            (row.node, row.target): row
            for part in parts(keys)
            for row in self._connection.execute(
                query.where(_R.node.in_(part) | _R.target.in_(part))
            )
        }
        return sorted(found.values(), key=lambda row: (row.node, row.position))

    def _forget_standing(self, keys: Iterable[int]) -> None:
        for part in parts(keys):
            self._connection.execute(s.aliases.delete().where(_R.node.in_(part)))

    def _stand(self, node: int, order: Sequence[int], kind: str, run: str) -> None:
        rows = [
            {"node": node, "target": key, "position": place, "kind": kind, "run": run}
            for place, key in enumerate(order)
        ]
        self._connection.execute(s.aliases.insert(), rows)

    def _tell(self, keepers: Iterable[int]) -> None:
        """Bring the metadata of keepers to name what they stand for now."""
        for keeper in keepers:
            held = sa.select(s.contents.c.metadata).where(s.contents.c.node == keeper)
            text = self._connection.scalar(held)
            if text is None:
                continue
            query = (
                sa.select(_N.id, s.contents.c.source)
                .join(s.aliases, _R.node == _N.key)
                .join(s.contents, s.contents.c.node == _N.key)
                .where(_R.target == keeper, _R.kind == "merge")
                .order_by(_N.key)
            )
            told = [{"id": i, "source": source} for i, source in self._connection.execute(query)]
            metadata = json.loads(text)
            metadata.pop(MERGED_FROM, None)
            new = {**metadata, MERGED_FROM: told} if told else metadata
            update = s.contents.update().where(s.contents.c.node == keeper)
            text = json.dumps(new, ensure_ascii=False)
            self._connection.execute(update.values(metadata=text))

    def _write(self, images: Sequence[Image]) -> None:
        write(self._connection, self._insert, images)
        self._recount(images)

    def _recount(self, images: Iterable[Image]) -> None:
        """Mentions are counted by their edges."""
        rows = [row for table, *both in images if table == "edges" for row in both if row]
        mention = EdgeKind.MENTION.value
        self._nodes.recount({row["target"] for row in rows if row["kind"] == mention})

    def _learn_again(self) -> None:
        """Whoever keeps what namespaces know notices, and who learns just now begins again."""
        known = s.namespaces.c.version + 1
        self._connection.execute(s.namespaces.update().values(version=known))

    def _ids(self, keys: Iterable[int]) -> dict[int, str]:
        query = sa.select(_N.key, _N.id).where(_N.key.in_(list(keys)))
        return {key: name for key, name in self._connection.execute(query)}

    def _vectors(self, keys: Sequence[int]) -> dict[int, Vector]:
        """Unit vectors of nodes, shape ``[d]``, in their order."""
        query = sa.select(_N.key, _N.embedding).where(_N.key.in_(keys))
        found = {key: unpack(vector) for key, vector in self._connection.execute(query)}
        return {key: found[key] for key in keys}

    def _nearest(self, vectors: dict[int, Vector]) -> Heir:
        """The nearest of some nodes to another one; the first of them to none."""
        first = next(iter(vectors))

        def heir(other: int) -> int:
            found = self._vectors([other]) if self._ids([other]) else {}
            return _nearest_of(vectors, found[other]) if found else first

        return heir


def _nearest_of(vectors: dict[int, Vector], other: Vector) -> int:
    """Key of the vector with the highest cosine; of equals the first."""
    single = np.asarray(other, dtype=np.float32)
    return max(vectors, key=lambda key: float(vectors[key].astype(np.float32) @ single))
