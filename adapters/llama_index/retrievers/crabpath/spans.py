"""Follows the spans of LlamaIndex's trace, to tell when a run ends."""

import inspect
from collections.abc import Callable
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation.span import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler

from llama_index.retrievers.crabpath.runs import QueryRun, QueryTracker

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
