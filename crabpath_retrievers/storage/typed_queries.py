"""Reads of edges by their kind, as one namespace sees them: learned ones and those of the text."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.graph import (
    DECAY_RATES,
    OVERLAY_KINDS,
    TYPED_KINDS,
    EdgeKind,
    effective_weight,
)
from crabpath_retrievers.storage.batching import parts
from crabpath_retrievers.storage.hot import HotSelect
from crabpath_retrievers.storage.reading import Readable, Standpoint
from crabpath_retrievers.storage.schema import (
    consumed_turns,
    contents,
    edges,
    episodes,
    feedback_effects,
    namespaces,
    nodes,
    overlay,
)
from crabpath_retrievers.storage.schema import turns as log

Direction = Literal["out", "in"]
_KINDS = {kind.value: kind for kind in EdgeKind}
_LEARNED = frozenset({*OVERLAY_KINDS, *TYPED_KINDS})  # what stands in the overlay alone
_AT_ONCE = 1024
_NOTHING = 1e-9
_ZERO, _ONE = sa.literal_column("0.0", sa.Float), sa.literal_column("1", sa.Integer)


class TypedEdge(NamedTuple):
    """An edge, seen from one of its ends.

    Attributes:
        near: Key of the node that was asked about.
        key, id: Of the node at the other end.
        kind: Of the edge.
        weight: Effective weight in [-1, 1], decay included.
    """

    near: int
    key: int
    id: str
    kind: EdgeKind
    weight: float


def _of(direction: Direction) -> HotSelect:
    """Edges at the nodes ``keys``: those of the text of ``kinds``, learned ones of ``learned``.

    What stands at the other end must be a document or a note of the namespace.
    """
    other, end = nodes.alias("other"), nodes.alias("end")
    mine = overlay.c.namespace == sa.bindparam("namespace")
    nobody = sa.literal_column("0", sa.Integer)
    seen = sa.or_(other.c.owner == nobody, other.c.owner == sa.bindparam("namespace"))

    def select(table: sa.Table, joined: Any, kinds: str, *weights: Any) -> sa.Select[Any]:
        near, far = table.c.source, table.c.target
        if direction == "in":
            near, far = far, near
        # The speed of decay depends on where the edge leads.
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

    same = sa.and_(mine, *(overlay.c[n] == edges.c[n] for n in ("source", "target", "kind")))
    weight = sa.func.coalesce(overlay.c.weight, edges.c.prior)
    mark = sa.func.coalesce(overlay.c.decay_at, edges.c.decay_at)
    read = select(edges, edges.outerjoin(overlay, same), "kinds", weight, mark, edges.c.floor)
    learned = select(overlay, overlay, "learned", overlay.c.weight, overlay.c.decay_at, _ZERO)
    return HotSelect(sa.union_all(read, learned.where(mine)))


_EDGES = {"out": _of("out"), "in": _of("in")}
_STANDING = sa.select(overlay.c.source, overlay.c.target, overlay.c.weight, overlay.c.decay_at)
_BEFORE = HotSelect(
    sa.select(feedback_effects.c.record)
    .select_from(
        log.join(namespaces, namespaces.c.key == log.c.namespace)
        .join(consumed_turns, consumed_turns.c.turn == log.c.id)
        .join(feedback_effects, feedback_effects.c.feedback == consumed_turns.c.feedback)
    )
    .where(
        namespaces.c.name == sa.bindparam("namespace"),
        log.c.clock < sa.bindparam("clock", type_=sa.BigInteger),
        log.c.clock >= sa.bindparam("first", type_=sa.BigInteger),
        log.c.created >= sa.bindparam("since", type_=sa.Float),
    )
    .order_by(log.c.clock.desc())
    .limit(_ONE)
    .offset(sa.literal_column("0", sa.Integer))
)
_HELPED = HotSelect(
    sa.select(episodes.c.clock, episodes.c.documents)
    .where(
        episodes.c.namespace == sa.bindparam("namespace"),
        episodes.c.clock >= sa.bindparam("first", type_=sa.BigInteger),
    )
    .order_by(episodes.c.clock.desc())
    .limit(sa.bindparam("most", type_=sa.Integer))
    .offset(sa.literal_column("0", sa.Integer))
)
_IDS = HotSelect(
    sa.select(nodes.c.key, nodes.c.id).where(nodes.c.key.in_(sa.bindparam("keys", expanding=True)))
)


class TypedQueries:
    """Reads whose cost depends on the edges at the nodes that are asked about."""

    def __init__(self, store: Readable) -> None:
        """Read from ``store``."""
        self._store = store

    def edges(
        self,
        keys: Sequence[int],
        clock: Standpoint,
        kinds: Iterable[EdgeKind],
        direction: Direction = "out",
    ) -> list[TypedEdge]:
        """The edges of some kinds at all given nodes, in one query; those of weight 0 left out.

        Args:
            keys: Of nodes, at most some thousands.
            clock: Where the namespace stands.
            kinds: Which edges.
            direction: Whether the nodes are where the edges begin or where they lead.
        """
        wanted = sorted({kind.value for kind in kinds if kind is not EdgeKind.STOP})
        learned = [value for value in wanted if _KINDS[value] in _LEARNED]
        given = {"namespace": clock.key, "kinds": wanted, "learned": learned}
        rows: list[tuple[Any, ...]] = []
        with self._store.reading() as connection:
            for part in parts(keys, _AT_ONCE):
                rows += _EDGES[direction].rows(connection, {**given, "keys": part})
        found = [
            TypedEdge(
                near,
                key,
                name,
                _KINDS[kind],
                effective_weight(weight, floor, mark, clock.exponent, DECAY_RATES[rank]),
            )
            for near, key, name, kind, weight, mark, floor, rank in rows
        ]
        return [edge for edge in found if abs(edge.weight) > _NOTHING]

    def standing(self, clock: Standpoint, kind: EdgeKind) -> dict[tuple[int, int], float]:
        """All edges of one kind that a namespace has learned: weight by keys of both ends.

        Authority is passed over: only for kinds of which there are few, set by hand or maintenance.
        """
        query = _STANDING.where(overlay.c.namespace == clock.key, overlay.c.kind == kind.value)
        with self._store.reading() as connection:
            return {
                (source, target): effective_weight(weight, 0.0, mark, clock.exponent)
                for source, target, weight, mark in connection.execute(query)
            }

    def used_before(
        self, namespace: str, clock: int, created: float, *, turns: int, seconds: float
    ) -> list[str]:
        """What the last judged turn before a turn used in a success: ids, most credited first.

        Args:
            namespace: Whose turns.
            clock: Number of the turn.
            created: When it was, in seconds since the epoch.
            turns: How many turns back.
            seconds: How long back.
        """
        bounds = {"clock": clock, "first": clock - turns, "since": created - seconds}
        with self._store.reading() as connection:
            rows = _BEFORE.rows(connection, {"namespace": namespace, **bounds})
            used = json.loads(rows[0][0])["usage"] if rows else []
            wins = {key: won for key, won, *_ in used if won > 0}
            names = {key: name for key, name in _IDS.rows(connection, {"keys": list(wins)})}
        return [names[key] for key in sorted(wins, key=lambda key: -wins[key]) if key in names]

    def helped(self, clock: Standpoint, turns: int) -> list[tuple[int, dict[str, float]]]:
        """Episodes that were added to in the last turns: turn number, credit by node id.

        Args:
            clock: Where the namespace stands.
            turns: How many turns back; as many episodes at most.
        """
        given = {"namespace": clock.key, "first": clock.turn - turns, "most": turns}
        with self._store.reading() as connection:
            rows = _HELPED.rows(connection, given)
        return [(number, json.loads(documents)) for number, documents in rows]

    def uses(self, clock: Standpoint, turns: int) -> list[tuple[int, str, float]]:
        """What sources earned in the last turns, for work that is not on the way of a request.

        Feedback about several turns counts for the last of them.

        Args:
            clock: Where the namespace stands.
            turns: How many turns back.

        Returns:
            As ``(turn number, source, successes in use less nats that failures took)``.
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
            .order_by(of_feedback.c.clock)
        )
        with self._store.reading() as connection:
            rows = connection.execute(query).all()
            used = [(n, *use) for n, record in rows for use in json.loads(record)["usage"]]
            named = _sources(connection, {key for _, key, *_ in used})
        return [
            (number, named[key], won - decay)
            for number, key, won, _, decay in used
            if won != decay and key in named
        ]

    def first_chunks(self, sources: Iterable[str]) -> dict[str, int]:
        """Key of the first chunk of each source that there is; no notes."""
        found: dict[str, int] = {}
        query = sa.select(contents.c.source, nodes.c.key).join(
            nodes, nodes.c.key == contents.c.node
        )
        query = query.where(nodes.c.owner == 0).order_by(contents.c.position, nodes.c.key)
        with self._store.reading() as connection:
            for part in parts(sources):
                for source, key in connection.execute(query.where(contents.c.source.in_(part))):
                    found.setdefault(source, key)
        return found


def _sources(connection: sa.Connection, keys: Iterable[int]) -> dict[int, str]:
    """The source of each document, by key; notes have none."""
    found: dict[int, str] = {}
    query = sa.select(nodes.c.key, contents.c.source).join(contents, contents.c.node == nodes.c.key)
    for part in parts(keys):
        rows = connection.execute(query.where(nodes.c.owner == 0, nodes.c.key.in_(part)))
        found |= {key: source for key, source in rows}
    return found
