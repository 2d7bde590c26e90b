"""How much shorter answers get: only documents that the ranker is confident about."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.learning.paired_learners import USED_FEEDBACK, PairedLearners
from crabpath_lab.methods import CHUNKS_PER_DOCUMENT, EvaluationCorpus
from crabpath_lab.methods.dense import open_dense
from crabpath_lab.statistics import bootstrap_interval, compare_paired
from crabpath_lab.streams.learners import (
    CrabPathLearner,
    RankedDocument,
    TaughtAnswer,
)
from crabpath_lab.streams.simulated_feedback import SimulatedFeedback
from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.core.calls import bar
from crabpath_retrievers.core.records import Vector

DEPTH = 10  # most documents of an answer
THRESHOLDS = (0.1, 0.2, 0.35, 0.5)
_UNTAUGHT = "untaught"  # a namespace that nobody teaches

ShortAnswerFunction = Callable[[str, Vector], list[str]]
"""Documents, best first, for a question and its unit vector of shape ``[d]``."""


@dataclass(slots=True)
class ShortAnswerRecorder:
    """A learner whose short answers are recorded before it gets feedback on a question.

    Attributes:
        learned: Who learns.
        asks: Ways to ask for short answers.
        answers: What each gave, by its name, in the order of the stream.
    """

    learned: CrabPathLearner
    asks: Mapping[float, ShortAnswerFunction]
    answers: dict[float, list[list[str]]]

    def rank(self, query: str, vector: Vector, k: int) -> list[RankedDocument]:
        """The k best documents, best first."""
        for name, ask in self.asks.items():
            self.answers[name].append(ask(query, vector))
        return self.learned.rank(query, vector, k)

    def learn(self, lesson: TaughtAnswer) -> None:
        """Record the feedback."""
        self.learned.learn(lesson)

    def correct(self, lesson: TaughtAnswer, right: SimulatedFeedback) -> None:
        """Correct the feedback."""
        self.learned.correct(lesson, right)


def measure_short_answers(pair: PairedLearners) -> Iterator[dict[str, Any]]:
    """Short answers during one pass with ``used`` feedback, and after it.

    Yields:
        ``dataset``; ``asked``: ``first`` (before anything was said about the question; ``learned``
        only, since the others answer as in ``again``), ``again`` or ``reworded``; ``method``
        (``dense``, ``learned``, ``frozen``); ``confident`` (None for dense); ``documents``: their
        mean number; ``full``: the share of questions whose gold is all among them; each with
        ``_ci95``; ``difference``, ``ci95``, ``p``: of ``full`` to dense, paired.
    """
    memories = {share: pair.with_settings(_with_threshold(share)) for share in THRESHOLDS}
    wordings = {"again": pair.dataset.queries, "reworded": pair.reword_queries()}
    with pair.namespace("compression") as namespace, _open_dense(pair) as nearest:
        first = _answer_while_learning(pair, memories, namespace)
        for asked, texts in wordings.items():
            beside = _collect_answers(pair, texts, nearest)
            if asked == "again":
                for share, own in first.items():
                    yield _make_row(pair, "first", "learned", share, own, beside)
            yield _make_row(pair, asked, "dense", None, beside, beside)
            for share, memory in memories.items():
                for method, asker in (("learned", namespace), ("frozen", _UNTAUGHT)):
                    own = _collect_answers(pair, texts, _ask_confident(pair, memory, asker))
                    yield _make_row(pair, asked, method, share, own, beside)


def _answer_while_learning(
    pair: PairedLearners, memories: Mapping[float, CrabPath], namespace: str
) -> dict[float, dict[str, list[str]]]:
    """One pass; short answers by threshold and query id, each before its label was read."""
    asks = {share: _ask_confident(pair, m, namespace) for share, m in memories.items()}
    learned = CrabPathLearner(pair.memory, pair.dataset.split, namespace)
    noted = ShortAnswerRecorder(learned, asks, {share: [] for share in asks})
    schedule = pair.schedule()
    pair.run_stream(namespace, noted, USED_FEEDBACK, schedule)
    order = schedule.order_queries(list(pair.dataset.queries))
    answers = {
        share: dict(zip(order, found, strict=True)) for share, found in noted.answers.items()
    }
    return {
        share: {query: found[query] for query in pair.dataset.queries}
        for share, found in answers.items()
    }


def _with_threshold(share: float) -> Settings:
    usual = Settings()
    return usual.replace(rank=usual.rank.replace(min_probability=share))


def _ask_confident(pair: PairedLearners, memory: CrabPath, namespace: str) -> ShortAnswerFunction:
    def ask(text: str, vector: Vector) -> list[str]:
        answer = memory.retrieve(
            text,
            k=DEPTH,
            vector=vector,
            namespace=namespace,
            fill=False,
            record=False,
            one_per_document=pair.dataset.split,
        )
        return [item.node.document for item in answer.documents]

    return ask


@contextmanager
def _open_dense(pair: PairedLearners) -> Iterator[ShortAnswerFunction]:
    """Plain similarity, cut after as many documents."""
    split = pair.dataset.split
    chunks = DEPTH * (CHUNKS_PER_DOCUMENT if split else 1)
    corpus = EvaluationCorpus.from_documents(pair.dataset.documents, pair.embeddings, split=split)
    with open_dense(corpus) as rank:

        def ask(text: str, vector: Vector) -> list[str]:
            found = [chunk.document for chunk in rank(text, vector, chunks)]
            return list(dict.fromkeys(found))[:DEPTH]

        yield ask


def _collect_answers(
    pair: PairedLearners, texts: Mapping[str, str], ask: ShortAnswerFunction
) -> dict[str, list[str]]:
    """Documents by query id; labels are read after the last answer."""
    found = {}
    with bar(len(texts), description=f"{pair.name}: short answers") as advance:
        for query in pair.dataset.queries:
            found[query] = ask(texts[query], pair.memory.embedder.query(texts[query]))
            advance(1)
    return found


def _make_row(
    pair: PairedLearners,
    asked: str,
    method: str,
    confident: float | None,
    own: Mapping[str, list[str]],
    beside: Mapping[str, list[str]],
) -> dict[str, Any]:
    sizes, full = [float(len(found)) for found in own.values()], _full_evidence(pair, own)
    return {
        "dataset": pair.name,
        "asked": asked,
        "method": method,
        "confident": confident,
        "documents": round(float(np.mean(sizes)), 2),
        "documents_ci95": bootstrap_interval(sizes),
        "full": round(float(np.mean(full)), 4),
        "full_ci95": bootstrap_interval(full),
    } | compare_paired(full, _full_evidence(pair, beside))


def _full_evidence(pair: PairedLearners, answers: Mapping[str, list[str]]) -> list[float]:
    return [float(pair.dataset.qrels[query] <= set(found)) for query, found in answers.items()]
