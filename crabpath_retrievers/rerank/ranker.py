"""The ranker: a logistic model over the features.

``python -m benchmarks fit-prior`` fitted the shipped weights on training splits; each namespace
learns its own weights from them, see :mod:`crabpath_retrievers.rerank.learned`.

Ordering documents so that together they contain the query's information.

Greedy maximisation of relevance plus information not yet covered, a submodular objective
(Nemhauser, Wolsey & Fisher 1978: within 1 - 1/e of the best set), as in MMR (Carbonell &
Goldstein 1998).

Selecting documents within a token budget, without near-duplicates.

Keeping one chunk of each document, for corpora of long documents.

Hints for candidates whose metadata has tags that the caller prefers.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from crabpath_retrievers.core.records import Candidate, Node, NodeHead, compare_vectors
from crabpath_retrievers.core.text import Floats
from crabpath_retrievers.errors import ConfigurationError
from crabpath_retrievers.rerank.features import (
    FEATURES,
    PASSES,
    SOURCE_FEATURES,
    USES,
    Evidence,
    Matrix,
)


def greedy_coverage(
    odds: Floats, term_weights: Floats, weights: Floats, k: int, again: float = 0.0
) -> tuple[list[int], Floats]:
    """Order all documents; the first k are chosen greedily by odds plus added information.

    Args:
        odds: Log-odds of relevance without coverage, shape ``[n]``.
        term_weights: Information of the query in each document by word, shape ``[n, Q]``.
        weights: Log-odds per unit of information of each document, at least 0, shape ``[n]``.
        k: Number of documents that are chosen greedily.
        again: Share of a word's information that counts again in documents after one that has it,
            in [0, 1].

    Returns:
        Indices, best first, and the information that each document added when it was chosen,
        shape ``[n]``. ``odds + weights * added`` never rises along the order.
    """
    uncovered = np.ones(term_weights.shape[1])
    added = np.zeros(len(odds))
    remaining = odds.astype(np.float64)
    order: list[int] = []
    for _ in range(min(k, len(odds))):
        gains = term_weights @ uncovered
        best = int(np.argmax(remaining + weights * gains))
        order.append(best)
        added[best] = gains[best]
        remaining[best] = -np.inf
        uncovered = uncovered * np.where(term_weights[best] > 0, again, 1.0)
    rest = np.isfinite(remaining)
    added[rest] = (term_weights @ uncovered)[rest]
    others = np.argsort(-(remaining + weights * added), kind="stable")[: int(rest.sum())]
    return [*order, *others.tolist()], added


_COVERAGE, _INHIBITION = FEATURES.index("coverage"), FEATURES.index("inhibition")
_IS_LINEAR = np.array([name not in {"coverage", *USES, *PASSES} for name in FEATURES])
_USES, _PASSES = ([FEATURES.index(name) for name in names] for names in (USES, PASSES))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Linear correction of the logistic model's log-odds by a namespace's feedback."""

    slope: float = 1.0
    offset: float = 0.0

    def apply(self, log_odds: Floats) -> Floats:
        """Calibrate log-odds; their order stays."""
        calibrated: Floats = self.slope * log_odds + self.offset
        return calibrated


@dataclass(frozen=True, slots=True)
class Ranker:
    """P(relevant | features): a logistic model, then a Beta posterior over past uses.

    Attributes:
        weights: One per feature, shape ``[len(FEATURES)]``, in log-odds; those of ``USES`` and
            ``PASSES`` are trials per unit, the model being one trial.
        sources: Weights of ``SOURCE_FEATURES``, in log-odds: relevance without the graph.
        provenance: Data that the weights were fitted on.
        inhibition: Log-odds that a full inhibition removes.
        draws: Further draws of the weights, shape ``[draws, F]``, for propensities; None for a
            ranker that does not explore.
        calibration: Of the logistic model.
    """

    weights: Floats
    sources: Floats
    provenance: Mapping[str, Any]
    inhibition: float = 1.5
    draws: Floats | None = None
    calibration: Calibration = field(default_factory=Calibration)

    @classmethod
    def load(cls, path: Path | None = None, *, inhibition: float = 1.5) -> "Ranker":
        """Load the shipped prior; if ``path`` is given, one that ``benchmarks fit-prior`` wrote.

        Raises:
            ConfigurationError: The file has features that this release does not have.
        """
        text = (
            path.read_text(encoding="utf-8")
            if path
            else files("crabpath_retrievers.rerank").joinpath("prior.json").read_text("utf-8")
        )
        data = json.loads(text)
        sources = data.get("sources", {})
        unknown = (set(data["weights"]) - set(FEATURES)) | (set(sources) ^ set(SOURCE_FEATURES))
        if unknown:
            msg = f"the prior has other features {sorted(unknown)}: fit it with this release"
            raise ConfigurationError(msg)
        weights = np.array([float(data["weights"].get(name, 0.0)) for name in FEATURES])
        odds = np.array([float(sources[name]) for name in SOURCE_FEATURES])
        return cls(weights, odds, data.get("provenance", {}), inhibition)

    def with_weights(self, weights: Floats) -> "Ranker":
        """Copy the ranker with other weights, shape ``[len(FEATURES)]``."""
        return replace(self, weights=weights)

    def order(self, matrix: Matrix, evidence: Evidence, k: int, among: Sequence[int]) -> list[int]:
        """Order the candidates ``among`` by relevance, best first, as indices.

        The first ``k`` are chosen greedily for relevance and added information. The column
        ``coverage`` of ``matrix``, which was 0, is filled in.
        """
        chosen = np.asarray(among, dtype=np.intp)
        per_unit = self.calibration.slope * self.weights[_COVERAGE]  # of coverage, in log-odds
        weights = per_unit / (1.0 + self.count_trials(matrix[chosen]))
        odds = self.log_odds(matrix)[chosen]
        terms, again = evidence.weighed_words[chosen], evidence.focus
        order, added = greedy_coverage(odds, terms, weights, k, again)
        matrix[chosen, _COVERAGE] = added
        return [int(chosen[index]) for index in order]

    def cover(self, matrix: Matrix, evidence: Evidence, order: Sequence[int]) -> None:
        """Fill in the column ``coverage`` of candidates, given by index in the order of return.

        Each gets the information of the query that candidates before it do not contain.
        """
        terms, again = evidence.weighed_words, evidence.focus
        uncovered = np.ones(terms.shape[1])
        for index in order:
            matrix[index, _COVERAGE] = terms[index] @ uncovered
            uncovered = uncovered * np.where(terms[index] > 0, again, 1.0)

    def propensities(self, matrix: Matrix, among: Sequence[int], k: int) -> dict[int, float]:
        """Compute the share of the draws in which candidates are among the best k, by index.

        Only the candidates ``among``, given by index, compete. Coverage is that of the answer; it
        is not computed again for each draw. Empty without draws.
        """
        if self.draws is None or not len(among):
            return {}
        rows = matrix[np.asarray(among, dtype=np.intp)]
        odds = np.stack([self.with_weights(drawn).log_odds(rows) for drawn in self.draws], axis=1)
        ranks = np.argsort(np.argsort(-odds, axis=0, kind="stable"), axis=0)
        shares = (ranks < k).mean(axis=1)
        return dict(zip(among, shares.tolist(), strict=True))

    def score_novelty(self, matrix: Matrix, shown: Floats) -> Floats:
        """Compute log-odds without past uses, lower for documents that were tried more often.

        A bonus for what is unknown, as in UCB (Auer, Cesa-Bianchi & Fischer 2002).

        Args:
            matrix: Features, shape ``[n, len(FEATURES)]``.
            shown: Turns that showed each document and whose feedback states its use, at least 0,
                shape ``[n]``.
        """
        odds = self.calibration.apply(matrix @ (self.weights * _IS_LINEAR))
        known: Floats = np.log1p(self.count_trials(matrix)) + np.log1p(shown / _SHOWN_OFTEN)
        return odds - known

    def log_odds(self, matrix: Matrix) -> Floats:
        """Compute log-odds of relevance, shape ``[n]``, of features ``[n, len(FEATURES)]``.

        Past uses and passes for like questions are trials of "this document is relevant", each
        weighted by how alike the questions are. The calibrated logistic model is the prior mean and
        counts as one trial (kernel regression: Nadaraya 1964; with a Beta prior). For past uses,
        the prior is raised until the model expects one relevant candidate: of short texts it
        expects less, and a hundredth of a trial would outweigh the model. Coverage is added last,
        scaled by the model's share of the trials, and inhibition is subtracted.
        """
        odds = self.calibration.apply(matrix @ (self.weights * _IS_LINEAR))
        uses = matrix[:, _USES] @ self.weights[_USES]
        passes = matrix[:, _PASSES] @ self.weights[_PASSES]
        if uses.any() or passes.any():
            prior = 1.0 / (1.0 + np.exp(-odds - _expect_one(odds)))
            complement = 1.0 / (1.0 + np.exp(odds))  # 1 - prior would round to 0
            odds = odds + np.log1p(uses / prior) - np.log1p(passes / complement)
        per_unit = self.calibration.slope * self.weights[_COVERAGE]
        added = per_unit * matrix[:, _COVERAGE] / (1.0 + uses + passes)
        total: Floats = odds + added - self.inhibition * matrix[:, _INHIBITION]
        return total

    def model_log_odds(self, matrix: Matrix) -> Floats:
        """Compute uncalibrated log-odds of the logistic model, with coverage; shape ``[n]``."""
        columns = _IS_LINEAR.copy()
        columns[_COVERAGE] = True
        odds: Floats = matrix @ (self.weights * columns)
        return odds

    def count_trials(self, matrix: Matrix) -> Floats:
        """Count past uses and passes of each document, at least 0, shape ``[n]``."""
        columns = [*_USES, *_PASSES]
        trials: Floats = matrix[:, columns] @ self.weights[columns]
        return trials

    def probabilities(self, matrix: Matrix) -> Floats:
        """Compute probabilities of relevance in [0, 1], shape ``[n]``."""
        probabilities: Floats = 1.0 / (1.0 + np.exp(-self.log_odds(matrix)))
        return probabilities


def _expect_one(odds: Floats) -> float:
    """Compute the shift of log-odds, at least 0, that makes one relevant document expected."""
    shift = 0.0
    for _ in range(_ROUNDS):
        expected = float((1.0 / (1.0 + np.exp(-odds - shift))).sum())
        if expected >= _NEARLY_ONE:
            break
        shift -= math.log(expected)
    return shift


_ROUNDS, _NEARLY_ONE = 12, 0.99
_SHOWN_OFTEN = 10.0  # turns after which a document counts as half as novel
_TEMPERATURE = 0.1  # of the draw, in log-odds: nearly the most novel ones
_UNIFORM = 0.1  # share of the draw that is uniform, so that no propensity is tiny


def draft_teams(
    learned: Sequence[str], frozen: Sequence[str], k: int, rng: np.random.Generator
) -> dict[str, str]:
    """Interleave two rankings by team draft (Radlinski, Kurup & Joachims 2008), and keep ``k``.

    In each round chance says which ranking drafts first; each drafts its best document that is
    left. A user who clicks by place alone thus clicks on as many documents of either ranking.

    Returns:
        ``learned`` or ``frozen`` by id, best first; ``both`` for a document that has the same place
        in both rankings.
    """
    teams: dict[str, str] = {}
    rankings = {"learned": learned, "frozen": frozen}
    while len(teams) < min(k, len({*learned, *frozen})):
        for name in rng.permutation([*rankings]).tolist():
            if picked := next((one for one in rankings[name] if one not in teams), None):
                teams[picked] = name
    same = {one for one, other in zip(learned, frozen, strict=False) if one == other}
    return {one: "both" if one in same else name for one, name in [*teams.items()][:k]}


def draw_explored(
    scores: Floats, places: int, rng: np.random.Generator
) -> tuple[list[int], list[float]]:
    """Draw distinct candidates by systematic sampling, whose propensities are exact (Madow 1949).

    Args:
        scores: Log-odds by which candidates are preferred, shape ``[n]``.
        places: Number of candidates to draw; all are drawn if there are no more.

    Returns:
        Indices of those drawn, ascending, and their probabilities of being drawn, in (0, 1].
    """
    if places >= len(scores):
        return [*range(len(scores))], [1.0] * len(scores)
    weights = np.exp((scores - scores.max()) / _TEMPERATURE) + 1e-12
    shares = np.zeros(len(scores))
    free = np.ones(len(scores), dtype=bool)
    while True:  # what would be drawn more than once is certain; the others share the rest
        shares[free] = (places - (~free).sum()) * weights[free] / weights[free].sum()
        if (shares <= 1.0).all():
            break
        free &= shares < 1.0
        shares[~free] = 1.0
    shares = (1.0 - _UNIFORM) * shares + _UNIFORM * places / len(scores)
    shuffled = rng.permutation(len(scores))
    ends = np.cumsum(shares[shuffled])
    starts = (rng.random() + np.arange(places)) * ends[-1] / places
    drawn = sorted(shuffled[np.searchsorted(ends, starts, side="right")].tolist())
    return drawn, shares[drawn].tolist()


_DUPLICATE = 0.95  # similarity from which two texts count as duplicates


def select_within_budget(
    heads: Sequence[NodeHead],
    documents: Mapping[str, Node],
    k: int,
    max_tokens: int,
    characters_per_token: float,
    stretch: float,
    likely: Sequence[bool],
    notes: Mapping[int, int] = MappingProxyType({}),
) -> list[int]:
    """Select the best k ranked documents that fit into a budget of tokens, as indices.

    After a document that does not fit, only ``likely`` relevant ones are kept if they fit: others
    are no substitute. Duplicates of kept documents, and documents that are gone, are left out.

    Args:
        k: Most documents.
        characters_per_token: Characters of a token.
        likely: Whether each document is probably relevant.
        notes: Index of a document's correction, by the index of the document; the correction stands
            before its document. A document whose correction is not kept is not kept either, and the
            two are no duplicates.
    """
    kept: list[int] = []
    remaining, is_complete = max_tokens, True
    for index, head in enumerate(heads):
        node, note = documents.get(head.id), notes.get(index)
        if node is None or (note is not None and note not in kept):
            continue
        if not (is_complete or likely[index]):
            continue
        if any(
            _is_duplicate(head, heads[other], node, documents, stretch)
            for other in kept
            if other != note
        ):
            continue
        tokens = math.ceil(len(node.content) / characters_per_token)
        if tokens > remaining:
            is_complete = False
            continue
        remaining -= tokens
        kept.append(index)
        if len(kept) == k:
            break
    return kept


def _is_duplicate(
    first: NodeHead, second: NodeHead, node: Node, documents: Mapping[str, Node], stretch: float
) -> bool:
    if node.content == documents[second.id].content:
        return True
    (near,) = compare_vectors([first.vector], second.vector.astype(np.float32), stretch)
    return near >= _DUPLICATE


_DOCUMENT = FEATURES.index("document")


def select_best_chunks(
    documents: Sequence[str], order: Sequence[int], evidence: Evidence, matrix: Matrix
) -> list[int]:
    """Select the best chunk of each document, as indices into the pool, best first.

    The column ``document`` of ``matrix`` is filled in for the best chunk: the query's information
    in all candidates of its document, since a long document answers with all of its text.
    """
    chunks: dict[str, list[int]] = {}
    for index in order:
        chunks.setdefault(documents[index], []).append(index)
    for indices in chunks.values():
        matrix[indices[0], _DOCUMENT] = evidence.term_weights[indices].max(axis=0).sum()
    return [indices[0] for indices in chunks.values()]


def apply_tag_hints(
    pool: Sequence[Candidate], nodes: Mapping[str, Node], tags: Iterable[str]
) -> list[Candidate]:
    """Set ``hint`` of candidates to 1 if a metadata value is one of the tags.

    ``nodes`` are the contents by id; candidates without one stay as they are.
    """
    wanted = set(tags)
    return [
        hit._replace(hint=1.0)
        if (node := nodes.get(hit.head.id)) and wanted & _as_texts(node.metadata.values())
        else hit
        for hit in pool
    ]


def _as_texts(values: Iterable[object]) -> set[str]:
    texts: set[str] = set()
    for value in values:
        texts |= {str(v) for v in value} if isinstance(value, list) else {str(value)}
    return texts
