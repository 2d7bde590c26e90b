"""The smallest set of documents that together contain a question and its answer."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.core.text import Floats

BoolArray = NDArray[np.bool_]

# Fitted on training questions of HotpotQA and 2WikiMultihopQA, see docs/decisions.md.
DOCUMENT_COST = 0.35
NAMED_BONUS = 0.1
LINKED_BONUS = 0.1
ANSWER_BONUS = 0.1


@dataclass(frozen=True, slots=True)
class EvidenceSet:
    """Which document contains which part of a question and its answer.

    Attributes:
        contains: Whether a document contains a word, shape ``[n, W]``.
        weights: Share of each word, shape ``[W]``; the words of the answer sum to 1, and so do
            those of the question.
        contains_answer: Whether a document contains the answer, shape ``[n]``.
        is_named: Whether the question names a document, shape ``[n]``.
        is_linked: Whether an edge leads from one document to the other, symmetric, shape ``[n,
            n]``.
    """

    contains: BoolArray
    weights: Floats
    contains_answer: BoolArray
    is_named: BoolArray
    is_linked: BoolArray

    def select_documents(self) -> list[int]:
        """Select documents greedily.

        The first contains the answer; each further one is the one that raises the value most.
        """
        selected: list[int] = []
        best = -np.inf
        while len(selected) < len(self.contains_answer):
            candidates = [
                i
                for i in np.flatnonzero(self.contains_answer | bool(selected))
                if i not in selected
            ]
            scores = [self.compute_value([*selected, int(i)]) for i in candidates]
            if not scores or max(scores) <= best:
                break
            best = max(scores)
            selected.append(int(candidates[int(np.argmax(scores))]))
        return selected

    def compute_value(self, documents: list[int]) -> float:
        """Compute the value of a set of documents.

        ``Σ weights(contained in any) + 0.1 · (is_named + contains_answer + is_linked) − 0.35 ·
        |S|``
        """
        if not documents:
            return 0.0
        together = float(self.contains[documents].any(axis=0) @ self.weights)
        linked = self.is_linked[np.ix_(documents, documents)].any(axis=1).sum()
        bonuses = (
            NAMED_BONUS * self.is_named[documents].sum()
            + ANSWER_BONUS * self.contains_answer[documents].sum()
        )
        return together + float(bonuses + LINKED_BONUS * linked) - DOCUMENT_COST * len(documents)

    def compute_support(self) -> Floats:
        """Return the support of every document in [0, 1], shape ``[n]``.

        A selected document that contains the answer has 1, any other selected document the value
        that the set would lose without it.
        """
        selected = np.zeros(len(self.contains_answer))
        chosen = self.select_documents()
        for i in chosen:
            others = [j for j in chosen if j != i]
            marginal = self.compute_value(chosen) - self.compute_value(others) + DOCUMENT_COST
            selected[i] = 1.0 if self.contains_answer[i] else min(1.0, marginal)
        return selected
