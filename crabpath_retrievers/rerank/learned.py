"""What feedback teaches the ranker of a namespace: how far memories can be trusted, and weights.

Reliability of its memories: how often the documents that they support are used. Whether tasks
repeat is a property of the stream of questions, and no single query shows it. On questions that
have nothing in common, documents used for a similar question are not used again.

Calibration of its ranker: how often documents of each log-odds are used (Platt 1999).

Scale of its trials: how much past uses say about the next one, against the ranker's model.

Gate: whether what was learned has ranked worse than the ranking before any lesson.

Posterior: a Gaussian over the ranker's weights. Each feedback makes one Newton step of the Laplace
approximation (Chapelle & Li 2011, algorithm 3) on a logistic model that assumes a tenth of all
labels to be wrong (Copas 1988, §3), so that an improbable label changes the weights little.
"""

import math
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import numpy as np

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import ReturnedDocument, Turn
from crabpath_retrievers.core.text import Floats
from crabpath_retrievers.rerank.features import CORPUS_FEATURES, FEATURES, PASSES, USES, Matrix
from crabpath_retrievers.rerank.ranker import Calibration

MEMORY_FEATURES = ("episode", "counterpart", "usage")
"""Ranker features that carry feedback on other questions."""

SCALED_FEATURES = {name: name for name in MEMORY_FEATURES} | {"missed": "episode"}
"""Ranker features whose weights the reliability of a memory scales, and that memory."""


_RETURNED, _UNLIKELY = "returned", "unlikely"
_UNLIKELY_BELOW = 0.05  # probability below which a document without memory support is unlikely
_PRIOR = (0.5, 5.0)  # prior (used, all): less than half reliable before any evidence
_PRIOR_RATE = 0.25  # prior share of returned documents that an answer uses
_PRIOR_COUNT = 20.0  # weight of that prior, in documents
_NONE: tuple[float, float] = (0.0, 0.0)
Evidence = dict[str, tuple[float, float]]
"""What feedback adds, by name: used, and all."""

_BIN = re.compile(r"log_odds (\d+) (-?\d+)")
_MIN_LOG_ODDS, _MAX_LOG_ODDS = -10, 6  # centres of the outermost bins
_BLOCK = 64  # feedbacks
_BLOCKS = 2  # that are fitted: the ranker learns, and older counts are about another one
_LESSONS, _AGAINST = "lessons", "against"
_ROOM, _ROOM_SHARE = 0.6, 0.01  # of lessons against others, and their share of all lessons
_GHOST = 1e-6  # counts below are what rounding left of others that were subtracted
_PRIOR_PRECISION = np.array([50.0, 5.0])  # of slope and offset, around no change
_MIN_SLOPE = 0.1  # the order of documents stays
_MAX_STEPS, _CONVERGED = 20, 1e-6
_SCALES = {f"trials * 3^{power}": 3.0**power for power in range(-3, 4)}
_SCALE_DEVIATION = math.log(3.0)  # prior standard deviation of the logarithm of the scale
_LIFT, _LIFT_SHOWN = "lift", "lift of shown"
_STAKES = np.array([0.1, 0.25, 0.5, 0.75])  # shares of the wealth of a bet on a loss
_LARGEST = 100.0  # logarithm of wealth
_PROOF = 40.0  # wealth that chance brings to one of 40 namespaces at most, by each kind of label


@dataclass(frozen=True, slots=True)
class Reliability:
    """Evidence on how far the memories of a namespace can be trusted: counts by name.

    Attributes:
        spoken: Pairs ``(used, all)``: sums over used documents, and over all documents of known
            use, weighted by feedback. A memory feature sums up its values above 0; ``returned``
            counts all returned documents, and ``unlikely`` those that were unlikely. ``log_odds
            BLOCK CENTRE`` counts documents with log-odds around the centre, in a recent block of
            feedback. ``trials * SCALE`` is different: the surprise, in nats, at the use of
            documents if trials count by that scale, and the number of documents. ``lessons`` has
            the number of lessons.
    """

    spoken: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def factor(self, memory: str) -> float:
        """Return the factor for the weight of a memory feature, in [0, 1].

        The mean of a Beta posterior over "a supported document is used", on a scale from 0 (as
        rarely as unlikely documents) to 1 (as often as any returned document). Feedback that is
        often wrong marks unlikely documents as used and so does not make a memory reliable.
        """
        used, known = self.spoken.get(memory, _NONE)
        rate = (used + _PRIOR[0]) / (known + _PRIOR[1])
        usual_rate, floor = (
            (used + first * _PRIOR_COUNT) / (known + _PRIOR_COUNT)
            for name, first in ((_RETURNED, _PRIOR_RATE), (_UNLIKELY, 0.0))
            for used, known in (self.spoken.get(name, _NONE),)
        )
        return max(0.0, min(1.0, (rate - floor) / max(usual_rate - floor, _UNLIKELY_BELOW)))

    def scale_trials(self) -> float:
        """Return the factor for the weights of ``USES`` and ``PASSES``; 1 without evidence.

        It is above 0. Its logarithm is the posterior mean on a grid, under a normal prior around 0.
        """
        if not self.spoken.keys() & _SCALES.keys():
            return 1.0
        scales = np.log([*_SCALES.values()])
        surprise = np.array([self.spoken.get(name, _NONE)[0] for name in _SCALES])
        fit = -surprise - 0.5 * (scales / _SCALE_DEVIATION) ** 2
        posterior = np.exp(fit - fit.max())
        return float(np.exp(posterior @ scales / posterior.sum()))

    def plus(self, amount: Mapping[str, tuple[float, float]], sign: float = 1.0) -> "Reliability":
        """Return the reliability with the evidence ``amount``, or without it (``sign`` -1)."""
        total = dict(self.spoken)
        for name, (used, known) in amount.items():
            before = total.get(name, _NONE)
            total[name] = before[0] + sign * used, before[1] + sign * known
        kept = {name: pair for name, pair in total.items() if max(map(abs, pair)) >= _GHOST}
        return Reliability(kept)

    def count_lesson(self, counts: Mapping[str, tuple[float, float]]) -> "Evidence":
        """Return the evidence of one more lesson: its counts by log-odds, less old ones.

        The old ones are counts of earlier blocks; when the lesson is undone, they come back.

        Args:
            counts: Counts by log-odds from :func:`count_log_odds`.
        """
        newest = max((place[0] for name in counts if (place := _parse_bin(name))), default=0)
        displaced = {
            name: (-used, -known)
            for name, (used, known) in self.spoken.items()
            if (place := _parse_bin(name)) and place[0] <= newest - _BLOCKS
        }
        more = self.lessons + 1 - self.spoken.get(_LESSONS, _NONE)[1]
        return {**counts, **displaced, _LESSONS: (0.0, more)}

    @property
    def lessons(self) -> int:
        """Number of lessons in effect; it determines the block of the next one."""
        if _LESSONS in self.spoken:
            return round(self.spoken[_LESSONS][1])
        blocks = [place[0] for name in self.spoken if (place := _parse_bin(name))]
        return _BLOCK * (max(blocks) + 1) if blocks else 0  # of a release that did not count them

    @property
    def room(self) -> float:
        """Number of lessons of unproved givers that may still count against others."""
        counted, number = self.spoken.get(_AGAINST, _NONE)
        return max(0.0, _ROOM + _ROOM_SHARE * (self.lessons - number) - counted)

    @property
    def has_lost(self) -> bool:
        """Whether judged turns show that the ranking before any lesson was the better one.

        Imagine a player who bets on each loss. If there is none, the player's wealth is a
        supermartingale, so chance ever brings it to 40 with probability 1/40 at most, however often
        one looks (Ville 1939; the inequality is that of Fan, Grama & Liu 2015, mixed over stakes).
        Labels that were chosen among what was shown favour the ranking that answered, and so can
        prove its loss, but not its gain.
        """
        for name in (_LIFT, _LIFT_SHOWN):
            gained, squared = self.spoken.get(name, _NONE)
            logarithms = -_STAKES * gained + (np.log1p(-_STAKES) + _STAKES) * squared
            if np.exp(np.minimum(logarithms, _LARGEST)).mean() >= _PROOF:
                return True
        return False

    def calibrate(self) -> Calibration:
        """Fit slope and offset to the counts by log-odds."""
        places = {
            name: place
            for name, pair in self.spoken.items()
            if (place := _parse_bin(name)) and pair[1] >= _GHOST
        }
        if not places:
            return Calibration()
        newest = max(block for block, _ in places.values())
        return _fit_calibration(
            tuple(
                (centre, *self.spoken[name])
                for name, (block, centre) in places.items()
                if block > newest - _BLOCKS
            )
        )


@lru_cache(maxsize=64)  # a query and the feedback on it fit the same counts
def _fit_calibration(bins: tuple[tuple[float, float, float], ...]) -> Calibration:
    """Fit a calibration to log-odds with their numbers of used and of all documents.

    The most likely slope and offset under a normal prior around no change (Platt 1999; Newton's
    method).
    """
    odds, used, known = np.array(bins, dtype=np.float64).T
    inputs = np.stack([odds, np.ones_like(odds)], axis=1)

    def measure_fit(change: Floats) -> float:
        """Log-likelihood plus log prior."""
        values = odds + inputs @ change
        likelihood = used @ values - known @ np.logaddexp(0.0, values)
        return float(likelihood - 0.5 * _PRIOR_PRECISION @ change**2)

    change = np.zeros(2)
    fit = measure_fit(change)
    for _ in range(_MAX_STEPS):
        expected = 1.0 / (1.0 + np.exp(-odds - inputs @ change))
        gradient = inputs.T @ (used - known * expected) - _PRIOR_PRECISION * change
        spread = (known * expected * (1.0 - expected))[:, None] * inputs
        step = np.linalg.solve(inputs.T @ spread + np.diag(_PRIOR_PRECISION), gradient)
        while measure_fit(change + step) < fit - _CONVERGED:
            step /= 2
        change += step
        before, fit = fit, measure_fit(change)
        if fit - before < _CONVERGED:
            break
    return Calibration(max(_MIN_SLOPE, 1.0 + float(change[0])), float(change[1]))


def measure_memories(turns: Iterable[tuple[Turn, Credit]]) -> dict[str, tuple[float, float]]:
    """Return by memory the sums of its support for used documents, and for all of known use.

    Sums are weighted by the credit of the turn. Only documents with a credit of their own count.
    """
    totals: dict[str, tuple[float, float]] = {}
    for turn, credit in turns:
        for item in turn.returned:
            if item.node in credit.documents:
                value = max(0.0, credit.documents[item.node])
                for memory, strength in _list_strengths(item):
                    used, known = totals.get(memory, _NONE)
                    amount = strength * credit.weight
                    totals[memory] = (used + amount * value, known + amount)
    return totals


def _list_strengths(item: ReturnedDocument) -> Iterator[tuple[str, float]]:
    """Yield the names of the counts to which one returned document adds, each with its strength."""
    yield _RETURNED, 1.0
    memory_values = [(memory, item.features.get(memory, 0.0)) for memory in MEMORY_FEATURES]
    if not any(value > 0 for _, value in memory_values) and item.probability < _UNLIKELY_BELOW:
        yield _UNLIKELY, 1.0
    yield from ((memory, min(1.0, value)) for memory, value in memory_values if value > 0)


def count_against(counted: Sequence[float]) -> Evidence:
    """Return as evidence the sum and number of credits by unproved givers against others."""
    return {_AGAINST: (sum(counted), float(len(counted)))} if counted else {}


def count_lift(differences: Iterable[tuple[float, bool]]) -> Evidence:
    """Return as evidence the gains of learning on judged turns: sums of gains and of squares.

    Args:
        differences: nDCG of what was learned minus that before any lesson, in [-1, 1]; and whether
            the labels do not depend on what was shown.
    """
    totals: Evidence = {}
    for gained, is_independent in differences:
        name = _LIFT if is_independent else _LIFT_SHOWN
        total, squared = totals.get(name, _NONE)
        totals[name] = total + gained, squared + gained**2
    return totals


def get_gain(evidence: Mapping[str, tuple[float, float]]) -> float | None:
    """Return the summed nDCG gain that :func:`count_lift` recorded for one feedback.

    Turns count whose labels do not depend on what was shown; None if there is no such turn.
    """
    return evidence[_LIFT][0] if _LIFT in evidence else None


def count_log_odds(
    turns: Iterable[tuple[Turn, Credit]], lessons: int
) -> dict[str, tuple[float, float]]:
    """Return ``(used, all)`` of the returned documents by block of feedback and log-odds.

    Only documents with a credit of their own count. A document with past uses or passes counts by
    the model's share of its trials. ``lessons`` is the number of lessons learned before the
    feedback.
    """
    totals: dict[str, tuple[float, float]] = {}
    for turn, credit in turns:
        for item in turn.returned:
            if item.node in credit.documents and item.log_odds is not None:
                centre = max(_MIN_LOG_ODDS, min(_MAX_LOG_ODDS, round(item.log_odds)))
                name = f"log_odds {lessons // _BLOCK} {centre}"
                used, known = totals.get(name, _NONE)
                value = max(0.0, credit.documents[item.node])
                weight = credit.weight / (1.0 + item.trials)
                totals[name] = (used + value * weight, known + weight)
    return totals


def measure_scales(
    turns: Iterable[tuple[Turn, Credit]], weights: Mapping[str, float], calibration: Calibration
) -> dict[str, tuple[float, float]]:
    """Return ``(surprise, all)`` by scale: how badly that scale of trials predicts use.

    Surprise is minus the logarithm of the likelihood, in nats, of the use of documents with past
    uses; all is their weighted number. Empty without such documents.

    Args:
        turns: Turns with their credit; only documents with a credit of their own count.
        weights: Trials that one unit of each feature of ``USES`` and ``PASSES`` counts at scale 1.
    """
    rows = [
        (
            item.log_odds,
            sum(weights[name] * item.features.get(name, 0.0) for name in USES),
            sum(weights[name] * item.features.get(name, 0.0) for name in PASSES),
            max(0.0, credit.documents[item.node]),
            credit.weight,
        )
        for turn, credit in turns
        for item in turn.returned
        if item.node in credit.documents and item.log_odds is not None and item.trials
    ]
    if not rows:
        return {}
    columns = np.array(rows, dtype=np.float64).T[:, :, None]  # scales are the last axis
    odds, uses, passes, used, weight = columns
    odds, scales = calibration.apply(odds), np.array([*_SCALES.values()])
    relevant = np.log(1.0 / (1.0 + np.exp(-odds)) + scales * uses)
    irrelevant = np.log(1.0 / (1.0 + np.exp(odds)) + scales * passes)
    surprise = np.log1p(scales * (uses + passes)) - used * relevant - (1.0 - used) * irrelevant
    total, known = (weight * surprise).sum(axis=0), float(weight.sum())
    return {name: (float(value), known) for name, value in zip(_SCALES, total, strict=True)}


@lru_cache(maxsize=1024)
def _parse_bin(name: str) -> tuple[int, int] | None:
    """Parse block and log-odds of the name of a bin; None for other counts."""
    found = _BIN.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


_SINGLE, _DOUBLE = np.dtype("<f4"), np.dtype("<f8")
_SHAPE = zlib.crc32(",".join(FEATURES).encode()).to_bytes(4, "little")
_FAST = 1  # compression level of zlib
_LEARNS = np.array([name in CORPUS_FEATURES for name in FEATURES])
_FIXED = 1e6  # precision of weights that are not learned
_WRONG = 0.1  # assumed share of wrong labels
_CLIPPED = 30.0  # beyond, the slope vanishes
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
        """Make the distribution before any feedback.

        Only the weights of ``CORPUS_FEATURES`` are learned: text match is worth the same in every
        corpus, and memories are scaled by their reliability instead.

        Args:
            prior: Shipped weights, shape ``[F]``, in log-odds.
            strength: Precision of the learned weights; the larger, the slower they learn.
        """
        return cls(prior, np.diag(np.where(_LEARNS, strength, _FIXED)))

    def update(self, matrix: Matrix, used: Floats, weight: float | Floats = 1.0) -> "Posterior":
        """Compute the posterior after one feedback on returned documents.

        Args:
            matrix: Features of the documents, shape ``[n, F]``.
            used: Credit of each in [0, 1], shape ``[n]``.
            weight: Weight of the feedback, in [0, 1]; one, or one for each document.
        """
        clipped = np.clip(matrix @ self.mean, -_CLIPPED, _CLIPPED)
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
        """Draw weights from the posterior (Thompson 1933), shape ``[draws, F]``."""
        root = np.linalg.cholesky(self.precision)
        normal = rng.normal(size=(len(self.mean), draws))
        drawn: Floats = self.mean + np.linalg.solve(root.T, normal).T
        return drawn

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data with feature names; the precision as its upper triangle."""
        return {
            "features": list(FEATURES),
            "mean": _encode(self.mean),
            "precision": _encode(self.precision[_triangle(len(self.mean))]),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], prior: "Posterior") -> "Posterior":
        """Read the posterior from data of :meth:`to_dict`.

        Features that ``data`` does not have keep their ``prior``; features of other releases are
        dropped.
        """
        known: Sequence[str] = data["features"]
        stored_mean, triangle = (
            np.frombuffer(b64decode(data[name]), _DOUBLE) for name in ("mean", "precision")
        )
        stored_precision = _from_upper_triangle(triangle, len(known))
        if list(known) == list(FEATURES):
            return cls(stored_mean.copy(), stored_precision)
        both = [(FEATURES.index(name), i) for i, name in enumerate(known) if name in FEATURES]
        here, there = [list(columns) for columns in zip(*both, strict=True)]
        mean, precision = prior.mean.copy(), prior.precision.copy()
        mean[here] = stored_mean[there]
        precision[np.ix_(here, here)] = stored_precision[np.ix_(there, there)]
        return cls(mean, precision)


def encode_gain(before: Posterior, after: Posterior) -> bytes:
    """Encode the difference of two posteriors in natural parameters, in which evidence adds up.

    These are the precision (upper triangle) and precision times mean, compressed with zlib.
    """
    precision = (after.precision - before.precision)[_triangle(len(after.mean))]
    shift = after.precision @ after.mean - before.precision @ before.mean
    data = _SHAPE + precision.astype(_DOUBLE).tobytes() + shift.astype(_DOUBLE).tobytes()
    return zlib.compress(data, _FAST)


def remove_gain(posterior: Posterior, gain: bytes) -> Posterior:
    """Subtract a gain from :func:`encode_gain` from a posterior.

    A gain over other features, from another release, leaves the posterior as it is.
    """
    data = zlib.decompress(gain)
    if data[: len(_SHAPE)] != _SHAPE:
        return posterior
    size = len(posterior.mean)
    cut = len(data) - _DOUBLE.itemsize * size
    # Former releases kept it in single precision.
    kind = _DOUBLE if cut - len(_SHAPE) == _DOUBLE.itemsize * size * (size + 1) // 2 else _SINGLE
    precision = posterior.precision - _from_upper_triangle(
        np.frombuffer(data[len(_SHAPE) : cut], kind).astype(_DOUBLE), size
    )
    shift = posterior.precision @ posterior.mean - np.frombuffer(data[cut:], _DOUBLE)
    mean = np.linalg.solve(precision, shift).astype(_DOUBLE)
    return Posterior(mean, precision)


def _encode(values: Floats) -> str:
    """Encode numbers as exact text, ten times as fast as decimals."""
    return b64encode(values.astype(_DOUBLE).tobytes()).decode()


def _from_upper_triangle(triangle: Floats, size: int) -> Floats:
    """Make the symmetric matrix with this upper triangle."""
    square: Floats = np.zeros((size, size))
    square[_triangle(size)] = triangle
    return square + np.triu(square, 1).T
