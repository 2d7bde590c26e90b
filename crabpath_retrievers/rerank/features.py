"""Features of a candidate: text match, edges of the walk, and what was learned from feedback.

Most lie in [0, 1], so that one set of weights serves corpora of any size.

Personalised PageRank over the edges that one query has read (Haveliwala 2002, §3).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.core.records import (
    Authority,
    Candidate,
    EdgeKind,
    NodeHead,
    WalkEdge,
    stack_vectors,
    stretch_cosine,
)
from crabpath_retrievers.core.text import BYTES_PER_TERM, Floats, QueryInformation, is_code

USES, PASSES = ("episode", "again", "counterpart"), ("missed", "passed")
"""Ranker features that count past uses of a document for like questions, and passes. They are no
part of the weighted sum: the ranker counts them as trials, see :meth:`Ranker.log_odds`."""


RowIndices = NDArray[np.intp]


def pagerank(
    sources: RowIndices, targets: RowIndices, weights: Floats, restart: Floats, follow: float
) -> Floats:
    """Compute stationary visits of nodes relative to the most visited, in [0, 1], shape ``[n]``.

    The linear system is solved for the few nodes with outgoing edges; all others only receive.

    Args:
        sources: Rows of the source nodes, shape ``[E]``.
        targets: Rows of the target nodes, shape ``[E]``.
        weights: Weights of the edges, at least 0, shape ``[E]``.
        restart: Restart weight of each node, at least 0, shape ``[n]``.
        follow: Probability of following an edge rather than restarting, in [0, 1).
    """
    outgoing = np.bincount(sources, weights=weights, minlength=len(restart))
    transition = follow * weights / np.maximum(outgoing[sources], 1e-12)
    active, row = np.unique(sources, return_inverse=True)
    back = np.searchsorted(active, targets) % max(1, len(active))
    inner = active[back] == targets if len(active) else np.zeros(0, dtype=bool)
    system = np.eye(len(active))
    np.subtract.at(system, (back[inner], row[inner]), transition[inner])
    visits = np.linalg.solve(system, restart[active])
    incoming = np.bincount(targets, weights=transition * visits[row], minlength=len(restart))
    total = restart + incoming
    relative: Floats = total / total.max()
    return relative


FEATURES = (
    "bias",
    "similarity",
    "information",
    "coverage",
    "document",
    "name",
    "exact",
    "mention",
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
    "missed",
    "counterpart",
    "again",
    "passed",
    "usage",
    "decayed",
    "contrast",
    "recency",
    "distinction",
    "agreement",
    "authority",
    "lexical",
)
"""Columns of the feature matrix, in order.

bias: 1. similarity: cosine of query and node. information: idf of the query's words that the node
contains, in units of 10 nats. coverage: the same without the words that documents ranked before it
contain, as far as several texts are likely to answer, and as far as words do not mislead; the
ranker fills it in. document: the same for all candidates of the node's document together, when each
document is returned once. name: rarity of the node's name if the query contains it. exact: 1 if the
query consists of the node's name. mention … similar: strongest edge of that kind, one hop from an
entry; mention is times the rarity of the mentioned name. likely_mention: likelihood, without the
graph, of the most likely node that mentions it. shared_term: the same for nodes that share a term
with it. A node with more than three edges to candidates by mentions, or by shared terms, divides
three among them, as a random walk divides one; a term that is shared with a long text counts less.
bridge: share of the query's information that the node adds to a node with an edge to it, times the
likelihood of that node; words that many candidates have count less. pagerank: personalised PageRank
from likely nodes, relative to the highest value. Neither follows edges between documents that were
used together. learned: strongest edge that only feedback created; an edge between documents that
were used together is times the likelihood of its source. trained: change of weight beyond 0.1 that
feedback made to the other edges to it, times the energy of their sources, summed. far: strongest
edge two or more hops from a seed. hint: the caller suggested it. routed: a chat model chose an edge
to it. inhibition: strongest inhibitory edge to it. episode, missed: turns of similar queries that
used it, or returned it and did not use it, weighted by their similarity. counterpart: turns of
similar queries that used a document of which it is the counterpart. again, passed: those of the
same query. usage: share of its returns in which it was used, minus the usual share. decayed: share
of its reward that failures have removed, at most 1. contrast: place of its cosine between the 20th
highest and the highest, in [-1, 1], as far as one text is likely to answer: texts do not name each
other, and the query is neither a few keywords nor long. recency: 1 for a new document, halved by
each half-life, if the query has one. distinction: information of the query that the node has and
the candidates nearly equal to it lack, less what they have and it lacks, as far as there are ten of
them; 2 for what alone, or with two others, has the codes, long numbers or addresses of the query,
or as far as one text is likely to answer its years and other numbers.
agreement: 1 for what both the vector and the words of the query find first, less for what is close
behind. authority: 1 for a constitutional node, 0.5 for a canonical one. lexical: BM25 score
relative to the best, as far as the query asks long texts for little: a page has the words of many
queries, and how often it has them tells what it is about.

shared_term counts only as far as several texts are likely to answer; it and bridge shrink as the
query's information grows: a long query is specific by itself. They are largest at 25 nats; in
corpora too small for rare words they shrink again. Where the query asks long texts for little,
likely_mention and shared_term count nothing: one page answers.
"""

LEARNED_FEATURES = frozenset({"learned", "trained", *USES, *PASSES, "usage", "decayed"})
"""Columns that are 0 before any feedback."""

CORPUS_FEATURES = frozenset(FEATURES) - LEARNED_FEATURES
CORPUS_FEATURES -= {"bias", "similarity", "contrast", "information", "coverage", "document"}
CORPUS_FEATURES -= {"recency", "distinction", "agreement", "authority", "lexical"}
"""Columns whose weights each namespace learns: names and edges differ from corpus to corpus."""

_COLUMN = {name: column for column, name in enumerate(FEATURES)}
_FAR = _COLUMN["far"]
_NODE_FEATURES = tuple(name for name in Candidate._fields if name in _COLUMN)
_NODE_COLUMNS = [_COLUMN[name] for name in _NODE_FEATURES]
_NODE_FIELDS = [Candidate._fields.index(name) - 1 for name in _NODE_FEATURES]
_KIND_COLUMN = {
    EdgeKind.MENTION: _COLUMN["mention"],
    EdgeKind.MENTIONED_BY: _COLUMN["mentioned_by"],
    EdgeKind.LINK: _COLUMN["link"],
    EdgeKind.LINKED_BY: _COLUMN["linked_by"],
    EdgeKind.SIBLING: _COLUMN["sibling"],
    EdgeKind.SIMILAR: _COLUMN["similar"],
    EdgeKind.CO_USED: _COLUMN["learned"],
    EdgeKind.TAUGHT: _COLUMN["learned"],
}
NATS_PER_UNIT = 10.0  # nats
_FOLLOW = 0.5  # probability of following an edge rather than restarting, in PageRank
_CHANCE = 0.1  # change of weight that one outcome without attribution can cause
_CODES = {kind: kind.value for kind in EdgeKind}
_MENTION, _SHARED = EdgeKind.MENTION.value, EdgeKind.SHARED_TERM.value
_CO_USED = EdgeKind.CO_USED.value
_RUNNER_UP = 5  # place of the text that the best one by words is compared with
_CLOSE, _APART = 0.12, 0.28  # share of the query's information between both, none and all of it
_AGREEING = 0.5  # correlation of similarity and words from which words count whole
_TYPICAL = 50.0  # information of a query of one sentence, in nats
_LITTLE = 12.5  # nats; in a small corpus no word is rare, so a query has little information
_NEAREST = 20  # cosines that are compared with each other
_TIED, _TIED_WORDS = 0.05, 0.2  # similarity and BM25 by which the first of a search is ahead
_SPREAD = 0.3  # of them, from which the highest stands out; noise of near twins is less
_LITTLE_ASKED, _MUCH_ASKED = 20.0, 40.0  # nats of a question with one need, and with several
_PARAGRAPH = 60.0  # distinct words of a text in which a shared term counts whole
_PAGE = 240.0  # distinct words of a text from which frequencies of words count whole
_SHARED_EDGES = 3.0  # edges of one kind from a node that count whole
_COMPARED = 40  # best candidates whose vectors are compared with each other
_ALIKE, _EQUAL = 0.8, 0.95  # similarity from which texts begin to be near twins, and are
_MOST_DISTINCT = 2.0  # greatest distinction, in units of 10 nats
_FEW_HOLDERS = 3  # candidates that have a code, for which it decides
_FAMILY = 10.0  # near twins from which one word decides alone
_ONCE = 2**0.5  # makes the rarity of a name that one text mentions 1
_NAMED = 0.1  # share of candidates that other texts name, from which texts name each other
_SENTENCE = 6  # words of a query that is a whole sentence; fewer are keywords
_FEW, _MANY = 15, 25  # words up to which a query asks for one thing, and from which for several
SOURCE_FEATURES = ("similarity", "name", "information")
"""Columns that predict the relevance of a node without the graph."""
_SOURCE_COLUMNS = [_COLUMN[name] for name in SOURCE_FEATURES]

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Evidence:
    """The candidates of a query and the evidence for them.

    Attributes:
        support: Edges of positive weight that the walk read; not all lead to candidates.
        inhibition: By node key, the node and the strongest inhibition of it, in [0, 1].
        term_weights: Information of each word of the query that a candidate contains, else 0;
            shape ``[n, Q]``, in units of 10 nats.
        information: Total information of the query, in nats.
        codes: Which words of the query are codes, long numbers or addresses; shape ``[Q]``.
        numbers: Which words have a digit and are no codes, such as years; shape ``[Q]``.
        lengths: Distinct words of each candidate, shape ``[n]``.
        stretch: Stretch of the embedder's distances.
    """

    pool: Sequence[Candidate]
    support: Sequence[WalkEdge]
    inhibition: Mapping[int, tuple[NodeHead, float]]
    term_weights: Floats
    information: float
    words: float
    codes: NDArray[np.bool_]
    numbers: NDArray[np.bool_]
    lengths: Floats
    stretch: float

    @classmethod
    def from_pool(
        cls,
        pool: Sequence[Candidate],
        support: Sequence[WalkEdge],
        inhibition: Mapping[int, tuple[NodeHead, float]],
        information: QueryInformation,
        stretch: float = 1.0,
    ) -> "Evidence":
        """Collect the evidence; look up which words of the query each candidate contains.

        ``support`` and ``inhibition`` are those of the walk.
        """
        present = information.find_words([hit.head.terms for hit in pool])
        term_weights = present * (information.nats / NATS_PER_UNIT)
        total, words = information.total, information.length
        codes = np.array([is_code(word) for word in information.words], dtype=bool)
        digits = [any(map(str.isdigit, word)) for word in information.words]
        numbers = np.array(digits, dtype=bool) & ~codes
        lengths = np.array([len(hit.head.terms) / BYTES_PER_TERM for hit in pool])
        asked = (term_weights, total, words, codes, numbers)
        return cls(pool, support, inhibition, *asked, lengths, stretch)

    def select(self, rows: Sequence[int]) -> "Evidence":
        """Select the evidence for some of the candidates."""
        pool, weights = [self.pool[row] for row in rows], self.term_weights[rows]
        return replace(self, pool=pool, term_weights=weights, lengths=self.lengths[rows])

    @cached_property
    def focus(self) -> float:
        """Probability that one text is enough for an answer, in [0, 1].

        0 if other texts name a tenth of the candidates, or if the query has 25 words or more.
        """
        named = sum(hit.head.mentions > 0 for hit in self.pool) / max(1, len(self.pool))
        short = min(1.0, max(0.0, (_MANY - self.words) / (_MANY - _FEW)))
        return short * max(0.0, 1.0 - named / _NAMED)

    @cached_property
    def plainness(self) -> float:
        """Degree in [0, 1] to which the query asks long texts for one thing.

        0 from 40 nats of information on, or if the candidates have 60 distinct words; 1 up to 20
        nats where they have 240.
        """
        asked = (_MUCH_ASKED - self.information) / (_MUCH_ASKED - _LITTLE_ASKED)
        usual = max(1.0, float(np.median(self.lengths)))
        length = math.log(usual / _PARAGRAPH) / math.log(_PAGE / _PARAGRAPH)
        return min(1.0, max(0.0, asked)) * min(1.0, max(0.0, length))

    @cached_property
    def weighed_words(self) -> Floats:
        """``term_weights``, scaled by the agreement of words with vectors; shape ``[n, Q]``.

        If one text is likely to answer, and candidates with more words of the query are not nearer
        to it, words mislead, as those of program code do, and are scaled down; unless they set one
        text apart: then the embedder may not know the language.
        """
        if len(self.pool) <= 1:
            return self.term_weights
        alone = max(self.focus, self.plainness)
        near = np.array([hit.similarity for hit in self.pool])
        words = self.term_weights.sum(axis=1)
        near, words = near - near.mean(), words - words.mean()
        spread = math.sqrt(float((near @ near) * (words @ words)))
        agreement = float(near @ words) / spread / _AGREEING if spread else 1.0
        best = np.sort(words)[-_RUNNER_UP:]
        gap = float(best[-1] - best[0]) * NATS_PER_UNIT / max(self.information, 1.0)
        agreement = max(agreement, (gap - _CLOSE) / (_APART - _CLOSE))
        return self.term_weights * (1.0 - alone * (1.0 - min(1.0, max(0.0, agreement))))


def compute_features(evidence: Evidence, sources: Floats) -> Matrix:
    """Compute the features of every candidate, shape ``[n, len(FEATURES)]``; coverage stays 0.

    ``sources`` are weights of ``SOURCE_FEATURES``, in log-odds, shape ``[len(SOURCE_FEATURES)]``.
    """
    matrix = compute_node_features(evidence)
    if not len(matrix):
        return matrix
    if evidence.inhibition:
        inhibition = evidence.inhibition
        values = [inhibition.get(hit.head.key, (None, 0.0))[1] for hit in evidence.pool]
        matrix[:, _COLUMN["inhibition"]] = values
    focus = evidence.focus
    # As in min-max normalisation (Lee 1997), but less where similarities are nearly equal.
    cosines = matrix[:, _COLUMN["similarity"]]
    nearest = np.sort(cosines)[-_NEAREST:]
    spread = max(nearest[-1] - nearest[0], _SPREAD)
    contrast = np.clip((cosines - nearest[0]) / spread, -1.0, 1.0)
    identified = _identify(evidence.term_weights[:, evidence.codes])
    if focus and not (identified > 0).any():
        # Elsewhere another text leads to what has a year or number of the query.
        identified = focus * _identify(evidence.term_weights[:, evidence.numbers])
    distinction = np.maximum(_measure_distinction(matrix, evidence), identified)
    matrix[:, _COLUMN["distinction"]] = distinction
    matrix[:, _COLUMN["contrast"]] = focus * min(1.0, evidence.words / _SENTENCE) * contrast
    odds = matrix[:, _SOURCE_COLUMNS] @ sources
    _add_edge_features(matrix, evidence, np.exp(odds - odds.max()), 1.0 - focus)
    return matrix


def compute_node_features(evidence: Evidence) -> Matrix:
    """Compute features of the candidates by themselves, shape ``[n, len(FEATURES)]``.

    Columns of edges and of other candidates are 0.
    """
    pool = evidence.pool
    matrix = np.zeros((len(pool), len(FEATURES)))
    if not len(pool):
        return matrix
    matrix[:, _COLUMN["bias"]] = 1.0
    scores = np.array([hit[1:] for hit in pool])
    matrix[:, _NODE_COLUMNS] = scores[:, _NODE_FIELDS]
    matrix[:, _COLUMN["information"]] = evidence.term_weights.sum(axis=1)
    behind = matrix[:, _COLUMN["similarity"]].max() - matrix[:, _COLUMN["similarity"]]
    lexical = scores[:, Candidate._fields.index("lexical") - 1]
    near, worded = 1.0 - behind / _TIED, 1.0 - (1.0 - lexical) / _TIED_WORDS
    matrix[:, _COLUMN["agreement"]] = near.clip(0.0) * worded.clip(0.0)
    matrix[:, _COLUMN["lexical"]] = evidence.plainness * lexical
    authorities = [hit.head.authority for hit in pool]
    matrix[:, _COLUMN["authority"]] = np.array(authorities) / Authority.CONSTITUTIONAL.value
    return matrix


def _measure_distinction(matrix: Matrix, evidence: Evidence) -> Floats:
    """Measure the information that tells each candidate from its near twins, shape ``[n]``.

    Its unit is 10 nats. Among near-equal texts the vectors say nothing, and one word of the query
    decides. ``matrix`` has the features of the candidates.
    """
    found = np.zeros(len(evidence.pool))
    scores = matrix[:, _COLUMN["similarity"]] + matrix[:, _COLUMN["information"]]
    rows = np.argsort(-scores, kind="stable")[:_COMPARED]
    vectors = stack_vectors([evidence.pool[row].head.vector for row in rows])
    near = stretch_cosine(vectors @ vectors.T, evidence.stretch)
    twins = np.clip((near - _ALIKE) / (_EQUAL - _ALIKE), 0.0, 1.0)
    np.fill_diagonal(twins, 0.0)
    count = twins.sum(axis=1)
    if not count.any():
        return found
    weights = evidence.term_weights[rows]
    contained = (weights > 0).astype(np.float64)
    missing = contained - twins @ contained / np.maximum(count, 1e-9)[:, None]
    information = missing @ weights.max(axis=0, initial=0.0)
    bounded = np.clip(information, -_MOST_DISTINCT, _MOST_DISTINCT)
    found[rows] = bounded * np.minimum(1.0, count / _FAMILY)
    return found


def _identify(weights: Floats) -> Floats:
    """Score candidates by the rare codes of the query that they have.

    Vectors tell codes, numbers and addresses badly from each other.

    Args:
        weights: Information of each code that a candidate contains, else 0; shape ``[n, C]``.

    Returns:
        Shape ``[n]``: at most the largest distinction; below all for a candidate without such
        codes.
    """
    none = np.full(len(weights), -_MOST_DISTINCT)
    holders = (weights > 0).sum(axis=0)
    weights = weights[:, (holders > 0) & (holders <= _FEW_HOLDERS)]
    if not weights.any():
        return none
    share = weights.sum(axis=1) / weights.max(axis=0).sum()
    return np.where(share > 0, _MOST_DISTINCT * share, none)


class _EdgeArrays:
    """Columns of the edges to candidates, each of shape ``[E]``; row -1 is not a candidate."""

    def __init__(self, evidence: Evidence) -> None:
        rows = {hit.head.key: row for row, hit in enumerate(evidence.pool)}
        edges = [edge for edge in evidence.support if edge.target.key in rows]
        self.targets = np.array([rows[edge.target.key] for edge in edges], dtype=np.intp)
        # A source that the filter excludes counts by its energy only.
        self.sources = np.array([rows.get(edge.source.key, -1) for edge in edges], dtype=np.intp)
        # The feature that receives the strength; -1 for none.
        self.columns = np.array(
            [_KIND_COLUMN.get(e.kind, -1) if e.hop == 1 else _FAR for e in edges], dtype=np.intp
        )
        self.kinds = np.array([_CODES[edge.kind] for edge in edges], dtype=np.intp)
        self.strengths = np.array([edge.strength for edge in edges])
        self.weights = np.array([edge.weight for edge in edges])
        changes = np.array([edge.change for edge in edges])
        beyond = np.sign(changes) * np.maximum(0.0, np.abs(changes) - _CHANCE)
        self.changes = beyond * self.strengths / self.weights


def _add_edge_features(
    matrix: Matrix, evidence: Evidence, likelihood: Floats, several: float
) -> None:
    """Fill in the features that edges give.

    Args:
        likelihood: Likelihood of relevance without the graph, relative to the best, in (0, 1];
            shape ``[n]``.
        several: How far several texts are likely to answer, in [0, 1].
    """
    edges = _EdgeArrays(evidence)
    if not len(edges.targets):
        return
    direct, known = edges.columns >= 0, edges.sources >= 0
    mentions, shared = edges.kinds == _MENTION, edges.kinds == _SHARED
    rarity = np.array([hit.head.rarity for hit in evidence.pool])
    part = np.ones(len(edges.targets))
    for of_kind in (mentions & known, shared & known):
        sources = edges.sources[of_kind]
        outgoing = np.bincount(sources, minlength=len(evidence.pool))[sources]
        part[of_kind] = np.minimum(1.0, _SHARED_EDGES / outgoing)
    likely = np.where(known, likelihood[edges.sources], 0.0)
    # Documents that were used together for one question lift each other for every other one.
    co_used = edges.kinds == _CO_USED
    strengths = edges.strengths * np.where(mentions, part * rarity[edges.targets], 1.0)
    strengths = np.where(co_used, edges.weights * likely, strengths)
    np.maximum.at(matrix, (edges.targets[direct], edges.columns[direct]), strengths[direct])
    np.add.at(matrix[:, _COLUMN["trained"]], edges.targets, edges.changes)
    spreading = known & ~co_used
    within = (edges.sources[spreading], edges.targets[spreading], edges.weights[spreading])
    matrix[:, _COLUMN["pagerank"]] = pagerank(*within, likelihood, _FOLLOW)
    others = 1.0 - evidence.plainness
    named = others * likely * part * np.minimum(1.0, _ONCE * rarity[edges.targets])
    _set_maximum(matrix, "likely_mention", edges.targets, named, mentions)
    if evidence.information:
        likely *= min(_TYPICAL / evidence.information, evidence.information / _LITTLE)
        length = np.minimum(1.0, _PARAGRAPH / evidence.lengths.clip(1.0))[edges.targets]
        through_terms = several * others * likely * part * length
        _set_maximum(matrix, "shared_term", edges.targets, through_terms, shared)
        missing = evidence.term_weights[edges.sources] == 0
        # A word counts 1 if at most the root of the number of candidates have it, 0 if all have.
        count = len(evidence.pool) + 1
        having = (evidence.term_weights > 0).sum(axis=0) + 0.5
        specific = np.clip(2.0 * np.log(count / having) / np.log(count), 0.0, 1.0)
        weights = evidence.term_weights * specific
        added = weights[edges.targets] * missing
        gain = added.sum(axis=1) * (NATS_PER_UNIT / evidence.information)
        _set_maximum(matrix, "bridge", edges.targets, gain * likely, spreading)


def _set_maximum(
    matrix: Matrix,
    name: str,
    targets: NDArray[np.intp],
    values: Floats,
    chosen: NDArray[np.bool_],
) -> None:
    np.maximum.at(matrix[:, _COLUMN[name]], targets[chosen], values[chosen])
