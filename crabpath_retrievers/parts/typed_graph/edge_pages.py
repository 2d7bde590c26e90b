"""Pages of the edges of one node, strongest first, however many edges it has.

Most weights are those of the text, and do not change: the database sorts them, and only a page of
them leaves it. The weights that a namespace has learned or that decay in it are read as a whole.
"""

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.records import Authority, EdgeKind, StoredWeight
from crabpath_retrievers.parts.typed_graph.queries import Direction
from crabpath_retrievers.storage.read.notes import IS_CURRENT
from crabpath_retrievers.storage.read.walk import Clock
from crabpath_retrievers.storage.schema import contents, edges, nodes, notes, overlay
from crabpath_retrievers.storage.sql_tools import Queries

_KINDS = {kind.value: kind for kind in EdgeKind}
_SAME = sa.and_(*(overlay.c[n] == edges.c[n] for n in ("source", "target", "kind")))
_EPSILON = 1e-9


class WeightRange(NamedTuple):
    """Range of effective weights: from ``low`` to ``high``, and of at least ``least``.

    Both bounds are inclusive.
    """

    low: float = -1.0
    high: float = 1.0
    least: float = 0.0

    def holds(self, weight: float) -> bool:
        """Whether a weight is meant."""
        return self.low <= weight <= self.high and abs(weight) >= max(self.least, _EPSILON)

    def where(self, weight: Any) -> list[sa.ColumnElement[bool]]:
        """Range as conditions on a column."""
        least = max(self.least, _EPSILON)
        return [weight.between(self.low, self.high), sa.func.abs(weight) >= least]


class FarEnd(NamedTuple):
    """An edge of a given node: key of the other end, kind, effective weight, that of the text."""

    key: int
    kind: EdgeKind
    weight: float
    prior: float


def sort_edges(found: Iterable[FarEnd]) -> list[FarEnd]:
    """Edges by their absolute weight, strongest first; equal ones in the order of their ends."""
    return sorted(found, key=_rank_edge)


def _rank_edge(edge: FarEnd) -> tuple[float, int, int]:
    """Sort key of edges, here and in the database."""
    return -abs(edge.weight), edge.key, edge.kind.value


class NodeInfo(NamedTuple):
    """A chunk or note in the graph.

    Attributes:
        id: Its id.
        title: Its title; empty without one.
        source: Where its text is from; empty for a note.
        authority: How slowly weights of edges that lead to it decay: ``overlay``, ``canonical`` or
            ``constitutional``.
    """

    id: str
    title: str
    source: str
    authority: str


class EdgeQueries(Queries):
    """Reads of the edges of one node."""

    def find_strongest(
        self,
        key: int,
        clock: Clock,
        kinds: Collection[EdgeKind],
        weights: WeightRange,
        direction: Direction,
        place: tuple[int, int],
        *,
        since: int,
    ) -> tuple[list[FarEnd], int]:
        """The strongest edges of a node, and the number of all that are meant.

        Typed edges are not among them, nor edges to nodes that the namespace does not see.

        ``place`` is the number of stronger edges that are left out, and of those that are returned.
        Notes on probation are seen from turn ``since``, see ``NoteQueries``.
        """
        wanted = [kind.value for kind in kinds if kind is not EdgeKind.STOP]
        moving = self._read_moving(key, clock, wanted, direction, since)
        near, far = _get_ends(edges, direction)
        of_node = (near == key, edges.c.kind.in_(wanted), *weights.where(edges.c.prior))
        query = sa.select(far, edges.c.kind, edges.c.prior).where(*of_node)
        strongest = (sa.func.abs(edges.c.prior).desc(), far, edges.c.kind)
        # A moving edge may stand anywhere, and its row in the text anywhere else.
        offset, limit = place
        skipped, margin = max(0, offset - len(moving)), 2 * len(moving)
        rows = self._rows(query.order_by(*strongest).limit(limit + margin).offset(skipped))
        total = self._scalar(sa.select(sa.func.count()).select_from(edges).where(*of_node))
        steady = [FarEnd(end, _KINDS[kind], prior, prior) for end, kind, prior in rows]
        replaced = [
            edge._replace(weight=edge.prior)
            for edge, in_text, _ in moving.values()
            if in_text and weights.holds(edge.prior)
        ]
        added = [edge for edge, _, seen in moving.values() if seen and weights.holds(edge.weight)]
        total = int(total) - len(replaced) + len(added)
        if skipped and not steady:
            return [], total
        start = skipped
        if skipped:
            first = _rank_edge(steady[0])
            start -= sum(_rank_edge(edge) < first for edge in replaced)
            start += sum(_rank_edge(edge) < first for edge in added)
            added = [edge for edge in added if _rank_edge(edge) >= first]
        kept = [edge for edge in steady if (edge.key, edge.kind.value) not in moving]
        return sort_edges([*added, *kept])[offset - start :][:limit], total

    def describe_nodes(self, keys: Iterable[int], namespace: int) -> dict[int, NodeInfo]:
        """The nodes that a namespace (by key) sees, by key; others are left out."""
        query = sa.select(
            nodes.c.key, nodes.c.id, nodes.c.title, contents.c.source, nodes.c.authority
        )
        query = query.join(contents, contents.c.node == nodes.c.key)
        query = query.where(nodes.c.owner.in_((0, namespace)))
        return {
            key: NodeInfo(name, title, source, Authority(authority).name.lower())
            for key, name, title, source, authority in self._rows_in(query, nodes.c.key, keys)
        }

    def _read_moving(
        self, key: int, clock: Clock, kinds: list[int], direction: Direction, since: int
    ) -> dict[tuple[int, int], tuple[FarEnd, bool, bool]]:
        """The edges whose weight the namespace learned, or decays in it, by far end and kind.

        With each, whether the text has it, too, and whether the namespace sees its end.
        """
        found: dict[tuple[int, int], tuple[FarEnd, bool, bool]] = {}
        other, end = nodes.alias("other"), nodes.alias("end")
        seen = other.c.owner.in_((0, clock.key)) & (notes.c.node.is_(None) | IS_CURRENT)

        def add(table: sa.Table, joined: Any, columns: tuple[Any, ...], *conditions: Any) -> None:
            near, far = _get_ends(table, direction)
            both = joined.join(other, other.c.key == far).join(end, end.c.key == table.c.target)
            query = sa.select(far, table.c.kind, *columns, end.c.authority, seen)
            both = both.outerjoin(notes, notes.c.node == other.c.key)
            query = query.select_from(both).where(near == key, table.c.kind.in_(kinds), *conditions)
            rows = self._rows(query.params(since=since))
            for end_key, kind, weight, decay_at, prior, floor, authority, visible in rows:
                stored = StoredWeight(weight, decay_at, floor or 0.0, authority)
                now = stored.decay_to(clock.exponent)
                edge = FarEnd(end_key, _KINDS[kind], now, prior or 0.0)
                found.setdefault((end_key, kind), (edge, prior is not None, bool(visible)))

        of_text = (edges.c.prior, edges.c.floor)
        if clock.weights:
            learned = (overlay.c.weight, overlay.c.decay_at, *of_text)
            joined = overlay.outerjoin(edges, _SAME)
            add(overlay, joined, learned, overlay.c.namespace == clock.key)
        if clock.exponent:
            fades = (edges.c.prior != edges.c.floor, edges.c.decay_at < clock.exponent)
            add(edges, edges, (edges.c.prior, edges.c.decay_at, *of_text), *fades)
        return found


def _get_ends(table: sa.Table, direction: Direction) -> tuple[sa.Column[int], sa.Column[int]]:
    """Columns of the given node and of the other one."""
    ends = table.c.source, table.c.target
    return ends if direction == "out" else (ends[1], ends[0])
