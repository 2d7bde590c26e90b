"""Writer of learned state: feedback, its effects, counts and episodes."""

import json
import time
from collections.abc import Callable, Mapping
from functools import cache, singledispatchmethod
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.changes.history import AddTransitions
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE
from crabpath_retrievers.errors import ConflictError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.sql_tools import (
    ROUNDING,
    CompiledSelect,
    CompiledWrite,
    CounterTable,
    build_insert,
    encode_vector,
)

_MOST_DOCUMENTS = 16  # of one episode: those with the most credit
_MOST_USERS = 32  # of one episode: those with the most credit
_TURN_OR_RUN = sa.bindparam("asked", type_=sa.Text())
# Stored with feedback at once, so that deletion of a namespace finds waiting feedback, too.
_NAMESPACE_OF_TURN = sa.func.coalesce(
    sa.bindparam("given", type_=sa.Text()),
    sa.select(s.namespaces.c.name)
    .join(s.turns, s.turns.c.namespace == s.namespaces.c.key)
    .where(sa.or_(s.turns.c.id == _TURN_OR_RUN, s.turns.c.run_id == _TURN_OR_RUN))
    .limit(sa.literal_column("1", sa.Integer))
    .offset(sa.literal_column("0", sa.Integer))
    .scalar_subquery(),
)
_INSERT_FEEDBACK = CompiledWrite(
    lambda insert: build_insert(
        insert, s.feedback, namespace=_NAMESPACE_OF_TURN
    ).on_conflict_do_nothing()
)
_ADDED_EXPONENT = sa.bindparam("more", type_=sa.Float())
_UPDATE_NAMESPACE = CompiledWrite(
    lambda _: (
        s.namespaces.update()
        .where(
            s.namespaces.c.key == sa.bindparam("namespace"),
            s.namespaces.c.version == sa.bindparam("version"),
            s.namespaces.c.frozen == sa.literal_column("0"),
        )
        .values(
            version=s.namespaces.c.version + sa.literal_column("1"),
            exponent=s.namespaces.c.exponent + _ADDED_EXPONENT,
            model=sa.bindparam("known", type_=sa.Text()),
        )
    )
)
_MARK_APPLIED = CompiledWrite(
    lambda _: (
        s.feedback.update()
        .where(
            s.feedback.c.id == sa.bindparam("feedback"),
            s.feedback.c.status == sa.literal_column("'waiting'"),
        )
        .values(
            status=sa.literal_column("'applied'"), namespace=sa.bindparam("whose", type_=sa.Text())
        )
    )
)
_INSERT_CONSUMED = CompiledWrite(
    lambda insert: build_insert(insert, s.consumed_turns).on_conflict_do_nothing()
)
_INSERT_EFFECTS = CompiledWrite(lambda insert: build_insert(insert, s.feedback_effects))
_SELECT_EPISODE = CompiledSelect(
    sa.select(
        s.episodes.c.turns,
        s.episodes.c.labelled_turns,
        s.episodes.c.documents,
        s.episodes.c.credit_by_user,
    ).where(s.episodes.c.id == sa.bindparam("id"))
)
_CLOCK = sa.func.coalesce(
    sa.bindparam("then", type_=sa.BigInteger()),
    sa.select(s.namespaces.c.turn)
    .where(s.namespaces.c.key == sa.bindparam("namespace"))
    .scalar_subquery(),
)
_INSERT_EPISODE = CompiledWrite(lambda insert: build_insert(insert, s.episodes, clock=_CLOCK))
_UPDATE_EPISODE = CompiledWrite(
    lambda _: (
        s.episodes.update()
        .where(s.episodes.c.id == sa.bindparam("episode"))
        .values(
            turns=sa.bindparam("turns", type_=sa.Float()),
            labelled_turns=sa.bindparam("labelled_turns", type_=sa.Float()),
            documents=sa.bindparam("documents", type_=sa.Text()),
            credit_by_user=sa.bindparam("credit_by_user", type_=sa.Text()),
            clock=_CLOCK,
        )
    )
)


_USAGE = CounterTable(s.usage, "wins", "losses", "decay")
_PAIR_COUNTS = CounterTable(s.pair_counts, "count")
_TRANSITIONS = CounterTable(s.transitions, "trials", "wins", "ends", "end_wins")


class LearnedWriter:
    """Applies changes of learned state on one open transaction."""

    def __init__(self, connection: sa.Connection, namespace: Callable[[str], int]) -> None:
        """Write on ``connection``.

        Args:
            connection: An open transaction.
            namespace: Gives the key of a namespace by name, and creates it if it is new.
        """
        self._connection = connection
        self._namespace = cache(namespace)

    @singledispatchmethod
    def apply(self, change: object) -> None:
        """Carry out one change."""
        msg = f"unknown change {type(change).__name__}"
        raise TypeError(msg)

    @apply.register
    def _(self, change: c.KeepFeedback) -> None:
        feedback = change.feedback
        default_namespace = DEFAULT_NAMESPACE if feedback.turn_id is None else None
        row = {
            "id": feedback.feedback_id,
            "created": time.time(),
            "payload": json.dumps(feedback.to_dict(), ensure_ascii=False),
            "status": "waiting",
            "note": None,
            "given": feedback.namespace or default_namespace,
            "asked": feedback.turn_id,
            "embedding": None if change.vector is None else encode_vector(change.vector),
            "user": feedback.user,
            "source": feedback.source,
        }
        _INSERT_FEEDBACK.run(self._connection, row)

    @apply.register
    def _(self, change: c.ConsumeFeedback) -> None:
        key = self._namespace(change.namespace)
        learned = {
            "namespace": key,
            "version": change.version,
            "more": change.exponent,
            "known": change.mind,
        }
        applied = {"feedback": change.feedback_id, "whose": change.namespace}
        self._require(_UPDATE_NAMESPACE.run(self._connection, learned) == 1, change)
        self._require(_MARK_APPLIED.run(self._connection, applied) == 1, change)
        for turn in change.turns:
            row = {"turn": turn, "feedback": change.feedback_id}
            self._require(_INSERT_CONSUMED.run(self._connection, row) == 1, change)
        _INSERT_EFFECTS.run(self._connection, _encode_effects(key, change))

    def _require(self, condition: bool, change: c.ConsumeFeedback) -> None:  # noqa: FBT001
        if not condition:
            msg = f"feedback {change.feedback_id!r} met another one: read again and repeat it"
            raise ConflictError(msg)

    @apply.register
    def _(self, change: c.RefuseFeedback) -> None:
        self._connection.execute(
            s.feedback.update()
            .where(s.feedback.c.id == change.feedback_id, s.feedback.c.status == "waiting")
            .values(status="refused", note=change.note)
        )

    @apply.register
    def _(self, change: c.AnnotateFeedback) -> None:
        self._connection.execute(
            s.feedback.update()
            .where(s.feedback.c.id == change.feedback_id)
            .values(note=change.note)
        )

    @apply.register
    def _(self, change: c.AddUsage) -> None:
        key = self._namespace(change.namespace)
        rows = [
            {"namespace": key, "node": node, "wins": wins, "losses": losses, "decay": decay}
            for node, wins, losses, decay in change.counts
        ]
        _USAGE.add(self._connection, rows)

    @apply.register
    def _(self, change: c.AddPairCounts) -> None:
        key = self._namespace(change.namespace)
        rows = [
            {"namespace": key, "source": a, "target": b, "kind": kind.value, "count": count}
            for a, b, kind, count in change.pairs
        ]
        _PAIR_COUNTS.add(self._connection, rows)

    @apply.register
    def _(self, change: AddTransitions) -> None:
        key = self._namespace(change.namespace)
        rows = [{"namespace": key, **step._asdict()} for step in change.steps]
        _TRANSITIONS.add(self._connection, rows)

    @apply.register
    def _(self, change: c.KeepEpisode) -> None:
        found = _SELECT_EPISODE.rows(self._connection, {"id": change.id})
        before, labelled, known, by_user = found[0] if found else (0.0, 0.0, "{}", None)
        documents = add_credit(json.loads(known), change.documents)
        values = {
            "namespace": self._namespace(change.namespace),
            "then": change.clock,
            "turns": before + change.turns,
            "labelled_turns": labelled + change.labelled_turns,
            "documents": json.dumps(documents),
            "credit_by_user": _add_user_credit(by_user, change),
        }
        # An episode whose credit adds up to nothing is kept, so that undo of one turn finds it.
        if values["turns"] <= 0:
            # Its vector is deleted from the index when a search next finds it without episode.
            self._connection.execute(s.episodes.delete().where(s.episodes.c.id == change.id))
        elif found:
            _UPDATE_EPISODE.run(self._connection, {**values, "episode": change.id})
        else:
            new = {"id": change.id, "query": change.query, "indexed": 0}
            embedding = encode_vector(change.vector)
            _INSERT_EPISODE.run(self._connection, {**values, **new, "embedding": embedding})

    @apply.register
    def _(self, change: c.MarkEpisodesIndexed) -> None:
        self._connection.execute(
            s.episodes.update().where(s.episodes.c.id.in_(change.ids)).values(indexed=1)
        )

    @apply.register
    def _(self, change: c.SetFrozen) -> None:
        key = self._namespace(change.namespace)
        self._connection.execute(
            s.namespaces.update().where(s.namespaces.c.key == key).values(frozen=int(change.frozen))
        )


def _encode_effects(namespace: int, change: c.ConsumeFeedback) -> dict[str, Any]:
    """The row of ``feedback_effects``."""
    taught = change.taught
    record = {
        "usage": taught.usage,
        "pair_counts": [(a, b, kind.value, count) for a, b, kind, count in taught.together],
        "episodes": [
            (e.id, e.turns, dict(e.documents), e.clock, e.labelled_turns, e.user)
            for e in taught.episodes
        ],
        "outcomes": taught.outcomes,
        "count": taught.count,
        "notes": [{"note": note, "query": query} for note, query in taught.notes],
        "used": taught.used,
        "reliability": dict(taught.spoken),
        "transitions": taught.steps,
    }
    return {
        "feedback": change.feedback_id,
        "namespace": namespace,
        "outcome_count": len(taught.outcomes),
        "exponent": change.exponent,
        "record": to_json(record).decode(),
        "ranker": taught.ranker,
    }


def _add_user_credit(known: str | None, change: c.KeepEpisode) -> str | None:
    """Credit by user after an addition; of many users those with the most credit are kept."""
    if change.user is None:
        return known
    credit_by_user = {} if known is None else json.loads(known)
    credit_by_user[change.user] = add_credit(credit_by_user.get(change.user, {}), change.documents)
    ranked = sorted(credit_by_user.items(), key=lambda item: -sum(map(abs, item[1].values())))
    kept = {user: credit for user, credit in ranked[:_MOST_USERS] if credit}
    return json.dumps(kept) if kept else None


def add_credit(known: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Add to credit by node id; the 16 documents with the largest absolute credit are kept."""
    total = dict(known)
    for node, credit in more.items():
        total[node] = total.get(node, 0.0) + credit
    best = sorted(total.items(), key=lambda item: -abs(item[1]))[:_MOST_DOCUMENTS]
    return {node: credit for node, credit in best if abs(credit) > ROUNDING}
