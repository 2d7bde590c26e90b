"""``crabpath demo``: real passages, a real embedder, plain Chroma and CrabPath side by side."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.evaluation.datasets.sample import load_sample
from crabpath_retrievers.retrieval.explain import Explanation

_K = 5


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Figures of the demo.

    Attributes:
        passages, questions: Size of the sample.
        plain, crabpath: Share of questions whose gold passages all stand in the first five.
        seconds: Time for indexing.
        example: A question that only the walk answers in full, with the titles both returned.
        route: Why its documents came.
    """

    passages: int
    questions: int
    plain: float
    crabpath: float
    seconds: float
    example: tuple[str, list[str], list[str], list[str]] | None
    route: Explanation | None

    def to_dict(self) -> dict[str, Any]:
        """The result for programs."""
        return {
            "passages": self.passages,
            "questions": self.questions,
            "full@5": {"plain_chroma": self.plain, "crabpath": self.crabpath},
            "indexing_seconds": self.seconds,
            "route": self.route.to_dict() if self.route else None,
        }


def run_demo(store: str, say: Callable[[str], None]) -> DemoResult:
    """Index the sample and answer its questions both ways.

    Args:
        store: Directory of the memory, which stays there; it may exist already.
        say: Receives one line per stage.
    """
    data = load_sample()
    titles = {str(d.id): str(d.metadata["title"]) for d in data.documents}
    say(f"Indexing {len(data.documents)} Wikipedia paragraphs (embedder: all-MiniLM-L6-v2) …")
    begun = time.perf_counter()
    with CrabPath.open(store) as memory:
        memory.add_documents(data.documents, split=False)
        seconds = time.perf_counter() - begun
        say(f"Asking {len(data.queries)} questions that need two paragraphs each …")
        full = {"plain": 0, "crabpath": 0}
        example = route = None
        lowest = _K  # place of the last gold passage of the example
        for query_id, text in data.queries.items():
            gold = data.qrels[query_id]
            vector = memory.embedder.query(text)
            plain = memory.index.search(np.asarray(vector), _K)
            answer = memory.retrieve(text, k=_K, vector=vector)
            walked = [item.node.id for item in answer.documents]
            full["plain"] += gold <= set(plain)
            full["crabpath"] += gold <= set(walked)
            place = max(map(walked.index, gold)) if gold <= set(walked) else _K
            if place < lowest and not gold <= set(plain):
                lowest = place
                route = memory.explain(answer.turn.id)
                named = ([titles[i] for i in found] for found in (sorted(gold), plain, walked))
                example = (text, *named)
    n = len(data.queries)
    return DemoResult(
        len(data.documents),
        n,
        full["plain"] / n,
        full["crabpath"] / n,
        round(seconds, 1),
        example,  # type: ignore[arg-type]
        route,
    )
