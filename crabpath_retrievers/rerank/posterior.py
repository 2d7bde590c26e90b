"""What a namespace knows of ranking: a Gaussian over the ranker's weights, updated online.

One Newton step of the Laplace approximation per feedback (Chapelle & Li 2011, algorithm 3) on a
logistic model that expects a tenth of what it is told to be wrong (Copas 1988, §3): an unlikely
document that was called used moves it little.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from crabpath_retrievers.rerank.features import CORPUS_FEATURES, FEATURES, Matrix
from crabpath_retrievers.terms import Floats

_SINGLE, _DOUBLE = np.dtype("<f4"), np.dtype("<f8")
_SHAPE = zlib.crc32(",".join(FEATURES).encode()).to_bytes(4, "little")
_QUICK = 1  # of zlib
_LEARNS = np.array([name in CORPUS_FEATURES for name in FEATURES])
_HELD = 1e6  # precision of weights that stay
_WRONG = 0.1  # share of what is told
_FAR = 30.0  # log-odds beyond which nothing is learned any more
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
        """The prior, before any feedback.

        What a text says of itself is worth the same in every corpus, and how far memories may be
        believed is a matter of their trust: those weights stay.

        Args:
            prior: Shipped weights, shape ``[F]``.
            strength: Precision of the weights of ``CORPUS_FEATURES``; the larger, the slower they
                learn.
        """
        return cls(prior, np.diag(np.where(_LEARNS, strength, _HELD)))

    def updated(self, matrix: Matrix, used: Floats, weight: float = 1.0) -> "Posterior":
        """The posterior after seeing which of the shown documents were used.

        Args:
            matrix: Features of the shown documents, shape ``[n, F]``.
            used: Credit of each in [0, 1], shape ``[n]``.
            weight: How much this counts, in [0, 1].
        """
        relevant = 1.0 / (1.0 + np.exp(-np.clip(matrix @ self.mean, -_FAR, _FAR)))
        called = _WRONG + (1.0 - 2.0 * _WRONG) * relevant  # P(it is called used)
        slope = (1.0 - 2.0 * _WRONG) * relevant * (1.0 - relevant)
        certain = slope / (called * (1.0 - called))
        columns = matrix * _LEARNS
        precision = self.precision + weight * (columns * (slope * certain)[:, None]).T @ columns
        gradient = weight * columns.T @ ((used - called) * certain)
        return Posterior(self.mean + np.linalg.solve(precision, gradient), precision)

    def sampled(self, rng: np.random.Generator, draws: int) -> Floats:
        """Weights drawn from the posterior (Thompson 1933), shape ``[draws, F]``."""
        root = np.linalg.cholesky(self.precision)
        normal = rng.normal(size=(len(self.mean), draws))
        drawn: Floats = self.mean + np.linalg.solve(root.T, normal).T
        return drawn

    def to_dict(self) -> dict[str, Any]:
        """As plain data, by the names of the features; the precision as its upper triangle."""
        return {
            "features": list(FEATURES),
            "mean": _written(self.mean),
            "precision": _written(self.precision[_triangle(len(self.mean))]),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], prior: "Posterior") -> "Posterior":
        """The inverse of :meth:`to_dict`; features of other releases keep their prior."""
        known: Sequence[str] = data["features"]
        mean_then, precision_then = _read(data, len(known))
        if list(known) == list(FEATURES):
            return cls(mean_then, precision_then)
        both = [(FEATURES.index(name), i) for i, name in enumerate(known) if name in FEATURES]
        here, there = [list(places) for places in zip(*both, strict=True)]
        mean, precision = prior.mean.copy(), prior.precision.copy()
        mean[here] = mean_then[there]
        precision[np.ix_(here, here)] = precision_then[np.ix_(there, there)]
        return cls(mean, precision)


def gained(before: Posterior, after: Posterior) -> bytes:
    """What updates have added, in natural parameters, in which evidence adds up.

    The precision as single-precision upper triangle, precision times mean in double precision.
    """
    precision = (after.precision - before.precision)[_triangle(len(after.mean))]
    shift = after.precision @ after.mean - before.precision @ before.mean
    data = _SHAPE + precision.astype(_SINGLE).tobytes() + shift.astype(_DOUBLE).tobytes()
    return zlib.compress(data, _QUICK)


def without(posterior: Posterior, gain: bytes) -> Posterior:
    """The posterior without what :func:`gained` gave; of other releases' features it keeps all."""
    data = zlib.decompress(gain)
    if data[: len(_SHAPE)] != _SHAPE:
        return posterior
    size = len(posterior.mean)
    cut = len(_SHAPE) + _SINGLE.itemsize * size * (size + 1) // 2
    precision = posterior.precision - _square(
        np.frombuffer(data[len(_SHAPE) : cut], _SINGLE).astype(_DOUBLE), size
    )
    shift = posterior.precision @ posterior.mean - np.frombuffer(data[cut:], _DOUBLE)
    mean = np.linalg.solve(precision, shift).astype(_DOUBLE)
    return Posterior(mean, precision)


def _written(values: Floats) -> str:
    """Numbers as text, exactly; a tenth of the time that decimals take."""
    return b64encode(values.astype(_DOUBLE).tobytes()).decode()


def _read(data: Mapping[str, Any], size: int) -> tuple[Floats, Floats]:
    """Mean ``[F]`` and precision ``[F, F]``; the inverse of :func:`_written`."""
    return (
        np.frombuffer(b64decode(data["mean"]), _DOUBLE).copy(),
        _square(np.frombuffer(b64decode(data["precision"]), _DOUBLE), size),
    )


def _square(triangle: Floats, size: int) -> Floats:
    """The symmetric matrix with this upper triangle."""
    square: Floats = np.zeros((size, size))
    square[_triangle(size)] = triangle
    return square + np.triu(square, 1).T
