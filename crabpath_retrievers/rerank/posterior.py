"""What a namespace has learned about ranking: a Gaussian over the ranker's weights.

Each feedback makes one Newton step of the Laplace approximation (Chapelle & Li 2011, algorithm 3)
on a logistic model that assumes a tenth of all labels to be wrong (Copas 1988, §3), so that an
improbable label changes the weights little.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from crabpath_retrievers.core.text import Floats
from crabpath_retrievers.rerank.features import CORPUS_FEATURES, FEATURES, Matrix

_SINGLE, _DOUBLE = np.dtype("<f4"), np.dtype("<f8")
_SHAPE = zlib.crc32(",".join(FEATURES).encode()).to_bytes(4, "little")
_FAST = 1  # compression level of zlib
_LEARNS = np.array([name in CORPUS_FEATURES for name in FEATURES])
_FIXED = 1e6  # precision of weights that are not learned
_WRONG = 0.1  # assumed share of wrong labels
_MAX_LOG_ODDS = 30.0  # beyond, the slope vanishes
_triangle = cache(np.triu_indices)


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
    def of(cls, prior: Floats, strength: float) -> "Posterior":
        """The distribution before any feedback.

        Only the weights of ``CORPUS_FEATURES`` are learned: text match is worth the same in every
        corpus, and memories are scaled by their reliability instead.

        Args:
            prior: Shipped weights, shape ``[F]``, in log-odds.
            strength: Precision of the learned weights; the larger, the slower they learn.
        """
        return cls(prior, np.diag(np.where(_LEARNS, strength, _FIXED)))

    def update(self, matrix: Matrix, used: Floats, weight: float | Floats = 1.0) -> "Posterior":
        """The posterior after one feedback on returned documents.

        Args:
            matrix: Features of the documents, shape ``[n, F]``.
            used: Credit of each in [0, 1], shape ``[n]``.
            weight: Weight of the feedback, in [0, 1]; one, or one for each document.
        """
        clipped = np.clip(matrix @ self.mean, -_MAX_LOG_ODDS, _MAX_LOG_ODDS)
        relevant = 1.0 / (1.0 + np.exp(-clipped))
        called = _WRONG + (1.0 - 2.0 * _WRONG) * relevant  # P(it is labelled as used)
        slope = (1.0 - 2.0 * _WRONG) * relevant * (1.0 - relevant)
        certain = slope / (called * (1.0 - called))
        columns = matrix * _LEARNS
        curvature = weight * slope * certain
        precision = self.precision + (columns * curvature[:, None]).T @ columns
        gradient = columns.T @ (weight * (used - called) * certain)
        return Posterior(self.mean + np.linalg.solve(precision, gradient), precision)

    def sample(self, rng: np.random.Generator, draws: int) -> Floats:
        """Weights drawn from the posterior (Thompson 1933), shape ``[draws, F]``."""
        root = np.linalg.cholesky(self.precision)
        normal = rng.normal(size=(len(self.mean), draws))
        drawn: Floats = self.mean + np.linalg.solve(root.T, normal).T
        return drawn

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the names of the features; the precision as its upper triangle."""
        return {
            "features": list(FEATURES),
            "mean": _encode(self.mean),
            "precision": _encode(self.precision[_triangle(len(self.mean))]),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], prior: "Posterior") -> "Posterior":
        """The inverse of :meth:`to_dict`; features of other releases keep their prior."""
        known: Sequence[str] = data["features"]
        stored_mean, stored_precision = _decode(data, len(known))
        if list(known) == list(FEATURES):
            return cls(stored_mean, stored_precision)
        both = [(FEATURES.index(name), i) for i, name in enumerate(known) if name in FEATURES]
        here, there = [list(columns) for columns in zip(*both, strict=True)]
        mean, precision = prior.mean.copy(), prior.precision.copy()
        mean[here] = stored_mean[there]
        precision[np.ix_(here, here)] = stored_precision[np.ix_(there, there)]
        return cls(mean, precision)


def encode_gain(before: Posterior, after: Posterior) -> bytes:
    """Difference of two posteriors in natural parameters, in which evidence adds up.

    Encoded as precision (upper triangle) and precision times mean, compressed with zlib.
    """
    precision = (after.precision - before.precision)[_triangle(len(after.mean))]
    shift = after.precision @ after.mean - before.precision @ before.mean
    data = _SHAPE + precision.astype(_DOUBLE).tobytes() + shift.astype(_DOUBLE).tobytes()
    return zlib.compress(data, _FAST)


def remove_gain(posterior: Posterior, gain: bytes) -> Posterior:
    """The posterior without a gain from :func:`encode_gain`.

    A gain over other features, from another release, leaves the posterior as it is.
    """
    data = zlib.decompress(gain)
    if data[: len(_SHAPE)] != _SHAPE:
        return posterior
    size = len(posterior.mean)
    cut = len(data) - _DOUBLE.itemsize * size
    # Former releases kept it in single precision.
    kind = _DOUBLE if cut - len(_SHAPE) == _DOUBLE.itemsize * size * (size + 1) // 2 else _SINGLE
    precision = posterior.precision - _square(
        np.frombuffer(data[len(_SHAPE) : cut], kind).astype(_DOUBLE), size
    )
    shift = posterior.precision @ posterior.mean - np.frombuffer(data[cut:], _DOUBLE)
    mean = np.linalg.solve(precision, shift).astype(_DOUBLE)
    return Posterior(mean, precision)


def _encode(values: Floats) -> str:
    """Numbers as exact text; ten times as fast as decimals."""
    return b64encode(values.astype(_DOUBLE).tobytes()).decode()


def _decode(data: Mapping[str, Any], size: int) -> tuple[Floats, Floats]:
    """Mean ``[F]`` and precision ``[F, F]``; the inverse of :func:`_encode`."""
    return (
        np.frombuffer(b64decode(data["mean"]), _DOUBLE).copy(),
        _square(np.frombuffer(b64decode(data["precision"]), _DOUBLE), size),
    )


def _square(triangle: Floats, size: int) -> Floats:
    """The symmetric matrix with this upper triangle."""
    square: Floats = np.zeros((size, size))
    square[_triangle(size)] = triangle
    return square + np.triu(square, 1).T
