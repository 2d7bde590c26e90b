"""State of a trial, as stored.

Assigns sessions to arms by hash, so that every process assigns them alike.

The fail rule: the treatment is corrected too often at several checkpoints in a row.

What a store keeps of trials: their state, and reads of turns, feedback and changed weights.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeVar
from uuid import UUID

import sqlalchemy as sa
from pydantic import TypeAdapter
from pydantic_core import from_json

from crabpath_lab.ab.settings import TrialSettings
from crabpath_retrievers.core.query import parse_namespace, parse_session, require_number
from crabpath_retrievers.errors import ConflictError, InvalidInputError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.schema import (
    contents,
    feedback,
    meta,
    namespaces,
    nodes,
    turns,
    weight_changes,
)
from crabpath_retrievers.storage.sql_tools import Queries, split_batches
from crabpath_retrievers.storage.write.transaction import Transaction, write_journal

Arm = Literal["control", "treatment"]
ARMS: tuple[Arm, Arm] = ("control", "treatment")
SessionId = str | int | UUID

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


def require_trial_name(name: str) -> str:
    """Return the name of a trial if it is valid."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        msg = (
            "the name of a trial must be 1 to 40 letters, digits, '.', '-' or '_', the first one "
            f"a letter or digit, not {name!r:.100}"
        )
        raise InvalidInputError(msg)
    return name


def hash_position(name: str, session_id: SessionId) -> float:
    """Hash a session to a number in [0, 1), differently for each trial."""
    text = f"{name}\x00{parse_session(session_id)}".encode()
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return (number >> 11) / 2**53


def assign_arm(name: str, share: float, session_id: SessionId) -> Arm:
    """Return the arm of a session: ``treatment`` for a ``share``, in [0, 1], of all sessions."""
    return "treatment" if hash_position(name, session_id) < share else "control"


def make_suffix(name: str, arm: Arm, *, fresh: bool) -> str:
    """Return the suffix of an arm's namespaces; empty for a control without its own namespaces."""
    if arm == "treatment":
        return f"#{name}"
    return f"#{name}:control" if fresh else ""


def make_arm_namespace(name: str, arm: Arm, user: str, *, fresh: bool) -> str:
    """Return the namespace of a user in an arm."""
    own = parse_namespace(user)
    if own.endswith((f"#{name}", f"#{name}:control")):
        msg = f"{user!r:.100} is an arm of trial {name!r}: pass the user's own namespace"
        raise InvalidInputError(msg)
    return parse_namespace(own + make_suffix(name, arm, fresh=fresh))


@dataclass(frozen=True, slots=True)
class TrialCheckpoint:
    """Counts of the turns since the checkpoint before.

    Attributes:
        since, until: Period of the turns, in seconds since the epoch.
        control_turns, treatment_turns: Number of turns.
        control_corrected, treatment_corrected: Number of corrected turns.
        worse: Whether the treatment was corrected too often.
    """

    since: float
    until: float
    control_turns: int
    control_corrected: int
    treatment_turns: int
    treatment_corrected: int
    worse: bool


def is_worse(control: tuple[int, int], treatment: tuple[int, int], ratio: float) -> bool:
    """Whether the correction rate of the treatment is above that of the control times ``ratio``.

    Equality does not count; the comparison is exact, in rational numbers.

    Args:
        control: ``(turns, corrected)``.
        treatment: ``(turns, corrected)``.
        ratio: For example 1.2 for 20 % more.
    """
    bound = Fraction(str(ratio)) * control[1] * treatment[0]
    return treatment[1] * control[0] > bound


def has_failed(checkpoints: Sequence[TrialCheckpoint], row: int) -> bool:
    """Whether each of the last ``row`` checkpoints was worse."""
    last = checkpoints[-row:]
    return len(last) == row and all(checkpoint.worse for checkpoint in last)


TrialStatus = Literal["running", "rolled_back", "promoted"]


@dataclass(frozen=True, slots=True)
class TrialState:
    """State of a trial.

    Attributes:
        name: Name, unique in its store.
        share: Share of the sessions that get the treatment, in [0, 1].
        fresh: Whether the control has its own namespaces, too.
        settings: Sizes, confidence and fail rule.
        started: Time of the start, in seconds since the epoch.
        status: ``running`` until the trial is rolled back or promoted.
        ended: Time of the end, in seconds since the epoch; None while it runs.
        reason: Why it ended.
        checkpoints: Checkpoints, oldest first.
    """

    name: str
    share: float
    fresh: bool
    settings: TrialSettings
    started: float
    status: TrialStatus = "running"
    ended: float | None = None
    reason: str | None = None
    checkpoints: tuple[TrialCheckpoint, ...] = ()

    @classmethod
    def new(cls, name: str, share: float, settings: TrialSettings, *, fresh: bool) -> "TrialState":
        """Make the state of a trial that starts now."""
        number = require_number("share", share, 0.0, 1.0)
        return cls(require_trial_name(name), number, bool(fresh), settings, time.time())

    def end(self, status: TrialStatus, reason: str) -> "TrialState":
        """Return the state of the trial, ended now."""
        return replace(self, status=status, ended=time.time(), reason=reason)

    def to_json(self) -> str:
        """Serialise the state."""
        return _ADAPTER.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> "TrialState":
        """The inverse of :meth:`to_json`."""
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(TrialState)


TRIAL_PREFIX = "trial:"


def build_trial_key(trial: str) -> str:
    """Name of the metadata row that holds the state of a trial."""
    return TRIAL_PREFIX + trial


T = TypeVar("T")
_AT_ONCE = 200  # turn records in memory


class TrialFeedback(NamedTuple):
    """Stored feedback.

    Attributes:
        created: Seconds since the epoch.
        namespace: Name of its namespace; None if unknown.
        payload: Its fields.
    """

    created: float
    namespace: str | None
    payload: dict[str, Any]


class TrialWeightChange(NamedTuple):
    """A change of a learned weight; ``edge`` identifies namespace, source, target and kind."""

    namespace: str
    edge: tuple[int, int, int, int]
    delta: float


class TrialQueries(Queries):
    """Reads of trials; queries use none of them."""

    def names(self) -> list[str]:
        """Names of the trials of this store, running or ended."""
        query = (
            sa.select(meta.c.name).where(meta.c.name.startswith(TRIAL_PREFIX)).order_by(meta.c.name)
        )
        return [name.removeprefix(TRIAL_PREFIX) for name in self._scalars(query)]

    def state(self, name: str) -> str | None:
        """The state of a trial as JSON; None for an unknown trial."""
        query = sa.select(meta.c.value).where(meta.c.name == build_trial_key(name))
        found: str | None = self._scalar(query)
        return found

    def turns(
        self,
        name: str,
        suffixes: Sequence[str],
        decode: Callable[[dict[str, Any]], T],
        *,
        since: float,
        until: float,
    ) -> list[T]:
        """Read decoded records of a trial's turns, created in ``(since, until]``, oldest first.

        Args:
            name: Name of the trial; turns with one of its arms are found in any namespace.
            suffixes: Endings of the names of namespaces of which all turns belong to it.
            decode: Extracts what is needed of a record; few records are in memory at once.
            since: Seconds since the epoch.
            until: Seconds since the epoch.
        """
        labelled = turns.c.arm.startswith(f"{name}:", autoescape=True)
        in_namespaces = [namespaces.c.name.endswith(suffix, autoescape=True) for suffix in suffixes]
        query = (
            sa.select(turns.c.id)
            .join(namespaces, namespaces.c.key == turns.c.namespace)
            .where(
                turns.c.created > since, turns.c.created <= until, sa.or_(labelled, *in_namespaces)
            )
            .order_by(turns.c.created, turns.c.namespace, turns.c.clock)
        )
        self._store.flush()
        found: list[T] = []
        with self._store.connect() as connection:
            for part in split_batches(connection.scalars(query).all(), _AT_ONCE):
                record = sa.select(turns.c.id, turns.c.record).where(turns.c.id.in_(part))
                records = {turn: text for turn, text in connection.execute(record)}
                found += [decode(from_json(records[turn])) for turn in part if turn in records]
        return found

    def get_feedback(self, since: float) -> list[TrialFeedback]:
        """Feedback since a time, in epoch seconds, oldest first, without undone feedback."""
        query = (
            sa.select(feedback.c.created, feedback.c.namespace, feedback.c.payload)
            .where(feedback.c.created > since, feedback.c.status != "undone")
            .order_by(feedback.c.sequence)
        )
        rows = self._rows(query)
        return [
            TrialFeedback(created, namespace, from_json(payload))
            for created, namespace, payload in rows
        ]

    def characters(self, ids: Iterable[str]) -> dict[tuple[str | None, str], int]:
        """Read lengths of contents of nodes in characters; deleted nodes are left out.

        By name of the namespace, which is None for documents, and id.
        """
        query = (
            sa.select(namespaces.c.name, nodes.c.id, sa.func.length(contents.c.content))
            .join(contents, contents.c.node == nodes.c.key)
            .outerjoin(namespaces, namespaces.c.key == nodes.c.owner)
        )
        rows = self._rows_in(query, nodes.c.id, sorted(ids))
        return {(name, node): length for name, node, length in rows}

    def get_weight_changes(self, names: Iterable[str], *, since: float) -> list[TrialWeightChange]:
        """Weight changes of these namespaces since a time, in epoch seconds, oldest first."""
        edge = (
            weight_changes.c.namespace,
            weight_changes.c.source,
            weight_changes.c.target,
            weight_changes.c.kind,
        )
        query = (
            sa.select(namespaces.c.name, *edge, weight_changes.c.delta)
            .join(namespaces, namespaces.c.key == weight_changes.c.namespace)
            .where(weight_changes.c.created > since)
            .order_by(weight_changes.c.sequence)
        )
        rows = self._rows_in(query, namespaces.c.name, sorted(names))
        return [TrialWeightChange(name, (a, b, c, d), delta) for name, a, b, c, d, delta in rows]


def keep_trial(tx: Transaction, trial: str, before: str | None, after: str) -> None:
    """Write the state of a trial.

    Args:
        tx: The transaction.
        trial: Name of the trial.
        before: State from which the new one was computed, as JSON; None for a new trial.
        after: New state, as JSON.

    Raises:
        ConflictError: It changed in the meantime.
    """
    name = build_trial_key(trial)
    if before is None:
        new = tx.insert(s.meta).values(name=name, value=after)
        added = tx.run(new.on_conflict_do_nothing().returning(s.meta.c.name)).first()
        done = added is not None
    else:
        expected = (s.meta.c.name == name, s.meta.c.value == before)
        done = tx.update(s.meta, *expected, value=after) > 0
    if not done:
        msg = f"trial {trial!r} was changed by somebody else meanwhile: try again"
        raise ConflictError(msg)
    write_journal(tx, "trial", {"trial": trial, "state": json.loads(after)})
