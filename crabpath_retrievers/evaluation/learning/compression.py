"""How much shorter answers get: only documents that the ranker is confident about."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.evaluation.learning.subject import USED, Subject
from crabpath_retrievers.evaluation.methods import CHUNKS_PER_DOCUMENT, Corpus
from crabpath_retrievers.evaluation.methods.dense import dense
from crabpath_retrievers.evaluation.scoring.comparison import compared, interval
from crabpath_retrievers.evaluation.streams.learners import Learned, Ranked
from crabpath_retrievers.evaluation.streams.signals import Signal
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.memory import CrabPath
from crabpath_retrievers.progress import bar

DEPTH = 10  # most documents of an answer
THRESHOLDS = (0.1, 0.2, 0.35, 0.5)
_UNTAUGHT = "untaught"  # a namespace that nobody teaches

Ask = Callable[[str, Vector], list[str]]
"""Documents, best first, for a question and its unit vector of shape ``[d]``."""


@dataclass(slots=True)
class Noted:
    """A learner whose short answers are noted before it is told about a question.

    Attributes:
        learned: Who learns.
        asks: Ways to ask for short answers.
        answers: What each gave, by its name, in the order of the stream.
    """

    learned: Learned
    asks: Mapping[float, Ask]
    answers: dict[float, list[list[str]]]

    def rank(self, query: str, vector: Vector, k: int) -> list[Ranked]:
        """The k best documents, best first."""
        for name, ask in self.asks.items():
            self.answers[name].append(ask(query, vector))
        return self.learned.rank(query, vector, k)

    def learn(self, vector: Vector, ranked: Sequence[Ranked], signal: Signal) -> None:
        """Record the feedback."""
        self.learned.learn(vector, ranked, signal)


def compressed(subject: Subject) -> Iterator[dict[str, Any]]:
    """Short answers during one pass with ``used`` feedback, and after it.

    Yields:
        ``dataset``; ``asked``: ``first`` (before anything was said about the question; ``learned``
        only, since the others answer as in ``again``), ``again`` or ``reworded``; ``method``
        (``dense``, ``learned``, ``frozen``); ``confident`` (None for dense); ``documents``: their
        mean number; ``full``: the share of questions whose gold is all among them; each with
        ``_ci95``; ``difference``, ``ci95``, ``p``: of ``full`` to dense, paired.
    """
    memories = {share: subject.with_settings(_confident(share)) for share in THRESHOLDS}
    wordings = {"again": subject.dataset.queries, "reworded": subject.reworded()}
    with subject.namespace("compression") as namespace, _dense(subject) as nearest:
        first = _while_learning(subject, memories, namespace)
        for asked, texts in wordings.items():
            beside = _answers(subject, texts, nearest)
            if asked == "again":
                for share, own in first.items():
                    yield _row(subject, "first", "learned", share, own, beside)
            yield _row(subject, asked, "dense", None, beside, beside)
            for share, memory in memories.items():
                for method, whose in (("learned", namespace), ("frozen", _UNTAUGHT)):
                    own = _answers(subject, texts, _confident_only(subject, memory, whose))
                    yield _row(subject, asked, method, share, own, beside)


def _while_learning(
    subject: Subject, memories: Mapping[float, CrabPath], namespace: str
) -> dict[float, dict[str, list[str]]]:
    """One pass; short answers by threshold and query id, each before its label was read."""
    asks = {share: _confident_only(subject, m, namespace) for share, m in memories.items()}
    learned = Learned(subject.memory, subject.dataset.split, namespace)
    noted = Noted(learned, asks, {share: [] for share in asks})
    course = subject.course()
    subject.follow(namespace, noted, USED, course)
    order = course.order(list(subject.dataset.queries))
    answers = {
        share: dict(zip(order, found, strict=True)) for share, found in noted.answers.items()
    }
    return {
        share: {query: found[query] for query in subject.dataset.queries}
        for share, found in answers.items()
    }


def _confident(share: float) -> Settings:
    usual = Settings()
    return usual.replace(rank=usual.rank.replace(min_probability=share))


def _confident_only(subject: Subject, memory: CrabPath, namespace: str) -> Ask:
    def ask(text: str, vector: Vector) -> list[str]:
        answer = memory.retrieve(
            text,
            k=DEPTH,
            vector=vector,
            namespace=namespace,
            fill=False,
            record=False,
            one_per_document=subject.dataset.split,
        )
        return [item.node.document for item in answer.documents]

    return ask


@contextmanager
def _dense(subject: Subject) -> Iterator[Ask]:
    """Plain similarity, cut after as many documents."""
    split = subject.dataset.split
    chunks = DEPTH * (CHUNKS_PER_DOCUMENT if split else 1)
    corpus = Corpus.of(subject.dataset.documents, subject.embeddings, split=split)
    with dense(corpus) as rank:

        def ask(text: str, vector: Vector) -> list[str]:
            found = [chunk.document for chunk in rank(text, vector, chunks)]
            return list(dict.fromkeys(found))[:DEPTH]

        yield ask


def _answers(subject: Subject, texts: Mapping[str, str], ask: Ask) -> dict[str, list[str]]:
    """Documents by query id; labels are read after the last answer."""
    found = {}
    with bar(len(texts), description=f"{subject.name}: short answers") as advance:
        for query in subject.dataset.queries:
            found[query] = ask(texts[query], subject.memory.embedder.query(texts[query]))
            advance(1)
    return found


def _row(
    subject: Subject,
    asked: str,
    method: str,
    confident: float | None,
    own: Mapping[str, list[str]],
    beside: Mapping[str, list[str]],
) -> dict[str, Any]:
    sizes, full = [float(len(found)) for found in own.values()], _full(subject, own)
    return {
        "dataset": subject.name,
        "asked": asked,
        "method": method,
        "confident": confident,
        "documents": round(float(np.mean(sizes)), 2),
        "documents_ci95": interval(sizes),
        "full": round(float(np.mean(full)), 4),
        "full_ci95": interval(full),
    } | compared(full, _full(subject, beside))


def _full(subject: Subject, answers: Mapping[str, list[str]]) -> list[float]:
    return [float(subject.dataset.qrels[query] <= set(found)) for query, found in answers.items()]
