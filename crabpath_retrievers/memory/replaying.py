"""Past sessions gone through again, so that a memory knows what they teach."""

from pathlib import Path
from typing import NamedTuple

from crabpath_retrievers.checkpoint import Checkpoint
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.memory.asking import Asking
from crabpath_retrievers.memory.outcomes import Outcomes
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE, Feedback
from crabpath_retrievers.query import namespace_of, path_of, require_flags
from crabpath_retrievers.sessions import (
    Line,
    Past,
    Trouble,
    lines_of,
    past_of,
    summed,
    troubles,
)


class Replayed(NamedTuple):
    """What a replay did, in lines.

    Attributes:
        asked: Asked now.
        learned: Learned from now.
        waiting: Whose feedback waits to be learned from.
        before: Replayed before, and passed over now.
        refused: From which nothing was learned, each with the reason.
        bad: That cannot be replayed, each with the reason.
    """

    asked: int
    learned: int
    waiting: int
    before: int
    refused: tuple[Trouble, ...]
    bad: tuple[Trouble, ...]


class Replaying(Asking, Outcomes):
    """How a memory learns from sessions of the past."""

    def replay(
        self,
        sessions: str | Path,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        k: int = 4,
        checkpoint: str | Path | None = None,
        skip_bad: bool = False,
    ) -> Replayed:
        """Ask what was asked in past sessions, and learn from how they ended, in their order.

        Each line of the file is an object: ``query``; and, as far as known, ``outcome`` in
        [-1, 1], ``answer``, ``used`` (ids), ``correction``, ``task_type``; ``session`` and
        ``time`` are checked and otherwise left to their reader. A line without an outcome is only
        asked. No line is asked or learned from twice, however often the same file is replayed
        for a namespace, also after a kill, and lines that were added to it since are gone through.

        Args:
            sessions: The file.
            namespace: Who learns.
            k: Documents to retrieve.
            checkpoint: A file that remembers how far the replay is; without it every line is
                looked up in the memory.
            skip_bad: Pass over lines that cannot be replayed, and tell them.

        Raises:
            InvalidInputError: A line cannot be replayed, and nothing was learned from any; or the
                checkpoint belongs to something else.
            StoreError: A store failed; replay the same file to go on.
        """
        self._require_open()
        require_flags(skip_bad=skip_bad)
        path, space = path_of("sessions", sessions), namespace_of(namespace)
        bad = () if skip_bad else tuple(troubles(path))
        if bad:
            msg = f"line {bad[0].line} of {path}: {bad[0].why}; nothing was learned"
            raise InvalidInputError(msg)
        kept = None if checkpoint is None else path_of("checkpoint", checkpoint)
        done = Checkpoint() if kept is None else self._begun(kept, path, space)
        tally = _Tally(self, space, k)
        for line, digest in summed(lines_of(path)):
            if line.number <= done.line:
                tally.before += 1
                continue
            tally.take(line)
            if kept is not None:
                self.store.settle()
                done = Checkpoint(line.number, digest, tally.last or done.name)
                done.write(kept)
        return tally.result()

    def _begun(self, kept: Path, path: Path, namespace: str) -> Checkpoint:
        """How far a replay is, of which a checkpoint tells."""
        done = Checkpoint.load(kept)
        sums = (digest for line, digest in summed(lines_of(path)) if line.number == done.line)
        same = not done.line or next(sums, None) == done.digest
        if not (same and (not done.name or self._is_known(done.name, namespace))):
            msg = (
                f"the checkpoint {kept} belongs to other sessions, another memory or another "
                "namespace: delete it to begin anew; no line is learned from twice"
            )
            raise InvalidInputError(msg)
        return done

    def _is_known(self, name: str, namespace: str) -> bool:
        """Whether a line was replayed before."""
        stands = self.store.history.feedback(name)
        if stands is not None:
            return stands.namespace == namespace
        return self.store.turns.find(name, namespace=namespace) is not None


class _Tally:
    """Goes through lines and counts what became of them."""

    def __init__(self, memory: Replaying, namespace: str, k: int) -> None:
        self._memory, self._namespace, self._k = memory, namespace, k
        self.asked = self.learned = self.waiting = self.before = 0
        self._refused: list[Trouble] = []
        self._bad: list[Trouble] = []
        self.last = ""

    def take(self, line: Line) -> None:
        """Replay one line, unless it was replayed before or cannot be."""
        try:
            past = past_of(line)
        except InvalidInputError as error:
            self._bad.append(Trouble(line.number, str(error)))
            return
        self.last = name = line.name(self._namespace)
        if past.said is not None and self._memory.store.history.feedback(name) is not None:
            self.before += 1
            return
        turn = self._turn(past, name)
        if past.said is not None:
            self._say(
                line, Feedback(turn, feedback_id=name, namespace=self._namespace, **past.said)
            )

    def _turn(self, past: Past, name: str) -> str:
        """Id of the turn; a line that was asked and then interrupted is not asked again."""
        asked = self._memory.store.turns.find(name, namespace=self._namespace)
        if asked is not None:
            self.before += past.said is None
            return asked.turn.id
        self.asked += 1
        answer = self._memory.retrieve(
            past.query,
            k=self._k,
            namespace=self._namespace,
            task_type=past.task_type,
            run_id=name,
        )
        return answer.turn.id

    def _say(self, line: Line, feedback: Feedback) -> None:
        receipt = self._memory.record(feedback)
        self.learned += receipt.status == "applied"
        self.waiting += receipt.status == "waiting"
        if receipt.status == "refused":
            self._refused.append(Trouble(line.number, str(receipt.note)))

    def result(self) -> Replayed:
        """What was done."""
        counts = (self.asked, self.learned, self.waiting, self.before)
        return Replayed(*counts, tuple(self._refused), tuple(self._bad))
