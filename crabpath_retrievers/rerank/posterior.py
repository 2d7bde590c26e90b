"""What a namespace knows of ranking: a Gaussian over the ranker's weights, updated online.

One Newton step of the Laplace approximation per feedback (Chapelle & Li 2011, algorithm 3), on the
conditional logit over the documents that were shown (McFadden 1974): which of them were used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crabpath_retrievers.rerank.features import FEATURES, LEARNED_FEATURES, Matrix
from crabpath_retrievers.terms import Floats


@dataclass(frozen=True, slots=True)
class Posterior:
    """A Gaussian over the weights of ``FEATURES``.

    Attributes:
        mean: Shape ``[F]``, in log-odds.
        precision: Shape ``[F, F]``, symmetric and positive definite.
    """

    mean: Floats
    precision: Floats

    @classmethod
    def of(cls, prior: Floats, strength: float, learned_strength: float) -> "Posterior":
        """The prior, before any feedback.

        Args:
            prior: Shipped weights, shape ``[F]``.
            strength: Precision of every weight; the larger, the slower it learns.
            learned_strength: The same for the weights of what was learned.
        """
        learned = np.array([name in LEARNED_FEATURES for name in FEATURES])
        return cls(prior, np.diag(np.where(learned, learned_strength, strength)))

    def updated(self, matrix: Matrix, used: Floats, weight: float = 1.0) -> "Posterior":
        """The posterior after seeing which of the shown documents were used.

        Args:
            matrix: Features of the shown documents, shape ``[n, F]``.
            used: Credit of each in [0, 1], shape ``[n]``; nothing is learned when all are alike.
            weight: How much this counts, in [0, 1].
        """
        if not used.any() or used.all():
            return self
        share = used / used.sum()
        odds = matrix @ self.mean
        chosen = np.exp(odds - odds.max())
        chosen /= chosen.sum()
        expected = chosen @ matrix
        spread = (matrix * chosen[:, None]).T @ matrix - np.outer(expected, expected)
        precision = self.precision + weight * used.sum() * spread
        gradient = weight * used.sum() * (share @ matrix - expected)
        return Posterior(self.mean + np.linalg.solve(precision, gradient), precision)

    def sampled(self, rng: np.random.Generator) -> Floats:
        """Weights drawn from the posterior (Thompson 1933), shape ``[F]``."""
        root = np.linalg.cholesky(self.precision)
        drawn: Floats = self.mean + np.linalg.solve(root.T, rng.normal(size=len(self.mean)))
        return drawn

    def to_dict(self) -> dict[str, Any]:
        """As plain data, by the names of the features."""
        return {
            "features": list(FEATURES),
            "mean": self.mean.tolist(),
            "precision": self.precision.tolist(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], prior: "Posterior") -> "Posterior":
        """The inverse of :meth:`to_dict`; features of other releases keep their prior."""
        known: Sequence[str] = data["features"]
        if list(known) == list(FEATURES):
            return cls(np.array(data["mean"]), np.array(data["precision"]))
        both = [(FEATURES.index(name), i) for i, name in enumerate(known) if name in FEATURES]
        here, there = [list(places) for places in zip(*both, strict=True)]
        mean, precision = prior.mean.copy(), prior.precision.copy()
        mean[here] = np.array(data["mean"])[there]
        precision[np.ix_(here, here)] = np.array(data["precision"])[np.ix_(there, there)]
        return cls(mean, precision)
