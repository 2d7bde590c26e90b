"""The stage of a query that chooses the documents of an answer among all candidates.

Notes, repeats, versions, least probabilities, exploration and budgets of tokens each have a step.
"""

import logging
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.graph import Candidate, Node, Vector
from crabpath_retrievers.core.query import Query
from crabpath_retrievers.core.text import Floats
from crabpath_retrievers.core.turn import ReturnedDocument
from crabpath_retrievers.rerank.features import FEATURES, LEARNED_FEATURES, Evidence, Matrix
from crabpath_retrievers.rerank.ranker import (
    Ranker,
    SelectionLimits,
    draft_teams,
    draw_explored,
    select_best_chunks,
    select_within_budget,
)
from crabpath_retrievers.retrieval.corrections import (
    SAME_QUESTION,
    choose_corrections,
    find_current_corrections,
    insert_corrections,
    mark_corrections,
)
from crabpath_retrievers.retrieval.dates import (
    Version,
    choose_versions,
    find_versions,
    has_date,
    keep_near_equal,
    put_versions_first,
)
from crabpath_retrievers.retrieval.namespace_model import NamespaceModels
from crabpath_retrievers.retrieval.repeats import find_near, find_repeats
from crabpath_retrievers.retrieval.search import SeedHits
from crabpath_retrievers.retrieval.turn_builder import (
    Rankings,
    describe_returned,
    find_strongest_edges,
)
from crabpath_retrievers.retrieval.walk import Walk
from crabpath_retrievers.storage import Reader
from crabpath_retrievers.storage.read.notes import Correction
from crabpath_retrievers.storage.read.walk import Clock
from crabpath_retrievers.vectors.base import (
    FindExisting,
    VectorIndex,
    find_deleted,
    get_owner_lookup,
)

_log = logging.getLogger(__name__)
_AUTHORITY, _COVERAGE = FEATURES.index("authority"), FEATURES.index("coverage")
_LEFT_OUT = [FEATURES.index(name) for name in sorted(LEARNED_FEATURES | {"inhibition", "coverage"})]
_AGAINST = [FEATURES.index(name) for name in ("inhibition", "passed")]


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
    repeats: Mapping[str, str] = field(default_factory=dict)
    """The document with the same wording, by the id of each that is left out for it."""
    better: Mapping[int, Version] = field(default_factory=dict)
    """The version right at the moment of the question, by the index of each other one."""
    is_frozen: bool = False
    """Whether the ranking before any lesson answers."""
    is_draft: bool = False
    """Whether ``order`` is what both rankings drafted."""

    def list_corrections(self) -> frozenset[int]:
        """Indices of the corrections in the pool, which come on top of k documents."""
        if self.query.candidate_ids is not None:
            return frozenset()
        heads = enumerate(hit.head for hit in self.evidence.pool)
        return frozenset(i for i, head in heads if self.notes.get(head.key) == "correction")


class Ranking(NamedTuple):
    """The documents to return, best first, and what they were chosen by.

    Attributes:
        documents: Those to return.
        matrix: Features of all candidates.
        among: Indices of the candidates that might be returned.
        better: The version right at the moment of the question, by the index of each other one.
    """

    documents: list[ReturnedDocument]
    matrix: Matrix
    among: Sequence[int]
    better: Mapping[int, Version]


def read_ranked_documents(
    read: Reader, ranked: Sequence[ReturnedDocument], clock: Clock
) -> dict[str, Node]:
    """Contents of ranked documents, by id; of those that still exist."""
    return read.walk.get_documents([item.node for item in ranked], clock)


@dataclass(frozen=True, slots=True)
class DocumentChooser:
    """Chooses the documents of answers.

    Attributes:
        index: Vectors of the documents.
        ranker: The ranker before anything was learned.
        models: What namespaces have learned.
        settings: Of all mechanisms.
    """

    index: VectorIndex
    ranker: Ranker
    models: NamespaceModels
    settings: Settings

    def choose(self, found: Candidates) -> tuple[Candidates, Ranking, dict[str, Node]]:
        """The documents to return with their contents, deleted and repeated ones left out."""
        query, clock = found.query, found.seeds.clock
        ranking = self.rank(found)
        find_existing = query.existing_ids or get_owner_lookup(self.index)
        if find_existing and ranking.documents:
            remaining = self._remove_deleted(find_existing, ranking.documents, found)
            if remaining is not found:
                found = remaining
                ranking = self.rank(found)
        documents = read_ranked_documents(found.read, ranking.documents, clock)
        if query.candidate_ids is None:
            while repeats := self._find_repeats(ranking.documents, documents, found):
                told = {**found.repeats, **repeats}
                found = replace(self._leave_out(repeats.keys(), found), repeats=told)
                ranking = self.rank(found)
                documents = read_ranked_documents(found.read, ranking.documents, clock)
            if better := self._find_versions(documents, found):
                found = replace(found, better=better)
                ranking = self.rank(found)
                documents = read_ranked_documents(found.read, ranking.documents, clock)
        return found, ranking, documents

    def _find_versions(
        self, documents: Mapping[str, Node], found: Candidates
    ) -> dict[int, Version]:
        """The version of each dated document that is right at the moment of the question."""
        settings, pool = self.settings.dates, found.evidence.pool
        dated = [name for name, node in documents.items() if has_date(node.metadata, settings)]
        pairs = find_versions(dated, found.evidence) if dated else []
        ids = sorted({pool[j].head.id for _, j in pairs} - documents.keys())
        others = found.read.walk.get_documents(ids, found.seeds.clock) if ids else {}
        nodes = {**documents, **others}
        contents = [nodes.get(hit.head.id) for hit in pool]
        return choose_versions(pairs, contents, settings, found.query.as_of, found.query.text)

    def rank(self, found: Candidates) -> Ranking:
        """Rank the candidates, and choose as many as the query asks for."""
        query, evidence, clock = found.query, found.evidence, found.seeds.clock
        pool, ranker = evidence.pool, self.ranker
        if clock.learned or found.explore is not None:
            ranker = self.models.ranker(found.read, query.namespace, clock, found.explore)
        features = matrix = ranker.features(evidence)
        if found.is_frozen:
            ranker, matrix = self.ranker, _leave_out_lessons(matrix)
        among, spare, corrections = self._select(found, ranker, matrix)
        better = keep_near_equal(found.better, among, ranker.log_odds, matrix)
        if found.order is None:
            order = ranker.order(matrix, evidence, query.k, among)
        else:
            places = {pool[i].head.id: i for i in among}
            order = [places[name] for name in found.order if name in places]
            ranker.cover(matrix, evidence, order)
        features[:, _COVERAGE] = matrix[:, _COVERAGE]
        probabilities = ranker.probabilities(matrix).tolist()
        if not found.is_draft and (least := self._least_probability(query)):
            fit = self._score_without_authority(ranker, matrix)
            order, spare = ([i for i in indices if fit[i] >= least] for indices in (order, spare))
            spare = spare[: 0 if len(order) > 1 else None]
        if better:
            order = put_versions_first(order, better)
            for other, version in better.items():
                both = probabilities[version.place], probabilities[other]
                probabilities[version.place] = max(both)
        order, propensities = self._explore(found, ranker, matrix, order)
        if query.max_tokens is not None:
            propensities = {}  # unknown where a budget chose
            order, spare = self._within_budget(
                query, query.max_tokens, found, (order, spare), corrections
            )
        chosen = insert_corrections(order, query.k, corrections, found.list_corrections())
        rest = [i for i in spare if i not in chosen]
        chosen += rest[: max(0, query.k - len(chosen))]
        if ranker.draws is not None and found.order is None:  # unknown where a reranker chose
            propensities = ranker.propensities(matrix, among, query.k)
        best = find_strongest_edges(found.walk.support, {pool[i].head.key for i in chosen})
        odds, trials = ranker.model_log_odds(matrix), ranker.count_trials(matrix)
        ranked = [
            describe_returned(
                pool[i],
                features[i],
                (probabilities[i], float(odds[i]), float(trials[i])),
                found.walk,
                best.get(pool[i].head.key),
                propensities.get(i),
                _name_newer(pool, better.get(i)),
            )
            for i in chosen
        ]
        return Ranking(ranked, features, among, better)

    def _is_compared(self, found: Candidates) -> bool:
        """Whether lessons counted, and neither a reranker nor a budget of tokens chose."""
        query = found.query
        chose_otherwise = found.order is not None or query.max_tokens is not None
        return bool(query.record and found.seeds.clock.learned) and not chose_otherwise

    def compare(self, found: Candidates, ranking: Ranking) -> Rankings:
        """Answers of both rankings of the same candidates: the one that answers and the other."""
        if not self._is_compared(found):
            return Rankings()
        query, evidence = found.query, found.evidence
        if found.is_frozen:
            matrix = ranking.matrix.copy()
            matrix[:, _COVERAGE] = 0.0
            ranker = self.models.ranker(found.read, query.namespace, found.seeds.clock)
        else:
            matrix, ranker = _leave_out_lessons(ranking.matrix), self.ranker
        order = ranker.order(matrix, evidence, query.k, ranking.among)
        if least := self._least_probability(query):
            fit = self._score_without_authority(ranker, matrix)
            order = [i for i in order if fit[i] >= least]
        order = put_versions_first(order, ranking.better)
        # At most one note is among them.
        best = [evidence.pool[i].head for i in order[: query.k + 1]]
        other = tuple([head.id for head in best if head.key not in found.notes][: query.k])
        if not found.is_frozen:
            return Rankings(other)
        keys = {hit.head.id: hit.head.key for hit in evidence.pool}
        own = [item.node for item in ranking.documents if keys[item.node] not in found.notes]
        return Rankings(tuple(own), other)

    def draft(self, found: Candidates, rankings: Rankings, shown: Sequence[str]) -> Rankings:
        """Both rankings with the documents that each of them drafts, if chance has it so.

        The same question in the same turn draws the same.
        """
        share, frozen = self.settings.learning.trial_share, rankings.frozen
        if not share or frozen is None or found.query.arm or self.count_explored(found):
            return rankings
        rng = np.random.default_rng([zlib.crc32(found.query.text.encode()), found.seeds.clock.turn])
        learned = shown if rankings.learned is None else rankings.learned
        if rng.random() >= share or (*learned,) == frozen:
            return rankings
        return Rankings(frozen, (*learned,), draft_teams(learned, frozen, found.query.k, rng))

    def _select(
        self, found: Candidates, ranker: Ranker, matrix: Matrix
    ) -> tuple[Sequence[int], list[int], dict[int, int]]:
        """The candidates to rank, the notes behind them, and the correction of each corrected one.

        All are indices into the pool.
        """
        query, evidence = found.query, found.evidence
        pool = evidence.pool
        among: Sequence[int] = range(len(pool))
        if query.one_per_document:
            among = self._best_chunks(found, matrix, ranker.log_odds(matrix))
        if query.candidate_ids is not None:
            allowed = set(query.candidate_ids)
            among = [i for i in among if pool[i].head.id in allowed]
        if not found.seeds.clock.notes:
            return among, [], {}
        odds = ranker.log_odds(matrix)
        corrections = _choose_corrections(found, among, odds)
        among = [i for i in among if pool[i].head.key not in found.companions]
        spare = self._spare_notes(found, among, odds, frozenset(corrections.values()))
        return [i for i in among if i not in spare], spare, corrections

    def _score_without_authority(self, ranker: Ranker, matrix: Matrix) -> Floats:
        """Probabilities of relevance; authority makes nothing relevant."""
        if matrix[:, _AUTHORITY].any():
            matrix = matrix.copy()
            matrix[:, _AUTHORITY] = 0.0
        return ranker.probabilities(matrix)

    def _least_probability(self, query: Query) -> float:
        least = query.min_score or 0.0
        return least if query.fill else max(least, self.settings.rank.min_probability)

    def count_explored(self, found: Candidates) -> int:
        """Places that are explored; none where nothing is recorded, or weights are drawn."""
        query = found.query
        if not query.record or found.explore is not None:
            return 0
        return min(query.k - 1, math.floor(query.k * self.settings.rank.explored_share + 1e-9))

    def _explore(
        self, found: Candidates, ranker: Ranker, matrix: Matrix, order: list[int]
    ) -> tuple[list[int], dict[int, float]]:
        """The order with the last of the k places given to drawn candidates.

        Inhibited candidates, and those passed for the same question, are not drawn. The same
        question draws the same ones until something is learned.

        Returns:
            Indices into the pool, best first, and the probability that each of those that are
            returned is returned, in (0, 1]; no probabilities without exploration.
        """
        explored = self.count_explored(found)
        if not explored:
            return order, {}
        query, pool = found.query, found.evidence.pool
        kept = order[: query.k - explored]
        rest = [i for i in order[len(kept) :] if not matrix[i, _AGAINST].any()]
        drawn: list[int] = []
        shares: list[float] = []
        if rest:
            shown = np.array([pool[i].shown for i in rest])
            scores = ranker.score_novelty(matrix[rest], shown)
            rng = np.random.default_rng(
                [zlib.crc32(query.text.encode()), found.seeds.clock.learned]
            )
            places, shares = draw_explored(scores, explored, rng)
            drawn = [rest[place] for place in places]
        others = [i for i in order[len(kept) :] if i not in drawn]
        propensities = dict.fromkeys(order, 1.0) | dict(zip(drawn, shares, strict=True))
        return [*kept, *drawn, *others], propensities

    def _find_repeats(
        self,
        ranked: Sequence[ReturnedDocument],
        documents: Mapping[str, Node],
        found: Candidates,
    ) -> dict[str, str]:
        """The document that is ranked before and says the same, by the id of each repeat."""
        vectors = {hit.head.id: hit.head.vector for hit in found.evidence.pool}
        nodes = [documents[item.node] for item in ranked if item.node in documents]
        repeats = find_repeats(nodes, vectors, found.read.stretch)
        if repeats:  # the rest of the candidates may have as many
            near = find_near({*repeats.values()}, vectors, found.read.stretch)
            ids = sorted({*near} - documents.keys())
            rest = found.read.walk.get_documents(ids, found.seeds.clock)
            others = [rest[name] for name in near if name in rest]
            repeats = find_repeats([*nodes, *others], vectors, found.read.stretch)
        return repeats

    def _leave_out(self, gone: AbstractSet[str], found: Candidates) -> Candidates:
        """The candidates without these documents."""
        pool = [hit for hit in found.evidence.pool if hit.head.id not in gone]
        walk, information = found.walk, found.seeds.information
        evidence = Evidence.from_pool(
            pool, walk.support, walk.inhibition, information, found.read.stretch
        )
        return replace(found, evidence=evidence, better={})  # its indices are of the former pool

    def _remove_deleted(
        self, find_existing: FindExisting, ranked: Sequence[ReturnedDocument], found: Candidates
    ) -> Candidates:
        """The candidates without those that the owner of the vector store has deleted.

        The same object if all ranked documents exist; only if one is missing are the other
        candidates looked up too.
        """
        clock, pool = found.seeds.clock, found.evidence.pool
        ids = [item.node for item in ranked]
        gone = find_deleted(find_existing, found.read, ids, clock)
        if not gone:
            return found
        others = [hit.head.id for hit in pool if hit.head.id not in set(ids)]
        gone |= find_deleted(find_existing, found.read, others, clock)
        remaining = self._leave_out(gone, found)
        if not remaining.evidence.pool:
            _log.warning(
                "%s holds none of the %d documents that were found: "
                "call refresh() to follow it, or reindex() to fill it",
                self.index.description,
                len(gone),
            )
        return remaining

    def _spare_notes(
        self,
        found: Candidates,
        among: Sequence[int],
        odds: Floats,
        corrections: AbstractSet[int],
    ) -> list[int]:
        """All notes but one, as indices into the pool, best first.

        An answer has at most one note before its documents, so that many notes cannot displace
        them: the latest one taught for this query, else the most likely one. A note in whose place
        another one goes with a document of the pool is spare, too.

        Args:
            found: The candidates.
            among: Indices of those that may be returned.
            odds: Log-odds of relevance of all.
            corrections: Indices of the notes that go with documents.
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

    def _best_chunks(self, found: Candidates, matrix: Matrix, odds: Floats) -> list[int]:
        """The best chunk of every document, as indices into the pool."""
        evidence = found.evidence
        nodes = [hit.head.id for hit in evidence.pool]
        document = {node.id: node.document for node in found.read.catalog.find_chunks(ids=nodes)}
        order = np.argsort(-odds, kind="stable").tolist()
        return select_best_chunks(
            [document.get(node, node) for node in nodes], order, evidence, matrix
        )

    def _within_budget(
        self,
        query: Query,
        max_tokens: int,
        found: Candidates,
        orders: tuple[Sequence[int], Sequence[int]],
        corrections: Mapping[int, int],
    ) -> tuple[list[int], list[int]]:
        """The parts of the order, and of the spare notes after it, that fit with corrections."""
        order = [*orders[0], *orders[1]]
        others = found.list_corrections()
        together = insert_corrections(order, len(order), corrections, others)
        heads = [found.evidence.pool[i].head for i in together]
        ids = [head.id for head in heads]
        documents = found.read.walk.get_documents(ids, found.seeds.clock)
        documents |= mark_corrections(found.read, documents, query.namespace)
        k = query.k + len(others.union(corrections.values()))
        characters = self.settings.rank.characters_per_token
        bounds = SelectionLimits(k, max_tokens, characters, found.read.stretch)
        places = {index: place for place, index in enumerate(together)}
        notes = {
            places[index]: places[note] for index, note in corrections.items() if index in places
        }
        kept = {together[i] for i in select_within_budget(heads, documents, bounds, notes)}
        first, rest = ([index for index in part if index in kept] for part in orders)
        return first, rest


def _name_newer(pool: Sequence[Candidate], version: Version | None) -> str | None:
    return pool[version.place].head.id if version and version.is_newer else None


def _leave_out_lessons(matrix: Matrix) -> Matrix:
    """A copy of features without what was learned."""
    frozen = matrix.copy()
    frozen[:, _LEFT_OUT] = 0.0
    return frozen


def _choose_corrections(found: Candidates, among: Iterable[int], odds: Floats) -> dict[int, int]:
    """The note that goes with each corrected candidate, both as indices into the pool."""
    places = {found.evidence.pool[i].head.key: i for i in among}
    current = find_current_corrections(found.corrections)
    chosen = choose_corrections(current, {key: odds[i] for key, i in places.items()})
    return {places[key]: places[note] for key, note in chosen.items() if key in places}
