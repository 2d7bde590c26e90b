"""``Trial``: two configurations of a memory, side by side in production."""

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import Self, Unpack

from crabpath_lab.ab.comparison import TrialReport, build_report, format_fail_reason
from crabpath_lab.ab.metrics import load_turns_by_arm
from crabpath_lab.ab.settings import TrialSettings
from crabpath_lab.ab.state import (
    ARMS,
    Arm,
    SessionId,
    TrialCheckpoint,
    TrialQueries,
    TrialState,
    TrialStatus,
    assign_arm,
    has_failed,
    is_worse,
    keep_trial,
    make_arm_namespace,
)
from crabpath_retrievers.core.calls import Operations, arun, perform, perform_sync_or_async, run
from crabpath_retrievers.core.query import Query, QueryOptions, parse_session
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import ConflictError, InvalidInputError, NotFoundError
from crabpath_retrievers.storage import GraphStore

if TYPE_CHECKING:
    from crabpath_retrievers.retrieval.pipeline import Answer


MemoryOrStore = CrabPath | GraphStore
_REFRESH_SECONDS = 10.0  # seconds after which a process reads the state again


class Trial:
    """An A/B trial: sessions are assigned by hash, each arm learns in its own namespaces.

    ::

        trial = Trial.start(memory, "walks", share=0.2)
        answer = memory.retrieve(question, **trial.options("ann", session_id))
        trial.checkpoint()  # regularly: ends the trial if the treatment does harm
        trial.report().verdict

    Metrics are computed from the turns and the feedback in the store; nothing else is logged. Safe
    to use from several threads and processes.
    """

    def __init__(self, store: GraphStore, name: str) -> None:
        """Use :meth:`start` or :meth:`open`."""
        self._store, self._name = store, name
        self._text, self._state, self._read = self._load()

    @classmethod
    def start(
        cls,
        memory: MemoryOrStore,
        name: str,
        *,
        share: float = 0.5,
        fresh: bool = False,
        settings: TrialSettings | None = None,
    ) -> Self:
        """Start a trial, or continue the one of this name.

        Args:
            memory: The memory that records the turns, or its store.
            name: 1 to 40 letters, digits, ``.``, ``-`` or ``_``.
            share: Share of the sessions that get the treatment, in [0, 1].
            fresh: Whether both arms start without learned data, the control in its own namespaces.
                Otherwise the control is the user's own namespace.
            settings: Sizes, confidence and fail rule; None for the default, or for those of the
                existing trial.

        Raises:
            InvalidInputError: The name or share is not valid; or share, ``fresh`` or settings
                differ from those of the existing trial, which would move sessions between arms.
        """
        store = _store(memory)
        new = TrialState.new(name, share, settings or TrialSettings(), fresh=fresh)
        if TrialQueries(store).state(name) is None:
            with suppress(ConflictError):  # another process started it just now
                store.write(keep_trial, name, None, new.to_json())
        trial = cls(store, name)
        same = (trial.state.share, trial.state.fresh) == (new.share, new.fresh)
        if not same or settings not in (None, trial.state.settings):
            msg = (
                f"trial {name!r} was started with share {trial.state.share:g}, fresh "
                f"{trial.state.fresh} and its own settings: pass the same, or another name"
            )
            raise InvalidInputError(msg)
        return trial

    @classmethod
    def open(cls, memory: MemoryOrStore, name: str) -> Self:
        """Open an existing trial.

        Raises:
            NotFoundError: There is no trial of this name.
        """
        return cls(_store(memory), name)

    @property
    def name(self) -> str:
        """Name of the trial."""
        return self._name

    @property
    def state(self) -> TrialState:
        """State of the trial, as last read by this process."""
        return self._state

    @property
    def status(self) -> TrialStatus:
        """``running``, ``rolled_back`` or ``promoted``, as last read by this process."""
        return self._state.status

    def refresh(self) -> TrialState:
        """Read the state from the store; :meth:`options` does so every ten seconds."""
        self._text, self._state, self._read = self._load()
        return self._state

    def arm(self, session_id: SessionId) -> Arm:
        """Return the arm of a session: by its hash, or the final arm once the trial has ended.

        Needs no database access.

        Raises:
            InvalidInputError: The session id is empty or of a wrong type.
        """
        drawn = assign_arm(self._name, self._state.share, session_id)
        ended: dict[TrialStatus, Arm] = {"rolled_back": "control", "promoted": "treatment"}
        return ended.get(self._state.status, drawn)

    def namespace(self, user: str, session_id: SessionId) -> str:
        """Return the namespace for a session of a user; needs no database access.

        Raises:
            InvalidInputError: The user or the session id is not valid.
        """
        return self.namespaces(user)[self.arm(session_id)]

    def namespaces(self, user: str) -> dict[Arm, str]:
        """Return the namespaces of a user by arm, for example to freeze or forget them."""
        fresh = self._state.fresh
        return {arm: make_arm_namespace(self._name, arm, user, fresh=fresh) for arm in ARMS}

    def options(
        self, user: str, session_id: SessionId, *, arm: Arm | None = None
    ) -> dict[str, Any]:
        """Return options for ``retrieve`` or ``invoke``: namespace, session and, if running, arm.

        Reads the state of the trial from the store every ten seconds.

        Args:
            user: The user's own namespace.
            session_id: Id of the conversation.
            arm: Overrides the arm, for replays that run a session through both arms.
        """
        if time.monotonic() - self._read > _REFRESH_SECONDS:
            self.refresh()
        state, arm = self._state, self.arm(session_id) if arm is None else _require_arm(arm)
        namespace = make_arm_namespace(self._name, arm, user, fresh=state.fresh)
        session = parse_session(session_id)
        running = {"arm": f"{self._name}:{arm}"} if state.status == "running" else {}
        return {"namespace": namespace, "session": session, **running}

    async def aoptions(
        self, user: str, session_id: SessionId, *, arm: Arm | None = None
    ) -> dict[str, Any]:
        """As :meth:`options`, off the event loop."""
        return await arun(perform(self.options, user, session_id, arm=arm))

    def report(self) -> TrialReport:
        """Compare both arms so far, with intervals and a verdict; changes nothing."""
        state = self.refresh()
        return build_report(self._store, state, until=state.ended or time.time())

    async def areport(self) -> TrialReport:
        """As :meth:`report`, off the event loop."""
        return await arun(perform(self.report))

    def checkpoint(self) -> TrialCheckpoint | None:
        """Compare correction rates since the last checkpoint; end the trial if it has failed.

        Call it regularly, from one process or several.

        Returns:
            The checkpoint; None if there are too few turns, or the trial has ended.

        Raises:
            ConflictError: Another process changed the trial at the same time; try again.
        """
        state = self.refresh()
        if state.status != "running":
            return None
        seen = self._measure_checkpoint(state)
        if seen is None:
            return None
        after = replace(state, checkpoints=(*state.checkpoints, seen))
        if has_failed(after.checkpoints, state.settings.fail_checkpoints):
            after = after.end("rolled_back", format_fail_reason(after))
        self._save(after)
        return seen

    async def acheckpoint(self) -> TrialCheckpoint | None:
        """As :meth:`checkpoint`, off the event loop."""
        return await arun(perform(self.checkpoint))

    def promote(self) -> TrialReport:
        """Give all sessions the treatment, if the verdict is ``promote``.

        Raises:
            InvalidInputError: The verdict differs, or the trial has ended; nothing is changed.
        """
        report = self.report()
        if self.status != "running" or report.verdict != "promote":
            msg = f"trial {self._name!r} cannot be promoted: {report.verdict}, {report.reason}"
            raise InvalidInputError(msg)
        self._save(self._state.end("promoted", report.reason))
        return report

    def roll_back(self, reason: str = "by hand") -> None:
        """Give all sessions the control: here at once, in other processes within ten seconds.

        Raises:
            InvalidInputError: The trial has ended.
        """
        state = self.refresh()
        if state.status != "running":
            msg = f"trial {self._name!r} has ended already: {state.reason}"
            raise InvalidInputError(msg)
        self._save(state.end("rolled_back", reason))

    def _measure_checkpoint(self, state: TrialState) -> TrialCheckpoint | None:
        settings = state.settings
        since = state.checkpoints[-1].until if state.checkpoints else state.started
        until = time.time() - settings.feedback_seconds
        arms = load_turns_by_arm(self._store, state, since=since, until=until)
        control, treatment = (
            (len(arms[arm]), sum(turn.corrected for turn in arms[arm])) for arm in ARMS
        )
        if min(control[0], treatment[0]) < settings.checkpoint_turns:
            return None
        worse = is_worse(control, treatment, settings.fail_ratio)
        return TrialCheckpoint(since, until, *control, *treatment, worse)

    def _load(self) -> tuple[str, TrialState, float]:
        text = TrialQueries(self._store).state(self._name)
        if text is None:
            known = ", ".join(TrialQueries(self._store).names()) or "none"
            msg = f"there is no trial {self._name!r:.100} in this store: it has {known}"
            raise NotFoundError(msg)
        return text, TrialState.from_json(text), time.monotonic()

    def _save(self, after: TrialState) -> None:
        text = after.to_json()
        self._store.write(keep_trial, self._name, self._text, text)
        self._text, self._state, self._read = text, after, time.monotonic()


def _store(memory: MemoryOrStore) -> GraphStore:
    return memory.store if isinstance(memory, CrabPath) else memory


def _require_arm(arm: str) -> Arm:
    for one in ARMS:
        if arm == one:
            return one
    msg = f"arm must be {' or '.join(ARMS)}, not {arm!r:.100}"
    raise InvalidInputError(msg)


def retrieve_nearest(memory: "CrabPath", text: str, **options: Unpack[QueryOptions]) -> "Answer":
    """Retrieve the k chunks with the nearest vectors, regardless of edges and learning.

    The walk runs, and is recorded, but can add nothing; so the latency is that of a full
    retrieval.

    Args:
        memory: The memory to query.
        text: The query.
        options: As for :meth:`CrabPath.retrieve`, such as those of :meth:`Trial.options`;
            ``candidate_ids`` and ``vector`` are overridden.

    Raises:
        InvalidInputError: The query is not valid.
    """
    return run(_retrieve_steps(memory, text, options))


async def aretrieve_nearest(
    memory: "CrabPath", text: str, **options: Unpack[QueryOptions]
) -> "Answer":
    """As :func:`retrieve_nearest`, off the event loop."""
    return await arun(_retrieve_steps(memory, text, options))


def _retrieve_steps(memory: "CrabPath", text: str, options: QueryOptions) -> Operations["Answer"]:
    query = Query.from_options(text, k=options.get("k", 4), filter=options.get("filter"))
    embedder = memory.embedder
    try:
        vector = yield from perform_sync_or_async(
            lambda: embedder.query(query.text), lambda: embedder.aquery(query.text)
        )
    except InvalidInputError:  # without a vector both arms are answered by words
        return (yield from perform(lambda: memory.retrieve(text, **options)))
    ids = yield from perform(memory.index.search, vector, query.k, query.filter)
    options = {**options, "candidate_ids": ids, "vector": vector, "k": query.k}
    answer: Answer = yield from perform(lambda: memory.retrieve(text, **options))
    return answer
