"""Which turns belong to which run: a query, chat or agent call with all that it called."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

_OPEN = 100_000  # spans; those that never end are forgotten, oldest first


@dataclass(slots=True)
class Run:
    """One outermost span of LlamaIndex's trace.

    Attributes:
        turns: Ids of the turns that it asked for, in order.
        answer: What it answered; None without an answer in words.
        names: Values by which the program tagged it.
        streamed: Whether its answer is read after its end.
        raised: Classes of the errors of its parts.
    """

    turns: dict[str, None] = field(default_factory=dict)
    answer: str | None = None
    names: set[str] = field(default_factory=set)
    streamed: bool = False
    raised: set[type[BaseException]] = field(default_factory=set)


class Runs:
    """Open and recent runs, thread-safe and bounded."""

    def __init__(self, keep: int) -> None:
        """Remember the turns of the last ``keep`` runs."""
        self._keep = keep
        self._lock = threading.Lock()
        self._roots: OrderedDict[str, str] = OrderedDict()
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._recent: OrderedDict[str, Run] = OrderedDict()

    def enter(self, span: str, parent: str | None) -> None:
        """A span begins; without a known parent it is the outermost one of a run."""
        with self._lock:
            root = self._roots.get(parent or "", span)
            self._roots[span] = root
            _bound(self._roots, _OPEN)
            if root == span:
                self._runs[span] = Run()
                _bound(self._runs, _OPEN)

    def of(self, span: str | None) -> Run | None:
        """The run that an open span belongs to."""
        with self._lock:
            return self._runs.get(self._roots.get(span or "", ""))

    def add_turns(self, run: Run, turns: Iterable[str], names: Iterable[str]) -> None:
        """A run asked for turns, under names that the program gave it."""
        with self._lock:
            run.turns.update(dict.fromkeys(turns))
            run.names.update(names)

    def leave(self, span: str) -> Run | None:
        """A span ends; returns the run if it was its outermost one and asked for turns."""
        with self._lock:
            root = self._roots.pop(span, None)
            run = self._runs.pop(span, None) if root == span else None
            if run is None or not run.turns:
                return None
            for name in (span, *run.names, *run.turns):
                self._recent[name] = run
                self._recent.move_to_end(name)
            _bound(self._recent, self._keep)
            return run

    def find(self, name: str) -> Run | None:
        """A recent run by its span, by a name that the program gave it, or by one of its turns."""
        with self._lock:
            return self._recent.get(name)


def _bound(held: OrderedDict[str, Run] | OrderedDict[str, str], most: int) -> None:
    while len(held) > most:
        held.popitem(last=False)
