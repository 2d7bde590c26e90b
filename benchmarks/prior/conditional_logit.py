"""Fitting the ranker's prior on training files (``python -m benchmarks fit-prior``).

A conditional logit over each query's candidates (McFadden 1974; ListNet's top-one loss, Cao et al.
2007, §4.2) orders documents; a logistic calibration of its scores then gives probabilities.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from crabpath_lab.datasets import Dataset
from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.core.text import Floats
from crabpath_retrievers.rerank import (
    FEATURES,
    PASSES,
    SOURCE_FEATURES,
    USES,
    Evidence,
    Matrix,
    Ranker,
    compute_features,
    compute_node_features,
)

# Nothing in training files can teach these; they are set by hand, in log-odds.
FIXED_WEIGHTS = {
    "learned": 5.0,
    "hint": 1.0,
    "routed": 1.0,
    "exact": 4.0,
    "inhibition": 0.0,
    "link": 5.0,
    "linked_by": 1.0,
}
FIXED_WEIGHTS |= {"sibling": 0.0, "similar": 0.0, "document": 0.0, "contrast": 0.0}
FIXED_WEIGHTS |= dict.fromkeys((*USES, *PASSES), 20.0) | {"usage": 2.0, "trained": 5.0}
FIXED_WEIGHTS |= {
    "recency": 1.0,
    "distinction": 2.0,
    "agreement": 1.0,
    "authority": 1.5,
    "lexical": 1.0,
}
COVERAGE = 0.8  # log-odds per 10 nats before calibration; docs/decisions.md has the figures
DEPTH = 10  # documents that are chosen for what they add, when scores are calibrated
# What the design's prototype ranked by (§9); its lexical score is worth about 5 units of words.
HAND_WEIGHTS = {
    "similarity": 2.5,
    "information": 0.3,
    "name": 1.9,
    "mention": 4.0,
}
HAND_WEIGHTS |= {"far": 1.2}
_COVERAGE, _CONTRAST = FEATURES.index("coverage"), FEATURES.index("contrast")
_RIDGE = 1.0


@dataclass(frozen=True, slots=True)
class TrainingQuery:
    """The candidates of one query, which of them are relevant ``[n]``, gold in the corpus."""

    evidence: Evidence
    relevant: NDArray[np.bool_]
    gold: int
    dataset: str


def collect_candidates(
    dataset: Dataset,
    embeddings: Embeddings,
    settings: Settings | None = None,
    *,
    name: str = "",
) -> list[TrainingQuery]:
    """Candidates of every query, as retrieval itself finds them."""
    found = []
    with CrabPath.open(embeddings=embeddings, settings=settings) as memory:
        memory.add_documents(dataset.documents, split=False)
        for query_id, text in dataset.queries.items():
            evidence = memory.learning.evidence(text)
            gold = dataset.qrels[query_id]
            relevant = np.array([hit.head.id in gold for hit in evidence.pool], dtype=bool)
            found.append(TrainingQuery(evidence, relevant, len(gold), name or dataset.name))
    return found


def fit_ranker(rankings: Sequence[TrainingQuery]) -> Ranker:
    """A ranker for the candidates of training queries, from one or several data sets."""
    useful = [r for r in rankings if r.relevant.any() and not r.relevant.all()]
    sources = _fit_sources(useful)
    features = [compute_features(r.evidence, sources) for r in useful]
    free = np.array(
        [name not in FIXED_WEIGHTS and name not in ("bias", "coverage") for name in FEATURES]
    )
    weights = np.array([FIXED_WEIGHTS.get(name, 0.0) for name in FEATURES])
    weights[free] = _fit_conditional_logit([matrix[:, free] for matrix in features], useful)
    weights[_COVERAGE] = COVERAGE
    raw = Ranker(weights, sources, {})
    scores = np.concatenate([_score_candidates(raw, r) for r in useful])
    labels = np.concatenate([r.relevant for r in useful])
    calibration = LogisticRegression(C=1e6).fit(scores[:, None], labels)
    scaled = weights * float(calibration.coef_[0, 0])
    scaled[[FEATURES.index(name) for name in FIXED_WEIGHTS]] = list(FIXED_WEIGHTS.values())
    scaled[FEATURES.index("bias")] = float(calibration.intercept_[0])
    return Ranker(scaled.round(4), sources.round(4), {})


def fit_contrast(ranker: Ranker, rankings: Sequence[TrainingQuery]) -> Ranker:
    """The ranker with the weight of ``contrast`` fitted, all others kept.

    Args:
        ranker: A ranker whose weight of ``contrast`` is 0.
        rankings: Queries of corpora whose texts do not name each other; elsewhere it is 0.
    """
    useful = [r for r in rankings if r.relevant.any() and not r.relevant.all()]
    features = [compute_features(r.evidence, ranker.sources) for r in useful]
    found = _fit_conditional_logit(
        [matrix[:, [_CONTRAST]] for matrix in features],
        useful,
        [ranker.log_odds(matrix) for matrix in features],
    )
    weights = ranker.weights.copy()
    weights[_CONTRAST] = float(found[0].round(4))
    return ranker.with_weights(weights)


def make_hand_ranker(**weights: float) -> Ranker:
    """A ranker with these weights, by feature, to compare with; coverage counts nothing in it."""
    values = [weights.get(name, 0.0) for name in FEATURES]
    return Ranker(np.array(values), np.zeros(len(SOURCE_FEATURES)), {})


def _fit_sources(rankings: Sequence[TrainingQuery]) -> Floats:
    """How likely a candidate is relevant by what it says itself: weights ``[3]``."""
    columns = [FEATURES.index(name) for name in SOURCE_FEATURES]
    own = [compute_node_features(r.evidence)[:, columns] for r in rankings]
    return _fit_conditional_logit(own, rankings)


def rank_evidence(ranker: Ranker, evidence: Evidence, k: int) -> tuple[list[int], Matrix]:
    """All candidates in order, best first, and their features."""
    matrix = compute_features(evidence, ranker.sources)
    return ranker.order(matrix, evidence, k, range(len(evidence.pool))), matrix


def _score_candidates(ranker: Ranker, ranking: TrainingQuery) -> Floats:
    _, matrix = rank_evidence(ranker, ranking.evidence, DEPTH)
    return ranker.log_odds(matrix)


def _fit_conditional_logit(
    matrices: Sequence[Matrix],
    rankings: Sequence[TrainingQuery],
    offsets: Sequence[Floats] | None = None,
) -> Floats:
    """Weights of the columns, beside fixed ``offsets`` of the scores where they are given."""
    sizes = Counter(r.dataset for r in rankings)
    # Every data set counts the same, however many of its questions there are.
    shares = np.array([len(rankings) / len(sizes) / sizes[r.dataset] for r in rankings])
    features = np.concatenate(matrices)
    known = np.zeros(len(features)) if offsets is None else np.concatenate(offsets)
    query = np.repeat(np.arange(len(rankings)), [len(r.relevant) for r in rankings])
    starts = np.searchsorted(query, np.arange(len(rankings)))
    golds = np.array([r.relevant.sum() for r in rankings])
    target = np.concatenate([r.relevant for r in rankings]) * (shares / golds)[query]

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = features @ weights + known
        shifted = scores - np.maximum.reduceat(scores, starts)[query]
        odds = np.exp(shifted)
        partition = np.add.reduceat(odds, starts)[query]
        total = 0.5 * _RIDGE * weights @ weights - target @ (shifted - np.log(partition))
        gradient = _RIDGE * weights - (target - shares[query] * odds / partition) @ features
        return float(total), gradient

    # Evidence never counts against a document: a fit that says so has found a quirk of its set.
    width = features.shape[1]
    found = minimize(loss, np.ones(width), jac=True, method="L-BFGS-B", bounds=[(0, None)] * width)
    weights: Floats = found.x
    return weights


def measure_ranker(
    rankings: Iterable[TrainingQuery], ranker: Ranker, k: int = 5
) -> dict[str, float]:
    """Mean recall@k, and share of queries whose gold documents all stand among the first k."""
    recalls = []
    for ranking in rankings:
        order, _ = rank_evidence(ranker, ranking.evidence, k)
        recalls.append(ranking.relevant[order[:k]].sum() / ranking.gold)
    return {
        f"recall@{k}": round(float(np.mean(recalls)), 4),
        f"full@{k}": round(float(np.mean(np.array(recalls) == 1.0)), 4),
    }


def cross_validate(rankings: Sequence[TrainingQuery], seed: int = 0) -> dict[str, dict[str, float]]:
    """recall@5 and full@5 per data set on held-out fifths of all training queries."""
    parts: dict[str, list[tuple[dict[str, float], int]]] = {}
    folds = KFold(5, shuffle=True, random_state=seed).split(list(rankings))
    for train, test in folds:
        ranker = fit_ranker([rankings[i] for i in train])
        for name in dict.fromkeys(r.dataset for r in rankings):
            held = [rankings[i] for i in test if rankings[i].dataset == name]
            parts.setdefault(name, []).append((measure_ranker(held, ranker), len(held)))
    return {name: _pool_folds(found) for name, found in parts.items()}


def _pool_folds(parts: Sequence[tuple[dict[str, float], int]]) -> dict[str, float]:
    total = sum(size for _, size in parts)
    return {
        metric: round(sum(scores[metric] * size for scores, size in parts) / total, 4)
        for metric in parts[0][0]
    }
