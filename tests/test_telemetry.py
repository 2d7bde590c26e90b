"""Spans and metrics of OpenTelemetry, as the SDK of a host receives them."""

import asyncio
import gc
import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.vectorstores import InMemoryVectorStore
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from proxy import Proxy

from crabpath_retrievers import CrabPath, CrabPathRetriever, Feedback, InvalidInputError, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.calls import describe_turn
from crabpath_retrievers.core.records import LazySteps

FAKE = DeterministicFakeEmbedding(size=16)
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "trace.md"
PAGES = [
    Document(f"Text {n} tells of Page {n + 1}.", id=f"d{n}", metadata={"title": f"Page {n}"})
    for n in range(12)
]


class Exporter(InMemorySpanExporter):
    """Keeps spans while it is on: those of other tests would fill the memory."""

    on = False

    def export(self, spans):
        return super().export(spans) if self.on else SpanExportResult.SUCCESS


@pytest.fixture(scope="session")
def session_exporter():
    """Of the SDK of this process, which is set up once."""
    exporter, provider = Exporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def exporter(session_exporter):
    """Keeps the spans that end during a test."""
    session_exporter.on = True
    yield session_exporter
    session_exporter.on = False
    session_exporter.clear()


@pytest.fixture(scope="session")
def reader():
    """What reads the metrics of this process."""
    reads = InMemoryMetricReader()
    provider = MeterProvider([reads])
    metrics.set_meter_provider(provider)
    yield reads
    provider.shutdown()


@pytest.fixture
def memory(exporter, tmp_path, monkeypatch):
    """Pages that mention each other, and no span yet."""
    monkeypatch.delenv(CAPTURE, raising=False)
    with CrabPath.open(tmp_path / "memory", embeddings=FAKE) as opened:
        opened.add_documents(PAGES, split=False)
        exporter.clear()
        yield opened


@pytest.fixture
def take(exporter):
    """Takes the spans of the library that have ended since the last time."""

    def take():
        found = exporter.get_finished_spans()
        exporter.clear()
        return [s for s in found if s.instrumentation_scope.name == "crabpath_retrievers"]

    return take


def read_metrics(reader):
    """Each metric's value or count by name and attributes, and its unit by name."""
    found, units = {}, {}
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                units[metric.name] = metric.unit
                for point in metric.data.data_points:
                    key = (metric.name, *sorted(dict(point.attributes).items()))
                    found[key] = getattr(point, "value", None)
                    if found[key] is None:
                        found[key] = point.count
    return found, units


async def ask(memory, how, text, **options):
    """The answer, by one of the two ways to ask."""
    if how == "sync":
        return memory.retrieve(text, **options)
    return await memory.aio.retrieve(text, **options)


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_a_query_is_a_retrieval_span(memory, take, how):
    """Of the conventions' names; what the question said is not in it."""
    answer = await ask(memory, how, "What does Page 3 tell?", k=2, namespace="ann")
    (span,) = take()
    source = memory.store.name
    assert (span.name, span.kind) == (f"retrieval {source}", SpanKind.CLIENT)
    assert span.status.status_code is StatusCode.UNSET
    habitual = [
        (step, edge)
        for step in answer.turn.steps
        for edge in step.candidates
        if edge.tier == "habitual"
    ]
    declined = [edge for step, edge in habitual if edge.target not in step.chosen]
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.provider.name": "crabpath",
        "gen_ai.data_source.id": source,
        "gen_ai.request.model": "DeterministicFakeEmbedding",
        "gen_ai.retrieval.top_k": 2,
        "crabpath.namespace": "ann",
        "crabpath.turn": answer.turn.id,
        "crabpath.returned": 2,
        "crabpath.hops": max(step.hop for step in answer.turn.steps) + 1,
        "crabpath.offered": len(habitual),
        "crabpath.declined": len(declined),
    }
    assert len(habitual) > 0


@pytest.mark.parametrize("said", ["true", "SPAN_ONLY", "span_and_event"])
@pytest.mark.parametrize("how", ["sync", "async"])
async def test_question_and_documents_are_recorded_where_wanted(
    memory, take, monkeypatch, how, said
):
    """By the variable of the conventions; never the texts of documents."""
    monkeypatch.setenv(CAPTURE, said)
    answer = await ask(memory, how, "What does Page 3 tell?", k=2)
    (span,) = take()
    assert span.attributes["gen_ai.retrieval.query.text"] == "What does Page 3 tell?"
    assert json.loads(span.attributes["gen_ai.retrieval.documents"]) == [
        {"id": item.node.id, "score": item.score} for item in answer.documents
    ]
    assert not any("tells of" in str(value) for value in span.attributes.values())


@pytest.mark.parametrize("said", ["", "false", "no_content", "event_only"])
def test_nothing_of_a_question_is_recorded_otherwise(memory, take, monkeypatch, said):
    monkeypatch.setenv(CAPTURE, said)
    memory.retrieve("Zanzibar?")
    (span,) = take()
    assert "Zanzibar" not in span.to_json()
    assert "gen_ai.retrieval.documents" not in span.attributes


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_an_error_is_the_status_of_its_span(memory, take, monkeypatch, how):
    """Its message may quote what was given, so it is content."""
    with pytest.raises(InvalidInputError, match="Zanzibar"):
        await ask(memory, how, "?", k="Zanzibar")
    (span,) = take()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "InvalidInputError"
    assert "Zanzibar" not in span.to_json()
    monkeypatch.setenv(CAPTURE, "true")
    with pytest.raises(InvalidInputError):
        await ask(memory, how, "?", k="Zanzibar")
    (span,) = take()
    assert "Zanzibar" in span.status.description
    assert [event.name for event in span.events] == ["exception"]


async def test_a_cancelled_query_ends_its_span(memory, take, caplog):
    """And the span around it is current again."""
    tracer = trace.get_tracer("host")
    with tracer.start_as_current_span("request") as request:
        task = asyncio.create_task(memory.aio.retrieve("Page 3?"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert trace.get_current_span() is request
    (span,) = take()
    assert span.attributes["error.type"] == "CancelledError"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_an_abandoned_query_logs_no_error(memory, take, caplog):
    """A coroutine that nobody awaits to its end is closed in another context."""
    query = memory.aio.retrieve("Page 3?")

    async def begin():
        task = asyncio.ensure_future(asyncio.sleep(0))
        query.send(None)
        await task

    asyncio.run(begin())
    query.close()
    (span,) = take()
    assert span.end_time is not None
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


def test_every_call_is_a_child_of_its_caller(memory, take):
    """Through chains, their threads and batches."""
    retriever = CrabPathRetriever(memory=memory, k=2)
    chain = RunnableParallel(
        one=retriever, two=RunnableLambda(lambda text: retriever.invoke(text + "?"))
    )
    tracer = trace.get_tracer("host")
    with tracer.start_as_current_span("request") as request:
        chain.invoke("Page 1")
        retriever.batch(["Page 2", "Page 3"])
    spans = take()
    assert len(spans) == 4
    assert {span.parent.span_id for span in spans} == {request.context.span_id}
    assert {span.context.trace_id for span in spans} == {request.context.trace_id}


async def test_every_asynchronous_call_is_a_child_of_its_caller(memory, take):
    """Also of those that run at once, each under a span of its own; and off the event loop."""
    retriever, tracer = CrabPathRetriever(memory=memory, k=2), trace.get_tracer("host")

    async def serve(text):
        with tracer.start_as_current_span(text) as request:
            documents = await retriever.ainvoke(text)
            await memory.aio.teach(f"A note on {text}.")
            await retriever.arecord(documents, "up")
            assert trace.get_current_span() is request
            return request.context.span_id

    requests = await asyncio.gather(*(serve(f"Page {n}") for n in range(4)))
    parents = [span.parent.span_id for span in take()]
    assert sorted(parents) == sorted(requests * 3)


def test_what_a_query_calls_is_a_child_of_it(tmp_path, exporter):
    """Such as a request for the embedding of the question."""

    class Instrumented(DeterministicFakeEmbedding):
        def embed_query(self, text):
            with trace.get_tracer("embedder").start_as_current_span("embeddings"):
                return super().embed_query(text)

    with CrabPath.open(tmp_path / "memory", embeddings=Instrumented(size=16)) as memory:
        memory.add_documents(PAGES[:2], split=False)
        exporter.clear()
        memory.retrieve("Page 1?")
        asyncio.run(memory.aio.retrieve("Page 0?"))
    named = {}
    for span in exporter.get_finished_spans():
        named.setdefault(span.name.partition(" ")[0], []).append(span)
    queries = {span.context.span_id for span in named["retrieval"]}
    assert len(queries) == 2
    assert {span.parent.span_id for span in named["embeddings"]} == queries


def test_a_trace_that_is_not_sampled_costs_no_steps(memory, take):
    """What is not recorded is not described: decisions are then built by the writer alone."""

    def build():
        pytest.fail("a step was built")

    outer = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(0))
    with trace.use_span(trace.NonRecordingSpan(outer)):
        turn = memory.retrieve("Page 3?").turn
        memory.teach("A note.")
        describe_turn(trace.get_current_span(), replace(turn, steps=LazySteps([build])))
    assert take() == []


def test_operations_on_a_memory_are_spans(memory, take, tmp_path):
    """Each of one call, with the conventions' operation, store and records."""
    (tmp_path / "more.md").write_text("One more page.\n", encoding="utf-8")
    turn = memory.retrieve("Page 3?", namespace="ann").turn
    take()
    note = memory.teach("Nobody deploys on a Friday.", namespace="ann")
    memory.correct("Through the pipeline.", turn_id=turn.id, namespace="ann")
    receipt = memory.record(turn.id, "up", used=[turn.returned[0].node], namespace="ann")
    memory.undo(receipt.feedback_id, namespace="ann")
    memory.learning.learn_waiting()
    memory.add_documents([Document("New.", id="new"), Document("Also.", id="also")])
    memory.ingest(tmp_path / "more.md", progress=None)
    memory.maintenance.run(["fade"])
    memory.forget("new")
    memory.forget(namespace="ann")
    spans = take()
    assert [span.attributes["gen_ai.operation.name"] for span in spans] == [
        "create_memory",
        "create_memory",
        "update_memory",
        "update_memory",
        "update_memory",
        "upsert_memory",
        "upsert_memory",
        "maintain_memory",
        "delete_memory",
        "delete_memory_store",
    ]
    taught, _, recorded, undone, _, added, ingested, _, forgotten, deleted = (
        dict(span.attributes) for span in spans
    )
    for span in spans:
        assert span.name == f"{span.attributes['gen_ai.operation.name']} {memory.store.name}"
        assert span.attributes["gen_ai.memory.store.id"] == memory.store.name
    assert taught["gen_ai.memory.record.id"] == note
    assert recorded["gen_ai.memory.record.id"] == receipt.feedback_id
    assert recorded["crabpath.turn"] == turn.id
    assert recorded["crabpath.feedback.status"] == "applied"
    assert undone["crabpath.feedback.status"] == "undone"
    assert added["gen_ai.memory.record.count"] == 2
    assert ingested["gen_ai.memory.record.count"] == 1
    assert forgotten["gen_ai.memory.record.count"] == 1
    assert {a["crabpath.namespace"] for a in (taught, recorded, undone, deleted)} == {"ann"}
    assert "crabpath.namespace" not in added
    assert not any("Friday" in span.to_json() for span in spans)


def test_a_failed_operation_says_so(memory, take):
    with pytest.raises(InvalidInputError):
        memory.forget()
    with pytest.raises(InvalidInputError):
        memory.teach("")
    forgotten, taught = take()
    assert {forgotten.attributes["error.type"], taught.attributes["error.type"]} == {
        "InvalidInputError"
    }
    assert forgotten.status.status_code is taught.status.status_code is StatusCode.ERROR


def test_metrics_count_queries_and_feedback(memory, reader):
    """By attributes of few values: none is a namespace, a turn or a user."""
    before, _ = read_metrics(reader)
    turn = memory.retrieve("Page 3?", namespace="metrics-ann").turn
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: memory.retrieve(f"Page {n}?"), range(8)))
    with pytest.raises(InvalidInputError):
        memory.retrieve("")
    memory.record(Feedback(turn.id, 1.0, namespace="metrics-ann"))
    memory.record(Feedback("unheard of", 1.0))
    after, units = read_metrics(reader)
    grown = {key: value - before.get(key, 0) for key, value in after.items()}
    failed = ("error.type", "InvalidInputError")
    status = "crabpath.feedback.status"
    assert {key: value for key, value in grown.items() if value} == {
        ("crabpath.queries",): 9,
        ("crabpath.queries", failed): 1,
        ("crabpath.query.duration",): 9,
        ("crabpath.query.duration", failed): 1,
        ("crabpath.feedback", (status, "applied")): 1,
        ("crabpath.feedback", (status, "refused")): 1,
        ("crabpath.learned",): 1,
        ("crabpath.embedding.duration", ("crabpath.embedding.kind", "query")): 9,
        ("crabpath.embedding.duration", ("crabpath.embedding.kind", "documents")): 1,
    }
    assert units["crabpath.query.duration"] == "s"
    assert not any("crabpath.lift" in key[0] for key in grown if grown[key])  # shown labels
    first, *_, last = [found.node.id for found in memory.retrieve("Page 1?").documents]
    for right in (last, last, first):  # learned, then gained, then lost
        memory.record(memory.retrieve("Page 1?").turn.id, 1.0, relevant=[right])
    counts = read_metrics(reader)[0]
    for result in ("won", "lost"):
        lift = ("crabpath.lift.feedback", ("crabpath.lift.result", result))
        assert counts[lift] == before.get(lift, 0) + 1
    assert "metrics-ann" not in str(after)


def read_waiting(reader):
    """The gauge of waiting feedback; 0 where no memory is open."""
    return read_metrics(reader)[0].get(("crabpath.waiting",), 0)


def open_external(location):
    """A memory that leaves learning to others."""
    settings = Settings(learning=LearningSettings(apply="external"), time_limit=5.0)
    vectors = InMemoryVectorStore(FAKE)
    return CrabPath.open(location, embeddings=FAKE, vectors=vectors, settings=settings)


def test_waiting_feedback_is_counted_when_metrics_are_read(reader, location):
    """Of closed memories none; other tests may have left memories open."""
    others = read_waiting(reader)
    with open_external(location) as memory:
        memory.add_documents(PAGES[:2], split=False)
        turns = [memory.retrieve(f"Page {n}?").turn for n in range(3)]
        for turn in turns:
            assert memory.record(Feedback(turn.id, 1.0)).status == "waiting"
        assert read_waiting(reader) == others + 3
        memory.learning.learn_waiting()
        assert read_waiting(reader) == others
        memory.record(Feedback(memory.retrieve("Page 1?").turn.id, 1.0))
        assert read_waiting(reader) == others + 1
    assert read_waiting(reader) == others


def test_what_is_learned_in_the_background_is_counted(reader, take, tmp_path):
    """It has no span of its own: the call that recorded it is over."""
    settings = Settings(learning=LearningSettings(apply="background"))
    before, _ = read_metrics(reader)
    with CrabPath.open(tmp_path / "memory", embeddings=FAKE, settings=settings) as memory:
        memory.add_documents(PAGES[:2], split=False)
        turn = memory.retrieve("Page 1?").turn
        take()
        assert memory.record(Feedback(turn.id, 1.0)).status == "waiting"
    (span,) = take()
    assert span.attributes["crabpath.feedback.status"] == "waiting"
    learned = ("crabpath.learned",)
    assert read_metrics(reader)[0][learned] == before.get(learned, 0) + 1


@pytest.mark.slow
def test_feedback_of_a_silent_database_is_not_counted(reader, postgres_url):
    """It is left out in seconds, and the other metrics are read; later it is there again."""
    url = sa.make_url(postgres_url)
    proxy = Proxy((url.host, url.port or 5432))
    far = url.set(port=proxy.port).render_as_string(hide_password=False)
    with open_external(postgres_url) as near, open_external(far):
        near.add_documents(PAGES[:2], split=False)
        others = read_waiting(reader)
        near.record(Feedback(near.retrieve("Page 1?").turn.id, 1.0))
        assert read_waiting(reader) == others + 2  # one store under two names
        proxy.silent.set()
        begun = time.monotonic()
        found, _ = read_metrics(reader)
        assert time.monotonic() - begun < 5
        assert ("crabpath.waiting",) not in found
        assert ("crabpath.queries",) in found
        proxy.silent.clear()
        assert read_waiting(reader) == others + 2
    proxy.cut()
    gc.collect()


def test_the_page_lists_every_name(memory, take, reader, monkeypatch):
    """docs/how-to/trace.md: attributes and operations of spans; metrics, their labels and units."""
    monkeypatch.setenv(CAPTURE, "true")
    turn = memory.retrieve("Page 3?", namespace="ann").turn
    memory.record(Feedback(turn.id, 1.0, namespace="ann"))
    memory.teach("A note.")
    memory.maintenance.run(["fade"])
    with pytest.raises(InvalidInputError):
        memory.retrieve("")
    spans = take()
    names = {name for span in spans for name in span.attributes}
    names |= {span.attributes["gen_ai.operation.name"] for span in spans}
    points, units = read_metrics(reader)
    names |= set(units) | {label for _, *labels in points for label, _ in labels}
    text = PAGE.read_text(encoding="utf-8")
    assert len(names) > 20
    assert {name for name in names if f"`{name}`" not in text} == set()
