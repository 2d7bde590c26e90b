"""Fitting the ranker's prior on training files (``crabpath fit-prior``).

A conditional logit over each query's candidates (McFadden 1974; ListNet's top-one loss, Cao et al.
2007, §4.2) orders documents; a logistic calibration of its scores then gives probabilities.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from crabpath_retrievers.config import Settings
from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.memory import CrabPath
from crabpath_retrievers.rerank.features import FEATURES

Floats = NDArray[np.float64]
# Nothing in training files can teach these; they are set by hand, in log-odds.
FIXED = {"learned": 5.0, "hint": 1.0, "inhibition": 0.0, "link": 5.0, "linked_by": 1.0}
FIXED |= {"sibling": 2.0, "similar": 0.0}
_RIDGE = 1.0


@dataclass(frozen=True, slots=True)
class Ranking:
    """The candidates of one query: features ``[n, F]``, relevance ``[n]``, gold in the corpus."""

    features: Floats
    relevant: NDArray[np.bool_]
    gold: int
    dataset: str


def rankings(
    dataset: Dataset,
    embeddings: Embeddings,
    settings: Settings | None = None,
    *,
    name: str = "",
) -> list[Ranking]:
    """Candidates with features of every query, as retrieval itself computes them."""
    found = []
    with CrabPath.open(embeddings=embeddings, settings=settings) as memory:
        memory.add_documents(dataset.documents, split=False)
        for query_id, text in dataset.queries.items():
            ids, matrix = memory.candidates(text)
            gold = dataset.qrels[query_id]
            relevant = np.array([node_id in gold for node_id in ids])
            found.append(Ranking(matrix, relevant, len(gold), name or dataset.name))
    return found


def fit(rankings: Sequence[Ranking]) -> dict[str, float]:
    """Weights by feature name.

    Args:
        rankings: Candidates of training queries, from one or several data sets.
    """
    free = np.array([name not in FIXED and name != "bias" for name in FEATURES])
    weights = np.array([FIXED.get(name, 0.0) for name in FEATURES])
    useful = [r for r in rankings if r.relevant.any() and not r.relevant.all()]
    weights[free] = _conditional_logit(useful, free)
    scores = np.concatenate([r.features @ weights for r in useful])
    labels = np.concatenate([r.relevant for r in useful])
    calibration = LogisticRegression(C=1e6).fit(scores[:, None], labels)
    scaled = weights * float(calibration.coef_[0, 0])
    scaled[FEATURES.index("bias")] = float(calibration.intercept_[0])
    fixed = {name: FIXED[name] for name in FIXED}
    return {n: round(float(w), 4) for n, w in zip(FEATURES, scaled, strict=True)} | fixed


def _conditional_logit(rankings: Sequence[Ranking], free: NDArray[np.bool_]) -> Floats:
    matrices = [r.features[:, free] for r in rankings]
    sizes = Counter(r.dataset for r in rankings)
    # Every data set counts the same, however many of its questions there are.
    shares = [len(rankings) / len(sizes) / sizes[r.dataset] for r in rankings]
    targets = [s * r.relevant / r.relevant.sum() for s, r in zip(shares, rankings, strict=True)]

    def loss(weights: Floats) -> tuple[float, Floats]:
        total = 0.5 * _RIDGE * float(weights @ weights)
        gradient = _RIDGE * weights
        for matrix, target in zip(matrices, targets, strict=True):
            scores = matrix @ weights
            shifted = scores - scores.max()
            log_partition = np.log(np.exp(shifted).sum())
            total -= float(target @ (shifted - log_partition))
            expected = target.sum() * np.exp(shifted - log_partition)
            gradient = gradient - (target - expected) @ matrix
        return total, gradient

    # Evidence never counts against a document: a fit that says so has found a quirk of its set.
    bounds = [(0.0, None)] * int(free.sum())
    found = minimize(loss, np.ones(int(free.sum())), jac=True, method="L-BFGS-B", bounds=bounds)
    weights: Floats = found.x
    return weights


def full_at(rankings: Iterable[Ranking], weights: dict[str, float], k: int = 5) -> float:
    """Share of queries whose gold documents all stand among the first k."""
    vector = np.array([weights.get(name, 0.0) for name in FEATURES])
    hits = []
    for ranking in rankings:
        top = np.argsort(-(ranking.features @ vector), kind="stable")[:k]
        hits.append(int(ranking.relevant[top].sum()) == ranking.gold)
    return float(np.mean(hits))


def cross_validated(rankings: Sequence[Ranking], seed: int = 0) -> dict[str, Any]:
    """full@5 per data set on held-out fifths of all training queries."""
    scores: dict[str, list[tuple[float, int]]] = {}
    folds = KFold(5, shuffle=True, random_state=seed).split(list(rankings))
    for train, test in folds:
        weights = fit([rankings[i] for i in train])
        for name in sorted({r.dataset for r in rankings}):
            held = [rankings[i] for i in test if rankings[i].dataset == name]
            scores.setdefault(name, []).append((full_at(held, weights), len(held)))
    return {
        name: round(sum(s * n for s, n in found) / sum(n for _, n in found), 4)
        for name, found in scores.items()
    }
