"""The stages of a query: embed, search, walk, rank, return, record.

One generator for sync and async; see :mod:`crabpath_retrievers.core.driver`.
"""

import logging
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.settings import apply_knobs_to_tiers
from crabpath_retrievers.core.driver import (
    Operations,
    perform,
    perform_sync_or_async,
    run,
    wrap_blocking,
)
from crabpath_retrievers.core.feedback import Feedback
from crabpath_retrievers.core.graph import Candidate, Node, NodeHead, Vector, compare_vectors
from crabpath_retrievers.core.metadata import complete_note_metadata
from crabpath_retrievers.core.query import Query, QueryOptions
from crabpath_retrievers.core.text import Floats, tokenise
from crabpath_retrievers.core.turn import ReturnedDocument, Turn
from crabpath_retrievers.errors import EmbeddingMismatchError, InvalidInputError, StoreError
from crabpath_retrievers.rerank.features import FEATURES, LEARNED_FEATURES, Evidence, Matrix
from crabpath_retrievers.rerank.ranker import (
    Ranker,
    SelectionLimits,
    apply_tag_hints,
    draft_teams,
    draw_explored,
    select_best_chunks,
    select_within_budget,
)
from crabpath_retrievers.retrieval.dates import (
    Version,
    choose_versions,
    date_candidates,
    find_versions,
    has_date,
    keep_near_equal,
    put_versions_first,
)
from crabpath_retrievers.retrieval.namespace_model import NamespaceModels
from crabpath_retrievers.retrieval.notes import (
    CorrectionEvidence,
    choose_corrections,
    compare_with_mean,
    find_current_corrections,
    insert_corrections,
    mark_corrections,
    measure_fit,
)
from crabpath_retrievers.retrieval.repeats import find_near, find_repeats
from crabpath_retrievers.retrieval.search import SeedHits, SeedSearch
from crabpath_retrievers.retrieval.turn_builder import (
    Rankings,
    build_turn,
    describe_returned,
    find_strongest_edges,
)
from crabpath_retrievers.retrieval.walk import ReadEdges, Walk, Walker
from crabpath_retrievers.routing.policy import Router, RoutingRequest, SoftmaxRouter
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.notes import Correction, build_note_episode_id
from crabpath_retrievers.storage.read.walk import Clock, Frontier
from crabpath_retrievers.vectors.base import (
    FindExisting,
    VectorIndex,
    find_deleted,
    get_owner_lookup,
)
from crabpath_retrievers.vectors.embedder import Embedder, EmbedderFingerprint, to_unit_vector

_log = logging.getLogger(__name__)
MAX_CHUNKS = 64
"""Chunks of a document among which what names it finds the best."""

_NO_USES = 0.05  # trials without a use that every document starts with, as an entry
_AUTHORITY, _COVERAGE = FEATURES.index("authority"), FEATURES.index("coverage")
_LEFT_OUT = [FEATURES.index(name) for name in sorted(LEARNED_FEATURES | {"inhibition", "coverage"})]
_AGAINST = [FEATURES.index(name) for name in ("inhibition", "passed")]
_STATED = ("relevant", "irrelevant")
_DEPTHS = (1, 5, 25)  # factors of hits, for questions whose best texts repeat each other
_MOST_REPEATS = 20  # that a turn records
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


class Reranker(Protocol):
    """Orders the best candidates of a question."""

    def steps(
        self, query: str, nodes: Sequence[Node], callbacks: Any = None
    ) -> Operations[Sequence[str]]:
        """The ids of all nodes, best first.

        Args:
            query: The question.
            nodes: The candidates, best first, without notes.
            callbacks: Callbacks of the host framework.
        """


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The candidates of a query, with the evidence for them."""

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


class _Ranking(NamedTuple):
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


def _name_newer(pool: Sequence[Candidate], version: Version | None) -> str | None:
    return pool[version.place].head.id if version and version.is_newer else None


def _leave_out_lessons(matrix: Matrix) -> Matrix:
    """A copy of features without what was learned."""
    frozen = matrix.copy()
    frozen[:, _LEFT_OUT] = 0.0
    return frozen


class _EmbedderChangedError(Exception):
    """The embedder was changed during a query, which must be asked again."""


@dataclass(frozen=True, slots=True)
class RetrievalPipeline:
    """Answers queries from one store.

    Attributes:
        store: Nodes, edges and all that was learned.
        index: Vectors of the documents.
        embedder: Embeds queries without a vector.
        fingerprint: Refuses vectors of another embedder than the store's.
        ranker: The ranker before anything was learned.
        models: What namespaces have learned.
        search: First-stage search.
        router: Decides about habitual edges.
        settings: Of all mechanisms.
        reranker: Orders the best candidates; None leaves their order to the ranker.
    """

    store: GraphStore
    index: VectorIndex
    embedder: Embedder
    fingerprint: EmbedderFingerprint
    ranker: Ranker
    models: NamespaceModels
    search: SeedSearch
    router: Router
    settings: Settings
    reranker: Reranker | None = None

    def steps(self, text: str, options: QueryOptions) -> Operations[Answer]:
        """Answer a question, and record the turn.

        Args:
            text: The question.
            options: Of the query.

        Raises:
            InvalidInputError: An option cannot be used.
            EmbeddingMismatchError: The memory was built with another embedder.
        """
        query = Query.from_options(text, **options)
        while True:
            version = self.fingerprint.version
            try:
                return (yield from self._answer_once(query, version))
            except _EmbedderChangedError:
                _log.debug("the embedder was changed: the question is asked again")
            except (StoreError, EmbeddingMismatchError, ValueError):
                if version == self.fingerprint.version:
                    yield from perform(self.fingerprint.require_current)
                    raise

    def _answer_once(self, query: Query, version: int) -> Operations[Answer]:
        """Answer a question with this version of the embedder, and record the turn."""
        begin = time.perf_counter()
        vector = yield from self._embed(query)
        latency = {"embed": round((time.perf_counter() - begin) * 1000, 3)}
        rest = partial(self._answer_vector, query, vector, latency, version)
        asks_router = query.explore is False and type(self.router) is not SoftmaxRouter
        if asks_router or self.reranker is not None:
            answer = yield from wrap_blocking(rest(), self.store.start_query().run)
        else:  # nothing more is awaited
            answer = yield from perform(self._run_at_once, rest)
        return answer

    @contextmanager
    def search_ahead(self, namespace: str, vectors: Sequence[Vector], k: int) -> Iterator[None]:
        """Search for several questions at once, which are asked inside, for ``k`` documents each.

        What others index meanwhile is found by the next ones.
        """
        own = [to_unit_vector(vector) for vector in vectors]
        limit = max(self.settings.seeds.hits_per_engine, k)
        with self.index.search_ahead(own, limit), self.models.search_ahead(namespace, own):
            yield

    def rank_stated(self, feedback: Feedback) -> tuple[Feedback, tuple[ReturnedDocument, ...]]:
        """Rank the documents that a feedback calls relevant or irrelevant as its turn would have.

        Neither a chat model nor a reranker is asked.

        Returns:
            The feedback, with the best chunk in the place of a document that has chunks; and those
            of the chunks that the turn did not return.
        """
        logged = None
        if feedback.turn_id is not None:
            logged = self.store.turns.find(feedback.turn_id, namespace=feedback.namespace)
        if logged is None or logged.vector is None:
            return feedback, ()
        known: dict[str, Any] = {
            field: logged.turn.find_shown(names)
            for field in _STATED
            if (names := getattr(feedback, field)) is not None
        }
        feedback = replace(feedback, **known)
        chunks = self.find_named_chunks(feedback.stated_documents)
        returned = {item.node for item in logged.turn.returned}
        missing = {
            node
            for nodes in chunks.values()
            if returned.isdisjoint(nodes)
            for node in nodes[:MAX_CHUNKS]
        }
        space, vector = logged.turn.namespace, logged.vector.astype(np.float32)
        ranked = self.rank_among(logged.turn.query, space, vector, sorted(missing))
        order = {item.node: place for place, item in enumerate(ranked)}
        best = {
            name: [node for node in nodes if node in returned]
            or sorted((node for node in nodes if node in order), key=order.__getitem__)[:1]
            for name, nodes in chunks.items()
        }
        stated: dict[str, Any] = {
            field: [node for name in getattr(feedback, field) for node in best[name] or [name]]
            for field in known
        }
        chosen = {node for nodes in best.values() for node in nodes}
        return replace(feedback, **stated), tuple(r for r in ranked if r.node in chosen)

    def rank_among(
        self, text: str, namespace: str, vector: Vector, ids: Sequence[str]
    ) -> tuple[ReturnedDocument, ...]:
        """Some chunks as a question ranks them, best first; unknown ids are left out.

        Neither a chat model nor a reranker is asked, and nothing is recorded.

        Args:
            text: The question.
            namespace: The namespace that asks.
            vector: Of the question, shape ``[d]``.
            ids: Ids of the chunks.
        """
        if not ids:
            return ()
        options: QueryOptions = {
            "vector": vector,
            "namespace": namespace,
            "candidate_ids": ids,
            "k": len(ids),
            "record": False,
        }
        own = replace(self, router=SoftmaxRouter(self.settings.policy), reranker=None)
        with self.store.open_reader():  # not from a replica: it is written
            return run(own.steps(text, options)).turn.returned

    def find_named_chunks(self, names: AbstractSet[str]) -> dict[str, list[str]]:
        """Ids of chunks by what names them: their own id, that of their document, their source.

        Other names, which may be those of notes, are kept as they are.
        """
        wanted = sorted(names)
        found = self.store.catalog.find_chunks(ids=wanted, documents=wanted, sources=wanted)
        chunks: dict[str, list[str]] = {}
        for chunk in found:
            for name in {chunk.document, chunk.source}:
                chunks.setdefault(name, []).append(chunk.id)
        own = {chunk.id: [chunk.id] for chunk in found}
        return {name: own.get(name) or chunks.get(name, [name]) for name in names}

    def evidence(self, text: str, options: QueryOptions) -> Operations[Evidence]:
        """The candidates that a query would rank, for fitting; nothing is recorded."""
        query = Query.from_options(text, **options)
        vector = yield from self._embed(query)
        found = yield from self._find(query, vector, None, {}, _DEPTHS[0])
        return found.evidence

    def _embed(self, query: Query) -> Operations[Vector]:
        """Unit vector ``[d]`` of the query, of the embedder that the store was built with."""
        if query.vector is not None:
            return (yield from self._verify(to_unit_vector(query.vector)))
        try:
            if not self.fingerprint.fits(None):
                yield from perform(self.fingerprint.verify)
            vector = yield from perform_sync_or_async(
                lambda: self.embedder.query(query.text), lambda: self.embedder.aquery(query.text)
            )
        except InvalidInputError as error:
            _log.warning("a question is answered by its words alone: %s", error)
            size = self.fingerprint.size or 1
            return (yield from perform(self.search.find_stand_in, query, size))
        return (yield from self._verify(vector))

    def _verify(self, vector: Vector) -> Operations[Vector]:
        if not self.fingerprint.fits(vector):
            yield from perform(self.fingerprint.verify, vector)
        return vector

    def _run_at_once(self, make_steps: Callable[[], Operations[Answer]]) -> Answer:
        def answer() -> Answer:
            with self.store.open_reader():
                return run(make_steps())

        return self.store.start_query().run(answer)

    def _answer_vector(
        self,
        query: Query,
        vector: Vector,
        latency: dict[str, float],
        version: int,
    ) -> Operations[Answer]:
        explore = None
        if query.explore is not False:  # True takes a new seed every time
            explore = np.random.default_rng(None if query.explore is True else query.explore)
        answer: Answer | None = None
        size = 0
        for depth in _DEPTHS:
            found = yield from self._find(query, vector, explore, latency, depth)
            if self.reranker is not None:
                found = yield from self._rerank(self.reranker, found, latency)
            more = len(found.evidence.pool) + len(found.repeats)
            is_last = depth == _DEPTHS[-1] or more == size
            answer = yield from perform(self._answer, found, latency, version, is_last=is_last)
            if answer is not None:
                break
            size = more
        assert answer is not None  # noqa: S101  the last one is whole
        return answer

    def _rerank(
        self, reranker: Reranker, found: _Candidates, latency: dict[str, float]
    ) -> Operations[_Candidates]:
        """The candidates with the order that a reranker gives to the best; notes keep places."""
        begin = time.perf_counter()
        query, rank = found.query, self.settings.rank
        offered = max(query.k, min(query.k * rank.reranked_per_document, rank.max_reranked))
        # Not recorded, so that nothing is explored before the reranker.
        wide = replace(found, query=replace(query, k=offered, max_tokens=None, record=False))
        wide, ranking, nodes = yield from perform(self._choose, wide)
        best = [nodes[item.node] for item in ranking.documents if item.node in nodes]
        documents = [node for node in best if node.document]
        names: Sequence[str] = ()
        if documents:
            names = yield from reranker.steps(query.text, documents, query.callbacks)
        reordered = iter(names)
        order = tuple(next(reordered) if node.document else node.id for node in best)
        latency["rerank"] = round((time.perf_counter() - begin) * 1000, 3)
        return replace(wide, query=query, order=order)

    def _find(
        self,
        query: Query,
        vector: Vector,
        explore: np.random.Generator | None,
        latency: dict[str, float],
        depth: int,
    ) -> Operations[_Candidates]:
        """Search so deep and walk; the milliseconds of both are added to ``latency``."""
        times = [time.perf_counter()]
        seeds = yield from perform(self.search.find, query, vector, depth)
        if not self.fingerprint.is_current(seeds.clock.corpus):
            yield from perform(self.fingerprint.require_current, seeds.clock.corpus)
        times.append(time.perf_counter())
        walk = yield from self._walk(query, vector, seeds, explore)
        times.append(time.perf_counter())
        for name, begin, end in zip(("seeds", "walk"), times, times[1:], strict=False):
            latency[name] = round((end - begin) * 1000, 3)
        pool = yield from perform(self._collect_pool, query, vector, seeds, walk)
        corrections, notes, companions = list[Correction](), dict[int, str](), set[int]()
        if seeds.clock.notes:
            found = [hit.head.key for hit in pool]
            corrections, notes, pool = yield from perform(
                self._find_corrections, query, vector, seeds, pool
            )
            companions = notes.keys() - found
        evidence = Evidence.from_pool(
            pool,
            walk.support,
            walk.inhibition,
            seeds.information,
            self.store.stretch,
        )
        return _Candidates(
            query,
            vector,
            seeds,
            walk,
            evidence,
            explore,
            corrections=corrections,
            companions=frozenset(companions),
            notes=notes,
        )

    def _walk(
        self, query: Query, vector: Vector, seeds: SeedHits, explore: np.random.Generator | None
    ) -> Operations[Walk]:
        clock, hits, tiers = seeds.clock, seeds.hits.values(), self.settings.tiers
        router = self.router
        if explore is not None:
            router = SoftmaxRouter(self.settings.policy, explore)
        request = RoutingRequest(
            query.text,
            callbacks=query.callbacks,
            read=lambda ids: self.store.walk.get_documents(ids, clock),
            policy=self.settings.policy,
            recalled=max((hit.again for hit in hits), default=0.0),
            tried=cache(lambda: self.models.list_tried_actions(vector, clock, query.task_type)),
        )
        walker = Walker(
            request,
            vector,
            read_edges=self._make_edge_reader(query, vector, clock),
            router=router,
            walk=self.settings.walk,
            tiers=apply_knobs_to_tiers(tiers, clock.knobs) if clock.knobs else tiers,
            temperature=self.settings.policy.temperature,
            stretch=self.store.stretch,
            on_hop=query.on_hop,
        )
        return walker.steps(choose_entries(hits, self.settings))

    def _make_edge_reader(self, query: Query, vector: Vector, clock: Clock) -> ReadEdges:
        """Reader of a walk's edges, in a confined one only of those to allowed documents."""
        read = partial(self.store.walk.get_outgoing_edges, clock=clock)
        if not (query.filter and query.confined):
            return read

        def read_allowed(keys: Sequence[int]) -> Frontier:
            edges, stops = read(keys)
            ids = sorted({edge.target.id for edge in edges})
            allowed = self.index.filter_ids(ids, vector, query.filter)
            return Frontier([edge for edge in edges if edge.target.id in allowed], stops)

        return read_allowed

    def _collect_pool(
        self, query: Query, vector: Vector, seeds: SeedHits, walk: Walk
    ) -> Sequence[Candidate]:
        """All nodes that search found or that edges of visited nodes lead to, after the filter."""
        clock, hits = seeds.clock, seeds.hits
        edges = {edge.target.key: edge for edge in walk.support}
        reached = [
            Candidate(edge.target, edge.relevance, found=False)
            for key, edge in edges.items()
            if key not in hits
        ]
        if query.filter and reached:
            ids = [hit.head.id for hit in reached]
            allowed = self.index.filter_ids(ids, vector, query.filter)
            reached = [hit for hit in reached if hit.head.id in allowed]
        if clock.notes and reached:
            expired = self.models.find_expired([hit.head.id for hit in reached], clock)
            reached = [hit for hit in reached if hit.head.id not in expired]
        pool = [*hits.values(), *reached]
        if query.recency or query.as_of:
            nodes = self.store.walk.get_documents([hit.head.id for hit in pool], clock)
            pool = date_candidates(
                pool, nodes, self.settings.dates, as_of=query.as_of, recency=query.recency
            )
        if walk.chosen:
            pool = [h._replace(routed=1.0) if h.head.key in walk.chosen else h for h in pool]
        if query.boost_tags and pool:
            ids = [hit.head.id for hit in pool]
            nodes = self.store.walk.get_documents(ids, clock)
            pool = apply_tag_hints(pool, nodes, query.boost_tags)
        return self.models.add_usage(pool, clock) if clock.learned else pool

    def _find_corrections(
        self, query: Query, vector: Vector, seeds: SeedHits, pool: Sequence[Candidate]
    ) -> tuple[list[Correction], dict[int, str], Sequence[Candidate]]:
        """Corrections of the pool, kinds of all notes, and the pool with the notes that belong.

        Corrections that what they correct leads to are added, and those of other questions removed.
        """
        keys, clock = {hit.head.key for hit in pool}, seeds.clock
        corrections = self.store.notes.find_corrections(
            clock.key, sorted(keys), self.settings.note.max_scanned
        )
        current = find_current_corrections(corrections)
        missing = {item.note for item in current} - keys
        if missing and query.candidate_ids is None:
            heads = self.store.walk.get_nodes(
                (), sorted(missing), namespace=clock.key, corpus=clock.corpus
            )
            vectors = [head.vector for head in heads]
            similarities = compare_vectors(vectors, vector, self.store.stretch)
            pairs = zip(heads, similarities, strict=True)
            pool = [*pool, *(Candidate(head, near, found=False) for head, near in pairs)]
            keys |= missing
        origins = self.store.notes.find_origins(clock.key, sorted(keys))
        notes = {origin.key: origin.kind for origin in origins}
        if query.candidate_ids is not None:  # they are what is asked for
            return corrections, notes, pool
        given = [one for one in origins if one.kind == "correction"]
        if not given:
            return corrections, notes, pool
        said = {one.key: one.query or "" for one in given}
        latest = {one.query: one.key for one in sorted(given, key=lambda one: one.said)}
        outdated = {one.key for one in given if one.query and latest[one.query] != one.key}
        for item in corrections:  # these give way by what they correct
            outdated -= {item.note, item.document}
        pool = [hit for hit in pool if hit.head.key not in outdated]
        documents = [hit for hit in pool if hit.head.key not in notes]
        fits = self._measure_fits(vector, seeds, said, (pool, documents), current)
        return (
            corrections,
            notes,
            [
                hit._replace(similarity=fit)
                for hit in pool
                if (fit := fits.get(hit.head.key, hit.similarity)) is not None
            ],
        )

    def _measure_fits(
        self,
        vector: Vector,
        seeds: SeedHits,
        said: Mapping[int, str],
        pools: tuple[Sequence[Candidate], Sequence[Candidate]],
        current: Iterable[Correction],
    ) -> dict[int, float | None]:
        """The fit of corrections to the query, by key; None where it is another question's.

        Args:
            vector: Of the query.
            seeds: What was found.
            said: The questions that were corrected, by keys of the corrections; may be empty.
            pools: All candidates, and the documents among them.
            current: What notes correct.
        """
        information, stretch = seeds.information, self.store.stretch
        pool, documents = pools
        ids = {key: build_note_episode_id(key, query) for key, query in said.items()}
        questions = self.store.learned.episode_vectors(seeds.clock.key, ids.values())
        rows = {hit.head.key: row for row, hit in enumerate(documents)}
        similar = np.array([hit.similarity for hit in documents])
        vectors = [hit.head.vector for hit in documents]
        has = information.find_words([hit.head.terms for hit in documents])
        corrected: dict[int, list[int]] = {}
        for item in current:
            if item.document in rows:
                corrected.setdefault(item.note, []).append(rows[item.document])
        fits: dict[int, float | None] = {}
        for hit in pool:
            key = hit.head.key
            if key not in said:
                continue
            question, about = questions.get(ids[key]), corrected.get(key, [])
            near = [(hit.head.vector, hit.similarity)]
            if question is not None:
                near += [(question, compare_vectors([question], vector, stretch)[0])]
            if about:
                nearest = max(about, key=similar.__getitem__)
                near += [(vectors[nearest], float(similar[nearest]))]
            values = [value for _, value in near]
            best, mean = max(values), compare_with_mean([row for row, _ in near], values, stretch)
            if hit.again > _SAME_QUESTION:  # it may answer several questions
                best = mean = 1.0
            asked = question if question is not None else hit.head.vector
            if question is None and about:
                asked = vectors[about[0]]
            expected = np.array(compare_vectors(vectors, asked.astype(np.float32), stretch))
            meant = about or ([int(expected.argmax())] if documents else [])
            alike = [compare_vectors(vectors, vectors[row], stretch) for row in meant]
            wrong = np.zeros(len(documents), dtype=bool)
            wrong[about] = True
            words = {*tokenise(said[key])}
            known = information.find_words([hit.head.terms])[0] > 0
            known |= np.array([word in words for word in information.words], dtype=bool)
            known |= has[meant].any(axis=0)
            nearness = np.max(alike, axis=0, initial=-1.0)
            evidence = CorrectionEvidence(best, mean, similar, expected, wrong, nearness, known)
            fits[key] = measure_fit(evidence, has, information.nats)
        return fits

    def _answer(
        self, found: _Candidates, latency: dict[str, float], version: int, *, is_last: bool
    ) -> Answer | None:
        """Rank the candidates, read the best, and record the turn.

        None, and nothing is recorded, where so many candidates repeat others that fewer than k are
        left, unless this search is the last one.
        """
        begin = time.perf_counter()
        query, clock = found.query, found.seeds.clock
        is_frozen = self.models.has_lost(query.namespace, clock)
        found, ranking, documents = self._choose(replace(found, is_frozen=is_frozen))
        if not is_last and found.repeats and len(ranking.among) < query.k:
            return None
        ranked, rankings = ranking.documents, self._compare(found, ranking)
        rankings = self._draft(found, rankings, [item.node for item in ranked])
        if rankings.teams:
            ranked = self._rank(replace(found, order=(*rankings.teams,), is_draft=True)).documents
            documents = self._read_documents(ranked, clock)
        if clock.notes:
            documents |= self._complete_notes(documents, query.namespace)
        # A document that was forgotten in the meantime is skipped.
        ranked = [item for item in ranked if item.node in documents]
        latency["rank"] = round((time.perf_counter() - begin) * 1000, 3)
        turn = build_turn(
            query,
            clock.turn + 1,
            found.seeds.hits,
            found.walk,
            ranked,
            explored=found.explore is not None or self._count_explored(found) > 0,
            latency_ms=latency,
            repeats=dict(islice(found.repeats.items(), _MOST_REPEATS)),
            rankings=rankings,
        )
        if version != self.fingerprint.version:
            raise _EmbedderChangedError
        if query.record:
            vector = found.vector if found.vector.any() else None
            self.store.record(turn, vector, clock.key)
        message = "turn %s in namespace %r: %d documents, %s ms"
        _log.debug(message, turn.id, turn.namespace, len(ranked), latency)
        return Answer(tuple([RetrievedDocument(documents[r.node], r) for r in ranked]), turn)

    def _choose(self, found: _Candidates) -> tuple[_Candidates, _Ranking, dict[str, Node]]:
        """The documents to return with their contents, deleted and repeated ones left out."""
        query, clock = found.query, found.seeds.clock
        ranking = self._rank(found)
        find_existing = query.existing_ids or get_owner_lookup(self.index)
        if find_existing and ranking.documents:
            remaining = self._remove_deleted(find_existing, ranking.documents, found)
            if remaining is not found:
                found = remaining
                ranking = self._rank(found)
        documents = self._read_documents(ranking.documents, clock)
        if query.candidate_ids is None:
            while repeats := self._find_repeats(ranking.documents, documents, found):
                told = {**found.repeats, **repeats}
                found = replace(self._leave_out(repeats.keys(), found), repeats=told)
                ranking = self._rank(found)
                documents = self._read_documents(ranking.documents, clock)
            if better := self._find_versions(documents, found):
                found = replace(found, better=better)
                ranking = self._rank(found)
                documents = self._read_documents(ranking.documents, clock)
        return found, ranking, documents

    def _find_versions(
        self, documents: Mapping[str, Node], found: _Candidates
    ) -> dict[int, Version]:
        """The version of each dated document that is right at the moment of the question."""
        settings, pool = self.settings.dates, found.evidence.pool
        dated = [name for name, node in documents.items() if has_date(node.metadata, settings)]
        pairs = find_versions(dated, found.evidence) if dated else []
        ids = sorted({pool[j].head.id for _, j in pairs} - documents.keys())
        others = self.store.walk.get_documents(ids, found.seeds.clock) if ids else {}
        nodes = {**documents, **others}
        contents = [nodes.get(hit.head.id) for hit in pool]
        return choose_versions(pairs, contents, settings, found.query.as_of, found.query.text)

    def _rank(self, found: _Candidates) -> _Ranking:
        query, evidence, clock = found.query, found.evidence, found.seeds.clock
        pool, ranker = evidence.pool, self.ranker
        if clock.learned or found.explore is not None:
            ranker = self.models.ranker(query.namespace, clock, found.explore)
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
        return _Ranking(ranked, features, among, better)

    def _is_compared(self, found: _Candidates) -> bool:
        """Whether lessons counted, and neither a reranker nor a budget of tokens chose."""
        query = found.query
        chose_otherwise = found.order is not None or query.max_tokens is not None
        return bool(query.record and found.seeds.clock.learned) and not chose_otherwise

    def _compare(self, found: _Candidates, ranking: _Ranking) -> Rankings:
        """Answers of both rankings of the same candidates: the one that answers and the other."""
        if not self._is_compared(found):
            return Rankings()
        query, evidence = found.query, found.evidence
        if found.is_frozen:
            matrix = ranking.matrix.copy()
            matrix[:, _COVERAGE] = 0.0
            ranker = self.models.ranker(query.namespace, found.seeds.clock)
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

    def _draft(self, found: _Candidates, rankings: Rankings, shown: Sequence[str]) -> Rankings:
        """Both rankings with the documents that each of them drafts, if chance has it so.

        The same question in the same turn draws the same.
        """
        share, frozen = self.settings.learning.trial_share, rankings.frozen
        if not share or frozen is None or found.query.arm or self._count_explored(found):
            return rankings
        rng = np.random.default_rng([zlib.crc32(found.query.text.encode()), found.seeds.clock.turn])
        learned = shown if rankings.learned is None else rankings.learned
        if rng.random() >= share or (*learned,) == frozen:
            return rankings
        return Rankings(frozen, (*learned,), draft_teams(learned, frozen, found.query.k, rng))

    def _select(
        self, found: _Candidates, ranker: Ranker, matrix: Matrix
    ) -> tuple[Sequence[int], list[int], dict[int, int]]:
        """The candidates to rank, the notes behind them, and the correction of each corrected one.

        All are indices into the pool.
        """
        query, evidence = found.query, found.evidence
        pool = evidence.pool
        among: Sequence[int] = range(len(pool))
        if query.one_per_document:
            among = self._best_chunks(evidence, matrix, ranker.log_odds(matrix))
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

    def _count_explored(self, found: _Candidates) -> int:
        """Places that are explored; none where nothing is recorded, or weights are drawn."""
        query = found.query
        if not query.record or found.explore is not None:
            return 0
        return min(query.k - 1, math.floor(query.k * self.settings.rank.explored_share + 1e-9))

    def _explore(
        self, found: _Candidates, ranker: Ranker, matrix: Matrix, order: list[int]
    ) -> tuple[list[int], dict[int, float]]:
        """The order with the last of the k places given to drawn candidates.

        Inhibited candidates, and those passed for the same question, are not drawn. The same
        question draws the same ones until something is learned.

        Returns:
            Indices into the pool, best first, and the probability that each of those that are
            returned is returned, in (0, 1]; no probabilities without exploration.
        """
        explored = self._count_explored(found)
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

    def _read_documents(self, ranked: Sequence[ReturnedDocument], clock: Clock) -> dict[str, Node]:
        return self.store.walk.get_documents([item.node for item in ranked], clock)

    def _find_repeats(
        self,
        ranked: Sequence[ReturnedDocument],
        documents: Mapping[str, Node],
        found: _Candidates,
    ) -> dict[str, str]:
        """The document that is ranked before and says the same, by the id of each repeat."""
        vectors = {hit.head.id: hit.head.vector for hit in found.evidence.pool}
        nodes = [documents[item.node] for item in ranked if item.node in documents]
        repeats = find_repeats(nodes, vectors, self.store.stretch)
        if repeats:  # the rest of the candidates may have as many
            near = find_near({*repeats.values()}, vectors, self.store.stretch)
            ids = sorted({*near} - documents.keys())
            rest = self.store.walk.get_documents(ids, found.seeds.clock)
            others = [rest[name] for name in near if name in rest]
            repeats = find_repeats([*nodes, *others], vectors, self.store.stretch)
        return repeats

    def _leave_out(self, gone: AbstractSet[str], found: _Candidates) -> _Candidates:
        """The candidates without these documents."""
        pool = [hit for hit in found.evidence.pool if hit.head.id not in gone]
        walk, information = found.walk, found.seeds.information
        evidence = Evidence.from_pool(
            pool, walk.support, walk.inhibition, information, self.store.stretch
        )
        return replace(found, evidence=evidence, better={})  # its indices are of the former pool

    def _remove_deleted(
        self, find_existing: FindExisting, ranked: Sequence[ReturnedDocument], found: _Candidates
    ) -> _Candidates:
        """The candidates without those that the owner of the vector store has deleted.

        The same object if all ranked documents exist; only if one is missing are the other
        candidates looked up too.
        """
        clock, pool = found.seeds.clock, found.evidence.pool
        ids = [item.node for item in ranked]
        gone = find_deleted(find_existing, self.store, ids, clock)
        if not gone:
            return found
        others = [hit.head.id for hit in pool if hit.head.id not in set(ids)]
        gone |= find_deleted(find_existing, self.store, others, clock)
        remaining = self._leave_out(gone, found)
        if not remaining.evidence.pool:
            _log.warning(
                "%s holds none of the %d documents that were found: "
                "call refresh() to follow it, or reindex() to fill it",
                self.index.description,
                len(gone),
            )
        return remaining

    def _complete_notes(self, nodes: Mapping[str, Node], namespace: str) -> dict[str, Node]:
        """The notes among the nodes, with the metadata keys that document templates expect.

        The text of a correction says that it is one.
        """
        notes = {key: node for key, node in nodes.items() if not node.document}
        if not notes:
            return notes
        samples = self.store.catalog.sample()
        marked = mark_corrections(self.store, notes, namespace)
        return {
            key: replace(note, metadata=complete_note_metadata(note.metadata, samples))
            for key, note in marked.items()
        }

    def _spare_notes(
        self,
        found: _Candidates,
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
            i: key if pool[i].again > _SAME_QUESTION else 0
            for i, key in keys.items()
            if key in found.notes
        }
        replaced = {item.note for item in found.corrections}
        replaced -= {pool[i].head.key for i in corrections}
        best = sorted(taught, key=lambda i: (keys[i] in replaced, -taught[i], -odds[i]))
        return best if best and keys[best[0]] in replaced else best[1:]

    def _best_chunks(self, evidence: Evidence, matrix: Matrix, odds: Floats) -> list[int]:
        """The best chunk of every document, as indices into the pool."""
        nodes = [hit.head.id for hit in evidence.pool]
        document = {node.id: node.document for node in self.store.catalog.find_chunks(ids=nodes)}
        order = np.argsort(-odds, kind="stable").tolist()
        return select_best_chunks(
            [document.get(node, node) for node in nodes], order, evidence, matrix
        )

    def _within_budget(
        self,
        query: Query,
        max_tokens: int,
        found: _Candidates,
        orders: tuple[Sequence[int], Sequence[int]],
        corrections: Mapping[int, int],
    ) -> tuple[list[int], list[int]]:
        """The parts of the order, and of the spare notes after it, that fit with corrections."""
        order = [*orders[0], *orders[1]]
        others = found.list_corrections()
        together = insert_corrections(order, len(order), corrections, others)
        heads = [found.evidence.pool[i].head for i in together]
        ids = [head.id for head in heads]
        documents = self.store.walk.get_documents(ids, found.seeds.clock)
        documents |= mark_corrections(self.store, documents, query.namespace)
        k = query.k + len(others.union(corrections.values()))
        characters = self.settings.rank.characters_per_token
        bounds = SelectionLimits(k, max_tokens, characters, self.store.stretch)
        places = {index: place for place, index in enumerate(together)}
        notes = {
            places[index]: places[note] for index, note in corrections.items() if index in places
        }
        kept = {together[i] for i in select_within_budget(heads, documents, bounds, notes)}
        first, rest = ([index for index in part if index in kept] for part in orders)
        return first, rest


def _choose_corrections(found: _Candidates, among: Iterable[int], odds: Floats) -> dict[int, int]:
    """The note that goes with each corrected candidate, both as indices into the pool."""
    places = {found.evidence.pool[i].head.key: i for i in among}
    current = find_current_corrections(found.corrections)
    chosen = choose_corrections(current, {key: odds[i] for key, i in places.items()})
    return {places[key]: places[note] for key, note in chosen.items() if key in places}


def _estimate_use(hit: Candidate) -> float:
    """Share of its trials for like questions in which a document was used, in [0, 1)."""
    uses = hit.again + hit.episode
    return uses / (uses + hit.passed + hit.missed + _NO_USES)


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
                seeds.episode_score * _estimate_use(hit),
            ),
            hit.hint,
            hit.head,
        )
        for hit in hits
    ]
    # Hinted nodes are entries whatever their score; of equal ones those with the first ids.
    best = sorted(scored, key=lambda item: (-item[1], -item[0], item[2].id))[: seeds.max_entries]
    return [(head, min(1.0, score)) for score, _, head in sorted(best, key=lambda item: -item[0])]
