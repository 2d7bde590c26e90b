"""Keeps track of runs (query, chat or agent calls) and their turns.

Follows the spans of LlamaIndex's trace, to tell when a run ends.
"""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation.span import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler

from crabpath_retrievers.integration import make_lock

_OPEN = 100_000  # open spans to remember; the oldest are dropped


@dataclass(slots=True)
class QueryRun:
    """One outermost span of LlamaIndex's trace.

    Attributes:
        turns: Ids of its turns, in order.
        answer: Its answer; None without a text.
        names: Values of the program's tags.
        streamed: Whether its answer is read after its end.
        raised: Exception classes of its parts.
    """

    turns: dict[str, None] = field(default_factory=dict)
    answer: str | None = None
    names: set[str] = field(default_factory=set)
    streamed: bool = False
    raised: set[type[BaseException]] = field(default_factory=set)


class QueryTracker:
    """Open and recent runs, thread-safe and bounded."""

    def __init__(self, keep: int) -> None:
        """Remember the turns of the last ``keep`` runs."""
        self._keep = keep
        self._lock = make_lock()
        self._roots: OrderedDict[str, str] = OrderedDict()
        self._runs: OrderedDict[str, QueryRun] = OrderedDict()
        self._recent: OrderedDict[str, QueryRun] = OrderedDict()

    def enter(self, span: str, parent: str | None) -> None:
        """Start a span; without a known parent it is the outermost one of a run."""
        with self._lock:
            root = self._roots.get(parent or "", span)
            self._roots[span] = root
            _bound(self._roots, _OPEN)
            if root == span:
                self._runs[span] = QueryRun()
                _bound(self._runs, _OPEN)

    def of(self, span: str | None) -> QueryRun | None:
        """Return the run of an open span."""
        with self._lock:
            return self._runs.get(self._roots.get(span or "", ""))

    def add_turns(self, run: QueryRun, turns: Iterable[str], names: Iterable[str]) -> None:
        """Add turns and names to a run."""
        with self._lock:
            run.turns.update(dict.fromkeys(turns))
            run.names.update(names)

    def leave(self, span: str) -> QueryRun | None:
        """End a span; return its run if the span was the outermost one and the run has turns."""
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

    def find(self, name: str) -> QueryRun | None:
        """Find a recent run by its span id, a name, or the id of a turn."""
        with self._lock:
            return self._recent.get(name)


def _bound(held: OrderedDict[str, QueryRun] | OrderedDict[str, str], most: int) -> None:
    while len(held) > most:
        held.popitem(last=False)


OnRunEnd = Callable[[QueryRun, Any, BaseException | None], None]


class SpanWatcher(BaseSpanHandler[BaseSpan]):
    """Follows spans, and keeps only their runs."""

    _runs: QueryTracker = PrivateAttr()
    _ended: OnRunEnd = PrivateAttr()

    def __init__(self, runs: QueryTracker, ended: OnRunEnd) -> None:
        """Track ``runs``; call ``ended`` with each ended run with turns, its result and error."""
        super().__init__()
        self._runs, self._ended = runs, ended

    def new_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,  # noqa: ARG002  the base passes all by name
        instance: Any | None = None,  # noqa: ARG002
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,  # noqa: ARG002
        **_kwargs: Any,
    ) -> None:
        """Handle the start of a span."""
        self._runs.enter(id_, parent_span_id)

    def prepare_to_exit_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,  # noqa: ARG002
        instance: Any | None = None,  # noqa: ARG002
        result: Any | None = None,
        **_kwargs: Any,
    ) -> None:
        """Handle the end of a span without error."""
        if run := self._runs.leave(id_):
            self._ended(run, result, None)

    def prepare_to_drop_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,  # noqa: ARG002
        instance: Any | None = None,  # noqa: ARG002
        err: BaseException | None = None,
        **_kwargs: Any,
    ) -> None:
        """Handle the end of a span with an error."""
        run = self._runs.of(id_)
        if run is not None and err is not None:
            run.raised.add(type(err))
        if run := self._runs.leave(id_):
            self._ended(run, None, err)
