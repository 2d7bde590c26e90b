"""``memory.learning``: feedback that waits or was given, its undo, replays, and anchored nodes."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from typing_extensions import Unpack

from crabpath_retrievers.core.changes.notes import SetAuthority
from crabpath_retrievers.core.driver import AsyncView, off_loop, run
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, Feedback, Receipt, RewardSource
from crabpath_retrievers.core.graph import Authority
from crabpath_retrievers.core.query import (
    QueryOptions,
    namespace_of,
    path_of,
    require_count,
    require_flags,
    text_of,
    texts_of,
)
from crabpath_retrievers.core.telemetry import (
    count_records,
    describe_turn,
    trace_memory,
    trace_retrieval,
)
from crabpath_retrievers.core.time_limit import limit_waiting
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.learning.queue import LearningTally
from crabpath_retrievers.memory.notes import resolve_nodes
from crabpath_retrievers.memory.services import Component, Services
from crabpath_retrievers.rerank.features import Evidence
from crabpath_retrievers.storage.read.history import FeedbackFilter, FeedbackRecord
from crabpath_retrievers.storage.read.learned import DocumentUse
from crabpath_retrievers.transfer.replay_file import (
    LineError,
    ReplayCheckpoint,
    ReplayLine,
    ReplayRecord,
    find_bad_lines,
    hash_lines,
    parse_line,
    read_lines,
)


class ReplayReport(NamedTuple):
    """What a replay did, in numbers of lines.

    Attributes:
        asked: Asked in this run.
        learned: Learned from in this run.
        waiting: Their feedback waits to be learned from.
        before: Replayed in an earlier run, and skipped now.
        refused: Nothing was learned from them, each with the reason.
        bad: They cannot be replayed, each with the reason.
    """

    asked: int
    learned: int
    waiting: int
    before: int
    refused: tuple[LineError, ...]
    bad: tuple[LineError, ...]


class MemoryLearning(Component):
    """Learn from waiting feedback, list and undo feedback, replay sessions, anchor nodes."""

    @trace_memory("update_memory", lambda tally: count_records(sum(tally)))
    def learn_waiting(self) -> LearningTally:
        """Learn from the feedback that waits, and index what was learned elsewhere.

        For memories whose ``settings.learning.apply`` leaves learning to others, and after a store
        was away. What another process has learned, such as ``crabpath learn``, is read from the
        graph store until this has indexed it.

        Returns:
            How much was applied, refused, or cannot be learned from.

        Raises:
            StoreError: A store failed; the rest goes on waiting.
        """
        return self._services.recorder.learn_waiting()

    def feedback(
        self,
        *,
        user: str | None = None,
        source: RewardSource | None = None,
        namespace: str | None = None,
        turn_id: str | UUID | None = None,
        limit: int = 100,
    ) -> list[FeedbackRecord]:
        """List the recorded feedback with its status, newest first.

        Args:
            user: Only feedback of this user.
            source: Only feedback of this source: ``human``, ``self``, ``harvested`` or ``teacher``.
            namespace: Only feedback of this namespace.
            turn_id: Only feedback about this turn, by its id or that of the host's run.
            limit: How many at most, at least 1.

        Raises:
            InvalidInputError: An argument cannot be used.
        """
        with limit_waiting(self._services.settings.time_limit):
            limit = require_count("limit", limit)
            giver = FeedbackFilter.of(user=user, source=source, namespace=namespace)
            turn = None if turn_id is None else text_of("turn_id", turn_id)
            return self._services.store.history.find_feedback(giver, limit, turn=turn)

    def usage(
        self, *, namespace: str = DEFAULT_NAMESPACE, least: bool = False, limit: int = 10
    ) -> list[DocumentUse]:
        """The chunks and notes that were most useful to a namespace, by feedback that said so.

        Those that were used at least as often as not; with ``least`` the others.

        Args:
            namespace: The namespace whose feedback counts.
            least: The least useful instead: what was returned and not used.
            limit: How many at most, at least 1.

        Raises:
            InvalidInputError: An argument cannot be used.

        Example::

            memory.learning.usage(limit=5)
        """
        limit = require_count("limit", limit)
        require_flags(least=least)
        store, name = self._services.store, namespace_of(namespace)
        with limit_waiting(self._services.settings.time_limit):
            return store.learned.rank_by_use(store.walk.get_clock(name).key, limit, least=least)

    @trace_memory("update_memory", lambda receipts: count_records(len(receipts)))
    def undo_all(
        self,
        *,
        user: str | None = None,
        source: RewardSource | None = None,
        namespace: str | None = None,
    ) -> list[Receipt]:
        """Undo all feedback of one user or one source, the latest first.

        Each feedback is undone as by ``CrabPath.undo``, in a transaction of its own; so are the
        notes that its corrections created.

        Args:
            user: The user whose feedback is undone.
            source: Instead, or with ``user``: ``human``, ``self``, ``harvested`` or ``teacher``.
            namespace: Only feedback of this namespace; None for all.

        Returns:
            One receipt for each feedback.

        Raises:
            InvalidInputError: Neither user nor source was given, or one cannot be used.
        """
        return self._services.history.undo_all(user, source, namespace)

    def anchor(
        self,
        ids: Sequence[str] | str,
        authority: str = "constitutional",
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> int:
        """Set the authority of nodes: what has more of it stands before others that fit as well.

        The weights of edges that lead to it decay more slowly. Documents keep their authority when
        they are updated. Learned weights do not change now.

        Args:
            ids: Ids of chunks or notes, or of whole documents.
            authority: ``overlay``, ``canonical`` or ``constitutional``, as for ``CrabPath.teach``.
            namespace: The namespace that may find the notes among them.

        Returns:
            How many nodes were set.

        Raises:
            InvalidInputError: There is no such authority.
            NotFoundError: An id does not exist in this namespace.
        """
        rank = Authority.of(authority)
        keys = resolve_nodes(self._services.store, texts_of(ids), namespace_of(namespace))
        self._services.store.apply([SetAuthority(tuple(keys.values()), rank)])
        return len(keys)

    def evidence(self, /, text: str, **options: Unpack[QueryOptions]) -> Evidence:
        """All candidates of a query with their feature values, for fitting and analysis.

        No turn is recorded.

        Args:
            text: The question.
            options: Fields of :class:`~crabpath_retrievers.core.query.Query`.
        """
        return run(self._services.retrieval.evidence(text, options))

    def replay(
        self,
        sessions: str | Path,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        k: int = 4,
        checkpoint: str | Path | None = None,
        skip_bad: bool = False,
    ) -> ReplayReport:
        """Ask the questions of recorded sessions again, in order, and learn from their outcomes.

        Each line of the file is an object with ``query`` and optionally ``outcome`` in [-1, 1],
        ``answer``, ``used`` (ids), ``correction`` and ``task_type``; ``session`` and ``time`` are
        checked and otherwise ignored. A line without an outcome is only asked. No line is asked or
        learned from twice, however often the same file is replayed into a namespace, also after
        the process was killed; lines that were added to the file since are replayed.

        Args:
            sessions: The file.
            namespace: The namespace that learns.
            k: Documents to retrieve.
            checkpoint: A file that saves the progress; without it every line is looked up in the
                memory.
            skip_bad: Skip lines that cannot be replayed, and report them.

        Raises:
            InvalidInputError: A line cannot be replayed, and nothing was learned from any; or the
                checkpoint belongs to something else.
            StoreError: A store failed; replay the same file to go on.
        """
        require_flags(skip_bad=skip_bad)
        path, name = path_of("sessions", sessions), namespace_of(namespace)
        bad = () if skip_bad else tuple(find_bad_lines(path))
        if bad:
            msg = f"line {bad[0].line} of {path}: {bad[0].why}; nothing was learned"
            raise InvalidInputError(msg)
        replay = _Replay(self._services, name, k)
        progress_file = None if checkpoint is None else path_of("checkpoint", checkpoint)
        done = ReplayCheckpoint()
        if progress_file is not None:
            done = replay.read_checkpoint(progress_file, path)
        for line, digest in hash_lines(read_lines(path)):
            if line.number <= done.line:
                replay.before += 1
                continue
            replay.add_line(line)
            if progress_file is not None:
                self._services.store.flush()
                done = ReplayCheckpoint(line.number, digest, replay.last or done.name)
                done.write(progress_file)
        return replay.report()


class AsyncMemoryLearning(AsyncView[MemoryLearning]):
    """``memory.aio.learning``: :class:`MemoryLearning`, awaited."""

    learn_waiting = off_loop(MemoryLearning.learn_waiting, slow=True)
    feedback = off_loop(MemoryLearning.feedback)
    usage = off_loop(MemoryLearning.usage)
    undo_all = off_loop(MemoryLearning.undo_all, slow=True)
    anchor = off_loop(MemoryLearning.anchor)
    evidence = off_loop(MemoryLearning.evidence)
    replay = off_loop(MemoryLearning.replay, slow=True)


class _Replay:
    """Replays lines into one namespace, and counts what they led to."""

    def __init__(self, services: Services, namespace: str, k: int) -> None:
        self._services, self._namespace, self._k = services, namespace, k
        self.asked = self.learned = self.waiting = self.before = 0
        self._refused: list[LineError] = []
        self._bad: list[LineError] = []
        self.last = ""

    def read_checkpoint(self, file: Path, sessions: Path) -> ReplayCheckpoint:
        """The progress that was saved.

        Raises:
            InvalidInputError: It belongs to other sessions, another memory or another namespace.
        """
        done = ReplayCheckpoint.load(file)
        digests = (
            digest for line, digest in hash_lines(read_lines(sessions)) if line.number == done.line
        )
        same = not done.line or next(digests, None) == done.digest
        if not (same and (not done.name or self._is_known(done.name))):
            msg = (
                f"the checkpoint {file} belongs to other sessions, another memory or another "
                "namespace: delete it to begin anew; no line is learned from twice"
            )
            raise InvalidInputError(msg)
        return done

    def _is_known(self, name: str) -> bool:
        """Whether a line was replayed before."""
        known = self._services.store.history.get_feedback_state(name, self._namespace)
        turns = self._services.store.turns
        return known is not None or turns.find(name, namespace=self._namespace) is not None

    def add_line(self, line: ReplayLine) -> None:
        """Replay one line, unless it was replayed before or cannot be."""
        try:
            past = parse_line(line)
        except InvalidInputError as error:
            self._bad.append(LineError(line.number, str(error)))
            return
        self.last = name = line.name(self._namespace)
        if (
            past.said is not None
            and self._services.store.history.get_feedback_state(name, self._namespace) is not None
        ):
            self.before += 1
            return
        turn = self._ask(past, name)
        if past.said is not None:
            self._record(
                line, Feedback(turn, feedback_id=name, namespace=self._namespace, **past.said)
            )

    def _ask(self, past: ReplayRecord, name: str) -> str:
        """Id of the turn; a line that was asked and then interrupted is not asked again."""
        asked = self._services.store.turns.find(name, namespace=self._namespace)
        if asked is not None:
            self.before += past.said is None
            return asked.turn.id
        self.asked += 1
        services = self._services
        options: QueryOptions = {
            "k": self._k,
            "namespace": self._namespace,
            "task_type": past.task_type,
            "run_id": name,
        }
        with (
            limit_waiting(services.settings.time_limit),
            trace_retrieval(services, past.query, options) as span,
        ):
            turn = run(services.retrieval.steps(past.query, options)).turn
            describe_turn(span, turn)
            return turn.id

    def _record(self, line: ReplayLine, feedback: Feedback) -> None:
        with limit_waiting(self._services.settings.time_limit):
            receipt = self._services.recorder.record(feedback)
        self.learned += receipt.status == "applied"
        self.waiting += receipt.status == "waiting"
        if receipt.status == "refused":
            self._refused.append(LineError(line.number, str(receipt.note)))

    def report(self) -> ReplayReport:
        """What was done."""
        counts = (self.asked, self.learned, self.waiting, self.before)
        return ReplayReport(*counts, tuple(self._refused), tuple(self._bad))
