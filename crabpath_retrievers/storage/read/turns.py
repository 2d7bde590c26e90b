"""Reads of turn records."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic_core import from_json

from crabpath_retrievers.core.calls import look_again
from crabpath_retrievers.core.feedback import Feedback
from crabpath_retrievers.core.records import Turn, Vector, is_recent_id
from crabpath_retrievers.errors import NotFoundError
from crabpath_retrievers.storage.read.learned import (
    STATE_COLUMNS,
    KnownNode,
    LearnedQueries,
    NamespaceState,
    decode_state,
)
from crabpath_retrievers.storage.schema import consumed_turns, feedback, namespaces, turns
from crabpath_retrievers.storage.sql_tools import (
    CompiledSelect,
    Queries,
    decode_rows,
    decode_vector,
)


class StoredTurn(NamedTuple):
    """A stored turn, with the state that learning from it needs.

    ``consumed`` is the id of feedback that consumed it; ``nodes`` are those of the turns read with
    it that still exist, by id. The vector, shape ``[d]``, is None if it is not stored.
    """

    turn: Turn
    vector: Vector | None
    consumed: str | None
    state: NamespaceState
    nodes: Mapping[str, KnownNode]


CONSUMER = (
    sa.select(sa.func.max(consumed_turns.c.feedback))
    .where(consumed_turns.c.turn == turns.c.id)
    .scalar_subquery()
)
"""Id of the feedback about a turn; of several, one."""


def _select_turns(namespace: sa.ColumnElement[int]) -> sa.Select[Any]:
    """Select turns, newest first; ``namespace`` is the expression that joins their namespace."""
    columns = (turns.c.record, turns.c.clock, turns.c.embedding, CONSUMER)
    return (
        sa.select(*columns, *STATE_COLUMNS)
        .select_from(turns.join(namespaces, namespaces.c.key == namespace))
        .order_by(turns.c.clock.desc())
    )


WAIT_FOR_TURN = 1.0
"""Seconds from its making in which a turn of another process is looked for again.

Processes write turns behind their answers.
"""
_NAMED = namespaces.c.name == sa.bindparam("namespace")
_SELECT_TURN = (
    # The sum keeps the planner from the index on namespaces, which leads to all their turns.
    _select_turns(turns.c.namespace + 0)
    .where(sa.or_(turns.c.id == sa.bindparam("asked"), turns.c.run_id == sa.bindparam("asked")))
    .limit(1)
    .offset(0)
)
_FIND, _FIND_IN = CompiledSelect(_SELECT_TURN), CompiledSelect(_SELECT_TURN.where(_NAMED))
VERDICTS = (
    sa.select(turns.c.id, turns.c.arm, namespaces.c.name, feedback.c.payload)
    .join(consumed_turns, consumed_turns.c.turn == turns.c.id)
    .join(namespaces, namespaces.c.key == turns.c.namespace)
    .join(
        feedback,
        (feedback.c.id == consumed_turns.c.feedback) & (feedback.c.namespace == namespaces.c.name),
    )
    .order_by(feedback.c.sequence)
)
"""Turns with the feedback that was learned from them: id, arm, namespace, payload."""
_KNOWN = CompiledSelect(
    sa.select(turns.c.clock)
    .where(sa.or_(turns.c.id == sa.bindparam("asked"), turns.c.run_id == sa.bindparam("asked")))
    .limit(1)
    .offset(0)
)


def _select_last(*where: Any) -> sa.Select[Any]:
    """Clock and session of the last turn of a namespace before a time."""
    return (
        sa.select(turns.c.clock, turns.c.session)
        .join(namespaces, namespaces.c.key == turns.c.namespace)
        .where(_NAMED, turns.c.created <= sa.bindparam("until"), *where)
        .order_by(turns.c.clock.desc())
        .limit(1)
        .offset(0)
    )


_LAST = CompiledSelect(_select_last())
_WITHIN = turns.c.created.between(sa.bindparam("since"), sa.bindparam("until"))
_WINDOW = CompiledSelect(
    # A range of the clock, which is indexed.
    _select_turns(turns.c.namespace).where(
        _NAMED,
        turns.c.session.is_(None),
        turns.c.clock > sa.bindparam("last") - sa.bindparam("turns", type_=sa.BigInteger),
        _WITHIN,
    )
)
_WINDOW_OF_SESSION = CompiledSelect(
    _select_turns(turns.c.namespace)
    .where(_NAMED, turns.c.session == sa.bindparam("session"), _WITHIN)
    .limit(sa.bindparam("turns", type_=sa.BigInteger))
    .offset(0)
)


class TurnLog(Queries):
    """Reads of turn records."""

    def get(self, turn_id: str, *, namespace: str | None = None) -> Turn:
        """Read the record of a turn, by its id or by the run id of the host."""
        found = self.find(turn_id, namespace=namespace)
        if found is None:
            msg = f"no turn {turn_id!r} is recorded here: check the id and the namespace"
            raise NotFoundError(msg)
        return found.turn

    def find(
        self, turn_id: str, *, namespace: str | None = None, wait: bool = True
    ) -> StoredTurn | None:
        """Find a turn with all that learning needs, in two statements; None for an unknown id.

        If ``wait``, an unknown id that was made in the last ``WAIT_FOR_TURN`` seconds is looked for
        again until these are over: another process may not have written the turn yet.
        """
        self._store.flush()
        return look_again(
            lambda: self._find(turn_id, namespace),
            lambda: wait and is_recent_id(turn_id, WAIT_FOR_TURN),
        )

    def is_known(self, turn_id: str) -> bool:
        """Whether a turn is stored in any namespace; by its id, or the run id of the host."""
        self._store.flush()
        return bool(self._run(_KNOWN, asked=turn_id))

    def get_verdicts(self, ids: Sequence[str]) -> list[tuple[str, Feedback]]:
        """Read the feedback that turns were learned from, as ``(turn id, feedback)``.

        The feedback that was given first comes first.
        """
        rows = self._rows_in(VERDICTS, turns.c.id, ids)
        return [(turn, Feedback.from_record(payload)) for turn, *_, payload in rows]

    def _find(self, turn_id: str, namespace: str | None) -> StoredTurn | None:
        if namespace is None:
            rows = self._run(_FIND, asked=turn_id)
        else:
            rows = self._run(_FIND_IN, asked=turn_id, namespace=namespace)
        return next(iter(self._decode(rows)), None)

    def window(
        self,
        namespace: str,
        *,
        until: float,
        turns: int,
        seconds: float,
        session: str | None = None,
    ) -> list[StoredTurn]:
        """Read the last turns of one conversation before a time, newest first, judged or not.

        Args:
            until: The time, in seconds since the epoch.
            turns: Most turns.
            seconds: How long before ``until`` the turns may be.
            session: The conversation; None for that of the last turn before ``until``.
        """
        self._store.flush()
        own: dict[str, Any] = {"namespace": namespace, "until": until}
        last = 0
        if session is None:
            rows = self._run(_LAST, **own)
            if not rows:
                return []
            last, session = rows[0]
        own |= {"since": until - seconds, "turns": turns}
        if session is None:
            return self._decode(self._run(_WINDOW, last=last, **own))
        return self._decode(self._run(_WINDOW_OF_SESSION, session=session, **own))

    def _decode(self, rows: Sequence[Sequence[Any]]) -> list[StoredTurn]:
        """Decode turns of one namespace, with their nodes."""
        read = decode_rows("a turn", rows, _decode_turn)
        if not read:
            return []
        asked = {node for turn in read for node in _list_nodes(turn.turn)}
        known = LearnedQueries(self._store).nodes(read[0].state.clock.key, sorted(asked))
        return [turn._replace(nodes=known) for turn in read]

    def latest(self, namespace: str) -> str | None:
        """Id of the last turn of a namespace; None without turns."""
        self._store.flush()
        query = sa.select(turns.c.id).join(namespaces, namespaces.c.key == turns.c.namespace)
        query = query.where(namespaces.c.name == namespace).order_by(turns.c.clock.desc())
        found: str | None = self._scalar(query.limit(1))
        return found


def _decode_turn(row: Sequence[Any]) -> StoredTurn:
    record, clock, embedding, consumed, *state = row
    turn = replace(Turn.from_dict(from_json(zlib.decompress(record))), clock=clock)
    vector = None if embedding is None else decode_vector(embedding)
    return StoredTurn(turn, vector, consumed, decode_state(state), {})


def _list_nodes(turn: Turn) -> set[str]:
    """Return the nodes that a turn found, returned, visited or considered."""
    return (
        {*turn.visited}
        | {seed.node for seed in turn.seeds}
        | {returned.node for returned in turn.returned}
        | {step.node for step in turn.steps}
        | {candidate.target for step in turn.steps for candidate in step.candidates}
    )
