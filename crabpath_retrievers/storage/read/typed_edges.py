"""Reads of edges by kind, structural and learned, as one namespace sees them."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.graph import (
    DECAY_RATES,
    OVERLAY_KINDS,
    TYPED_KINDS,
    EdgeKind,
    effective_weight,
)
from crabpath_retrievers.storage.read.walk import Clock
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
from crabpath_retrievers.storage.sql_tools import (
    CompiledSelect,
    Queries,
    split_batches,
)

Direction = Literal["out", "in"]
_KINDS = {kind.value: kind for kind in EdgeKind}
_LEARNED = frozenset({*OVERLAY_KINDS, *TYPED_KINDS})  # kinds without structural edges
_AT_ONCE = 1024
_EPSILON = 1e-9


class TypedEdge(NamedTuple):
    """An edge of a given node.

    Attributes:
        near: Key of the given node.
        key, id: Key and id of the node at the other end.
        kind: Kind of the edge.
        weight: Effective weight in [-1, 1].
    """

    near: int
    key: int
    id: str
    kind: EdgeKind
    weight: float


def _build_select(direction: Direction) -> CompiledSelect:
    """Select edges of nodes ``keys``: structural ones of ``kinds``, learned ones of ``learned``.

    The node at the other end must be visible to the namespace.
    """
    other, end = nodes.alias("other"), nodes.alias("end")
    mine = overlay.c.namespace == sa.bindparam("namespace")
    nobody = 0
    seen = sa.or_(other.c.owner == nobody, other.c.owner == sa.bindparam("namespace"))

    def select(table: sa.Table, joined: Any, kinds: str, *weights: Any) -> sa.Select[Any]:
        near, far = table.c.source, table.c.target
        if direction == "in":
            near, far = far, near
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

    same = sa.and_(mine, *(overlay.c[n] == edges.c[n] for n in ("source", "target", "kind")))
    weight = sa.func.coalesce(overlay.c.weight, edges.c.prior)
    mark = sa.func.coalesce(overlay.c.decay_at, edges.c.decay_at)
    read = select(edges, edges.outerjoin(overlay, same), "kinds", weight, mark, edges.c.floor)
    learned = select(
        overlay, overlay, "learned", overlay.c.weight, overlay.c.decay_at, sa.literal(0.0)
    )
    return CompiledSelect(sa.union_all(read, learned.where(mine)))


_EDGES = {"out": _build_select("out"), "in": _build_select("in")}
_LEARNED_OF_KIND = sa.select(
    overlay.c.source, overlay.c.target, overlay.c.weight, overlay.c.decay_at
)
_LAST_EFFECTS = CompiledSelect(
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
    .limit(1)
    .offset(0)
)
_LATEST_EPISODES = CompiledSelect(
    sa.select(episodes.c.clock, episodes.c.documents)
    .where(
        episodes.c.namespace == sa.bindparam("namespace"),
        episodes.c.clock >= sa.bindparam("first", type_=sa.BigInteger),
    )
    .order_by(episodes.c.clock.desc())
    .limit(sa.bindparam("most", type_=sa.Integer))
    .offset(0)
)
_IDS = CompiledSelect(
    sa.select(nodes.c.key, nodes.c.id).where(nodes.c.key.in_(sa.bindparam("keys", expanding=True)))
)


class TypedQueries(Queries):
    """Reads whose cost depends on the edges of the given nodes."""

    def edges(
        self,
        keys: Sequence[int],
        clock: Clock,
        kinds: Iterable[EdgeKind],
        direction: Direction = "out",
    ) -> list[TypedEdge]:
        """The edges of some kinds of all given nodes, without edges of weight 0.

        Args:
            keys: Keys of nodes, at most some thousands.
            clock: Clock of the namespace.
            kinds: Kinds of edges.
            direction: ``out`` for edges that leave the nodes, ``in`` for edges that enter them.
        """
        wanted = sorted({kind.value for kind in kinds if kind is not EdgeKind.STOP})
        learned = [value for value in wanted if _KINDS[value] in _LEARNED]
        parameters = {"namespace": clock.key, "kinds": wanted, "learned": learned}
        rows: list[tuple[Any, ...]] = []
        with self._store.open_reader() as connection:
            for part in split_batches(keys, _AT_ONCE):
                rows += _EDGES[direction].rows(connection, {**parameters, "keys": part})
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
        return [edge for edge in found if abs(edge.weight) > _EPSILON]

    def get_learned(self, clock: Clock, kind: EdgeKind) -> dict[tuple[int, int], float]:
        """All learned edges of one kind: effective weight by keys of both ends.

        Ignores authority. Only for kinds with few edges, which users or maintenance set.
        """
        query = _LEARNED_OF_KIND.where(
            overlay.c.namespace == clock.key, overlay.c.kind == kind.value
        )
        with self._store.open_reader() as connection:
            return {
                (source, target): effective_weight(weight, 0.0, mark, clock.exponent)
                for source, target, weight, mark in connection.execute(query)
            }

    def used_before(
        self, namespace: str, clock: int, created: float, *, turns: int, seconds: float
    ) -> list[str]:
        """Ids of the documents used in the last turn with feedback before a turn, best first.

        Args:
            namespace: Name of the namespace.
            clock: Number of the turn.
            created: Time of the turn, in seconds since the epoch.
            turns: Length of the window in turns.
            seconds: Length of the window in seconds.
        """
        bounds = {"clock": clock, "first": clock - turns, "since": created - seconds}
        with self._store.open_reader():
            rows = self._run(_LAST_EFFECTS, namespace=namespace, **bounds)
            used = json.loads(rows[0][0])["usage"] if rows else []
            wins = {key: won for key, won, *_ in used if won > 0}
            names = {key: name for key, name in self._run(_IDS, keys=list(wins))}
        return [names[key] for key in sorted(wins, key=lambda key: -wins[key]) if key in names]

    def get_recent_credit(self, clock: Clock, turns: int) -> list[tuple[int, dict[str, float]]]:
        """Episodes changed in the last turns, latest first: turn number, credit by node id.

        Args:
            clock: Clock of the namespace.
            turns: Length of the window in turns, and limit of the result.
        """
        parameters = {"namespace": clock.key, "first": clock.turn - turns, "most": turns}
        rows = self._run(_LATEST_EPISODES, **parameters)
        return [(number, json.loads(documents)) for number, documents in rows]

    def get_recent_usage(self, clock: Clock, turns: int) -> list[tuple[int, str, float]]:
        """Rewards of sources in the last turns; queries do not use this.

        Feedback about several turns counts for the last of them.

        Args:
            clock: Clock of the namespace.
            turns: Length of the window in turns.

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
            .order_by(of_feedback.c.clock)
        )
        with self._store.open_reader():
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
