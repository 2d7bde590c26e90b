"""Writers of turns, feedback and its effects, counts and episodes."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.changes.history import AddTransitions, TransitionCount
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE
from crabpath_retrievers.core.text import to_storable
from crabpath_retrievers.errors import ConflictError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.registry import COUNTERS, TABLES
from crabpath_retrievers.storage.sql_tools import (
    ROUNDING,
    CompiledSelect,
    CompiledWrite,
    CounterTable,
    build_insert,
    encode_vector,
)
from crabpath_retrievers.storage.write.transaction import Transaction

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
            status=sa.literal_column("'applied'"),
            namespace=sa.bindparam("space", type_=sa.Text()),
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


_USAGE, _PAIR_COUNTS, _TRANSITIONS = (
    CounterTable(TABLES[name], COUNTERS[name]) for name in ("usage", "pair_counts", "transitions")
)
_ADVANCE_CLOCK = (
    s.namespaces.update()
    .where(s.namespaces.c.name == sa.bindparam("ticking"))
    .values(turn=s.namespaces.c.turn + 1)
    .returning(s.namespaces.c.key, s.namespaces.c.turn)
)
_INSERT_TURN = s.turns.insert()


def record_turn(tx: Transaction, change: c.RecordTurn) -> None:
    """Store a turn, and advance the clock of its namespace by one turn."""
    turn = change.turn
    name = {"ticking": turn.namespace}
    advanced = tx.run(_ADVANCE_CLOCK, name).one_or_none()
    if advanced is None:
        tx.get_namespace(turn.namespace)
        advanced = tx.run(_ADVANCE_CLOCK, name).one()
    namespace, clock = advanced
    record = to_json(replace(turn.build_steps(), clock=clock, query=to_storable(turn.query)))
    row = {
        "id": turn.id,
        "namespace": namespace,
        "clock": clock,
        "created": turn.created,
        "run_id": turn.run_id,
        "record": record.decode(),
        "embedding": None if change.vector is None else encode_vector(change.vector),
    }
    tx.run(_INSERT_TURN, row)


def keep_feedback(tx: Transaction, change: c.KeepFeedback) -> None:
    """Store feedback until it is applied."""
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
    _INSERT_FEEDBACK.run(tx.connection, row)


def consume_feedback(tx: Transaction, change: c.ConsumeFeedback) -> None:
    """Mark feedback as applied, and store its effects.

    Raises:
        ConflictError: Another change came first.
    """
    key, cause = tx.get_key(change.namespace), change.feedback_id
    known = {"version": change.version, "more": change.exponent, "known": change.mind}
    applied = {"feedback": cause, "space": change.namespace}
    done = [
        _UPDATE_NAMESPACE.run(tx.connection, {"namespace": key, **known}),
        _MARK_APPLIED.run(tx.connection, applied),
    ]
    rows = ({"turn": turn, "feedback": cause} for turn in change.turns)
    done += [_INSERT_CONSUMED.run(tx.connection, row) for row in rows]
    if set(done) != {1}:
        msg = f"feedback {cause!r} met another one: read again and repeat it"
        raise ConflictError(msg)
    _INSERT_EFFECTS.run(tx.connection, _encode_effects(key, change))


def settle_feedback(tx: Transaction, change: c.SettleFeedback) -> None:
    """Attach a note to feedback, and refuse or cancel it.

    Raises:
        ConflictError: Feedback to cancel is no longer waiting.
    """
    own = s.feedback.c.id == change.feedback_id
    if change.status is None:
        tx.update(s.feedback, own, note=change.note)
        return
    waiting = (own, s.feedback.c.status == "waiting")
    done = tx.update(s.feedback, *waiting, status=change.status, note=change.note)
    if change.status == "undone":
        require_unchanged(done == 1, change.feedback_id)


def require_unchanged(condition: object, what: str) -> None:
    """Raise ``ConflictError`` about something that another change met, unless a condition holds."""
    if not condition:
        msg = f"{what!r} met another change: read again and repeat it"
        raise ConflictError(msg)


def add_usage(tx: Transaction, change: c.AddUsage) -> None:
    """Add to the usage counts of documents."""
    _add_counts(tx, _USAGE, change.namespace, ("node", "wins", "losses", "decay"), change.counts)


def add_pair_counts(tx: Transaction, change: c.AddPairCounts) -> None:
    """Add to the evidence for edges that do not exist yet."""
    pairs = ((a, b, kind.value, count) for a, b, kind, count in change.pairs)
    _add_counts(tx, _PAIR_COUNTS, change.namespace, ("source", "target", "kind", "count"), pairs)


def add_transitions(tx: Transaction, change: AddTransitions) -> None:
    """Add to the transition counts of a namespace."""
    _add_counts(tx, _TRANSITIONS, change.namespace, TransitionCount._fields, change.steps)


def _add_counts(
    tx: Transaction,
    table: CounterTable,
    namespace: str,
    names: Sequence[str],
    rows: Iterable[Sequence[Any]],
) -> None:
    key = tx.get_key(namespace)
    given = [{"namespace": key, **dict(zip(names, row, strict=True))} for row in rows]
    table.add(tx.connection, given)


def keep_episode(tx: Transaction, change: c.KeepEpisode) -> None:
    """Add turns and credit to an episode."""
    found = _SELECT_EPISODE.rows(tx.connection, {"id": change.id})
    before, labelled, known, by_user = found[0] if found else (0.0, 0.0, "{}", None)
    documents = add_credit(json.loads(known), change.documents)
    values = {
        "namespace": tx.get_key(change.namespace),
        "then": change.clock,
        "turns": before + change.turns,
        "labelled_turns": labelled + change.labelled_turns,
        "documents": json.dumps(documents),
        "credit_by_user": _add_user_credit(by_user, change),
    }
    # An episode whose credit adds up to nothing is kept, so that undo of one turn finds it.
    if values["turns"] <= 0:
        # Its vector is deleted from the index when a search next finds it without episode.
        tx.delete(s.episodes, s.episodes.c.id == change.id)
    elif found:
        _UPDATE_EPISODE.run(tx.connection, {**values, "episode": change.id})
    else:
        new = {"id": change.id, "query": change.query, "indexed": 0}
        embedding = encode_vector(change.vector)
        _INSERT_EPISODE.run(tx.connection, {**values, **new, "embedding": embedding})


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
