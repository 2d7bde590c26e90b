"""The stages of a query: embed, search, walk, rank, return, record.

One generator for sync and async; see :mod:`crabpath_retrievers.core.calls`.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.settings import apply_knobs_to_tiers
from crabpath_retrievers.core.calls import Operations, perform, perform_sync_or_async, run
from crabpath_retrievers.core.feedback import Feedback
from crabpath_retrievers.core.query import Query, QueryOptions, complete_note_metadata
from crabpath_retrievers.core.records import (
    DIGITS,
    DRAFT_ARM,
    Candidate,
    Node,
    NodeHead,
    ReturnedDocument,
    SeedRecord,
    Turn,
    Vector,
    make_turn_id,
)
from crabpath_retrievers.errors import EmbeddingMismatchError, InvalidInputError, StoreError
from crabpath_retrievers.rerank import Evidence, apply_tag_hints
from crabpath_retrievers.retrieval.chooser import Candidates, DocumentChooser, Rankings
from crabpath_retrievers.retrieval.corrections import find_corrections, mark_corrections
from crabpath_retrievers.retrieval.dates import date_candidates
from crabpath_retrievers.retrieval.namespace_model import NamespaceModels
from crabpath_retrievers.retrieval.search import SeedHits, SeedSearch
from crabpath_retrievers.retrieval.walk import Walk, Walker
from crabpath_retrievers.routing import Router, RoutingRequest, SoftmaxRouter
from crabpath_retrievers.storage import Reader, Store
from crabpath_retrievers.storage.read.notes import Correction
from crabpath_retrievers.storage.read.walk import Clock, Frontier
from crabpath_retrievers.vectors.base import VectorIndex, select_ids
from crabpath_retrievers.vectors.embedder import Embedder, EmbedderFingerprint, to_unit_vector

_log = logging.getLogger(__name__)
MAX_CHUNKS = 64
"""Chunks of a document among which what names it finds the best."""

_NO_USES = 0.05  # trials without a use that every document starts with, as an entry
_STATED = ("relevant", "irrelevant")
_DEPTHS = (1, 5, 25)  # factors of hits, for questions whose best texts repeat each other


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
        """Order ``nodes``, given best first and without notes; return their ids, best first."""


class _Attempt(NamedTuple):
    """One attempt to answer a query; it has the query's unit vector ``[d]`` and times by stage."""

    read: Reader
    query: Query
    vector: Vector
    version: int  # of the embedder
    latency: dict[str, float]

    def note_time(self, stage: str, begin: float) -> None:
        """Add the milliseconds of a stage since ``begin``, a time of ``perf_counter``."""
        self.latency[stage] = round((time.perf_counter() - begin) * 1000, 3)


class _EmbedderChangedError(Exception):
    """The embedder was changed during a query, which must be asked again."""


@dataclass(frozen=True, slots=True)
class RetrievalPipeline:
    """Answers queries from one store; without a reranker in the order of the ranker."""

    store: Store
    index: VectorIndex
    embedder: Embedder
    fingerprint: EmbedderFingerprint
    models: NamespaceModels
    search: SeedSearch
    chooser: DocumentChooser
    router: Router
    settings: Settings
    reranker: Reranker | None = None

    def steps(
        self, text: str, options: QueryOptions, read: Reader | None = None
    ) -> Operations[Answer]:
        """Answer the question ``text``, and record the turn.

        ``read`` does all reading; None takes a reader of the store, or of its replica.

        Raises:
            InvalidInputError: An option cannot be used.
            EmbeddingMismatchError: The memory was built with another embedder.
        """
        query = Query.from_options(text, **options)
        while True:
            version = self.fingerprint.version
            try:
                return (yield from self._answer_once(read, query, version))
            except _EmbedderChangedError:
                _log.debug("the embedder was changed: the question is asked again")
            except (StoreError, EmbeddingMismatchError, ValueError):
                if version == self.fingerprint.version:
                    yield from perform(self.fingerprint.require_current)
                    raise

    def _answer_once(self, given: Reader | None, query: Query, version: int) -> Operations[Answer]:
        """Answer a question with one version of the embedder, and record the turn."""
        begin = time.perf_counter()
        vector = yield from self._embed(query)
        read = self.store.start_query() if given is None else given
        attempt = _Attempt(read, query, vector, version, {})
        attempt.note_time("embed", begin)
        asks_router = query.explore is False and type(self.router) is not SoftmaxRouter
        if asks_router or self.reranker is not None:
            return (yield from self._answer_attempt(attempt))
        # Nothing more is awaited: one connection suffices.
        return (yield from perform(read.run, lambda: run(self._answer_attempt(attempt))))

    def _answer_attempt(self, attempt: _Attempt) -> Operations[Answer]:
        """Search (deeper where many texts repeat each other), rank, and record the turn."""
        query, explore = attempt.query, None
        if query.explore is not False:  # True takes a new seed every time
            explore = np.random.default_rng(None if query.explore is True else query.explore)
        size = 0
        for depth in _DEPTHS:
            found = yield from self._find(attempt, explore, depth)
            if self.reranker is not None:
                found = yield from self._rerank(self.reranker, attempt, found)
            more = len(found.evidence.pool) + len(found.repeats)
            is_last = depth == _DEPTHS[-1] or more == size
            rank = partial(self._answer, attempt, found, is_last=is_last)
            answer = yield from perform(attempt.read.run, rank)
            if answer is not None:
                return answer
            size = more
        raise AssertionError  # the last one is whole

    @contextmanager
    def search_ahead(self, namespace: str, vectors: Sequence[Vector], k: int) -> Iterator[None]:
        """Search for several questions at once, for ``k`` documents each.

        Questions asked in the block use the results. Vectors that others index in the meantime are
        found by the next search.
        """
        own = [to_unit_vector(vector) for vector in vectors]
        limit = max(self.settings.seeds.hits_per_engine, k)
        with (
            self.index.search_ahead(own, limit),
            self.models.search_ahead(self.store, namespace, own),
        ):
            yield

    def rank_stated(
        self, store: Store, feedback: Feedback
    ) -> tuple[Feedback, tuple[ReturnedDocument, ...]]:
        """Rank the documents that a feedback calls relevant or irrelevant as its turn would have.

        Neither a chat model nor a reranker is asked. ``store`` may be an open transaction.

        Returns:
            The feedback, in which the best chunk replaces a document that has chunks; and the
            records of those chunks that the turn did not return. If the turn or its vector is not
            found, the feedback is unchanged and there are no records.
        """
        logged = None
        if feedback.turn_id is not None:
            logged = store.turns.find(feedback.turn_id, namespace=feedback.namespace)
        if logged is None or logged.vector is None:
            return feedback, ()
        known: dict[str, Any] = {
            field: logged.turn.find_shown(names)
            for field in _STATED
            if (names := getattr(feedback, field)) is not None
        }
        feedback = replace(feedback, **known)
        chunks = find_named_chunks(store, feedback.stated_documents)
        returned = {item.node for item in logged.turn.returned}
        missing = {
            node
            for nodes in chunks.values()
            if returned.isdisjoint(nodes)
            for node in nodes[:MAX_CHUNKS]
        }
        space, vector = logged.turn.namespace, logged.vector.astype(np.float32)
        with store.open_reader() as read:  # not from a replica: it is written
            ranked = self.rank_among(read, logged.turn.query, space, vector, sorted(missing))
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
        self, read: Reader, text: str, namespace: str, vector: Vector, ids: Sequence[str]
    ) -> tuple[ReturnedDocument, ...]:
        """Rank the chunks ``ids`` for the question ``text``, best first; unknown ids are left out.

        Neither a chat model nor a reranker is asked, and nothing is recorded.
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
        return run(own.steps(text, options, read)).turn.returned

    def evidence(self, text: str, options: QueryOptions) -> Operations[Evidence]:
        """Collect the candidates that a query would rank, for fitting; nothing is recorded."""
        query = Query.from_options(text, **options)
        vector = yield from self._embed(query)
        with self.store.open_reader() as read:  # not from a replica
            attempt = _Attempt(read, query, vector, self.fingerprint.version, {})
            found = yield from self._find(attempt, None, _DEPTHS[0])
        return found.evidence

    def _embed(self, query: Query) -> Operations[Vector]:
        """Embed the query by the store's embedder, as a unit vector ``[d]``."""
        if query.vector is not None:
            vector = to_unit_vector(query.vector)
        else:
            try:
                if not self.fingerprint.fits(None):
                    yield from perform(self.fingerprint.verify)
                embedder, text = self.embedder, query.text
                native = partial(embedder.aquery, text) if embedder.has_async else None
                vector = yield from perform_sync_or_async(partial(embedder.query, text), native)
            except InvalidInputError as error:
                _log.warning("a question is answered by its words alone: %s", error)
                size = self.fingerprint.size or 1
                return (yield from perform(self.search.find_stand_in, self.store, query, size))
        if not self.fingerprint.fits(vector):
            yield from perform(self.fingerprint.verify, vector)
        return vector

    def _rerank(
        self, reranker: Reranker, attempt: _Attempt, found: Candidates
    ) -> Operations[Candidates]:
        """Order the best candidates by a reranker; notes keep their places."""
        begin = time.perf_counter()
        query, rank = found.query, self.settings.rank
        offered = max(query.k, min(query.k * rank.reranked_per_document, rank.max_reranked))
        # Not recorded, so that nothing is explored before the reranker.
        wide = replace(found, query=replace(query, k=offered, max_tokens=None, record=False))
        choose = partial(self.chooser.choose, wide)
        ranking = yield from perform(attempt.read.run, choose)
        nodes = ranking.nodes
        best = [nodes[item.node] for item in ranking.documents if item.node in nodes]
        documents = [node for node in best if node.document]
        names: Sequence[str] = ()
        if documents:
            names = yield from reranker.steps(query.text, documents, query.callbacks)
        reordered = iter(names)
        order = tuple(next(reordered) if node.document else node.id for node in best)
        attempt.note_time("rerank", begin)
        return replace(ranking.found, query=query, order=order)

    def _find(
        self, attempt: _Attempt, explore: np.random.Generator | None, depth: int
    ) -> Operations[Candidates]:
        """Search ``depth`` times as deep as usual, walk, and collect the candidates.

        ``explore`` draws weights and edges at random; None draws nothing.
        """
        begin, read = time.perf_counter(), attempt.read
        find = partial(self.search.find, read, attempt.query, attempt.vector, depth)
        seeds = yield from perform(read.run, find)
        if not self.fingerprint.is_current(corpus := seeds.clock.corpus):
            require = partial(self.fingerprint.require_current, corpus, read)
            yield from perform(read.run, require)
        attempt.note_time("seeds", begin)
        begin = time.perf_counter()
        walk = yield from self._walk(attempt, seeds, explore)
        attempt.note_time("walk", begin)
        collect = partial(self._collect_candidates, attempt, seeds, walk, explore)
        return (yield from perform(read.run, collect))

    def _walk(
        self, attempt: _Attempt, seeds: SeedHits, explore: np.random.Generator | None
    ) -> Operations[Walk]:
        read, query, vector, _, _ = attempt
        clock, hits, tiers = seeds.clock, seeds.hits.values(), self.settings.tiers
        router = self.router
        if explore is not None:
            router = SoftmaxRouter(self.settings.policy, explore)
        list_tried = partial(self.models.list_tried_actions, read, vector, clock, query.task_type)
        request = RoutingRequest(
            query.text,
            callbacks=query.callbacks,
            read=lambda ids: read.run(partial(read.walk.get_documents, ids, clock)),
            policy=self.settings.policy,
            recalled=max((hit.again for hit in hits), default=0.0),
            tried=cache(partial(read.run, list_tried)),
        )
        walker = Walker(
            request,
            vector,
            read_edges=lambda keys: read.run(partial(self._read_edges, attempt, clock, keys)),
            router=router,
            walk=self.settings.walk,
            tiers=apply_knobs_to_tiers(tiers, clock.knobs) if clock.knobs else tiers,
            temperature=self.settings.policy.temperature,
            stretch=read.stretch,
            on_hop=query.on_hop,
        )
        corrections = set[int]()
        if clock.notes:
            notes = read.run(partial(read.notes.find_origins, clock.key, sorted(seeds.hits)))
            corrections = {note.key for note in notes if note.kind == "correction"}
        return walker.steps(choose_entries(hits, self.settings, corrections))

    def _read_edges(self, attempt: _Attempt, clock: Clock, keys: Sequence[int]) -> Frontier:
        """Read the edges of the nodes ``keys``; if confined, only those that the filter allows."""
        read, query, vector, _, _ = attempt
        frontier = read.walk.get_outgoing_edges(keys, clock)
        if not (query.filter and query.confined):
            return frontier
        edges, stops = frontier
        ids = sorted({edge.target.id for edge in edges})
        allowed = select_ids(read, self.index.on(read), ids, vector, query.filter)
        return Frontier([edge for edge in edges if edge.target.id in allowed], stops)

    def _collect_candidates(
        self,
        attempt: _Attempt,
        seeds: SeedHits,
        walk: Walk,
        explore: np.random.Generator | None,
    ) -> Candidates:
        """Collect the candidates, the evidence for them, and the notes that fit the query."""
        read, query, vector, _, _ = attempt
        pool = self._collect_pool(read, query, vector, seeds, walk)
        corrections, notes, companions = list[Correction](), dict[int, str](), set[int]()
        first = frozenset[int]()
        if seeds.clock.notes:
            found = [hit.head.key for hit in pool]
            limit = self.settings.note.max_scanned
            corrections, notes, pool, first = find_corrections(
                read, query, vector, seeds, pool, limit
            )
            companions = notes.keys() - found - first
        known = walk.support, walk.inhibition, seeds.information, read.stretch
        return Candidates(
            read,
            query,
            vector,
            seeds,
            walk,
            Evidence.from_pool(pool, *known),
            explore,
            corrections=corrections,
            companions=frozenset(companions),
            notes=notes,
            first=first,
        )

    def _collect_pool(
        self, read: Reader, query: Query, vector: Vector, seeds: SeedHits, walk: Walk
    ) -> Sequence[Candidate]:
        """Collect the nodes that search found, and the targets of edges from visited nodes.

        Those that the query's filter or dates exclude are left out, and so are notes whose
        probation has ended.
        """
        clock, hits = seeds.clock, seeds.hits
        edges = {edge.target.key: edge for edge in walk.support}
        reached = [
            Candidate(edge.target, edge.relevance, found=False)
            for key, edge in edges.items()
            if key not in hits
        ]
        if query.filter and reached:
            ids = [hit.head.id for hit in reached]
            allowed = select_ids(read, self.index.on(read), ids, vector, query.filter)
            reached = [hit for hit in reached if hit.head.id in allowed]
        if clock.notes and reached:
            expired = self.models.find_expired(read, [hit.head.id for hit in reached], clock)
            reached = [hit for hit in reached if hit.head.id not in expired]
        pool = [*hits.values(), *reached]
        if query.recency or query.as_of:
            nodes = read.walk.get_documents([hit.head.id for hit in pool], clock)
            pool = date_candidates(
                pool, nodes, self.settings.dates, as_of=query.as_of, recency=query.recency
            )
        if walk.chosen:
            pool = [h._replace(routed=1.0) if h.head.key in walk.chosen else h for h in pool]
        if query.boost_tags and pool:
            ids = [hit.head.id for hit in pool]
            nodes = read.walk.get_documents(ids, clock)
            pool = apply_tag_hints(pool, nodes, query.boost_tags)
        return self.models.add_usage(read, pool, clock) if clock.learned else pool

    def _answer(self, attempt: _Attempt, found: Candidates, *, is_last: bool) -> Answer | None:
        """Rank the candidates, read the best, and record the turn.

        If so many candidates repeat others that fewer than k are left, the result is None and
        nothing is recorded, unless this search ``is_last``.
        """
        begin = time.perf_counter()
        query, clock = found.query, found.seeds.clock
        is_frozen = clock.learned > 0 and self.models.has_lost(attempt.read, query.namespace, clock)
        ranking = self.chooser.choose(replace(found, is_frozen=is_frozen))
        found = ranking.found
        if not is_last and found.repeats and len(ranking.among) < query.k:
            return None
        rankings = self.chooser.compare(ranking) if clock.learned else Rankings()
        if rankings.teams:
            drafted = replace(found, order=(*rankings.teams,), is_draft=True)
            ranking = self.chooser.rank(drafted)
        nodes = ranking.nodes
        if clock.notes:
            nodes |= _complete_notes(attempt.read, nodes, query.namespace)
        # A document that was forgotten in the meantime is skipped.
        ranked = [item for item in ranking.documents if item.node in nodes]
        attempt.note_time("rank", begin)
        explored = found.explore is not None or self.chooser.count_explored(found) > 0
        turn = build_turn(found, ranked, rankings, attempt.latency, explored=explored)
        if attempt.version != self.fingerprint.version:
            raise _EmbedderChangedError
        if query.record:
            vector = found.vector if found.vector.any() else None
            self.store.record(turn, vector, clock.key)
        message = "turn %s in namespace %r: %d documents, %s ms"
        _log.debug(message, turn.id, turn.namespace, len(ranked), attempt.latency)
        return Answer(tuple([RetrievedDocument(nodes[r.node], r) for r in ranked]), turn)


def find_named_chunks(read: Reader, names: AbstractSet[str]) -> dict[str, list[str]]:
    """Find ids of chunks by each of ``names``: their own id, their document's, or their source.

    A name without chunks, such as that of a note, stands for itself.
    """
    wanted = sorted(names)
    found = read.catalog.find_chunks(ids=wanted, documents=wanted, sources=wanted)
    chunks: dict[str, list[str]] = {}
    for chunk in found:
        for name in {chunk.document, chunk.source}:
            chunks.setdefault(name, []).append(chunk.id)
    own = {chunk.id: [chunk.id] for chunk in found}
    return {name: own.get(name) or chunks.get(name, [name]) for name in names}


def _complete_notes(read: Reader, nodes: Mapping[str, Node], namespace: str) -> dict[str, Node]:
    """Add to the metadata of notes among nodes the keys that document templates expect.

    Other nodes are left out. The text of a correction says that it is one.
    """
    notes = {key: node for key, node in nodes.items() if not node.document}
    if not notes:
        return notes
    samples = read.catalog.sample()
    marked = mark_corrections(read, notes, namespace)
    return {
        key: replace(note, metadata=complete_note_metadata(note.metadata, samples))
        for key, note in marked.items()
    }


def choose_entries(
    hits: Iterable[Candidate], settings: Settings, corrections: AbstractSet[int] = frozenset()
) -> list[tuple[NodeHead, float]]:
    """Choose the nodes where the walk starts, with their energy in [0, 1], best first.

    ``hits`` are what search found. ``corrections`` has the keys of corrections, which are entries
    beside as many documents as without them.
    """
    seeds = settings.seeds
    scored = []
    for hit in hits:
        found = (
            seeds.similarity_weight * hit.similarity
            + seeds.lexical_weight * hit.lexical
            + seeds.name_weight * hit.name
        )
        # Share of its trials for like questions in which the document was used, in [0, 1).
        uses = hit.again + hit.episode
        used = uses / (uses + hit.passed + hit.missed + _NO_USES)
        energy = max(seeds.hint_score * hit.hint, found, seeds.episode_score * used)
        scored.append((energy, hit.hint, hit.head))
    # Hinted nodes are entries whatever their score; of equal ones those with the first ids.
    ranked = sorted(scored, key=lambda item: (-item[1], -item[0], item[2].id))
    best = [item for item in ranked if item[2].key not in corrections][: seeds.max_entries]
    best += [item for item in ranked[: seeds.max_entries] if item[2].key in corrections]
    return [(head, min(1.0, score)) for score, _, head in sorted(best, key=lambda item: -item[0])]


_MOST_REPEATS = 20  # that a turn records
# Cosine of the best match, as in [CrabPath]: a known query, a novel one, and noise below that.
_KNOWN, _NOVEL, _NOISE = 0.60, 0.58, 0.28


def build_turn(
    found: Candidates,
    ranked: Sequence[ReturnedDocument],
    rankings: Rankings,
    latency_ms: dict[str, float],
    *,
    explored: bool,
) -> Turn:
    """Build the record of one retrieval.

    Args:
        ranked: The returned documents, best first.
        explored: Whether chance chose among the documents.
    """
    query, walk, hits = found.query, found.walk, found.seeds.hits
    top = max((hit.similarity for hit in hits.values()), default=0.0)
    return Turn(
        id=make_turn_id(),
        namespace=query.namespace,
        clock=found.seeds.clock.turn + 1,
        created=time.time(),
        query=query.text,
        seeds=tuple(
            SeedRecord(
                visit.head.id,
                round(visit.energy, DIGITS),
                round((hit := hits[key]).similarity, DIGITS),
                round(hit.lexical, DIGITS),
                round(hit.name, DIGITS),
                hinted=hit.hint > 0,
            )
            for key, visit in walk.visits.items()
            if visit.hop == 0
        ),
        steps=walk.steps,
        visited=tuple(visit.head.id for visit in walk.visits.values()),
        returned=tuple(ranked),
        guardrails=tuple(head.id for head, _ in walk.inhibition.values()),
        novelty={
            "top": round(top, DIGITS),
            "known": top >= _KNOWN,
            "novel": _NOISE < top < _NOVEL,
        },
        explored=explored,
        run_id=query.run_id,
        llm_calls=walk.usage.calls,
        llm_cached_calls=walk.usage.cached_calls,
        llm_failures=walk.usage.failures,
        llm_input_tokens=walk.usage.input_tokens,
        llm_output_tokens=walk.usage.output_tokens,
        llm_tokens=walk.usage.tokens,
        cost_usd=walk.usage.cost_usd,
        routing=tuple(walk.notes),
        latency_ms=latency_ms,
        repeats=dict(islice(found.repeats.items(), _MOST_REPEATS)),
        frozen=rankings.frozen,
        learned=rankings.learned,
        teams=dict(rankings.teams),
        task_type=query.task_type,
        session=query.session,
        arm=DRAFT_ARM if rankings.teams else query.arm,
    )
