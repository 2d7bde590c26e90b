"""What the events of a chain come to. Both handlers, sync and async, listen with it."""

import logging
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from crabpath_retrievers.callbacks.answers import Answered, read
from crabpath_retrievers.callbacks.found import found_in
from crabpath_retrievers.callbacks.lessons import lessons, most_specific
from crabpath_retrievers.callbacks.recording import Scribe
from crabpath_retrievers.callbacks.runs import Root, Runs
from crabpath_retrievers.callbacks.signals import ABOUT, EVENT, said, seen
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.outcome_policy import PAUSES, Kind, OutcomePolicy, names_of

_log = logging.getLogger(__name__)
_LONGEST = 20_000  # characters of an answer; attribution reads fewer
Read = Callable[[Any], str | None]


class Listener:
    """Follows chains, and says what is to be recorded.

    Its first methods take what LangChain's events give. Only ``told`` and ``about`` may block.
    """

    def __init__(
        self, scribe: Scribe, policy: OutcomePolicy, runs: Runs, answer: Read | None
    ) -> None:
        """Follow chains by ``policy``; ``answer`` finds the answer in an unusual output."""
        self.scribe, self.policy, self.runs = scribe, policy, runs
        self._answer = answer

    def start(
        self,
        _serialized: Any,
        given: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> list[Feedback]:
        """A run of any kind starts."""
        parent = None if parent_run_id is None else str(parent_run_id)
        self.runs.start(str(run_id), parent, metadata, given)
        return []

    def retrieved(self, documents: Any, *, run_id: UUID, **_: Any) -> list[Feedback]:
        """A retriever ends."""
        self.runs.found(str(run_id), documents)
        return self._ended(str(run_id), None)

    def end(self, output: Any, *, run_id: UUID, **_: Any) -> list[Feedback]:
        """A chain or a tool ends."""
        return self._ended(str(run_id), output)

    def spoken(self, output: Any, *, run_id: UUID, **_: Any) -> list[Feedback]:
        """A model ends; where it streamed, it did so to its end."""
        return self._ended(str(run_id), output, streamed=True)

    def error(self, error: BaseException, *, run_id: UUID, **_: Any) -> list[Feedback]:
        """A run fails that is no tool's."""
        return self._failed(str(run_id), error, "chain_error")

    def tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> list[Feedback]:
        """A tool fails, whatever the chain makes of it."""
        return self._failed(str(run_id), error, "tool_error")

    def told(self, name: str, data: Any, *, run_id: UUID, **_: Any) -> list[Feedback]:
        """A chain says what became of it, or of another one that it names.

        Raises:
            InvalidInputError: It says nothing that can be learned from.
            NotFoundError: The run is not known.
        """
        if name != EVENT:
            return []
        if isinstance(data, Mapping) and any(data.get(name) for name in ABOUT):
            return self.about(data)
        for signal in said(data, self.policy):
            if not self.runs.say(str(run_id), signal):
                raise self._unknown(str(run_id))
        return []

    def about(self, data: Mapping[str, Any]) -> list[Feedback]:
        """What is said of a run, a thread or a turn that is named; it may read the store.

        Raises:
            InvalidInputError: It says nothing that can be learned from, or not of what.
            NotFoundError: What it names is not known.
        """
        signal = most_specific(said(data, self.policy))
        named = {name: str(data[name]) for name in ABOUT if data.get(name) is not None}
        if len(named) != 1:
            msg = "say which run is meant: give exactly one of run_id, thread_id and turn_id"
            raise InvalidInputError(msg)
        ((by, name),) = named.items()
        root = self.runs.last(name) if by == "thread_id" else self._run(name)
        if root is None or not root.turns:
            raise self._unknown(name)
        one = name if by == "turn_id" else None
        return lessons(root, signal, one)

    def _run(self, name: str) -> Root | None:
        return self.runs.ended(name) or self.runs.root(name) or self.scribe.asked(name)

    def _ended(self, run_id: str, output: Any, *, streamed: bool = False) -> list[Feedback]:
        root = self.runs.end(run_id, streamed=streamed)
        if root is None:
            return []
        root.answered = self._read(output)
        if not root.turns and (root.resumed or any(s.explicit for s in root.signals)):
            # Another process may have retrieved; the state of a graph has what it found.
            root.turns = {turn.turn_id: turn for turn in found_in(output)}
        if root.answered.text:
            root.signals += seen("silent_success", self.policy)
        return self._settled(root, counts=root.complete)

    def _failed(self, run_id: str, error: BaseException, kind: Kind) -> list[Feedback]:
        names = names_of(type(error))
        if names & PAUSES:
            self.runs.pause(run_id)
        counts = self.policy.about_documents(names)
        if counts and kind == "tool_error":
            self.runs.say(run_id, *seen(kind, self.policy))
        root = self.runs.end(run_id)
        if root is None:
            return []
        if counts and kind == "chain_error":
            root.signals += seen(kind, self.policy)
        return self._settled(root, counts=counts)

    def _settled(self, root: Root, *, counts: bool) -> list[Feedback]:
        """What a chain that ended teaches.

        What somebody said counts in any case; what was only seen once the chain is complete.
        """
        explicit = [signal for signal in root.signals if signal.explicit]
        chosen = most_specific(root.signals if counts and not root.paused else explicit)
        goes_on = root.paused and chosen is None
        root.signals = [s for s in root.signals if goes_on and s.kind == "tool_error"]
        about = root
        if not root.turns and explicit:
            about = self.runs.last(root.thread or "") or root
            if not about.turns:
                _log.warning("nothing was retrieved in run %s: its feedback is lost", root.id)
        self.runs.keep(root)
        return lessons(about, chosen)

    def _read(self, output: Any) -> Answered:
        found = read(output)
        text = found.text if self._answer is None else self._answer(output)
        return found._replace(text=text and str(text)[:_LONGEST])

    def _unknown(self, name: str) -> NotFoundError:
        msg = (
            f"no run, thread or turn {name!r} with retrieved documents is known here: give the run "
            "id of the chain or of the retriever, or a document's "
            'metadata["crabpath"]["turn_id"]; turns are found as long as they are kept, chains '
            f"and threads only for {self.runs.kept}"
        )
        return NotFoundError(msg)
