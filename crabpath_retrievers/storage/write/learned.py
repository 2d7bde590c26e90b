"""Writers of turns, feedback and its effects, counts and episodes.

Where something is no longer what was read, they raise ``ConflictError``.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

import sqlalchemy as sa
from pydantic_core import to_json

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.calls import find_token
from crabpath_retrievers.core.changes import (
    AddTransitions,
    EpisodeContent,
    KeepNote,
    TransitionCount,
    UseNotes,
)
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, Feedback
from crabpath_retrievers.core.records import EdgeKind, may_name_turn
from crabpath_retrievers.core.text import to_storable
from crabpath_retrievers.errors import ConflictError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.schema import COUNTERS, TABLES, compress_text, list_orphans
from crabpath_retrievers.storage.sql_tools import (
    ROUNDING,
    CompiledSelect,
    CompiledWrite,
    CounterTable,
    build_insert,
    encode_vector,
    open_driver_cursor,
)
from crabpath_retrievers.storage.write.transaction import Transaction
from crabpath_retrievers.storage.write.weights import adjust_weights

_MOST_DOCUMENTS = 16  # of one episode: those with the most credit
_MOMENT = 1e-6  # seconds, which times of day tell apart
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
    .with_for_update(read=True, key_share=True, of=s.namespaces)
    .scalar_subquery(),
)
_INSERT_FEEDBACK = CompiledWrite(
    lambda insert: (
        build_insert(insert, s.feedback, namespace=_NAMESPACE_OF_TURN)
        .on_conflict_do_nothing()
        .returning(s.feedback.c.sequence, s.feedback.c.namespace)
    )
)
_FIND_FEEDBACK = CompiledSelect(
    sa.select(s.feedback.c.sequence, s.feedback.c.namespace).where(
        s.feedback.c.id == sa.bindparam("id"), s.feedback.c.namespace == _NAMESPACE_OF_TURN
    )
)
_UPDATE_NAMESPACE = CompiledWrite(
    lambda _: (
        s.namespaces.update()
        .where(
            s.namespaces.c.name == sa.bindparam("space"),
            s.namespaces.c.version == sa.bindparam("known_version"),
            s.namespaces.c.frozen == sa.literal_column("0"),
        )
        .values(
            version=s.namespaces.c.version + sa.literal_column("1"),
            exponent=s.namespaces.c.exponent + sa.bindparam("more", type_=sa.Float()),
            model=sa.bindparam("new_model", type_=sa.Text()),
        )
        .returning(s.namespaces.c.key, s.namespaces.c.exponent)
    )
)
_MARK_APPLIED = CompiledWrite(
    lambda _: (
        s.feedback.update()
        .where(
            s.feedback.c.id == sa.bindparam("feedback"),
            sa.or_(
                s.feedback.c.namespace == sa.bindparam("space", type_=sa.Text()),
                s.feedback.c.namespace.is_(None),
            ),
            s.feedback.c.status == sa.literal_column("'waiting'"),
            # It may have been revised since it was read.
            s.feedback.c.created
            == sa.func.coalesce(sa.bindparam("given", type_=sa.Float()), s.feedback.c.created),
        )
        .values(
            status=sa.literal_column("'applied'"),
            namespace=sa.bindparam("space", type_=sa.Text()),
        )
    )
)
_INSERT_CONSUMED = CompiledWrite(
    # None of a turn that was forgotten meanwhile, whose namespace may be there again.
    lambda insert: (
        insert(s.consumed_turns)
        .from_select(
            ["turn", "feedback"],
            sa.select(s.turns.c.id, sa.bindparam("feedback", type_=sa.Text())).where(
                s.turns.c.id == sa.bindparam("turn")
            ),
        )
        .on_conflict_do_nothing()
    )
)
_INSERT_EFFECTS = CompiledWrite(lambda insert: build_insert(insert, s.feedback_effects))
_SELECT_EPISODE = CompiledSelect(
    sa.select(
        s.episodes.c.turns,
        s.episodes.c.labelled_turns,
        s.episodes.c.documents,
        s.episodes.c.credit_by_user,
        s.episodes.c.clock,
    ).where(s.episodes.c.id == sa.bindparam("id"))
)
_CLOCK = sa.func.coalesce(
    sa.bindparam("then", type_=sa.BigInteger()),
    sa.select(s.namespaces.c.turn)
    .where(s.namespaces.c.key == sa.bindparam("namespace"))
    .scalar_subquery(),
)
_INSERT_EPISODE = CompiledWrite(
    lambda insert: build_insert(insert, s.episodes, clock=_CLOCK).on_conflict_do_nothing()
)
_UPDATE_EPISODE = CompiledWrite(
    lambda _: (
        s.episodes.update()
        .where(
            s.episodes.c.id == sa.bindparam("episode"),
            s.episodes.c.turns == sa.bindparam("turns_before"),
        )
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
# One statement, which commits by itself: answers wait for a thread that waits for the database.
# All processes lock namespaces in one order.
_RECORD_TURNS = """
WITH lazily AS (SELECT set_config('synchronous_commit', 'off', true)),
asked (place, name, owner, id, created, run_id, arm, session, record, embedding) AS
    (VALUES {rows}),
locked AS (
    SELECT key, name FROM crabpath_namespaces WHERE name IN (SELECT name FROM asked)
    ORDER BY key FOR NO KEY UPDATE
),
given AS (SELECT asked.* FROM asked JOIN locked USING (name) WHERE owner IN (0, key)),
counted AS (SELECT name, count(*) AS turns FROM given GROUP BY name),
ticked AS (
    UPDATE crabpath_namespaces n SET turn = turn + turns
    FROM counted, locked WHERE n.name = counted.name AND n.key = locked.key
    RETURNING n.name, n.key, n.turn - turns AS before
)
INSERT INTO crabpath_turns
    (namespace, clock, id, created, run_id, arm, session, record, embedding)
SELECT key, before + row_number() OVER (PARTITION BY key ORDER BY place), id, created, run_id, arm,
    session, record, embedding
FROM given JOIN ticked USING (name), lazily
ON CONFLICT (id) DO NOTHING RETURNING id
"""
_GIVEN_TURN = (
    "(%s::int, %s::text, %s::bigint, %s::text, %s::float, %s::text, %s::text, %s::text, "
    "%s::bytea, %s::bytea)"
)
_ADVANCE_CLOCK = CompiledWrite(
    lambda _: (
        s.namespaces.update()
        .where(
            s.namespaces.c.name == sa.bindparam("ticking"),
            sa.bindparam("owner", type_=sa.BigInteger()).in_(
                (sa.literal_column("0"), s.namespaces.c.key)
            ),
        )
        .values(turn=s.namespaces.c.turn + sa.literal_column("1"))
        .returning(s.namespaces.c.key, s.namespaces.c.turn)
    )
)
_INSERT_TURN = CompiledWrite(lambda insert: build_insert(insert, s.turns))


def record_turn(tx: Transaction, change: c.RecordTurn) -> None:
    """Store a turn, and advance the clock of its namespace by one turn.

    The clock in the record is what its process expected; the column has the true one.
    """
    name, row = change.turn.namespace, _encode_turn(change)
    known = {"ticking": name, "owner": change.owner}
    if not _insert_turn(tx, known, row) and not change.owner:
        tx.get_namespace(name)
        _insert_turn(tx, known, row)


def _encode_turn(change: c.RecordTurn) -> dict[str, Any]:
    turn = change.turn
    record = to_json(replace(turn.build_steps(), query=to_storable(turn.query)))
    return {
        "id": turn.id,
        "created": turn.created,
        "run_id": turn.run_id,
        "arm": turn.arm,
        "session": turn.session,
        "record": compress_text(record),
        "embedding": None if change.vector is None else encode_vector(change.vector),
    }


def _insert_turn(tx: Transaction, known: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Insert a turn; return False if its namespace does not exist.

    ``known`` finds the namespace, whose clock advances; ``row`` has the other columns.
    """
    ticked = _ADVANCE_CLOCK.fetch(tx.connection, known)
    if ticked is not None:
        _INSERT_TURN.run(tx.connection, {**row, "namespace": ticked[0], "clock": ticked[1]})
    return ticked is not None


def record_turns(tx: Transaction, changes: Sequence[c.RecordTurn]) -> None:
    """Store several turns, as :func:`record_turn`, in one statement of PostgreSQL."""
    rows = [
        (place, change.turn.namespace, change.owner, *_encode_turn(change).values())
        for place, change in enumerate(changes)
    ]
    known = _insert_turns(tx, rows)
    missing = [row for row in rows if not row[2] and row[3] not in known]
    if missing:
        for name in dict.fromkeys(row[1] for row in missing):
            tx.get_namespace(name)
        _insert_turns(tx, missing)


def _insert_turns(tx: Transaction, rows: Sequence[tuple[Any, ...]]) -> set[str]:
    """Insert the turns whose namespaces exist, given as rows; return the ids of these turns."""
    query = _RECORD_TURNS.format(rows=", ".join([_GIVEN_TURN] * len(rows)))
    with open_driver_cursor(tx.connection) as cursor:
        cursor.execute(query, [value for row in rows for value in row])
        return {name for (name,) in cursor.fetchall()}


def keep_feedback(tx: Transaction, change: c.KeepFeedback) -> tuple[int, str | None, bool]:
    """Queue feedback, unless feedback with its id is stored in its namespace.

    Returns:
        The number of the stored feedback; its namespace, None if not known yet; and whether it is
        new.
    """
    feedback = change.feedback
    default_namespace = DEFAULT_NAMESPACE if feedback.turn_id is None else None
    row = {
        "id": feedback.feedback_id,
        "created": change.created or time.time(),
        "given": feedback.namespace or default_namespace,
        "asked": feedback.turn_id,
        "token": find_token(),
        **_encode_feedback(change),
    }
    new = _INSERT_FEEDBACK.fetch(tx.connection, row)
    found = new or _FIND_FEEDBACK.rows(tx.connection, row)[0]
    return int(found[0]), found[1], new is not None


def _encode_feedback(change: c.KeepFeedback) -> dict[str, Any]:
    feedback, payload = change.feedback, change.feedback.to_dict()
    if change.added:
        payload["added"] = [asdict(item) for item in change.added]
    return {
        "payload": json.dumps(payload, ensure_ascii=False),
        "status": "waiting",
        "note": None,
        "embedding": None if change.vector is None else encode_vector(change.vector),
        "user": feedback.user,
        "source": feedback.source,
    }


def revise_feedback(tx: Transaction, sequence: int, known: Feedback, new: c.KeepFeedback) -> None:
    """Replace the content of feedback, which waits again; its former effects stay for now.

    Raises:
        ConflictError: The stored content is not ``known``.
    """
    own = s.feedback.c.sequence == sequence
    # First the namespace, as those do that learn from it.
    namespace = tx.scalar(sa.select(s.feedback.c.namespace).where(own))
    if (key := tx.find_key(namespace)) is not None:
        tx.increment_versions(key)
    payload = tx.scalar(sa.select(s.feedback.c.payload).where(own).with_for_update())
    same = payload is not None and Feedback.from_record(payload) == known
    require_unchanged(same, known.feedback_id)
    # Who has read the former content can no longer mark it as applied.
    later = s.feedback.c.created + _MOMENT
    token = sa.func.coalesce(find_token(), s.feedback.c.token)
    tx.update(s.feedback, own, created=later, token=token, **_encode_feedback(new))


def consume_feedback(tx: Transaction, change: c.ConsumeFeedback) -> None:
    """Mark feedback as applied, and store its effects."""
    name, cause = change.namespace, change.feedback_id
    if not change.version:
        tx.get_key(name)  # creates a new namespace
    known = {"space": name, "known_version": change.version}
    new = {"more": change.exponent, "new_model": change.model}
    found = _UPDATE_NAMESPACE.fetch(tx.connection, known | new)
    read = {"feedback": cause, "space": name, "given": change.created}
    done = [_MARK_APPLIED.run(tx.connection, read)]
    rows = ({"turn": turn, "feedback": cause} for turn in change.turns)
    done += [_INSERT_CONSUMED.run(tx.connection, row) for row in rows]
    if found is None or set(done) != {1}:
        msg = f"feedback {cause!r} met another one: read again and repeat it"
        raise ConflictError(msg)
    key, exponent = found
    tx.keep_lock(name, key, exponent)
    tx.hold_nodes(_list_nodes(change.changes))  # of all changes, in one statement
    _INSERT_EFFECTS.run(tx.connection, _encode_effects(tx, key, change))


def _list_nodes(changes: Iterable[c.Change]) -> Iterable[int]:
    """List the keys of the nodes that learned rows refer to."""
    for change in changes:
        match change:
            case c.AddUsage():
                yield from (node for node, *_ in change.counts)
            case c.AddPairCounts():
                yield from (end for pair in change.pairs for end in pair[:2])
            case c.AdjustWeights():
                yield from (end for delta in change.deltas for end in (delta.source, delta.target))
            case AddTransitions():
                yield from (step.region for step in change.steps)


def settle_feedback(
    tx: Transaction,
    sequence: int,
    note: str,
    status: Literal["refused", "repeated", "undone"] | None = None,
    created: float | None = None,
) -> None:
    """Attach a note to feedback and, if ``status`` is given, set its status.

    Only feedback that still waits gets the status and the note; otherwise nothing happens.

    Args:
        note: The reason, or the parts that are ignored.
        status: New status; None attaches the note alone, to feedback of any status.
        created: Time at which the feedback must have been given; None for any.

    Raises:
        ConflictError: ``status`` is ``undone``, and the feedback does not wait.
    """
    own = s.feedback.c.sequence == sequence
    if status is None:
        tx.update(s.feedback, own, note=note)
        return
    waiting = [own, s.feedback.c.status == "waiting"]
    if created is not None:
        waiting.append(s.feedback.c.created == created)
    done = tx.update(s.feedback, *waiting, status=status, note=note)
    if status == "refused":
        _drop_forgotten(tx, sa.and_(own, list_orphans()["feedback"]))
    if status == "undone":
        require_unchanged(done == 1, f"feedback number {sequence}")


def _drop_forgotten(tx: Transaction, own: sa.ColumnElement[bool]) -> None:
    """Delete refused feedback that ``own`` selects and whose turn was forgotten.

    Nobody could delete it later. An id that no turn can have had is a mistake, which is kept with
    the reason.
    """
    payload = tx.scalar(sa.select(s.feedback.c.payload).where(own))
    turn = None if payload is None else json.loads(payload).get("turn_id")
    if not may_name_turn(turn or ""):
        return
    known = sa.select(s.turns.c.id).where(sa.or_(s.turns.c.id == turn, s.turns.c.run_id == turn))
    tx.delete(s.feedback, own, ~known.exists())


def require_unchanged(condition: object, what: str) -> None:
    """Raise ``ConflictError`` unless a condition holds; ``what`` names what was changed."""
    if not condition:
        msg = f"{what!r} met another change: read again and repeat it"
        raise ConflictError(msg)


def drop_answers(tx: Transaction, given: Sequence[int]) -> None:
    """Delete the answers of feedback, given by sequence numbers."""
    known = sa.select(s.feedback.c.sequence, s.feedback.c.payload)
    for number, payload in tx.select_in(known, s.feedback.c.sequence, given):
        text = json.dumps({**json.loads(payload), "answer": None}, ensure_ascii=False)
        tx.update(s.feedback, s.feedback.c.sequence == number, payload=text)


def drop_said(tx: Transaction, where: Sequence[sa.ColumnElement[bool]]) -> int:
    """Delete answers, corrections and users of feedback that counts no more; return how many."""
    stays = s.feedback.c.status.not_in(("waiting", "applied"))
    known = sa.select(s.feedback.c.sequence, s.feedback.c.payload).where(stays, *where)
    rows = tx.run(known).all()
    for number, payload in rows:
        said = {**json.loads(payload), "answer": None, "correction": None, "user": None}
        text = json.dumps(said, ensure_ascii=False)
        tx.update(s.feedback, s.feedback.c.sequence == number, payload=text, user=None)
    return len(rows)


def add_usage(tx: Transaction, change: c.AddUsage) -> None:
    """Add to the usage counts of documents."""
    _add_counts(tx, _USAGE, change.namespace, ("node", "wins", "losses", "decay"), change.counts)


def add_pair_counts(tx: Transaction, change: c.AddPairCounts) -> None:
    """Add to the evidence for edges that do not exist yet."""
    pairs = ((a, b, kind.value, count) for a, b, kind, count in change.pairs)
    _add_counts(tx, _PAIR_COUNTS, change.namespace, ("source", "target", "kind", "count"), pairs)


def write_passive_lesson(
    tx: Transaction,
    namespace: str,
    deltas: tuple[c.WeightDelta, ...],
    pairs: tuple[tuple[int, int, EdgeKind, float], ...],
    turn: str,
) -> None:
    """Add what a turn teaches without an outcome, unless its namespace is frozen or gone.

    ``deltas`` are changes of weights, ``pairs`` counts towards edges as ``(source, target, kind,
    count)`` by key; ``turn`` is the id. The version of the namespace grows, as with feedback.
    """
    own, space = s.namespaces.c.name == namespace, s.namespaces.c
    key = tx.scalar(sa.select(space.key).where(own, space.frozen == 0).with_for_update())
    if key is None:
        return
    add_pair_counts(tx, c.AddPairCounts(namespace, pairs))
    if deltas:
        adjust_weights(tx, c.AdjustWeights(namespace, deltas, turn))
    tx.increment_versions(key)


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
    nodes = [name for name in ("node", "source", "target", "region") if name in names]
    alive = tx.hold_nodes(row[name] for row in given for name in nodes)
    table.add(tx.connection, [row for row in given if all(row[name] in alive for name in nodes)])


def take_back_corrections(tx: Transaction, texts: Mapping[int, str]) -> None:
    """Undo corrections of documents that now get other texts.

    ``texts`` has the new texts by key; documents with equal texts stay corrected. The blame that
    came with a correction is undone, too. The edges of the corrections stay with weight 0, as a
    record of what was corrected.
    """
    o, e, note, node = s.overlay.c, s.feedback_effects.c, s.nodes.alias(), s.nodes.alias()
    inhibits = EdgeKind.INHIBITS.value
    query = sa.select(o.target, s.contents.c.content, s.namespaces.c.key, s.namespaces.c.name)
    query = query.add_columns(node.c.id, note.c.id.label("note")).where(o.kind == inhibits)
    query = query.join(s.notes, (s.notes.c.node == o.source) & (s.notes.c.kind == "correction"))
    query = query.join(note, note.c.key == o.source).join(node, node.c.key == o.target)
    query = query.join(s.contents, s.contents.c.node == o.target)
    query = query.join(s.namespaces, s.namespaces.c.key == o.namespace)
    found = [
        row for row in tx.select_in(query, o.target, texts) if row.content != texts[row.target]
    ]
    for key, name in sorted({(row.key, row.name) for row in found}):
        tx.find_key(name)  # nobody learns in it meanwhile
        about = {row.target: row.id for row in found if row.key == key}
        for column in (o.weight, s.weight_changes.c.delta):
            of = column.table.c
            edges = (of.namespace == key, of.kind == inhibits, of.target.in_(about))
            tx.update(column.table, *edges, **{column.name: 0.0})
        notes = {to_json(row.note).decode() for row in found if row.key == key}
        gave = sa.or_(*(e.record.contains(f'{{"note":{n},', autoescape=True) for n in notes))
        query = sa.select(e.sequence, e.record).where(e.namespace == key, gave)
        for sequence, text in tx.run(query).all():
            record = json.loads(text)
            _take_back_blame(tx, name, record, about)
            tx.update(s.feedback_effects, e.sequence == sequence, record=to_json(record).decode())
        tx.increment_versions(key)


def _take_back_blame(
    tx: Transaction, namespace: str, record: dict[str, Any], about: Mapping[int, str]
) -> None:
    """Remove from a feedback's effects, ``record``, the blame of some documents."""
    counts = [row for row in record["usage"] if row[0] in about]
    lost = tuple((node, 0.0, -losses, -nats) for node, _, losses, nats in counts)
    add_usage(tx, c.AddUsage(namespace, lost))
    for row in counts:
        row[2:] = (0.0, 0.0)
    ids = {*about.values()}
    for episode in record["episodes"]:
        credit: dict[Any, Any] = {None: episode[2], **_parse_credit_by_user(episode)}
        blame = {
            user: {node: share for node, share in own.items() if node in ids and share < 0}
            for user, own in credit.items()
        }
        kept = {user: add_credit(own, blame[user], -1.0) for user, own in credit.items()}
        of_all = blame.pop(None)
        undo_episode(tx, namespace, (episode[0], 0.0, of_all, None, 0.0, blame), last=False)
        episode[2], episode[5] = kept.pop(None), kept


def _parse_credit_by_user(episode: Sequence[Any]) -> dict[str, Any]:
    """Parse credit by user in effects on an episode; an earlier release kept only the user."""
    documents, users = episode[2], episode[5]
    return users if isinstance(users, dict) else {users: documents} if users else {}


def undo_episode(tx: Transaction, name: str, episode: Sequence[Any], *, last: bool) -> None:
    """Subtract from an episode what the effects ``episode`` of a feedback added.

    ``name`` is that of the namespace. If ``last``, nothing was learned since, and the former clock
    comes back.
    """
    identity, turns, documents, clock, labelled, _ = episode
    users, now = _parse_credit_by_user(episode), read_episode(tx, identity)
    if now.turns:
        by_user = {
            user: add_credit(now.credit_by_user.get(user, {}), users.get(user, {}), -1.0)
            for user in dict.fromkeys((*now.credit_by_user, *users))
        }
        after = EpisodeContent(
            now.turns - turns,
            now.labelled_turns - labelled,
            add_credit(now.documents, documents, -1.0),
            {user: credit for user, credit in by_user.items() if credit},
            clock if last and clock is not None else now.clock,
        )
        write_episode(tx, name, identity, now, after)


def keep_episode(tx: Transaction, change: c.KeepEpisode) -> None:
    """Add the turns and credit of a change to an episode; a new one is created."""
    before = read_episode(tx, change.id) if change.before is None else change.before
    write_episode(tx, change.namespace, change.id, before, _extend_episode(before, change), change)


def write_episode(
    tx: Transaction,
    namespace: str,
    identity: str,
    before: EpisodeContent,
    after: EpisodeContent,
    new: c.KeepEpisode | None = None,
) -> None:
    """Replace the content of an episode; if no turns are left, the episode is deleted.

    Args:
        before: Content that the caller read; without turns the episode is created.
        new: Question and vector of an episode to create; None if it exists.

    Raises:
        ConflictError: The stored content has changed.
    """
    values = {
        "namespace": tx.get_key(namespace),
        "then": after.clock,
        "turns": after.turns,
        "labelled_turns": after.labelled_turns,
        "documents": json.dumps(after.documents),
        "credit_by_user": json.dumps(after.credit_by_user) if after.credit_by_user else None,
    }
    # An episode whose credit adds up to nothing is kept, so that undo of one turn finds it.
    if after.turns <= 0:
        # Its vector is deleted from the index when a search next finds it without episode.
        tx.delete(s.episodes, s.episodes.c.id == identity)
        return
    if before.turns or new is None:
        known = {"episode": identity, "turns_before": before.turns}
        done = _UPDATE_EPISODE.run(tx.connection, {**values, **known})
    else:
        question = {"id": identity, "query": new.query, "indexed": 0}
        embedding = encode_vector(new.vector)
        done = _INSERT_EPISODE.run(tx.connection, {**values, **question, "embedding": embedding})
    require_unchanged(done == 1, identity)


def read_episode(tx: Transaction, episode: str) -> EpisodeContent:
    """Read the content of an episode; an empty one if it does not exist."""
    rows = _SELECT_EPISODE.rows(tx.connection, {"id": episode})
    if not rows:
        return EpisodeContent()
    turns, labelled_turns, documents, by_user, clock = rows[0]
    users = json.loads(by_user) if by_user else {}
    return EpisodeContent(turns, labelled_turns, json.loads(documents), users, clock)


def read_last_said(tx: Transaction, namespace: int) -> int:
    """Read the number of the note that was given last in a namespace; 0 without one."""
    query = sa.select(sa.func.max(s.notes.c.said)).where(s.notes.c.namespace == namespace)
    return tx.scalar(query) or 0


def _encode_effects(tx: Transaction, namespace: int, consumed: c.ConsumeFeedback) -> dict[str, Any]:
    """Encode the changes of a feedback as a row of ``feedback_effects``, for undo.

    ``namespace`` is a key. Weight changes have a table of their own.
    """
    model = consumed.effects
    record: dict[str, Any] = {
        **dict.fromkeys(("usage", "pair_counts", "transitions"), ()),
        **{name: [] for name in ("episodes", "notes", "used")},
        "outcomes": model.outcomes,
        "reliability": dict(model.reliability),
    }
    for change in consumed.changes:
        match change:
            case c.AddPairCounts():
                pairs = [(a, b, kind.value, count) for a, b, kind, count in change.pairs]
                record["pair_counts"] = pairs
            case c.AddUsage():
                record["usage"] = change.counts
            case AddTransitions():
                record["transitions"] = change.steps
            case c.KeepEpisode():
                record["episodes"].append(_describe_episode(change))
            case KeepNote():
                # A note is found by its query only if that has a vector.
                query = None if change.query_vector is None else change.query
                place = read_last_said(tx, namespace) + 1 + len(record["notes"])
                about = {"query": query, "asked": change.query, "turn": change.turn}
                record["notes"].append({"note": change.node.id, **about, "said": place})
            case UseNotes():
                record["used"] += change.used
    return {
        "feedback": consumed.feedback_id,
        "namespace": namespace,
        "outcome_count": len(model.outcomes),
        "exponent": consumed.exponent,
        "record": to_json(record).decode(),
        "ranker": model.ranker,
    }


def _extend_episode(before: EpisodeContent, change: c.KeepEpisode) -> EpisodeContent:
    """Extend the content ``before`` of an episode by the turns and credit of a change.

    Of many documents and users, those with the most credit are kept.
    """
    by_user = dict(before.credit_by_user)
    if change.user is not None:
        own = _keep_most(add_credit(by_user.get(change.user, {}), change.documents))
        total = {**by_user, change.user: own}
        ranked = sorted(total.items(), key=lambda item: -sum(map(abs, item[1].values())))
        by_user = {user: credit for user, credit in ranked[:_MOST_USERS] if credit}
    return EpisodeContent(
        before.turns + change.turns,
        before.labelled_turns + change.labelled_turns,
        _keep_most(add_credit(before.documents, change.documents)),
        by_user,
        change.clock,
    )


def _describe_episode(change: c.KeepEpisode) -> tuple[Any, ...]:
    """Describe what a change adds to an episode, and which credit it displaces.

    Returns its id, turns, credit by node id, former clock (None for a new one), labelled turns, and
    credit by user and node id.
    """
    before = change.before or EpisodeContent()
    after = _extend_episode(before, change)
    credit = _find_gain(before.documents, after.documents)
    by_user = {
        user: gain
        for user in dict.fromkeys((*before.credit_by_user, *after.credit_by_user))
        if (
            gain := _find_gain(
                before.credit_by_user.get(user, {}), after.credit_by_user.get(user, {})
            )
        )
    }
    return change.id, change.turns, credit, before.clock, change.labelled_turns, by_user


def _find_gain(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Compute how much credit changed from ``before`` to ``after``, by node id.

    Nodes whose credit did not change are left out.
    """
    nodes = dict.fromkeys((*before, *after))
    gains = {node: after.get(node, 0.0) - before.get(node, 0.0) for node in nodes}
    return {node: gain for node, gain in gains.items() if gain}


def add_credit(
    known: Mapping[str, float], more: Mapping[str, float], sign: float = 1.0
) -> dict[str, float]:
    """Add to credit by node id, or subtract from it (``sign`` -1)."""
    total = dict(known)
    for node, credit in more.items():
        total[node] = total.get(node, 0.0) + sign * credit
    return {node: credit for node, credit in sorted(total.items()) if abs(credit) > ROUNDING}


def _keep_most(credit: Mapping[str, float]) -> dict[str, float]:
    """Keep 16 documents: those with the most credit, then those with the most blame."""
    best = sorted(credit.items(), key=lambda item: (item[1] <= 0, -abs(item[1])))
    best = best[:_MOST_DOCUMENTS]
    return dict(sorted(best))
