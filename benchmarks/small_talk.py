"""At which ``min_score`` small talk gets no document, and what real questions lose by it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.no_harm import DATA, EMBEDDERS
from crabpath_lab.embedding import cached_embedder
from crabpath_lab.plan import EvaluationPlan
from crabpath_lab.scratch import open_scratch

THRESHOLDS = (0.01, 0.02, 0.05, 0.1, 0.2)
SMALL_TALK = (
    *("Hi!", "Hello there", "Good morning", "How are you?", "Thanks a lot!", "Thank you, bye."),
    *("ok", "Yes, please.", "No, that's all.", "Great, that worked.", "lol", "You are funny."),
    *("What's your name?", "Are you a robot?", "Tell me a joke.", "Who made you?", "See you!"),
    *("Sorry, I was away for a moment.", "I am so tired today.", "What a lovely day it is!"),
    *("Can you help me?", "I have a question.", "Please say that again.", "I don't understand."),
    *("That is wrong.", "Perfect, exactly what I needed.", "Have a nice weekend!", "Hmm, let me"),
    *("Do you like music?", "What do you think about life?", "Good night", "Nice to meet you."),
    *("Never mind.", "Wait a second", "Are you still there?", "I love pizza.", "Whatever."),
    *("How old are you?", "My cat sleeps all day.", "Happy birthday to my mother!"),
)
_K = 5


class ThresholdFigures(NamedTuple):
    """What a least score does.

    Attributes:
        quiet: Share of small talk that gets no document.
        silenced: Share of real questions that get none.
        lost: Share of the right documents among the first five that are left out.
    """

    data: str
    threshold: float
    quiet: float
    silenced: float
    lost: float


def measure_thresholds(
    folder: Path, datasets: Sequence[str], *, embedder: str, limit: int, cache: Path | None
) -> Iterator[ThresholdFigures]:
    """Yield the figures of each data set and threshold.

    Args:
        folder: That of the data sets.
        datasets: Names of ``DATA``.
        embedder: Name of ``EMBEDDERS``.
        limit: Most questions of each data set.
        cache: Directory that keeps embeddings.
    """
    embeddings = cached_embedder(EMBEDDERS[embedder], cache)
    for name in datasets:
        loader, path = DATA[name]
        plan = EvaluationPlan(dataset=loader, data=folder / path, limit=limit, seed=0)
        dataset = plan.load()
        with open_scratch(embeddings=embeddings) as memory:
            memory.add_documents(dataset.documents, split=False, progress=None)

            def score(text: str) -> list[tuple[str, float]]:
                turn = memory.retrieve(text, k=_K, record=False).turn
                return [(item.node, item.probability) for item in turn.returned]

            best = np.array([max((p for _, p in score(text)), default=0.0) for text in SMALL_TALK])
            asked = {query: score(text) for query, text in dataset.queries.items()}
        first = np.array([max((p for _, p in found), default=0.0) for found in asked.values()])
        right = np.array(
            [
                p
                for query, found in asked.items()
                for node, p in found
                if node in dataset.qrels[query]
            ]
        )
        for least in THRESHOLDS:
            shares = [float((scores < least).mean()) for scores in (best, first, right)]
            yield ThresholdFigures(name, least, *shares)
