"""Spans and metrics through the API of OpenTelemetry, which does nothing until an SDK is set up.

Names follow the semantic conventions for generative AI; our own begin with ``crabpath.``.
docs/how-to/trace.md lists all of them.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, Protocol, TypeVar, cast
from weakref import WeakSet

from opentelemetry.context import attach, detach
from opentelemetry.metrics import (
    CallbackOptions,
    Counter,
    Histogram,
    Meter,
    MeterProvider,
    Observation,
    get_meter,
)
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    get_tracer,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, Receipt
from crabpath_retrievers.core.query import QueryOptions
from crabpath_retrievers.core.time_limit import limit_waiting, shorten_waiting
from crabpath_retrievers.core.turn import Turn

CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Environment variable: ``true``, ``span_only`` or ``span_and_event`` also records contents."""

_SCOPE = "crabpath_retrievers"
_CAPTURED = frozenset({"true", "span_only", "span_and_event"})
_LIFT_BUCKETS = (-1.0, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0)
_BUCKET_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_PATIENCE = 1.0  # seconds that one reading of the gauge may wait for a database

_log = logging.getLogger(__name__)
_tracer = get_tracer(_SCOPE)
F = TypeVar("F", bound=Callable[..., Any])


class _Embedder(Protocol):
    @property
    def model(self) -> str:
        """Name of the model."""


class ObservedMemory(Protocol):
    """Attributes of a memory in spans and metrics."""

    @property
    def data_source(self) -> str:
        """URL of its database, without password."""

    @property
    def embedder(self) -> _Embedder:
        """Turns texts into vectors."""

    @property
    def settings(self) -> Any:
        """Its settings, with the time limit."""

    @property
    def is_open(self) -> bool:
        """Whether it was not closed."""

    def count_waiting(self) -> int:
        """Count the feedback that waits to be learned from."""


# Spans.


@contextmanager
def trace_operation(operation: str, data_source: str) -> Iterator[Span]:
    """The current span while an operation on a memory goes on.

    Args:
        operation: ``gen_ai.operation.name``.
        data_source: URL of the database of the memory, without password.

    Yields:
        The span; it records only where ``is_recording()``.
    """
    span = _tracer.start_span(f"{operation} {data_source}", kind=SpanKind.CLIENT)
    if span.is_recording():
        span.set_attribute("gen_ai.operation.name", operation)
        span.set_attribute("gen_ai.provider.name", "crabpath")
    token = attach(set_span_in_context(span))
    try:
        yield span
    except GeneratorExit:  # an abandoned coroutine is closed in another context
        raise
    except BaseException as error:
        detach(token)
        if span.is_recording():
            _set_error(span, error)
        raise
    else:
        detach(token)
    finally:
        span.end()


def _set_error(span: Span, error: BaseException) -> None:
    """Record the class of an error; its message, which may quote contents, only where captured."""
    span.set_attribute("error.type", type(error).__qualname__)
    if captures_content():
        span.set_status(Status(StatusCode.ERROR, str(error)))
        span.record_exception(error)
    else:
        span.set_status(Status(StatusCode.ERROR))


def captures_content() -> bool:
    """Whether spans may hold questions, ids of documents and messages of errors."""
    return os.environ.get(CAPTURE_CONTENT, "").strip().lower() in _CAPTURED


@contextmanager
def trace_retrieval(memory: ObservedMemory, text: str, options: QueryOptions) -> Iterator[Span]:
    """The span of one query within its time limit, which is also counted and timed.

    See :func:`describe_turn`.
    """
    begun, failed = time.perf_counter(), dict[str, AttributeValue]()
    limited = limit_waiting(memory.settings.time_limit)
    with limited, trace_operation("retrieval", memory.data_source) as span:
        try:
            if span.is_recording():
                _describe_query(span, memory, text, options)
            yield span
        except BaseException as error:
            failed["error.type"] = type(error).__qualname__
            raise
        finally:  # while the span is current, so that exemplars name it
            seconds = time.perf_counter() - begun
            for instruments in _instruments:
                instruments.queries.add(1, failed)
                instruments.duration.record(seconds, failed)


def _describe_query(span: Span, memory: ObservedMemory, text: str, options: QueryOptions) -> None:
    span.set_attribute("gen_ai.data_source.id", memory.data_source)
    span.set_attribute("gen_ai.request.model", memory.embedder.model)
    k = options.get("k", 4)
    if isinstance(k, int):  # else the query is refused
        span.set_attribute("gen_ai.retrieval.top_k", k)
    namespace = options.get("namespace", DEFAULT_NAMESPACE)
    if isinstance(namespace, str):  # else the query is refused, too
        span.set_attribute("crabpath.namespace", namespace)
    if captures_content():
        span.set_attribute("gen_ai.retrieval.query.text", str(text))


def describe_turn(span: Span, turn: Turn) -> None:
    """Add the result of a query to its span, if the span records."""
    if not span.is_recording():
        return
    # Behind the check, since reading the steps builds them.
    habitual = [[c.target for c in s.candidates if c.tier == "habitual"] for s in turn.steps]
    declined = [
        target
        for step, targets in zip(turn.steps, habitual, strict=True)
        for target in targets
        if target not in step.chosen
    ]
    span.set_attributes(
        {
            "crabpath.turn": turn.id,
            "crabpath.namespace": turn.namespace,
            "crabpath.returned": len(turn.returned),
            "crabpath.hops": max((step.hop + 1 for step in turn.steps), default=0),
            "crabpath.offered": sum(map(len, habitual)),
            "crabpath.declined": len(declined),
        }
    )
    if captures_content():
        documents = [{"id": item.node, "score": item.probability} for item in turn.returned]
        span.set_attribute("gen_ai.retrieval.documents", json.dumps(documents))


def trace_memory(
    operation: str, describe: Callable[[Any], Mapping[str, AttributeValue]] = lambda _: {}
) -> Callable[[F], F]:
    """Trace a method of a component of a memory.

    Args:
        operation: ``gen_ai.operation.name``.
        describe: Attributes from the result of the method.
    """

    def decorate(method: F) -> F:
        usual = (method.__kwdefaults__ or {}).get("namespace")

        @wraps(method)
        def call(self: Any, *args: Any, **options: Any) -> Any:
            source = self._all_services.data_source
            with trace_operation(operation, source) as span:
                result = method(self, *args, **options)
                if span.is_recording():
                    describe_memory(span, source, options.get("namespace", usual), describe(result))
                return result

        return cast("F", call)

    return decorate


def describe_memory(
    span: Span, data_source: str, namespace: object, more: Mapping[str, AttributeValue]
) -> None:
    """Add attributes to the span of an operation on a memory, if it records."""
    if span.is_recording():
        span.set_attribute("gen_ai.memory.store.id", data_source)
        if isinstance(namespace, str):
            span.set_attribute("crabpath.namespace", namespace)
        span.set_attributes(more)


def name_record(record: str) -> Mapping[str, AttributeValue]:
    """Attributes that name the one record of an operation."""
    return {"gen_ai.memory.record.id": record, "gen_ai.memory.record.count": 1}


def describe_receipt(receipt: Receipt) -> Mapping[str, AttributeValue]:
    """Attributes of feedback that was recorded or undone."""
    return {**name_record(receipt.feedback_id), "crabpath.feedback.status": receipt.status}


def count_records(count: int) -> Mapping[str, AttributeValue]:
    """Attributes of an operation on several records."""
    return {"gen_ai.memory.record.count": count}


# Metrics.


class _Instruments(NamedTuple):
    """The instruments of one meter."""

    queries: Counter
    duration: Histogram
    feedback: Counter
    learned: Counter
    lift: Histogram


def _make_instruments(meter: Meter) -> _Instruments:
    meter.create_observable_gauge(
        "crabpath.waiting",
        [_observe_waiting],
        unit="{feedback}",
        description="Feedback of the open memories that waits to be learned from",
    )
    return _Instruments(
        meter.create_counter("crabpath.queries", "{query}", "Queries, failed ones too"),
        meter.create_histogram(
            "crabpath.query.duration",
            "s",
            "Duration of queries",
            explicit_bucket_boundaries_advisory=_BUCKET_SECONDS,
        ),
        meter.create_counter("crabpath.feedback", "{feedback}", "Recorded feedback by status"),
        meter.create_counter("crabpath.learned", "{feedback}", "Feedback that was learned from"),
        meter.create_histogram(
            "crabpath.lift",
            description="What learning gained on turns judged without regard to what was shown",
            explicit_bucket_boundaries_advisory=_LIFT_BUCKETS,
        ),
    )


def _observe_waiting(_options: CallbackOptions) -> Iterable[Observation]:
    """The count over all open memories; no observation where a database does not answer."""
    counts: dict[str, int] = {}
    try:
        with shorten_waiting(_PATIENCE):
            for memory in tuple(_memories):
                if memory.is_open and memory.data_source not in counts:
                    counts[memory.data_source] = memory.count_waiting()
    except Exception:
        _log.debug("waiting feedback cannot be counted", exc_info=True)
        return []
    return [Observation(sum(counts.values()))] if counts else []


_memories: WeakSet[Any] = WeakSet()
_instruments = [_make_instruments(get_meter(_SCOPE))]


def observe_memory(memory: ObservedMemory) -> None:
    """Count the waiting feedback of a memory in the metrics, until it is closed."""
    _memories.add(memory)


def count_receipt(status: str) -> None:
    """Count feedback that was recorded."""
    for instruments in _instruments:
        instruments.feedback.add(1, {"crabpath.feedback.status": status})


def count_lesson(gained: float | None = None) -> None:
    """Count feedback that was learned from.

    Args:
        gained: What learning gained on its turns; None where it does not tell.
    """
    for instruments in _instruments:
        instruments.learned.add(1)
        if gained is not None:
            instruments.lift.record(gained)


def report_metrics(provider: MeterProvider) -> None:
    """Report metrics from now on to a provider besides that of the process."""
    _instruments.append(_make_instruments(provider.get_meter(_SCOPE)))
