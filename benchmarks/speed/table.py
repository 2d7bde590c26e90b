"""``make bench``: size, speed and quality in one table, each beside plain Chroma or beside itself.

Times depend on the machine and on what else it does; ratios are of calls made in turns.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from chromadb.config import Settings as ChromaSettings
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from benchmarks.speed.journeys import count_lines, follow_journeys
from benchmarks.speed.synthetic_store import add_noise, fill_synthetic
from benchmarks.speed.timing import K, bootstrap_median, time_call, time_pairs
from crabpath_lab.datasets import Dataset
from crabpath_lab.scoring.measures import score_rankings
from crabpath_lab.statistics import compare_paired
from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.vectors.embedder import load_default_embeddings

_WARM_UP = 20
_INGESTED = 1200  # documents that are ingested again, without embedding
_INGEST_ROUNDS = 2
_CHROMA_BATCH = 5000  # it takes 5,461 at once
_FEEDBACKS = 334
_MANY_FEEDBACKS, _FEW_DOCUMENTS = 2000, 200

# What the project has set itself, by row.
_MUST = {
    "cold query: files / functions": "20 / 75",
    "learned query: files / functions": "25 / 95",
    "feedback: files / functions": "28 / 105",
    "added document: files / functions": "26 / 100",
    "lines of the package without evaluation": "27,000",
    "query without embedding / plain Chroma": "2.2",
    "query with MiniLM / plain Chroma": "1.25",
    "learned / cold after 334 feedbacks": "1.2",
    "learned / cold after 2,000 feedbacks": "1.5",
    "record: ms": "4",
    "record: SQL executions": "12",
    "ingest without embedding / plain Chroma": "2",
    "large / small store": "1.15",
}

Question = tuple[str, Vector]


class Row(NamedTuple):
    """One figure: its name, the value, and how it was measured."""

    name: str
    value: str
    how: str = ""

    def render(self) -> str:
        """The row of the table."""
        return f"| {self.name} | {self.value} | {_MUST.get(self.name, '')} | {self.how} |"


class RememberedEmbeddings(Embeddings):
    """Embeds every text once, so that a second run measures all but the embedding."""

    def __init__(self, embeddings: Embeddings) -> None:
        """Embed with ``embeddings``."""
        self._embeddings, self._known = embeddings, dict[str, list[float]]()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed the texts that are new."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            vectors = self._embeddings.embed_documents(new)
            self._known |= dict(zip(new, vectors, strict=True))
        return [self._known[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """As documents."""
        return self.embed_documents([text])[0]


def measure_table(dataset: Dataset, folder: Path, *, limit: int, nodes: int) -> Iterator[str]:
    """Yield the lines of the table, as they are measured.

    Args:
        dataset: Its documents are indexed and its queries asked.
        folder: For the stores.
        limit: Queries that are timed; quality is measured on all.
        nodes: Size of the synthetic store, with ten edges per node; 0 skips it.
    """
    yield "| figure | measured | must | how |"
    yield "|---|---|---|---|"
    for row in measure_rows(dataset, folder, limit=limit, nodes=nodes):
        yield row.render()


def measure_rows(dataset: Dataset, folder: Path, *, limit: int, nodes: int) -> Iterator[Row]:
    """Yield all rows; see :func:`measure_table`."""
    for name, journey in follow_journeys(folder / "journeys").items():
        value = f"{journey.files} / {journey.functions}"
        yield Row(f"{name}: files / functions", value, "of the package, in the calling thread")
    yield Row("lines of the package without evaluation", f"{count_lines():,}")
    embeddings = load_default_embeddings()
    remembered = RememberedEmbeddings(embeddings)
    chroma = index_plain_chroma(dataset.documents, remembered, folder / "plain")
    with CrabPath.open(folder / "memory", embeddings=remembered) as memory:
        memory.add_documents(dataset.documents, split=False)
        asked = list(dataset.queries.values())[:limit]
        questions = [(text, memory.embedder.query(text)) for text in asked]
        yield from _compare_queries(memory, chroma, embeddings, questions)
        yield _compare_ingest(dataset.documents[:_INGESTED], remembered, folder)
        yield from _measure_quality(dataset, chroma, memory)
        yield _compare_learned(memory, questions, _FEEDBACKS)
        yield _compare_first(memory, questions)
        yield from _measure_record(memory, chroma, questions)
        few = dataset.documents[:_FEW_DOCUMENTS]
        with CrabPath.open(folder / "few", embeddings=remembered) as small:
            small.add_documents(few, split=False)
            yield _compare_learned(small, questions, _MANY_FEEDBACKS)
        if nodes:
            with CrabPath.open(folder / "large", embeddings=remembered) as large:
                yield _compare_sizes(large, memory, dataset, questions, nodes)


def index_plain_chroma(
    documents: Sequence[Document], embeddings: Embeddings, folder: Path
) -> Chroma:
    """The same documents in LangChain's own Chroma store, cosine space, nothing else changed."""
    store = Chroma(
        "plain",
        embeddings,
        persist_directory=str(folder),
        client_settings=ChromaSettings(anonymized_telemetry=False, is_persistent=True),
        collection_configuration={"hnsw": {"space": "cosine"}},
    )
    for start in range(0, len(documents), _CHROMA_BATCH):
        part = documents[start : start + _CHROMA_BATCH]
        store.add_documents(list(part), ids=[str(document.id) for document in part])
    return store


def _retrieve(memory: CrabPath, namespace: str, question: Question) -> Any:
    text, vector = question
    return memory.retrieve(text, k=K, vector=vector, namespace=namespace)


def _render_ratio(name: str, how: str, pairs: Sequence[tuple[float, float]]) -> Row:
    ratio, low, high = bootstrap_median([own / other for own, other in pairs])
    own, other = np.median(pairs, axis=0)
    how = f"{how}; p50 {own:.2f} / {other:.2f} ms, {len(pairs)} pairs"
    return Row(name, f"{ratio:.2f} ({low:.2f} to {high:.2f})", how)


def _compare_queries(
    memory: CrabPath, chroma: Chroma, embeddings: Embeddings, questions: Sequence[Question]
) -> Iterator[Row]:
    own = partial(_retrieve, memory, "cold")
    before, new = questions[: len(questions) // 2], questions[len(questions) // 2 :]
    for question in before:
        own(question)
    vectors = {text: vector.tolist() for text, vector in questions}

    def search_plain(question: Question) -> object:
        return chroma.similarity_search_by_vector(vectors[question[0]], k=K)

    pairs = time_pairs(own, search_plain, new, before=memory.store.flush, rounds=1)
    how = f"after {len(before)} other questions"
    yield _render_ratio(
        "query without embedding, asked for the first time / plain Chroma", how, pairs
    )
    pairs = time_pairs(own, search_plain, questions, before=memory.store.flush)
    yield _render_ratio("query without embedding / plain Chroma", f"vector given, k = {K}", pairs)

    def embed_and(search: Callable[[Question], object]) -> Callable[[Question], object]:
        def call(question: Question) -> object:
            embeddings.embed_query(question[0])
            return search(question)

        return call

    pairs = time_pairs(
        embed_and(own), embed_and(search_plain), questions, before=memory.store.flush
    )
    yield _render_ratio("query with MiniLM / plain Chroma", f"k = {K}", pairs)


def _compare_ingest(documents: Sequence[Document], known: Embeddings, folder: Path) -> Row:
    pairs = []
    for number in range(_INGEST_ROUNDS):
        plain = folder / f"ingest-plain-{number}"
        other, _ = time_call(partial(index_plain_chroma, documents, known, plain))
        with CrabPath.open(folder / f"ingest-{number}", embeddings=known) as memory:
            add = partial(memory.add_documents, documents, split=False)
            pairs.append((time_call(add)[0], other))
    own, other = np.min(pairs, axis=0)
    each = ", ".join(f"{a / b:.2f}" for a, b in pairs)
    how = f"{len(documents) / own:,.0f} documents/s; rounds {each}"
    return Row("ingest without embedding / plain Chroma", f"{own / other:.2f}", how)


def _measure_quality(dataset: Dataset, chroma: Chroma, memory: CrabPath) -> Iterator[Row]:
    """full@5 of both, then of the same questions after feedback on their relevant documents."""
    plain, cold, learned = dict[str, list[str]](), dict[str, list[str]](), dict[str, list[str]]()
    for query, text in dataset.queries.items():
        plain[query] = [str(document.id) for document in chroma.similarity_search(text, k=K)]
        answer = memory.retrieve(text, k=K, namespace="quality")
        cold[query] = [found.node.id for found in answer.documents]
        used = [node for node in cold[query] if node in dataset.qrels[query]]
        outcome = 1.0 if used else -1.0
        memory.record(Feedback(answer.turn.id, outcome, used=used, namespace="quality"))
    for query, text in dataset.queries.items():
        answer = memory.retrieve(text, k=K, namespace="quality", record=False)
        learned[query] = [found.node.id for found in answer.documents]
    full = {
        name: score_rankings(dataset.qrels, run, (K,))[f"full@{K}"]
        for name, run in (("plain", plain), ("first", cold), ("again", learned))
    }
    title = f"{dataset.name}, full@{K}"
    of_plain = f"{_render_difference(full['first'], full['plain'])} to plain Chroma"
    again = f"{_render_difference(full['again'], full['first'])} to the first time"
    yield Row(f"{title}, asked once", f"{np.mean(full['first']):.3f}", of_plain)
    yield Row(f"{title}, asked again after feedback", f"{np.mean(full['again']):.3f}", again)


def _render_difference(ours: Sequence[float], others: Sequence[float]) -> str:
    compared = compare_paired(ours, others)
    interval = compared["ci95"]
    shown = f" ({interval[0]:+.3f} to {interval[1]:+.3f})" if interval else ""
    return f"{compared['difference']:+.3f}{shown}"


def _learn_from_turn(memory: CrabPath, namespace: str, question: Question) -> Callable[[], object]:
    """Ask; returns the call that records that the first document was used."""
    answer = _retrieve(memory, namespace, question)
    used = [answer.documents[0].node.id]
    memory.store.flush()
    return partial(memory.record, Feedback(answer.turn.id, 1.0, used=used, namespace=namespace))


def _compare_learned(memory: CrabPath, questions: Sequence[Question], feedbacks: int) -> Row:
    """A namespace that has learned beside a cold one; questions come back in other words."""
    rng = np.random.default_rng(0)
    for text, vector in islice(cycle(questions), feedbacks):
        _learn_from_turn(memory, "learned", (text, add_noise(vector, rng)))()
    pairs = time_pairs(
        partial(_retrieve, memory, "learned"),
        partial(_retrieve, memory, "cold"),
        questions,
        before=memory.store.flush,
    )
    name = f"learned / cold after {feedbacks:,} feedbacks"
    return _render_ratio(name, f"without embedding, {memory.info()['nodes']:,} passages", pairs)


def _compare_first(memory: CrabPath, questions: Sequence[Question]) -> Row:
    """A question after a feedback about another one, beside the same question once more."""
    ask, pairs = partial(_retrieve, memory, "learned"), list[tuple[float, float]]()
    half = len(questions) // 2
    for question, other in zip(questions[:half], questions[half:], strict=False):
        _learn_from_turn(memory, "learned", other)()
        times = []
        for _ in range(2):
            memory.store.flush()
            times.append(time_call(partial(ask, question))[0] * 1000)
        pairs.append((times[0], times[1]))
    return _render_ratio("first query after a feedback / the next", "the same question", pairs)


def _measure_record(
    memory: CrabPath, chroma: Chroma, questions: Sequence[Question]
) -> Iterator[Row]:
    prepare = partial(_learn_from_turn, memory, "learned")
    pairs = list[tuple[float, float]]()
    for question in questions:
        vector = question[1].tolist()
        search = partial(chroma.similarity_search_by_vector, vector, k=K)
        own, other = time_call(prepare(question))[0], time_call(search)[0]
        pairs.append((own * 1000, other * 1000))
    yield _render_ratio("record / plain Chroma's search", "with its lesson", pairs)
    times = [own for own, _ in pairs]
    statements = [_count_statements(prepare(question)) for question in questions[:_WARM_UP]]
    middle, low, high = bootstrap_median(times)
    yield Row("record: ms", f"{middle:.2f} ({low:.2f} to {high:.2f})", "p50 on SQLite")
    how = "p50, executemany once, without BEGIN, COMMIT and PRAGMA"
    yield Row("record: SQL executions", f"{np.median(statements):.0f}", how)


def _count_statements(action: Callable[[], object]) -> int:
    """Statements that SQLite executes during an action; rows of one statement count once."""
    found: list[str] = []
    left_out = ("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA", "--")

    def watch(connection: Any, *_: object) -> None:
        connection.set_trace_callback(found.append)

    def leave(connection: Any, *_: object) -> None:
        connection.set_trace_callback(None)

    sa.event.listen(sa.pool.Pool, "checkout", watch)
    sa.event.listen(sa.pool.Pool, "checkin", leave)
    try:
        action()
    finally:
        sa.event.remove(sa.pool.Pool, "checkout", watch)
        sa.event.remove(sa.pool.Pool, "checkin", leave)
    kept = [text for text in found if not text.lstrip().upper().startswith(left_out)]
    return len([shape for shape, _ in groupby(text.split(" VALUES ")[0] for text in kept)])


def _compare_sizes(
    large: CrabPath, small: CrabPath, dataset: Dataset, questions: Sequence[Question], nodes: int
) -> Row:
    large.add_documents(dataset.documents[:1], split=False)
    built, _ = time_call(partial(fill_synthetic, large, small, dataset, nodes))
    for question in questions[:_WARM_UP]:
        _retrieve(large, "cold", question)

    def flush() -> None:
        large.store.flush()
        small.store.flush()

    pairs = time_pairs(
        partial(_retrieve, large, "cold"),
        partial(_retrieve, small, "cold"),
        questions,
        before=flush,
    )
    facts, other = large.info(), small.info()
    edges = sum(facts["edges"].values())
    sizes = f"{facts['nodes']:,} nodes, {edges:,} edges / {other['nodes']:,} nodes"
    return _render_ratio("large / small store", f"{sizes}; built in {built:.0f} s", pairs)
