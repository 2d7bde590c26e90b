"""The Bayesian ranker, with its prior only: a logistic model over the features.

The prior is fitted on training splits by ``crabpath fit-prior`` and shipped with its provenance.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.errors import ConfigurationError
from crabpath_retrievers.rerank.features import FEATURES, Matrix

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ranker:
    """P(relevant | features) = σ(weights · features).

    Attributes:
        weights: One per feature, shape ``[len(FEATURES)]``, in log-odds.
        provenance: What the weights were fitted on.
        inhibition: Largest loss in log-odds by inhibitory pointers.
    """

    weights: Floats
    provenance: Mapping[str, Any]
    inhibition: float = 1.5

    @classmethod
    def load(cls, path: Path | None = None, *, inhibition: float = 1.5) -> "Ranker":
        """The shipped prior, or one from a file that ``crabpath fit-prior`` wrote.

        Raises:
            ConfigurationError: The file names other features than this release has.
        """
        text = (
            path.read_text(encoding="utf-8")
            if path
            else files("crabpath_retrievers.rerank").joinpath("prior.json").read_text("utf-8")
        )
        data = json.loads(text)
        unknown = set(data["weights"]) - set(FEATURES)
        if unknown:
            msg = f"the prior has unknown features {sorted(unknown)}: fit it with this release"
            raise ConfigurationError(msg)
        weights = np.array([float(data["weights"].get(name, 0.0)) for name in FEATURES])
        return cls(weights, data.get("provenance", {}), inhibition)

    def log_odds(self, matrix: Matrix) -> Floats:
        """Log-odds of relevance, shape ``[n]``, for features of shape ``[n, len(FEATURES)]``."""
        penalty = self.inhibition * matrix[:, FEATURES.index("inhibition")]
        odds: Floats = matrix @ self.weights - penalty
        return odds

    def probabilities(self, matrix: Matrix) -> Floats:
        """Probabilities of relevance in [0, 1], shape ``[n]``."""
        probabilities: Floats = 1.0 / (1.0 + np.exp(-self.log_odds(matrix)))
        return probabilities
