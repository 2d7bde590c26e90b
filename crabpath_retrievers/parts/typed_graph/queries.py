"""Reads of edges by kind, structural and learned, as one namespace sees them.

Pages of the edges of one node, strongest first, however many edges it has: most weights are those
of the text, and do not change, so the database sorts them, and only a page of them leaves it. The
weights that a namespace has learned or that decay in it are read as a whole.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa
from pydantic_core import from_json

from crabpath_retrievers.core.changes import EdgeId
from crabpath_retrievers.core.feedback import Feedback
from crabpath_retrievers.core.records import (
    OVERLAY_KINDS,
    TYPED_KINDS,
    Authority,
    EdgeKind,
    StoredWeight,
    Turn,
    Vector,
    parse_returned,
)
from crabpath_retrievers.storage.read.notes import IS_CURRENT
from crabpath_retrievers.storage.read.walk import Clock
from crabpath_retrievers.storage.schema import (
    consumed_turns,
    contents,
    edges,
    episodes,
    feedback,
    feedback_effects,
    namespaces,
    nodes,
    notes,
    overlay,
    weight_changes,
)
from crabpath_retrievers.storage.schema import turns as log
from crabpath_retrievers.storage.sql_tools import (
    CompiledSelect,
    Queries,
    decode_rows,
    decode_vector,
    split_batches,
)

Direction = Literal["out", "in"]
_KINDS = {kind.value: kind for kind in EdgeKind}
_TYPED = [kind.value for kind in TYPED_KINDS]
_EDGE = ("source", "target", "kind")
_AT_ONCE = 1024
_EPSILON = 1e-9
_SAME_EDGE = sa.and_(*(overlay.c[name] == edges.c[name] for name in _EDGE))


class TypedEdge(NamedTuple):
    """An edge of a given node.

    ``near`` is the key of the given node, ``key`` and ``id`` are of the other one; the id is empty
    where it is not needed. ``prior`` is the weight of the text, where that was read.
    """

    near: int
    key: int
    id: str
    kind: EdgeKind
    weight: float
    prior: float = 0.0


class WeightRange(NamedTuple):
    """Effective weights from ``low`` to ``high``, inclusive, and not nearer to 0 than ``least``."""

    low: float = -1.0
    high: float = 1.0
    least: float = 0.0

    def holds(self, weight: float) -> bool:
        """Whether a weight is in the range."""
        return self.low <= weight <= self.high and abs(weight) >= max(self.least, _EPSILON)

    def where(self, weight: Any) -> list[sa.ColumnElement[bool]]:
        """Return the range as conditions on a column."""
        least = max(self.least, _EPSILON)
        return [weight.between(self.low, self.high), sa.func.abs(weight) >= least]


def sort_edges(found: Iterable[TypedEdge]) -> list[TypedEdge]:
    """Sort edges by absolute weight, strongest first; equal ones by the keys of their ends."""
    return sorted(found, key=_rank_edge)


def _rank_edge(edge: TypedEdge) -> tuple[float, int, int]:
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


class StoredTypedEdge(NamedTuple):
    """A typed edge that a user, maintenance or an agent episode set.

    Attributes:
        edge: Ids of both ends and label of the kind.
        stored: The weight.
        sequence: Number of the feedback effects that it was last set with; 0 if not known.
    """

    edge: EdgeId
    stored: StoredWeight
    sequence: int


@dataclass(frozen=True)
class LearnedTurn:
    """A turn that feedback was learned from.

    ``exponent`` is what the feedback added to the decay exponent, for all its turns; ``usage`` has
    wins, passes and reward decay that it added, by key of the node. The unit query vector, shape
    ``[d]``, is None if it is not stored.
    """

    sequence: int
    exponent: float
    usage: Mapping[int, tuple[float, float, float]]
    feedback: Feedback
    turn: Turn
    vector: Vector | None

    def is_stated_used(self, node: str) -> bool:
        """Whether the feedback says, or its answer shows, that a counted document was used."""
        if self.feedback.used is not None:
            return node in self.feedback.used
        return self.feedback.answer is not None and node not in (self.feedback.unused or ())


class NodeFacts(NamedTuple):
    """Key, number of the authority and unit vector, shape ``[d]``, of a node."""

    key: int
    authority: int
    vector: Vector


class WeightMove(NamedTuple):
    """A change of the learned weight of an edge, with the weight before and after it.

    Attributes:
        source, target: Ids of the nodes at both ends.
        kind: Kind of the edge.
        before, after: Weights in [-1, 1] at that time, decay until then included.
        feedback_id: Id of the feedback that made it; that of the note for edges of a note; empty
            where it is not known.
        user: User who gave the feedback; None if not known.
        created: Seconds since the epoch.
    """

    source: str
    target: str
    kind: str
    before: float
    after: float
    feedback_id: str
    user: str | None
    created: float


def _get_ends(table: sa.Table, direction: Direction) -> tuple[sa.Column[int], sa.Column[int]]:
    """Return the columns of the given node and of the node at the other end.

    For ``direction`` ``out`` the given node is the source.
    """
    ends = table.c.source, table.c.target
    return ends if direction == "out" else (ends[1], ends[0])


def _build_select(direction: Direction) -> CompiledSelect:
    """Select edges of nodes ``keys``: structural ones of ``kinds``, learned ones of ``learned``.

    The node at the other end must be visible to the namespace.
    """
    other, end = nodes.alias("other"), nodes.alias("end")
    mine = overlay.c.namespace == sa.bindparam("namespace")
    nobody = 0
    seen = sa.or_(other.c.owner == nobody, other.c.owner == sa.bindparam("namespace"))

    def select(table: sa.Table, joined: Any, kinds: str, *weights: Any) -> sa.Select[Any]:
        near, far = _get_ends(table, direction)
        # The rate of decay depends on the target.
        both = joined.join(other, other.c.key == far).join(end, end.c.key == table.c.target)
        return (
            sa.select(near, other.c.key, other.c.id, table.c.kind, *weights, end.c.authority)
            .select_from(both)
            .where(
                near.in_(sa.bindparam("keys", expanding=True)),
                table.c.kind.in_(sa.bindparam(kinds, expanding=True)),
                seen,
            )
        )

    same = sa.and_(mine, _SAME_EDGE)
    weight = sa.func.coalesce(overlay.c.weight, edges.c.prior)
    decay_at = sa.func.coalesce(overlay.c.decay_at, edges.c.decay_at)
    read = select(edges, edges.outerjoin(overlay, same), "kinds", weight, decay_at, edges.c.floor)
    learned = select(
        overlay, overlay, "learned", overlay.c.weight, overlay.c.decay_at, sa.literal(0.0)
    )
    return CompiledSelect(sa.union_all(read, learned.where(mine)))


_EDGES = {"out": _build_select("out"), "in": _build_select("in")}


class TypedQueries(Queries):
    """Reads whose cost depends on the edges of the given nodes."""

    def edges(
        self,
        keys: Sequence[int],
        clock: Clock,
        kinds: Iterable[EdgeKind],
        direction: Direction = "out",
    ) -> list[TypedEdge]:
        """Read the edges of some kinds of all given nodes, without edges of weight 0.

        Typed edges are not among them: see :mod:`crabpath_retrievers.parts.typed_graph.derive`.
        ``keys`` are at most some thousands.
        """
        wanted = sorted({kind.value for kind in kinds if kind is not EdgeKind.STOP})
        learned = [value for value in wanted if _KINDS[value] in OVERLAY_KINDS]
        parameters = {"namespace": clock.key, "kinds": wanted, "learned": learned}
        rows: list[tuple[Any, ...]] = []
        with self._store.connect() as connection:
            for part in split_batches(keys, _AT_ONCE):
                rows += _EDGES[direction].rows(connection, {**parameters, "keys": part})
        found = [
            TypedEdge(near, key, name, _KINDS[kind], StoredWeight(*stored).decay_to(clock.exponent))
            for near, key, name, kind, *stored in rows
        ]
        return [edge for edge in found if abs(edge.weight) > _EPSILON]

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
    ) -> tuple[list[TypedEdge], int]:
        """Find the strongest edges of a node, and the number of all with such weights.

        Typed edges are left out, and so are edges to nodes that the namespace does not see.

        Args:
            key: Key of the node.
            clock: Clock of the namespace.
            kinds: Kinds of the edges.
            weights: Range of the weights.
            direction: ``out`` or ``in``.
            place: Number of stronger edges to leave out, and of those to return.
            since: Turn from which on notes on probation are seen, see ``NoteQueries``.
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
        steady = [TypedEdge(key, end, "", _KINDS[kind], prior, prior) for end, kind, prior in rows]
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
        """Read titles and other facts of the nodes that a namespace sees, by key.

        ``namespace`` is a key; nodes that it does not see are left out.
        """
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
    ) -> dict[tuple[int, int], tuple[TypedEdge, bool, bool]]:
        """Read edges of a node whose weights the namespace has learned or lets decay.

        They are by key of the other end and number of the kind. Notes on probation are seen from
        turn ``since``.

        Returns:
            Each edge; whether the text has it, too; and whether the namespace sees its other end.
        """
        found: dict[tuple[int, int], tuple[TypedEdge, bool, bool]] = {}
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
                edge = TypedEdge(key, end_key, "", _KINDS[kind], now, prior or 0.0)
                found.setdefault((end_key, kind), (edge, prior is not None, bool(visible)))

        of_text = (edges.c.prior, edges.c.floor)
        if clock.weights:
            learned = (overlay.c.weight, overlay.c.decay_at, *of_text)
            joined = overlay.outerjoin(edges, _SAME_EDGE)
            add(overlay, joined, learned, overlay.c.namespace == clock.key)
        if clock.exponent:
            fades = (edges.c.prior != edges.c.floor, edges.c.decay_at < clock.exponent)
            add(edges, edges, (edges.c.prior, edges.c.decay_at, *of_text), *fades)
        return found

    def get_learned_turns(self, namespace: int) -> list[LearnedTurn]:
        """All turns of a namespace that were learned from, in the order of learning."""
        query = (
            sa.select(
                feedback_effects.c.sequence,
                feedback_effects.c.exponent,
                feedback_effects.c.record,
                feedback.c.payload,
                log.c.record.label("turn"),
                log.c.clock,
                log.c.embedding,
            )
            .join(namespaces, namespaces.c.key == feedback_effects.c.namespace)
            .join(
                feedback,
                (feedback.c.id == feedback_effects.c.feedback)
                & (feedback.c.namespace == namespaces.c.name),
            )
            .join(consumed_turns, consumed_turns.c.feedback == feedback_effects.c.feedback)
            .join(log, log.c.id == consumed_turns.c.turn)
            .where(feedback_effects.c.namespace == namespace, log.c.namespace == namespace)
            .order_by(feedback_effects.c.sequence, log.c.clock)
        )
        return decode_rows("a turn", self._rows(query), _decode_learned_turn)

    def get_stored(self, namespace: int) -> list[StoredTypedEdge]:
        """All typed edges of a namespace that were set, between nodes that it sees."""
        changes, source, target = weight_changes.c, nodes.alias(), nodes.alias()
        last = (
            sa.select(
                *(changes[name] for name in _EDGE),
                sa.func.max(feedback_effects.c.sequence).label("sequence"),
            )
            .join(
                feedback_effects,
                (feedback_effects.c.feedback == changes.cause)
                & (feedback_effects.c.namespace == changes.namespace),
            )
            .where(changes.namespace == namespace, changes.kind.in_(_TYPED))
            .group_by(*(changes[name] for name in _EDGE))
            .subquery()
        )
        same = sa.and_(*(last.c[name] == overlay.c[name] for name in _EDGE))
        query = (
            sa.select(
                source.c.id,
                target.c.id,
                overlay.c.kind,
                overlay.c.weight,
                overlay.c.decay_at,
                target.c.authority,
                sa.func.coalesce(last.c.sequence, 0),
            )
            .join(source, source.c.key == overlay.c.source)
            .join(target, target.c.key == overlay.c.target)
            .outerjoin(last, same)
            .where(overlay.c.namespace == namespace, overlay.c.kind.in_(_TYPED))
        )
        return [
            StoredTypedEdge(
                (a, b, _KINDS[kind].label),
                StoredWeight(weight, decay_at, authority=authority),
                sequence,
            )
            for a, b, kind, weight, decay_at, authority, sequence in self._rows(query)
        ]

    def get_facts(self, ids: Iterable[str], namespace: int) -> dict[str, NodeFacts]:
        """Facts about the nodes that a namespace sees, by id; others are left out."""
        query = sa.select(nodes.c.id, nodes.c.key, nodes.c.authority, nodes.c.embedding)
        query = query.where(nodes.c.owner.in_((0, namespace)))
        query = query.order_by(nodes.c.owner.desc())  # a document hides a note with its id
        return {
            node: NodeFacts(key, authority, decode_vector(vector))
            for node, key, authority, vector in self._rows_in(query, nodes.c.id, ids)
        }

    def get_ids(self, keys: Iterable[int], namespace: int) -> dict[int, str]:
        """Ids of the nodes that a namespace sees, by key; others are left out."""
        query = sa.select(nodes.c.key, nodes.c.id).where(nodes.c.owner.in_((0, namespace)))
        return {key: node for key, node in self._rows_in(query, nodes.c.key, keys)}

    def get_learned(self, clock: Clock, kind: EdgeKind) -> dict[tuple[int, int], float]:
        """All learned edges of one kind: effective weight by keys of both ends.

        Ignores authority. Only for kinds with few edges, which users or maintenance set.
        """
        o = overlay.c
        query = sa.select(o.source, o.target, o.weight, o.decay_at)
        rows = self._rows(query.where(o.namespace == clock.key, o.kind == kind.value))
        return {
            (source, target): StoredWeight(*stored).decay_to(clock.exponent)
            for source, target, *stored in rows
        }

    def get_recent_credit(self, clock: Clock, turns: int) -> list[tuple[int, dict[str, float]]]:
        """Episodes changed in the last turns, latest first: turn number, credit by node id.

        ``turns`` is the length of the window in turns, and the limit of the result.
        """
        own = (episodes.c.namespace == clock.key, episodes.c.clock >= clock.turn - turns)
        query = sa.select(episodes.c.clock, episodes.c.documents).where(*own)
        rows = self._rows(query.order_by(episodes.c.clock.desc()).limit(turns))
        return [(number, json.loads(documents)) for number, documents in rows]

    def get_recent_usage(self, clock: Clock, turns: int) -> list[tuple[int, str, float]]:
        """Read rewards of sources in the last ``turns``, for maintenance.

        Feedback about several turns counts for the last of them.

        Returns:
            Tuples ``(turn number, source, wins - decay)``; see ``AddUsage`` for both.
        """
        last = sa.func.max(log.c.clock).label("clock")
        of_feedback = (
            sa.select(consumed_turns.c.feedback, last)
            .join(log, log.c.id == consumed_turns.c.turn)
            .where(log.c.namespace == clock.key, log.c.clock > clock.turn - turns)
            .group_by(consumed_turns.c.feedback)
            .subquery()
        )
        query = (
            sa.select(of_feedback.c.clock, feedback_effects.c.record)
            .join(feedback_effects, feedback_effects.c.feedback == of_feedback.c.feedback)
            .where(feedback_effects.c.namespace == clock.key)
            .order_by(of_feedback.c.clock)
        )
        rows = self._rows(query)
        used = [(n, *use) for n, record in rows for use in json.loads(record)["usage"]]
        named = self._get_sources({key for _, key, *_ in used})
        return [
            (number, named[key], won - decay)
            for number, key, won, _, decay in used
            if won != decay and key in named
        ]

    def first_chunks(self, sources: Iterable[str]) -> dict[str, int]:
        """Key of the first chunk of each source; unknown sources are left out."""
        query = sa.select(contents.c.source, nodes.c.key).join(
            nodes, nodes.c.key == contents.c.node
        )
        query = query.where(nodes.c.owner == 0).order_by(contents.c.position, nodes.c.key)
        # Of the rows of one source the first counts.
        return {s: key for s, key in reversed(self._rows_in(query, contents.c.source, sources))}

    def _get_sources(self, keys: Iterable[int]) -> dict[int, str]:
        """Source by key of the node; notes have none."""
        query = sa.select(nodes.c.key, contents.c.source).where(nodes.c.owner == 0)
        query = query.join(contents, contents.c.node == nodes.c.key)
        return {key: source for key, source in self._rows_in(query, nodes.c.key, keys)}

    def find_moves(
        self,
        clock: Clock,
        limit: int,
        *,
        source: int | None,
        target: int | None,
        kind: EdgeKind | None,
        cause: str | None,
    ) -> list[WeightMove]:
        """List changes of learned weights of a namespace, newest first, with before and after.

        Weights are computed backwards from the current ones, through all later changes of an edge.
        Changes of edges that have no weight now are left out.

        Args:
            limit: Most changes.
            source: Only changes of edges from the node with this key; None for any.
            target: Only changes of edges to the node with this key; None for any.
            kind: Only changes of edges of this kind; None for any.
            cause: Only changes by the feedback or note with this id; None for any.
        """
        given = {"source": source, "target": target, "kind": kind and kind.value, "cause": cause}
        wanted = [weight_changes.c[name] == one for name, one in given.items() if one is not None]
        c = weight_changes.c
        edge = (c.source, c.target, c.kind)
        columns = (c.sequence, *edge, c.delta, c.decay_at)
        own = sa.and_(c.namespace == clock.key, c.kind != EdgeKind.STOP.value)
        newest = sa.select(*columns, c.cause, c.created).where(own, *wanted)
        found = self._rows(newest.order_by(c.sequence.desc()).limit(limit))
        if not found:
            return []
        names = {tuple(row[1:4]) for row in found}
        ends = [sorted({name[place] for name in names}) for place in (0, 1)]
        later = sa.select(*columns).where(own, c.sequence >= found[-1].sequence)
        later = later.where(c.target.in_(ends[1])).order_by(c.sequence.desc())
        moves = self._rows_in(later, c.source, ends[0])
        weights = self._read_weights(clock.key, *ends)
        users = self._read_users(clock.key, {row.cause for row in found})
        query = sa.select(nodes.c.key, nodes.c.id)
        ids = dict(map(tuple, self._rows_in(query, nodes.c.key, {*ends[0], *ends[1]})))
        sides = _trace_back([row for row in moves if tuple(row[1:4]) in names], weights)
        return [
            WeightMove(
                ids[row.source],
                ids[row.target],
                _KINDS[row.kind].label,
                *sides[row.sequence],
                row.cause,
                users.get(row.cause),
                row.created,
            )
            for row in found
            if row.source in ids and row.target in ids and row.sequence in sides
        ]

    def _read_weights(
        self, namespace: int, sources: Sequence[int], targets: Sequence[int]
    ) -> dict[tuple[int, int, int], StoredWeight]:
        """Read learned weights between two sets of nodes, by keys of both ends and kind."""
        o, edge = overlay.c, ("source", "target", "kind")
        same = sa.and_(*(o[name] == edges.c[name] for name in edge))
        query = (
            sa.select(*(o[name] for name in edge), o.weight, o.decay_at)
            .add_columns(sa.func.coalesce(edges.c.floor, 0.0), nodes.c.authority)
            .select_from(overlay.outerjoin(edges, same).join(nodes, nodes.c.key == o.target))
            .where(o.namespace == namespace, o.target.in_(targets))
        )
        rows = self._rows_in(query, o.source, sources)
        return {
            (source, target, kind): StoredWeight(*stored) for source, target, kind, *stored in rows
        }

    def _read_users(self, namespace: int, causes: Iterable[str]) -> dict[str, str | None]:
        """Read which users gave the feedback with the ids ``causes``, by id; None for nobody."""
        query = sa.select(feedback.c.id, feedback.c.user)
        query = query.join(namespaces, namespaces.c.name == feedback.c.namespace)
        query = query.where(namespaces.c.key == namespace)
        return {cause: user for cause, user in self._rows_in(query, feedback.c.id, causes)}


def _decode_learned_turn(row: Any) -> LearnedTurn:
    usage: dict[int, tuple[float, float, float]] = {}
    for key, *counts in json.loads(row.record)["usage"]:
        before = usage.get(key, (0.0, 0.0, 0.0))
        usage[key] = (before[0] + counts[0], before[1] + counts[1], before[2] + counts[2])
    turn = replace(Turn.from_dict(from_json(row.turn)), clock=row.clock)
    # Documents that the feedback names and the turn did not return were learned from as returned.
    returned = {item.node for item in turn.returned}
    added = parse_returned(json.loads(row.payload).get("added", ()))
    more = [item for item in added if item.node not in returned]
    return LearnedTurn(
        row.sequence,
        row.exponent,
        usage,
        Feedback.from_record(row.payload),
        replace(turn, returned=(*turn.returned, *more)),
        None if row.embedding is None else decode_vector(row.embedding),
    )


_DECIMALS = 9


def _trace_back(
    moves: Sequence[Any], weights: dict[tuple[int, int, int], StoredWeight]
) -> dict[int, tuple[float, float]]:
    """Map the number of each change to the edge's weight before and after it.

    ``moves`` are changes up to the latest; weights are computed backwards from ``weights``, the
    current ones. Edges that have no weight now are left out.
    """
    of_edge: defaultdict[tuple[int, int, int], list[Any]] = defaultdict(list)
    for move in moves:
        of_edge[move.source, move.target, move.kind].append(move)
    sides: dict[int, tuple[float, float]] = {}
    for edge in of_edge.keys() & weights.keys():
        now = weights[edge]
        for move in sorted(of_edge[edge], key=lambda move: -move.sequence):
            now = now.move_to(move.decay_at)
            before = now.weight - move.delta
            sides[move.sequence] = _round_weight(before), _round_weight(now.weight)
            now = now._replace(weight=before)
    return sides


def _round_weight(weight: float) -> float:
    return round(max(-1.0, min(1.0, weight)), _DECIMALS)
