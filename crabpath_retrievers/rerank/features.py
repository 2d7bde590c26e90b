"""Features of (query, node, path) that need no feedback.

Most lie in [0, 1], so that one set of weights serves corpora of any size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.graph import LEARNED, EdgeKind, NodeHead
from crabpath_retrievers.rerank.pagerank import pagerank
from crabpath_retrievers.terms import Floats, Information
from crabpath_retrievers.traversal import Arrival

FEATURES = (
    "bias",
    "similarity",
    "information",
    "coverage",
    "document",
    "name",
    "exact",
    "mention",
    "rare_mention",
    "likely_mention",
    "mentioned_by",
    "link",
    "linked_by",
    "sibling",
    "shared_term",
    "similar",
    "learned",
    "trained",
    "bridge",
    "pagerank",
    "far",
    "hint",
    "routed",
    "inhibition",
    "episode",
    "again",
    "passed",
    "usage",
    "decayed",
    "advice",
)
"""Columns of the feature matrix, in order.

bias: 1. similarity: cosine of query and node. information: idf of the query's words that the node
holds, in units of 10 nats. coverage: the same without the words that documents ranked before it
hold; the ranker fills it in. document: what all found chunks of the node's document hold together,
when documents are to be distinct. name: the query contains the node's name, times its rarity.
exact: the query is the node's name and nothing else. mention … similar: strongest pointer of that
kind, one hop from an entry. rare_mention: mention times the rarity of the mentioned name.
likely_mention: how likely the node is relevant, without the graph, that mentions it. shared_term:
the same for a node that shares a term with it. bridge: share of the query's information that the
node adds to a node that points at it, times how likely that one is. pagerank: how often a walker
comes by who starts at likely nodes, relative to the most visited one. learned: strongest pointer
that exists only because of feedback. trained: how far feedback has moved the other pointers to it,
beyond 0.1, times the energy of the nodes that they leave. far: strongest route of two or more hops.
hint: the caller suggested it. routed: a chat model picked it among pointers. inhibition: how
strongly pointers advise against it. episode: how strongly turns of similar queries that used it
speak for it. again, passed: how strongly turns of the same query that used it speak for it, or that
did not, against it. usage: how much more often than usual it was used when returned. decayed: how
much of its reward failures have taken, at most 1. advice: how much better the kind of step that
leads to it does in the region of the query than elsewhere, beside other kinds, in log-odds.

shared_term and bridge shrink as the query asks for more: a long query says itself what it needs.
They count most at 25 nats; where the corpus is too small for rare words, they count less again.
"""

LEARNED_FEATURES = frozenset(
    {"learned", "trained", "episode", "again", "passed", "usage", "decayed", "advice"}
)
"""Columns that are 0 before any feedback."""

CORPUS_FEATURES = frozenset(FEATURES) - LEARNED_FEATURES
CORPUS_FEATURES -= {"bias", "similarity", "information", "coverage", "document"}
"""Columns whose worth differs from corpus to corpus: what names and pointers say."""

_COLUMN = {name: column for column, name in enumerate(FEATURES)}
_FAR = _COLUMN["far"]
_OWN = (
    *("similarity", "name", "exact", "hint", "routed"),
    *("episode", "again", "passed", "usage", "decayed", "advice"),
)
_KIND_COLUMN = {
    EdgeKind.MENTION: _COLUMN["mention"],
    EdgeKind.MENTIONED_BY: _COLUMN["mentioned_by"],
    EdgeKind.LINK: _COLUMN["link"],
    EdgeKind.LINKED_BY: _COLUMN["linked_by"],
    EdgeKind.SIBLING: _COLUMN["sibling"],
    EdgeKind.SIMILAR: _COLUMN["similar"],
    EdgeKind.FOLLOWS: _COLUMN["learned"],
    EdgeKind.TOOL: _COLUMN["learned"],
    EdgeKind.CO_USED: _COLUMN["learned"],
    EdgeKind.TAUGHT: _COLUMN["learned"],
}
UNIT = 10.0  # nats
_FOLLOW = 0.5
_CHANCE = 0.1  # how far a single outcome, of which no more is known, may move a pointer
_CODES = {kind: kind.value for kind in EdgeKind}
_MENTION, _SHARED = EdgeKind.MENTION.value, EdgeKind.SHARED_TERM.value
_TYPICAL = 50.0  # nats that a question of one sentence asks for
_LITTLE = 12.5  # in a small corpus no word is rare, and what a question asks for says little
SOURCE_FEATURES = ("similarity", "name", "information")
"""Columns from which follows how likely a node is relevant, before anything points at it."""
_SOURCE_COLUMNS = [_COLUMN[name] for name in SOURCE_FEATURES]

Matrix = NDArray[np.float64]


class Hit(NamedTuple):
    """A node that may be returned, with what search says about it.

    Attributes:
        similarity: Cosine of query and node, in [-1, 1].
        lexical: BM25 relative to the best hit of the query, in [0, 1].
        name: Rarity of the node's name when the query contains it, else 0.
        exact: 1 when the query is the node's name and nothing else, else 0.
        hint: 1 when the caller suggested the node, else 0.
        routed: 1 when a chat model picked the node among pointers, else 0.
        found: Whether a search engine found it, rather than a pointer.
        episode: How strongly turns of similar queries that used it speak for it, in [0, 1].
        again, passed: How strongly turns of the same query that used it speak for it, and that
            did not, against it, in [0, 1].
        usage: Share of its returns in which it was used, above what is usual, in [-1, 1].
        decayed: How much of its reward failures have taken, in [0, 1).
        advice: How much better the kind of step that leads to it does here than elsewhere.
    """

    head: NodeHead
    similarity: float
    lexical: float = 0.0
    name: float = 0.0
    exact: float = 0.0
    hint: float = 0.0
    routed: float = 0.0
    found: bool = True
    episode: float = 0.0
    again: float = 0.0
    passed: float = 0.0
    usage: float = 0.0
    decayed: float = 0.0
    advice: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that may be returned for a query, and what speaks for it.

    Attributes:
        pool: The candidates.
        arrivals: Pointers that lead to them, or elsewhere.
        inhibition: By node key, how strongly pointers advise against it, in [0, 1].
        held: Information of the query that each candidate holds by word, shape ``[n, Q]``, in
            units of 10 nats.
        asked: All information of the query, in nats.
    """

    pool: Sequence[Hit]
    arrivals: Sequence[Arrival]
    inhibition: Mapping[int, tuple[NodeHead, float]]
    held: Floats
    asked: float

    @classmethod
    def of(
        cls,
        pool: Sequence[Hit],
        arrivals: Sequence[Arrival],
        inhibition: Mapping[int, tuple[NodeHead, float]],
        information: Information,
    ) -> "Evidence":
        """Look up which words of the query each candidate holds."""
        present = information.present([hit.head.terms for hit in pool])
        held = present * (information.nats / UNIT)
        return cls(pool, arrivals, inhibition, held, information.total)


def feature_matrix(evidence: Evidence, sources: Floats) -> Matrix:
    """Features of every candidate, shape ``[n, len(FEATURES)]``; coverage is left at 0.

    Args:
        evidence: The candidates.
        sources: Weights of ``SOURCE_FEATURES``, in log-odds, shape ``[3]``.
    """
    matrix = own_features(evidence)
    if not len(matrix):
        return matrix
    if evidence.inhibition:
        advised = [evidence.inhibition.get(hit.head.key, (None, 0.0))[1] for hit in evidence.pool]
        matrix[:, _COLUMN["inhibition"]] = advised
    _add_pointers(matrix, evidence, _likelihood(matrix, sources))
    return matrix


def own_features(evidence: Evidence) -> Matrix:
    """What every candidate says itself, without any pointer; the other columns are 0.

    Args:
        evidence: The candidates.
    """
    pool = evidence.pool
    matrix = np.zeros((len(pool), len(FEATURES)))
    if not len(pool):
        return matrix
    matrix[:, _COLUMN["bias"]] = 1.0
    for name in _OWN:
        matrix[:, _COLUMN[name]] = [getattr(hit, name) for hit in pool]
    matrix[:, _COLUMN["information"]] = evidence.held.sum(axis=1)
    return matrix


def _likelihood(matrix: Matrix, sources: Floats) -> Floats:
    """Odds of relevance relative to the best candidate, in (0, 1], without the graph."""
    odds = matrix[:, _SOURCE_COLUMNS] @ sources
    likelihood: Floats = np.exp(odds - odds.max())
    return likelihood


class _Read(NamedTuple):
    """Pointers that lead to candidates, one entry each; row -1 is no candidate."""

    targets: NDArray[np.intp]
    sources: NDArray[np.intp]
    columns: NDArray[np.intp]  # where a pointer is noted by its strength; -1 for nowhere
    kinds: NDArray[np.intp]
    strengths: Floats
    weights: Floats
    moved: Floats

    @classmethod
    def of(cls, evidence: Evidence) -> "_Read":
        place = {hit.head.key: row for row, hit in enumerate(evidence.pool)}
        found: list[tuple[float, ...]] = []
        for source, (pointer, weight, _, _), strength, hop in evidence.arrivals:
            target, kind = place.get(pointer.target.key, -1), pointer.kind
            if target >= 0:
                # A source that the filter hides counts by its energy only.
                row = place.get(source.key, -1)
                column = _KIND_COLUMN.get(kind, -1) if hop == 1 else _FAR
                moved = 0.0 if kind in LEARNED else pointer.weight - pointer.prior
                found.append((target, row, column, _CODES[kind], strength, weight, moved))
        columns = np.array(found).reshape(-1, 7).T
        targets, sources, places, kinds = columns[:4].astype(np.intp)
        strengths, weights, moved = columns[4:]
        proven = np.sign(moved) * np.maximum(0.0, np.abs(moved) - _CHANCE) * strengths / weights
        return cls(targets, sources, places, kinds, strengths, weights, proven)


def _add_pointers(matrix: Matrix, evidence: Evidence, likelihood: Floats) -> None:
    read = _Read.of(evidence)
    if not len(read.targets):
        return
    direct, known = read.columns >= 0, read.sources >= 0
    np.maximum.at(matrix, (read.targets[direct], read.columns[direct]), read.strengths[direct])
    np.add.at(matrix[:, _COLUMN["trained"]], read.targets, read.moved)
    rarity = 1.0 / np.sqrt(1.0 + np.array([hit.head.mentions for hit in evidence.pool]))
    matrix[:, _COLUMN["rare_mention"]] = matrix[:, _COLUMN["mention"]] * rarity
    likely = np.where(known, likelihood[read.sources], 0.0)
    _strongest(matrix, "likely_mention", read.targets, likely, read.kinds == _MENTION)
    pointers = (read.sources[known], read.targets[known], read.weights[known])
    matrix[:, _COLUMN["pagerank"]] = pagerank(*pointers, likelihood, _FOLLOW)
    if evidence.asked:
        likely *= min(_TYPICAL / evidence.asked, evidence.asked / _LITTLE)
        _strongest(matrix, "shared_term", read.targets, likely, read.kinds == _SHARED)
        added = evidence.held[read.targets] * (evidence.held[read.sources] == 0)
        gain = added.sum(axis=1) * (UNIT / evidence.asked)
        _strongest(matrix, "bridge", read.targets, gain * likely, known)


def _strongest(
    matrix: Matrix,
    name: str,
    targets: NDArray[np.intp],
    values: Floats,
    chosen: NDArray[np.bool_],
) -> None:
    np.maximum.at(matrix[:, _COLUMN[name]], targets[chosen], values[chosen])
