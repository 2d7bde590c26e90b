"""The stage of a query that chooses the documents of an answer among all candidates.

Notes, repeats, versions, least probabilities, exploration and budgets of tokens each have a step.
"""

import json
import logging
import math
import re
import zlib
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from heapq import merge
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.query import Query
from crabpath_retrievers.core.records import (
    DIGITS,
    Candidate,
    Node,
    PathEdge,
    ReturnedDocument,
    Vector,
    WalkEdge,
    stretch_cosine,
)
from crabpath_retrievers.core.text import Floats
from crabpath_retrievers.rerank import (
    FEATURES,
    LEARNED_FEATURES,
    Evidence,
    Matrix,
    Ranker,
    compute_features,
    draft_teams,
    draw_explored,
    select_best_chunks,
    select_within_budget,
)
from crabpath_retrievers.retrieval.corrections import (
    SAME_QUESTION,
    choose_corrections,
    find_current_corrections,
    mark_corrections,
)
from crabpath_retrievers.retrieval.dates import Version, choose_versions, find_versions
from crabpath_retrievers.retrieval.namespace_model import NamespaceModels
from crabpath_retrievers.retrieval.search import SeedHits
from crabpath_retrievers.retrieval.walk import Walk, to_path_edge
from crabpath_retrievers.storage import Reader
from crabpath_retrievers.storage.read.notes import Correction
from crabpath_retrievers.vectors.base import VectorIndex, find_deleted, get_owner_lookup

_log = logging.getLogger(__name__)
_AUTHORITY, _COVERAGE = FEATURES.index("authority"), FEATURES.index("coverage")
_LEFT_OUT = [FEATURES.index(name) for name in sorted(LEARNED_FEATURES | {"inhibition", "coverage"})]
_AGAINST = [FEATURES.index(name) for name in ("inhibition", "passed")]
_NOT_SAID = [  # columns that say nothing about how well a text or feedback fits
    FEATURES.index(name)
    for name in (
        *("document", "name", "exact", "mention", "likely_mention", "mentioned_by", "link"),
        *("linked_by", "shared_term", "bridge", "pagerank", "far", "agreement", "recency"),
        "contrast",  # the vectors of two versions differ by noise
    )
]
_AHEAD = 0.3  # log-odds from which a text is the better answer, and no former version


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of a query, with the evidence for them, and the reader that found them."""

    read: Reader
    query: Query
    vector: Vector
    seeds: SeedHits
    walk: Walk
    evidence: Evidence
    explore: np.random.Generator | None
    order: tuple[str, ...] | None = None
    """Ids in the order that a reranker gave them; None without one."""
    corrections: Sequence[Correction] = ()
    companions: frozenset[int] = frozenset()
    """Keys of notes that are only found by what they correct."""
    notes: Mapping[int, str] = field(default_factory=dict)
    """Kinds of all notes in the pool, by key."""
    first: frozenset[int] = frozenset()
    """Keys of corrections of this very question, which come first."""
    repeats: Mapping[str, str] = field(default_factory=dict)
    """The document with the same wording, by the id of each that is left out for it."""
    better: Mapping[int, Version] = field(default_factory=dict)
    """The version right at the moment of the question, by the index of each other one."""
    is_frozen: bool = False
    """Whether the ranking before any lesson answers."""
    is_draft: bool = False
    """Whether ``order`` is what both rankings drafted."""

    def list_corrections(self) -> frozenset[int]:
        """Return the indices of the corrections in the pool, which come on top of k documents.

        Empty if the query names the candidates itself: corrections are then ranked like documents.
        """
        if not self.notes or self.query.candidate_ids is not None:
            return frozenset()
        heads = enumerate(hit.head for hit in self.evidence.pool)
        return frozenset(i for i, head in heads if self.notes.get(head.key) == "correction")

    def separate(self) -> tuple[list[int], Evidence]:
        """Return the indices of all candidates but corrections, and the evidence for these."""
        notes = self.list_corrections()
        rows = [i for i in range(len(self.evidence.pool)) if i not in notes]
        return rows, self.evidence.select(rows) if notes else self.evidence


@dataclass(slots=True)
class Ranking:
    """One ranking of the candidates, filled in by stage after stage; indices are of the pool.

    Attributes:
        ranker: The ranker of the namespace, or the one before any lesson.
        features: Features of all candidates; those of documents as if there were no corrections.
        matrix: The features that the ranker scores.
        among: Indices of the candidates that may be returned.
        spare: Indices of notes that are only returned if other candidates leave room.
        corrections: The note that goes with each corrected candidate.
        better: The version right at the moment of the question, by the index of each other one.
        order: Indices, best first.
        propensities: Probability that each candidate is returned, in (0, 1], as far as it is known.
        documents: The documents to return, best first.
        nodes: Contents of these documents by id, without those that no longer exist.
    """

    found: Candidates
    ranker: Ranker
    features: Matrix
    matrix: Matrix
    among: Sequence[int] = ()
    spare: Sequence[int] = ()
    corrections: Mapping[int, int] = field(default_factory=dict)
    better: Mapping[int, Version] = field(default_factory=dict)
    order: Sequence[int] = ()
    propensities: Mapping[int, float] = field(default_factory=dict)
    documents: list[ReturnedDocument] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)


class Rankings(NamedTuple):
    """Documents by both rankings: the one before any lesson, and the learned one.

    Attributes:
        frozen: Ids by the ranking before any lesson, best first; None if nothing is compared.
        learned: Ids by the learned ranking, best first; None if these were returned.
        teams: Ranking that drafted each returned document; empty unless both answered.
    """

    frozen: tuple[str, ...] | None = None
    learned: tuple[str, ...] | None = None
    teams: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DocumentChooser:
    """Chooses the documents of answers."""

    index: VectorIndex
    ranker: Ranker
    models: NamespaceModels
    settings: Settings

    def choose(self, found: Candidates) -> Ranking:
        """Rank the candidates; rank again if some are deleted, repeated or outdated."""
        ranking = self._drop_deleted(self.rank(found))
        if found.query.candidate_ids is None:
            ranking = self._prefer_versions(self._drop_repeats(ranking))
        return ranking

    def rank(self, found: Candidates) -> Ranking:
        """Rank the candidates, choose as many as the query asks for, and read them."""
        ranker, clock = self.ranker, found.seeds.clock
        if clock.learned or found.explore is not None:
            ranker = self.models.ranker(found.read, found.query.namespace, clock, found.explore)
        features = matrix = compute_features(found.evidence, ranker.sources)
        rows, alone = found.separate()
        if alone is not found.evidence:
            features[rows] = compute_features(alone, ranker.sources)
        if found.is_frozen:
            ranker, matrix = self.ranker, _blank(features, _LEFT_OUT)
        ranking = Ranking(found, ranker, features, matrix, range(len(matrix)))
        query, pool = found.query, found.evidence.pool
        if query.one_per_document:
            _keep_best_chunks(ranking)
        if query.candidate_ids is not None:
            allowed = set(query.candidate_ids)
            ranking.among = [i for i in ranking.among if pool[i].head.id in allowed]
        if found.seeds.clock.notes:
            _choose_notes(ranking)
        if found.better:
            _choose_versions(ranking)
        self._order(ranking)
        if explored := self.count_explored(found):
            _explore(ranking, explored)
        if query.max_tokens is not None:
            self._fit_budget(ranking, query.max_tokens)
        _return_best(ranking)
        return ranking

    def _order(self, ranking: Ranking) -> None:
        """Order the candidates by relevance and added information, unless a reranker ordered them.

        Candidates below the least probability of relevance of query and settings are left out.
        """
        found, ranker, matrix = ranking.found, ranking.ranker, ranking.matrix
        if found.order is None:
            rows, alone = found.separate()
            allowed, own = set(ranking.among), matrix[rows]
            among = [n for n, i in enumerate(rows) if i in allowed]
            order = [rows[n] for n in ranker.order(own, alone, found.query.k, among)]
            matrix[rows] = own
            if notes := allowed.difference(rows):
                for note in notes:  # as if each came first
                    ranker.cover(matrix, found.evidence, [note])
                worse = (-ranker.log_odds(matrix)).tolist().__getitem__
                order = [*merge(order, sorted(notes, key=worse), key=worse)]
            ranking.order = order
        else:
            places = {found.evidence.pool[i].head.id: i for i in ranking.among}
            ranking.order = [places[name] for name in found.order if name in places]
            ranker.cover(matrix, found.evidence, ranking.order)
        least = found.query.min_score or 0.0
        least = least if found.query.fill else max(least, self.settings.rank.min_probability)
        if least and not found.is_draft:
            # Authority makes nothing relevant.
            fit = ranker.probabilities(_blank(matrix, [_AUTHORITY]))
            ranking.order = [i for i in ranking.order if fit[i] >= least]
            spare = [i for i in ranking.spare if fit[i] >= least]
            ranking.spare = spare if len(ranking.order) <= 1 else ()
        if ranking.better:
            _put_versions_first(ranking)
        if found.first:
            pool = found.evidence.pool
            ranking.order = sorted(ranking.order, key=lambda i: pool[i].head.key not in found.first)

    def _drop_deleted(self, ranking: Ranking) -> Ranking:
        """Rank again without documents that the owner of the vector store has deleted, if any."""
        found = ranking.found
        find_existing = found.query.existing_ids or get_owner_lookup(self.index)
        if not (find_existing and ranking.documents):
            return ranking
        clock, ids = found.seeds.clock, [item.node for item in ranking.documents]
        gone = find_deleted(find_existing, found.read, ids, clock)
        if not gone:
            return ranking
        # Only now are the other candidates looked up, too.
        others = [hit.head.id for hit in found.evidence.pool if hit.head.id not in set(ids)]
        gone |= find_deleted(find_existing, found.read, others, clock)
        remaining = _leave_out(gone, found)
        if not remaining.evidence.pool:
            _log.warning(
                "%s holds none of the %d documents that were found: "
                "call refresh() to follow it, or reindex() to fill it",
                self.index.description,
                len(gone),
            )
        return self.rank(remaining)

    def _drop_repeats(self, ranking: Ranking) -> Ranking:
        """Rank again without documents that repeat a better one, until there are none."""
        while True:
            found, documents = ranking.found, ranking.nodes
            vectors = {hit.head.id: hit.head.vector for hit in found.evidence.pool}
            nodes = [documents[item.node] for item in ranking.documents if item.node in documents]
            repeats = find_repeats(nodes, vectors, found.read.stretch)
            if not repeats:
                return ranking
            # The rest of the candidates may have as many.
            near = find_near({*repeats.values()}, vectors, found.read.stretch)
            ids = sorted({*near} - documents.keys())
            rest = found.read.walk.get_documents(ids, found.seeds.clock)
            others = [rest[name] for name in near if name in rest]
            repeats = find_repeats([*nodes, *others], vectors, found.read.stretch)
            found = _leave_out(repeats.keys(), found)
            ranking = self.rank(replace(found, repeats={**found.repeats, **repeats}))

    def _prefer_versions(self, ranking: Ranking) -> Ranking:
        """Rank again if another version of a document is right at the moment of the question."""
        found, settings = ranking.found, self.settings.dates
        pool, nodes = found.evidence.pool, ranking.nodes
        dated = [
            name
            for name, node in nodes.items()
            if any(node.metadata.get(key) for key in settings.begin)
        ]
        if not (pairs := find_versions(dated, found.evidence) if dated else ()):
            return ranking
        ids = sorted({pool[j].head.id for _, j in pairs} - nodes.keys())
        nodes = {**nodes, **found.read.walk.get_documents(ids, found.seeds.clock)}
        contents = [nodes.get(hit.head.id) for hit in pool]
        asked = found.query.as_of, found.query.text
        better = choose_versions(pairs, contents, settings, *asked)
        return self.rank(replace(found, better=better)) if better else ranking

    def compare(self, ranking: Ranking) -> Rankings:
        """Rank the candidates also by the ranking that does not answer, and compare both.

        For a random share of the questions, both draft the answer instead; ``teams`` then says
        which ranking drafted each document. Nothing is compared if a reranker or a token budget
        chose, or if the turn is not recorded.
        """
        found, query = ranking.found, ranking.found.query
        chose_otherwise = found.order is not None or query.max_tokens is not None
        if chose_otherwise or not query.record:
            return Rankings()
        other = replace(ranking, spare=())
        if found.is_frozen:
            other.matrix = _blank(ranking.features, [_COVERAGE])
            other.ranker = self.models.ranker(found.read, query.namespace, found.seeds.clock)
        else:
            other.matrix, other.ranker = _blank(ranking.features, _LEFT_OUT), self.ranker
        self._order(other)
        # At most one note is among them.
        pool, notes, k = found.evidence.pool, found.notes, query.k
        best = [pool[i].head for i in other.order[: k + 1]]
        compared = tuple([head.id for head in best if head.key not in notes][:k])
        frozen, learned = compared, tuple(item.node for item in ranking.documents)
        rankings = Rankings(frozen)
        if found.is_frozen:
            keys = {hit.head.id: hit.head.key for hit in pool}
            frozen = tuple(name for name in learned if keys[name] not in notes)
            learned = compared
            rankings = Rankings(frozen, learned)
        share = self.settings.learning.trial_share
        if not share or query.arm or self.count_explored(found):
            return rankings
        # The same question in the same turn draws the same.
        rng = np.random.default_rng([zlib.crc32(query.text.encode()), found.seeds.clock.turn])
        if rng.random() >= share or learned == frozen:
            return rankings
        return Rankings(frozen, learned, draft_teams(learned, frozen, k, rng))

    def count_explored(self, found: Candidates) -> int:
        """Count the places to explore; 0 if nothing is recorded, or if weights are drawn."""
        query = found.query
        if not query.record or found.explore is not None:
            return 0
        return min(query.k - 1, math.floor(query.k * self.settings.rank.explored_share + 1e-9))

    def _fit_budget(self, ranking: Ranking, max_tokens: int) -> None:
        """Reduce ``order`` and ``spare`` of a ranking to the best that fit into ``max_tokens``.

        These are at most k documents, and corrections on top. A document whose correction does not
        fit is dropped as well.
        """
        found, query = ranking.found, ranking.found.query
        order = [*ranking.order, *ranking.spare]
        corrections, others = ranking.corrections, found.list_corrections()
        together = _insert_corrections(order, len(order), corrections, others)
        heads = [found.evidence.pool[i].head for i in together]
        documents = found.read.walk.get_documents([head.id for head in heads], found.seeds.clock)
        documents |= mark_corrections(found.read, documents, query.namespace)
        k = query.k + len(others.union(corrections.values()))
        bounds = k, max_tokens, self.settings.rank.characters_per_token, found.read.stretch
        places = {index: place for place, index in enumerate(together)}
        notes = {
            places[index]: places[note] for index, note in corrections.items() if index in places
        }
        least = self.settings.rank.min_probability
        fit = ranking.ranker.probabilities(_blank(ranking.matrix, [_AUTHORITY]))
        likely = (fit[together] >= least).tolist()
        kept = {together[i] for i in select_within_budget(heads, documents, *bounds, likely, notes)}
        if together and not kept:
            _log.warning("no document fits into max_tokens=%d: ask with more", max_tokens)
        ranking.order = [i for i in ranking.order if i in kept]
        ranking.spare = [i for i in ranking.spare if i in kept]
        ranking.propensities = {}  # unknown where a budget chose


def _keep_best_chunks(ranking: Ranking) -> None:
    """Keep only the best chunk of every document among the candidates of a ranking."""
    found, matrix = ranking.found, ranking.matrix
    names = [hit.head.id for hit in found.evidence.pool]
    document = {node.id: node.document for node in found.read.catalog.find_chunks(ids=names)}
    order = np.argsort(-ranking.ranker.log_odds(matrix), kind="stable").tolist()
    documents = [document.get(name, name) for name in names]
    ranking.among = select_best_chunks(documents, order, found.evidence, matrix)


def _choose_notes(ranking: Ranking) -> None:
    """Choose the note that stands before the documents, and notes that go with documents."""
    found, pool = ranking.found, ranking.found.evidence.pool
    odds = ranking.ranker.log_odds(ranking.matrix)
    places = {pool[i].head.key: i for i in ranking.among}
    current = find_current_corrections(found.corrections)
    chosen = choose_corrections(current, {key: odds[i] for key, i in places.items()})
    corrections = {places[key]: places[note] for key, note in chosen.items() if key in places}
    among = [i for i in ranking.among if pool[i].head.key not in found.companions]
    spare = _spare_notes(found, among, odds, frozenset(corrections.values()))
    ranking.among = [i for i in among if i not in spare]
    ranking.spare, ranking.corrections = spare, corrections


def _spare_notes(
    found: Candidates, among: Sequence[int], odds: Floats, corrections: AbstractSet[int]
) -> list[int]:
    """List the indices of all notes ``among`` candidates except the best one, best first.

    An answer has at most one note before its documents, so that many notes cannot displace them:
    the latest one taught for this query; without one, the most likely by ``odds``. ``corrections``
    are the notes that go with documents. A note is also listed if another correction goes with its
    document instead.
    """
    pool = found.evidence.pool
    keys = {i: pool[i].head.key for i in among}
    taught = {
        i: key if pool[i].again > SAME_QUESTION else 0
        for i, key in keys.items()
        if key in found.notes
    }
    replaced = {item.note for item in found.corrections}
    replaced -= {pool[i].head.key for i in corrections}
    best = sorted(taught, key=lambda i: (keys[i] in replaced, -taught[i], -odds[i]))
    return best if best and keys[best[0]] in replaced else best[1:]


def _choose_versions(ranking: Ranking) -> None:
    """Keep a right version only if the other one is no better answer, by text and feedback.

    Near-equal records, such as tickets of one title, are no versions of each other: the question
    tells which is meant. Feedback that prefers the other version counts as well.
    """
    odds = ranking.ranker.log_odds(_blank(ranking.matrix, _NOT_SAID))
    allowed = set(ranking.among)
    ranking.better = {
        other: version
        for other, version in ranking.found.better.items()
        if version.place in allowed and odds[other] - odds[version.place] <= _AHEAD
    }


def _put_versions_first(ranking: Ranking) -> None:
    """Put the right version of each text before the other ones."""
    placed: dict[int, None] = {}
    for index in ranking.order:
        if version := ranking.better.get(index):
            placed.setdefault(version.place)
        placed.setdefault(index)
    ranking.order = [*placed]


def _explore(ranking: Ranking, explored: int) -> None:
    """Give the last ``explored`` of the k places to drawn candidates.

    Inhibited candidates, and those returned and not used for the same question, are not drawn.
    Until something is learned, the same question draws the same candidates.
    """
    found, matrix, order = ranking.found, ranking.matrix, ranking.order
    query, pool = found.query, found.evidence.pool
    kept = order[: query.k - explored]
    rest = [i for i in order[len(kept) :] if not matrix[i, _AGAINST].any()]
    drawn: list[int] = []
    shares: list[float] = []
    if rest:
        shown = np.array([pool[i].shown for i in rest])
        scores = ranking.ranker.score_novelty(matrix[rest], shown)
        rng = np.random.default_rng([zlib.crc32(query.text.encode()), found.seeds.clock.learned])
        places, shares = draw_explored(scores, explored, rng)
        drawn = [rest[place] for place in places]
    others = [i for i in order[len(kept) :] if i not in drawn]
    ranking.propensities = dict.fromkeys(order, 1.0) | dict(zip(drawn, shares, strict=True))
    ranking.order = [*kept, *drawn, *others]


def _return_best(ranking: Ranking) -> None:
    """Describe the best k, their corrections, and spare notes if places are left.

    The contents of documents that still exist are read.
    """
    found, ranker, matrix, k = ranking.found, ranking.ranker, ranking.matrix, ranking.found.query.k
    chosen = [*ranking.order[:k]]
    if found.notes:
        others = found.list_corrections()
        chosen = _insert_corrections(ranking.order, k, ranking.corrections, others)
    rest = [i for i in ranking.spare if i not in chosen]
    chosen += rest[: max(0, k - len(chosen))]
    if ranker.draws is not None and found.order is None:  # unknown where a reranker chose
        ranking.propensities = ranker.propensities(matrix, ranking.among, k)
    ranking.features[:, _COVERAGE] = matrix[:, _COVERAGE]
    probabilities = ranker.probabilities(matrix).tolist()
    pool, walk, newer = found.evidence.pool, found.walk, dict[int, str]()
    for other, version in ranking.better.items():
        probabilities[version.place] = max(probabilities[version.place], probabilities[other])
        if version.is_newer:
            newer[other] = pool[version.place].head.id
    best = find_strongest_edges(walk.support, {pool[i].head.key for i in chosen})
    odds, trials = ranker.model_log_odds(matrix), ranker.count_trials(matrix)
    ranking.documents = [
        describe_returned(
            pool[i],
            ranking.features[i],
            (probabilities[i], float(odds[i]), float(trials[i])),
            walk,
            best.get(pool[i].head.key),
            ranking.propensities.get(i),
            newer.get(i),
        )
        for i in chosen
    ]
    names = [item.node for item in ranking.documents]
    ranking.nodes = found.read.walk.get_documents(names, found.seeds.clock)


def _insert_corrections(
    order: Sequence[int],
    k: int,
    corrections: Mapping[int, int],
    others: AbstractSet[int],
) -> list[int]:
    """List the best k indices of ``order``, and the correction of each before it, on top of k.

    ``corrections`` has the note of each corrected candidate. A correction that ranks above its
    document by itself stays where it is. ``others`` are corrections that go with no candidate; they
    do not count among k either.
    """
    notes = {*others, *corrections.values()}
    chosen: dict[int, None] = {}
    places = k
    for index in order:
        if not places:
            break
        if index not in notes:
            places -= 1
            if index in corrections:
                chosen[corrections[index]] = None
        chosen[index] = None
    return list(chosen)


def _leave_out(gone: AbstractSet[str], found: Candidates) -> Candidates:
    """Return the candidates without the documents whose ids are in ``gone``."""
    pool = found.evidence.pool
    evidence = found.evidence.select([i for i, hit in enumerate(pool) if hit.head.id not in gone])
    return replace(found, evidence=evidence, better={})  # its indices are of the former pool


def _blank(matrix: Matrix, columns: Sequence[int]) -> Matrix:
    """Copy features with some columns set to 0."""
    blanked = matrix.copy()
    blanked[:, columns] = 0.0
    return blanked


def find_strongest_edges(edges: Iterable[WalkEdge], keys: Container[int]) -> dict[int, WalkEdge]:
    """Find the strongest edge to each node with one of these keys, by key."""
    best: dict[int, WalkEdge] = {}
    for edge in edges:
        key = edge.target.key
        if key in keys and (key not in best or best[key].strength < edge.strength):
            best[key] = edge
    return best


def describe_returned(
    hit: Candidate,
    row: Matrix,
    score: tuple[float, float, float],
    walk: Walk,
    best: WalkEdge | None,
    propensity: float | None = None,
    superseded_by: str | None = None,
) -> ReturnedDocument:
    """Make the record of a returned document.

    Args:
        row: Its features, shape ``[len(FEATURES)]``.
        score: Probability of relevance, in [0, 1]; log-odds of the logistic model before
            calibration; number of past uses and passes that were counted.
        best: Strongest edge to the document; None without one.
        propensity: Probability that the document is returned, in [0, 1]; None if not known.
        superseded_by: Id of a newer version of the document; None without one.
    """
    path: tuple[PathEdge, ...] = ()
    if visit := walk.visits.get(hit.head.key):
        path = visit.path
    elif not hit.found and best is not None:  # the edge was not followed
        path = (*walk.visits[best.source.key].path, to_path_edge(best, 0.0))
    return ReturnedDocument(
        node=hit.head.id,
        probability=round(score[0], DIGITS),
        origin="seed" if hit.found else "walk",
        path=path,
        features={
            name: round(value, DIGITS)
            for name, value in zip(FEATURES, row.tolist(), strict=True)
            if value
        },
        support=best and to_path_edge(best, 0.0),
        propensity=propensity,
        log_odds=round(score[1], DIGITS),
        trials=round(score[2], DIGITS),
        superseded_by=superseded_by,
    )


_MIN_SIMILARITY = 0.97  # least similarity of texts that are compared word by word
# Metadata keys that say where a text is from: only these may differ between repeats.
_LOCATION_KEYS = frozenset(
    {
        *("source", "title", "path", "file_path", "file_name", "filename", "url", "page"),
        *("page_label", "start_index", "authority"),
    }
)
# Markers of headings, lists, quotes and rules, apart from the words of their line: "C#" and "-O2"
# are words. Then the first letter of a sentence, whose capital means nothing.
_EDGE = re.compile(r"^[ \t]*(?:[#>*_-]+(?:[ \t]+|$))+|[ \t]+[#*_-]+[ \t]*$", re.MULTILINE)
_FIRST = re.compile(r"(?:^|[.!?]\s)\W*\w", re.MULTILINE)
# Numbers with signs, parts and units of one sign, words, and single signs: "-5", "5", ">5" and 5"
# are not the same.
_TOKEN = re.compile(r"[-+]?\.?\d+(?:[.,:/]\d+)*['\"]?|[^\W\d]\w*|[^\w\s]|_")
_PUNCTUATION = frozenset(".,;:'\"()[]`…‘’“”")  # without meaning


def extract_wording(text: str) -> list[str]:
    """List the words of a text without punctuation, marks of formatting and initial capitals.

    Every other sign and word stays: texts that differ in one of them state different facts,
    however similar their vectors are.
    """
    plain = _FIRST.sub(lambda first: first[0].lower(), _EDGE.sub("", text))
    return [token for token in _TOKEN.findall(plain) if token not in _PUNCTUATION]


def find_repeats(
    ranked: Sequence[Node], vectors: Mapping[str, Vector], stretch: float = 1.0
) -> dict[str, str]:
    """Find documents with the wording of one that is ranked before them.

    Title and metadata must be equal as well, except metadata on where the text is from. Notes are
    no repeats: each belongs to one namespace.

    Args:
        vectors: Unit vectors by id, each of shape ``[d]``.

    Returns:
        The best document of the same wording, by the id of each repeat.
    """
    documents = [node for node in ranked if node.document]
    if len(documents) <= 1:
        return {}
    matrix = np.array([vectors[node.id] for node in documents], dtype=np.float32)
    similar = stretch_cosine(matrix @ matrix.T, stretch) >= _MIN_SIMILARITY
    np.fill_diagonal(similar, val=False)
    if not similar.any():
        return {}
    wordings = [_describe(node) for node in documents]
    repeats: dict[str, str] = {}
    for first, later in np.argwhere(np.triu(similar)).tolist():
        if wordings[first] == wordings[later]:
            repeats.setdefault(documents[later].id, documents[first].id)
    return repeats


def find_near(
    names: Iterable[str], vectors: Mapping[str, Vector], stretch: float = 1.0
) -> list[str]:
    """Return the ids of the texts that are near enough to any of ``names`` to repeat it.

    Other arguments are as for :func:`find_repeats`. The named texts are among the found ones.
    """
    matrix = np.array([*vectors.values()], dtype=np.float32)
    chosen = np.array([vectors[name] for name in names], dtype=np.float32)
    near = stretch_cosine(chosen @ matrix.T, stretch).max(axis=0, initial=-1.0)
    return [name for name, value in zip(vectors, near, strict=True) if value >= _MIN_SIMILARITY]


def _describe(node: Node) -> tuple[object, ...]:
    """Make a key that is equal for repeats: metadata, and the words of title and text."""
    metadata = {key: value for key, value in node.metadata.items() if key not in _LOCATION_KEYS}
    words = (tuple(extract_wording(text)) for text in (node.title, node.content))
    return (json.dumps(metadata, sort_keys=True, default=str), *words)
