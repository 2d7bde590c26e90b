"""The stages of a query: embed, search, walk, rank, return, record.

One generator for sync and async; see :mod:`crabpath_retrievers.core.driver`.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.settings import apply_knobs_to_tiers
from crabpath_retrievers.core.driver import Operations, perform, perform_sync_or_async
from crabpath_retrievers.core.graph import Candidate, Node, NodeHead, Vector
from crabpath_retrievers.core.metadata import complete_note_metadata
from crabpath_retrievers.core.query import Query
from crabpath_retrievers.core.text import Floats, QueryInformation
from crabpath_retrievers.core.turn import SEARCH_ACTION, ReturnedDocument, Turn
from crabpath_retrievers.regions.models import RegionAdvice
from crabpath_retrievers.rerank.features import Evidence, Matrix
from crabpath_retrievers.rerank.ranker import (
    SelectionLimits,
    apply_tag_hints,
    select_best_chunks,
    select_within_budget,
)
from crabpath_retrievers.retrieval.namespace_model import NamespaceModels
from crabpath_retrievers.retrieval.search import SeedHits, SeedSearch
from crabpath_retrievers.retrieval.turn_builder import (
    build_turn,
    describe_returned,
    find_strongest_edges,
)
from crabpath_retrievers.retrieval.walk import Walk, Walker
from crabpath_retrievers.routing.policy import Router, RoutingRequest, SoftmaxRouter
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.walk import Clock
from crabpath_retrievers.vectors.base import (
    FindExisting,
    VectorIndex,
    find_deleted,
    get_owner_lookup,
)
from crabpath_retrievers.vectors.embedder import Embedder

_log = logging.getLogger(__name__)
_SAME_QUESTION = 0.5  # evidence of the same query from which a note counts as taught for it


@dataclass(frozen=True, slots=True)
class RetrievedDocument:
    """A document of the answer, with its record."""

    node: Node
    returned: ReturnedDocument

    @property
    def score(self) -> float:
        """Probability of relevance, in [0, 1]."""
        return self.returned.probability


@dataclass(frozen=True, slots=True)
class Answer:
    """Documents, best first, and the turn record."""

    documents: tuple[RetrievedDocument, ...]
    turn: Turn


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The candidates of a query, with the evidence for them."""

    clock: Clock
    vector: Vector
    hits: dict[int, Candidate]
    walk: Walk
    evidence: Evidence
    information: QueryInformation


@dataclass(slots=True)
class _Stopwatch:
    laps: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round((now - self.last) * 1000, 3)
        self.last = now


@dataclass(frozen=True, slots=True)
class RetrievalPipeline:
    """Answers queries from one store."""

    store: GraphStore
    index: VectorIndex
    embedder: Embedder
    minds: NamespaceModels
    router: Router
    settings: Settings

    def steps(
        self, query: Query, *, explore: np.random.Generator | None = None
    ) -> Operations[Answer]:
        """Answer a query.

        Args:
            query: The query.
            explore: Samples the choices of the walk and the weights of the ranker; None takes
                the best.
        """
        router = None if explore is None else SoftmaxRouter(self.settings.policy, explore)
        watch = _Stopwatch()
        found = yield from self._find(query, router or self.router, watch)
        ranked = yield from self._rank(query, found, explore)
        find_existing = query.existing_ids or get_owner_lookup(self.index)
        if find_existing and ranked:
            remaining = yield from perform(self._remove_deleted, find_existing, ranked, found)
            if remaining is not found:
                found = remaining
                ranked = yield from self._rank(query, found, explore)
        documents = yield from self._documents([r.node for r in ranked], found.clock)
        if found.clock.notes:
            documents |= yield from perform(self._complete_notes, documents)
        # A document that was forgotten in the meantime is skipped.
        ranked = [item for item in ranked if item.node in documents]
        watch.lap("rank")
        turn = build_turn(
            query,
            found.clock.turn + 1,
            found.hits,
            found.walk,
            ranked,
            explored=explore is not None,
            latency_ms=watch.laps,
        )
        if query.record:
            yield from perform(self.store.record, turn, found.vector)
        message = "turn %s in namespace %r: %d documents, %s ms"
        _log.debug(message, turn.id, turn.namespace, len(ranked), watch.laps)
        return Answer(tuple(RetrievedDocument(documents[r.node], r) for r in ranked), turn)

    def evidence(self, query: Query) -> Operations[Evidence]:
        """The candidates that a query would rank, for fitting; nothing is recorded."""
        found = yield from self._find(query, self.router, _Stopwatch())
        return found.evidence

    def _find(self, query: Query, router: Router, watch: _Stopwatch) -> Operations[_Candidates]:
        vector = yield from self._embed(query)
        watch.lap("embed")
        seed_hits, advice = yield from perform(self._search, query, vector)
        clock, hits, information = seed_hits
        watch.lap("seeds")
        walk = yield from self._walk(query, vector, hits, clock, router, advice)
        watch.lap("walk")
        pool = yield from self._pool(query, vector, hits, walk, clock)
        if clock.learned:
            pool = yield from perform(self._add_experience, pool, walk, clock, advice)
        evidence = Evidence.from_pool(pool, walk.support, walk.inhibition, information)
        return _Candidates(clock, vector, hits, walk, evidence, information)

    def _remove_deleted(
        self, find_existing: FindExisting, ranked: Sequence[ReturnedDocument], found: _Candidates
    ) -> _Candidates:
        """The candidates without those that the owner of the vector store has deleted.

        The same object if all ranked documents exist; only if one is missing are the other
        candidates looked up too.
        """
        ids = [item.node for item in ranked]
        gone = find_deleted(find_existing, self.store, ids, found.clock)
        if not gone:
            return found
        others = [hit.head.id for hit in found.evidence.pool if hit.head.id not in set(ids)]
        gone |= find_deleted(find_existing, self.store, others, found.clock)
        pool = [hit for hit in found.evidence.pool if hit.head.id not in gone]
        if not pool:
            _log.warning(
                "%s holds none of the %d documents that were found: "
                "call refresh() to follow it, or reindex() to fill it",
                self.index.description,
                len(gone),
            )
        walk = found.walk
        evidence = Evidence.from_pool(pool, walk.support, walk.inhibition, found.information)
        return replace(found, evidence=evidence)

    def _embed(self, query: Query) -> Operations[Vector]:
        if query.vector is not None:
            return query.vector
        text = query.text
        vector = yield from perform_sync_or_async(
            lambda: self.embedder.query(text), lambda: self.embedder.aquery(text)
        )
        return vector

    def _search(self, query: Query, vector: Vector) -> tuple[SeedHits, RegionAdvice | None]:
        """The candidates, and the values of actions in the query's region."""
        search = SeedSearch(self.store, self.index, self.settings, self.minds.recall)
        seed_hits = search.find(query, vector)
        return seed_hits, self.minds.advice(vector, seed_hits.clock, query.task_type)

    def _walk(
        self,
        query: Query,
        vector: Vector,
        hits: dict[int, Candidate],
        clock: Clock,
        router: Router,
        advice: RegionAdvice | None,
    ) -> Operations[Walk]:
        walker = Walker(
            RoutingRequest(
                query.text,
                callbacks=query.callbacks,
                read=lambda ids: self.store.catalog.documents(ids, namespace=clock.key),
                policy=self.settings.policy,
                recalled=max((hit.again for hit in hits.values()), default=0.0),
                tried=tuple if advice is None else advice.list_tried_actions,
            ),
            vector,
            read_edges=lambda keys: self.store.walk.get_outgoing_edges(keys, clock),
            router=router,
            walk=self.settings.walk,
            tiers=apply_knobs_to_tiers(self.settings.tiers, clock.knobs),
            temperature=self.settings.policy.temperature,
            on_hop=query.on_hop,
        )
        walk = yield from walker.steps(choose_entries(hits.values(), self.settings))
        return walk

    def _pool(
        self, query: Query, vector: Vector, hits: dict[int, Candidate], walk: Walk, clock: Clock
    ) -> Operations[list[Candidate]]:
        """All nodes that search found or that edges of visited nodes lead to, after the filter."""
        edges = {edge.target.key: edge for edge in walk.support}
        reached = [
            Candidate(edge.target, edge.relevance, found=False)
            for key, edge in edges.items()
            if key not in hits
        ]
        if query.filter and reached:
            ids = [hit.head.id for hit in reached]
            allowed = yield from perform(self.index.filter_ids, ids, vector, query.filter)
            reached = [hit for hit in reached if hit.head.id in allowed]
        if clock.notes and reached:
            expired = yield from perform(
                self.minds.find_expired, [h.head.id for h in reached], clock
            )
            reached = [hit for hit in reached if hit.head.id not in expired]
        pool = [*hits.values(), *reached]
        if walk.chosen:
            pool = [h._replace(routed=1.0) if h.head.key in walk.chosen else h for h in pool]
        if query.boost_tags and pool:
            nodes = yield from self._documents([hit.head.id for hit in pool], clock)
            pool = apply_tag_hints(pool, nodes, query.boost_tags)
        return pool

    def _documents(self, ids: Sequence[str], clock: Clock) -> Operations[dict[str, Node]]:
        documents = yield from perform(self.store.catalog.documents, ids, namespace=clock.key)
        return documents

    def _complete_notes(self, nodes: Mapping[str, Node]) -> dict[str, Node]:
        """The notes among the nodes, with the metadata keys that document templates expect."""
        notes = {key: node for key, node in nodes.items() if not node.document}
        if not notes:
            return notes
        samples = self.store.catalog.sample()
        return {
            key: replace(note, metadata=complete_note_metadata(note.metadata, samples))
            for key, note in notes.items()
        }

    def _add_experience(
        self, pool: Sequence[Candidate], walk: Walk, clock: Clock, advice: RegionAdvice | None
    ) -> list[Candidate]:
        """The candidates with their past use, and the value of the action that leads to each."""
        candidates = self.minds.add_usage(pool, clock)
        if advice is None:
            return candidates
        best = find_strongest_edges(walk.support, {hit.head.key for hit in candidates})
        values = {
            kind: advice.score_action(kind)
            for kind in {SEARCH_ACTION, *(edge.kind.label for edge in best.values())}
        }
        return [
            hit._replace(
                advice=values[
                    best[hit.head.key].kind.label if hit.head.key in best else SEARCH_ACTION
                ]
            )
            for hit in candidates
        ]

    def _rank(
        self, query: Query, found: _Candidates, explore: np.random.Generator | None
    ) -> Operations[list[ReturnedDocument]]:
        pool = found.evidence.pool
        ranker = yield from perform(self.minds.ranker, query.namespace, found.clock, explore)
        matrix = ranker.features(found.evidence)
        among: Sequence[int] = range(len(pool))
        if query.one_per_document:
            among = yield from self._best_chunks(found.evidence, matrix, ranker.log_odds(matrix))
        if query.candidate_ids is not None:
            allowed = set(query.candidate_ids)
            among = [i for i in among if pool[i].head.id in allowed]
        spare = yield from self._spare_notes(found, among, ranker.log_odds(matrix))
        among = [i for i in among if i not in spare]
        order = ranker.order(matrix, found.evidence, query.k, among)
        probabilities = ranker.probabilities(matrix)
        if not query.fill:
            order, spare = (
                [i for i in indices if probabilities[i] >= self.settings.rank.min_probability]
                for indices in (order, spare)
            )
            spare = spare[: 0 if len(order) > 1 else None]
        order += spare
        if query.max_tokens is not None:
            order = yield from self._within_budget(query, query.max_tokens, found, order)
        chosen = order[: query.k]
        propensities = ranker.propensities(matrix, among, query.k)
        best = find_strongest_edges(found.walk.support, {pool[i].head.key for i in chosen})
        return [
            describe_returned(
                pool[i],
                matrix[i],
                float(probabilities[i]),
                found.walk,
                best.get(pool[i].head.key),
                propensities.get(i),
            )
            for i in chosen
        ]

    def _spare_notes(
        self, found: _Candidates, among: Sequence[int], odds: Floats
    ) -> Operations[list[int]]:
        """All notes but one, as indices into the pool, best first.

        An answer has at most one note before its documents, so that many notes cannot displace
        them: the latest one taught for this query, else the most likely one.
        """
        if not found.clock.notes:
            return []
        keys = {i: found.evidence.pool[i].head.key for i in among}
        notes = yield from perform(self.store.notes.filter_notes, found.clock.key, [*keys.values()])
        pool = found.evidence.pool
        taught = {
            i: key if pool[i].again > _SAME_QUESTION else 0
            for i, key in keys.items()
            if key in notes
        }
        return sorted(taught, key=lambda i: (-taught[i], -odds[i]))[1:]

    def _best_chunks(
        self, evidence: Evidence, matrix: Matrix, odds: Floats
    ) -> Operations[list[int]]:
        """The best chunk of every document, as indices into the pool."""
        nodes = [hit.head.id for hit in evidence.pool]
        known = yield from perform(self.store.catalog.find_chunks, ids=nodes)
        document = {node.id: node.document for node in known}
        order = np.argsort(-odds, kind="stable").tolist()
        return select_best_chunks(
            [document.get(node, node) for node in nodes], order, evidence, matrix
        )

    def _within_budget(
        self, query: Query, max_tokens: int, found: _Candidates, order: Sequence[int]
    ) -> Operations[list[int]]:
        heads = [found.evidence.pool[i].head for i in order]
        documents = yield from self._documents([head.id for head in heads], found.clock)
        bounds = SelectionLimits(query.k, max_tokens, self.settings.rank.characters_per_token)
        return [order[i] for i in select_within_budget(heads, documents, bounds)]


def choose_entries(hits: Iterable[Candidate], settings: Settings) -> list[tuple[NodeHead, float]]:
    """The nodes from which the walk starts, with their energy in [0, 1], best first."""
    seeds = settings.seeds
    scored = [
        (
            max(
                seeds.hint_score * hit.hint,
                seeds.similarity_weight * hit.similarity
                + seeds.lexical_weight * hit.lexical
                + seeds.name_weight * hit.name,
                seeds.episode_score * max(hit.episode, hit.again),
            ),
            hit.hint,
            hit.head,
        )
        for hit in hits
    ]
    # Hinted nodes are entries whatever their score.
    best = sorted(scored, key=lambda item: (-item[1], -item[0]))[: seeds.max_entries]
    return [(head, min(1.0, score)) for score, _, head in sorted(best, key=lambda item: -item[0])]
