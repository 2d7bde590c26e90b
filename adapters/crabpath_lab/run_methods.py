"""Run a method on every question, and time it."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from langchain_core.embeddings import Embeddings

from crabpath_lab.datasets import Dataset
from crabpath_lab.loading import explain_failure, require_items
from crabpath_lab.methods import (
    EvaluationCorpus,
    Method,
    RankFunction,
    RetrievedChunk,
)
from crabpath_retrievers.core.calls import bar
from crabpath_retrievers.core.records import ModelUsage, Vector
from crabpath_retrievers.vectors.embedder import to_unit_vector

_MUST_BE = (
    "a context manager that takes a corpus and gives a function of question, vector and depth, "
    "which returns a list of RetrievedChunk"
)
_WARM_UP = 5  # questions asked before the clock runs


@dataclass(frozen=True, slots=True)
class MethodRun:
    """Answers of a method, with times.

    Attributes:
        found: Chunks by query id, best first.
        milliseconds: Time of each query, embedding excluded.
        indexing_s: Seconds for building its indexes, embedding included where not cached.
        usage: Of chat models, by all questions together.
    """

    found: dict[str, list[RetrievedChunk]]
    milliseconds: list[float]
    indexing_s: float
    usage: ModelUsage = field(default_factory=ModelUsage)


@dataclass(frozen=True, slots=True)
class CorpusQuestions:
    """A corpus with its questions by id; without labels."""

    corpus: EvaluationCorpus
    queries: Mapping[str, str]


def prepare_questions(
    dataset: Dataset, embeddings: Embeddings, *, closed: bool = False, distinct: bool = False
) -> Iterator[CorpusQuestions]:
    """Yield the input of methods: one pooled corpus, or each question's own paragraphs."""
    if not closed:
        corpus = EvaluationCorpus.from_documents(
            dataset.documents, embeddings, split=dataset.split, distinct=distinct
        )
        yield CorpusQuestions(corpus, dataset.queries)
        return
    documents = {document.id: document for document in dataset.documents}
    for query, text in dataset.queries.items():
        own = [documents[document_id] for document_id in dataset.candidates[query]]
        corpus = EvaluationCorpus.from_documents(
            own, embeddings, split=dataset.split, show_progress=False
        )
        yield CorpusQuestions(corpus, {query: text})


def embed_questions(queries: Mapping[str, str], embeddings: Embeddings) -> dict[str, Vector]:
    """Embed the questions: unit vectors of shape ``[d]`` by id."""
    found = {}
    with bar(len(queries), description="embedding questions") as advance:
        for query, text in queries.items():
            found[query] = to_unit_vector(embeddings.embed_query(text))
            advance(1)
    return found


def run_method(
    name: str,
    method: Method,
    given: Iterator[CorpusQuestions],
    asked: Mapping[str, Vector],
    depth: int,
) -> MethodRun:
    """Answer every question of every task, ``depth`` chunks a question.

    ``asked`` has the vectors of the questions by id; ``name`` stands beside the progress bar.
    """
    run = MethodRun({}, [], 0.0)
    indexing, usage = 0.0, ModelUsage()
    failing = explain_failure("method", name, _MUST_BE)
    with failing, bar(len(asked), description=f"{name}: asking") as advance:
        for task in given:
            begun = time.perf_counter()
            with method(task.corpus) as rank:
                indexing += time.perf_counter() - begun
                if not run.found:
                    _warm_up(rank, task, asked, depth)
                before = _model_usage(rank)
                for query, text in task.queries.items():
                    begun = time.perf_counter()
                    run.found[query] = rank(text, asked[query], depth)
                    run.milliseconds.append((time.perf_counter() - begun) * 1000)
                    require_items(run.found[query], RetrievedChunk)
                    advance(1)
                usage += _model_usage(rank) - before
    return MethodRun(run.found, run.milliseconds, indexing, usage)


def _model_usage(rank: RankFunction) -> ModelUsage:
    """Return the usage of the chat model so far; zero for methods without one."""
    used: ModelUsage = getattr(rank, "usage", ModelUsage())
    return used


def _warm_up(
    rank: RankFunction, task: CorpusQuestions, asked: Mapping[str, Vector], depth: int
) -> None:
    for query, text in list(task.queries.items())[:_WARM_UP]:
        rank(text, asked[query], depth)
