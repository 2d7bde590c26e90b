"""The way of a query: embed, seeds, walk, rank, return, record (design §4).

One generator for sync and async; see :mod:`crabpath_retrievers.driver`.
"""

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.changes import RecordTurn
from crabpath_retrievers.config import Settings
from crabpath_retrievers.driver import Steps, perform, perform_either
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import Node, NodeHead, Vector
from crabpath_retrievers.rerank.features import FEATURES, Hit, Matrix, feature_matrix
from crabpath_retrievers.rerank.ranker import Floats, Ranker
from crabpath_retrievers.rerank.select import Selection, select
from crabpath_retrievers.routing.policy import Router
from crabpath_retrievers.seeds.embedder import Embedder
from crabpath_retrievers.seeds.index import Filter, VectorIndex
from crabpath_retrievers.seeds.search import Search
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.walk_queries import Clock
from crabpath_retrievers.trajectory import Returned, SeedRecord, Turn
from crabpath_retrievers.traversal import Walk, Walker

_DIGITS = 5
# Document 001 §2.7: a query this close to something known is not novel; this far is noise.
_KNOWN, _NOVEL, _NOISE = 0.60, 0.58, 0.28


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One question to the memory.

    Attributes:
        text: What is asked.
        k: Documents to return, at least 1.
        namespace: Whose learned weights apply, and whose clock advances.
        filter: Condition on metadata, in the vector index's own language.
        seed_ids: Nodes that the host suggests as entries (document 002 §1.4).
        boost_tags: Documents whose metadata carries one of these values are preferred.
        fill: Return exactly k (as far as there are documents); else only confident ones.
        max_tokens: Budget for the returned texts, near-duplicates left out; None for no budget.
        vector: Unit query vector of shape ``[d]``; None embeds the text.
        record: Whether to keep the turn record.
        run_id: Run of the host framework, by which feedback may find the turn.
        callbacks: Callbacks of the host framework, for a router that runs models.
    """

    text: str
    k: int = 4
    namespace: str = "default"
    filter: Filter = None
    seed_ids: Sequence[str] = ()
    boost_tags: Sequence[str] = ()
    fill: bool = True
    max_tokens: int | None = None
    vector: Vector | None = None
    record: bool = True
    run_id: str | None = None
    callbacks: Any = None

    def __post_init__(self) -> None:
        """Refuse what cannot be asked.

        Raises:
            InvalidInputError: Empty text, k or budget below 1, or an unusable namespace.
        """
        if not isinstance(self.text, str) or not self.text.strip():
            msg = "the query is empty: pass a question or some words"
            raise InvalidInputError(msg)
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            msg = f"k must be a whole number of at least 1, not {self.k!r}"
            raise InvalidInputError(msg)
        if self.max_tokens is not None and self.max_tokens < 1:
            msg = f"max_tokens must be at least 1, not {self.max_tokens!r}"
            raise InvalidInputError(msg)
        if not isinstance(self.namespace, str) or not self.namespace.strip():
            msg = f"namespace must be a non-empty text, not {self.namespace!r}"
            raise InvalidInputError(msg)


@dataclass(frozen=True, slots=True)
class RetrievedDocument:
    """A document of the answer, with why it came."""

    node: Node
    returned: Returned

    @property
    def score(self) -> float:
        """Probability of relevance, in [0, 1]."""
        return self.returned.probability


@dataclass(frozen=True, slots=True)
class Answer:
    """Documents, best first, and the record of how they were found."""

    documents: tuple[RetrievedDocument, ...]
    turn: Turn


@dataclass(slots=True)
class _Stopwatch:
    laps: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round((now - self.last) * 1000, 3)
        self.last = now


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Answers queries from one store."""

    store: GraphStore
    index: VectorIndex
    embedder: Embedder
    ranker: Ranker
    router: Router
    settings: Settings

    def steps(self, query: Query, *, router: Router | None = None) -> Steps[Answer]:
        """Answer a query.

        Args:
            query: What is asked.
            router: Decides instead of the usual router, for exploration.
        """
        watch = _Stopwatch()
        vector = yield from self._embed(query)
        watch.lap("embed")
        search = Search(self.store, self.index, self.settings)
        clock, hits = yield from perform(search.hits, query, vector)
        watch.lap("seeds")
        walk = yield from self._walk(query, vector, hits, clock, router or self.router)
        watch.lap("walk")
        ranked = yield from self._rank(query, vector, hits, walk)
        documents = yield from perform(self.store.catalog.documents, [r.node for r in ranked])
        watch.lap("rank")
        # A document that was forgotten in the meantime is left out.
        ranked = [item for item in ranked if item.node in documents]
        turn = self._turn(query, clock, hits, walk, ranked, explored=router is not None)
        turn = replace(turn, latency_ms=watch.laps)
        if query.record:
            yield from perform(self.store.apply, [RecordTurn(turn)])
        return Answer(tuple(RetrievedDocument(documents[r.node], r) for r in ranked), turn)

    def _embed(self, query: Query) -> Steps[Vector]:
        if query.vector is not None:
            return query.vector
        text = query.text
        vector = yield from perform_either(
            lambda: self.embedder.query(text), lambda: self.embedder.aquery(text)
        )
        return vector

    def _walk(
        self, query: Query, vector: Vector, hits: dict[int, Hit], clock: Clock, router: Router
    ) -> Steps[Walk]:
        walker = Walker(
            query.text,
            vector,
            read_edges=lambda keys: self.store.walk.outgoing(keys, clock),
            router=router,
            walk=self.settings.walk,
            tiers=self.settings.tiers,
            temperature=self.settings.policy.temperature,
            callbacks=query.callbacks,
        )
        walk = yield from walker.steps(entries(hits.values(), self.settings))
        return walk

    def candidates(self, query: Query) -> Steps[tuple[list[str], Matrix]]:
        """Ids and features of everything a query would rank, for fitting; nothing is recorded."""
        vector = yield from self._embed(query)
        search = Search(self.store, self.index, self.settings)
        clock, hits = yield from perform(search.hits, query, vector)
        walk = yield from self._walk(query, vector, hits, clock, self.router)
        pool = yield from self._pool(query, vector, hits, walk)
        return [hit.head.id for hit in pool], feature_matrix(pool, walk.arrivals, walk.inhibition)

    def _pool(
        self, query: Query, vector: Vector, hits: dict[int, Hit], walk: Walk
    ) -> Steps[list[Hit]]:
        """Everything that search found or the walk reached."""
        pool = dict(hits)
        reached = [v.head for key, v in walk.visits.items() if key not in pool]
        if query.filter and reached:
            allowed = yield from perform(
                self.index.matching, [head.id for head in reached], vector, query.filter
            )
            reached = [head for head in reached if head.id in allowed]
        for head in reached:
            similarity = float(np.asarray(head.vector, dtype=np.float32) @ vector)
            pool[head.key] = Hit(head, similarity, found=False)
        candidates = list(pool.values())
        if query.boost_tags and candidates:
            candidates = yield from perform(self._boosted, candidates, query.boost_tags)
        return candidates

    def _rank(
        self, query: Query, vector: Vector, hits: dict[int, Hit], walk: Walk
    ) -> Steps[list[Returned]]:
        candidates = yield from self._pool(query, vector, hits, walk)
        matrix = feature_matrix(candidates, walk.arrivals, walk.inhibition)
        odds = self.ranker.log_odds(matrix)
        order = np.argsort(-odds, kind="stable")
        chosen = yield from self._select(query, candidates, order, odds)
        return [self._returned(candidates[i], matrix[i], odds[i], walk) for i in chosen]

    def _boosted(self, candidates: Sequence[Hit], tags: Sequence[str]) -> list[Hit]:
        documents = self.store.catalog.documents([hit.head.id for hit in candidates])
        wanted = set(tags)
        return [
            replace(hit, hint=1.0)
            if (node := documents.get(hit.head.id)) and wanted & _values(node.metadata.values())
            else hit
            for hit in candidates
        ]

    def _select(
        self, query: Query, candidates: Sequence[Hit], order: NDArray[np.intp], odds: Floats
    ) -> Steps[list[int]]:
        ranked = [int(i) for i in order]
        probability = 1.0 / (1.0 + np.exp(-odds))
        if not query.fill:
            ranked = [i for i in ranked if probability[i] >= self.settings.rank.confident]
        if query.max_tokens is None:
            return ranked[: query.k]
        heads = [candidates[i].head for i in ranked]
        documents = yield from perform(self.store.catalog.documents, [head.id for head in heads])
        budget = Selection(query.k, query.max_tokens, self.settings.rank.characters_per_token)
        kept = select(heads, documents, budget)
        return [ranked[i] for i in kept]

    def _returned(self, hit: Hit, row: Matrix, odds: float, walk: Walk) -> Returned:
        visit = walk.visits.get(hit.head.key)
        return Returned(
            node=hit.head.id,
            probability=round(float(1.0 / (1.0 + np.exp(-odds))), _DIGITS),
            origin="seed" if hit.found else "walk",
            path=visit.path if visit else (),
            features={
                name: round(float(value), _DIGITS)
                for name, value in zip(FEATURES, row, strict=True)
                if value
            },
        )

    def _turn(
        self,
        query: Query,
        clock: Clock,
        hits: dict[int, Hit],
        walk: Walk,
        ranked: Sequence[Returned],
        *,
        explored: bool,
    ) -> Turn:
        seeds = [
            SeedRecord(
                visit.head.id,
                round(visit.energy, _DIGITS),
                round(hits[key].similarity, _DIGITS),
                round(hits[key].lexical, _DIGITS),
                round(hits[key].name, _DIGITS),
                hinted=hits[key].hint > 0,
            )
            for key, visit in walk.visits.items()
            if visit.hop == 0
        ]
        top = max((hit.similarity for hit in hits.values()), default=0.0)
        return Turn(
            id=uuid.uuid4().hex,
            namespace=query.namespace,
            clock=clock.turn + 1,
            created=time.time(),
            query=query.text,
            seeds=tuple(seeds),
            steps=tuple(walk.steps),
            visited=tuple(visit.head.id for visit in walk.visits.values()),
            returned=tuple(ranked),
            guardrails=tuple(head.id for head, _ in walk.inhibition.values()),
            novelty={
                "top": round(top, _DIGITS),
                "known": top >= _KNOWN,
                "novel": _NOISE < top < _NOVEL,
            },
            explored=explored,
            run_id=query.run_id,
        )


def entries(hits: Iterable[Hit], settings: Settings) -> list[tuple[NodeHead, float]]:
    """The nodes from which a walk leaves, with their energy in [0, 1], best first."""
    s = settings.seeds
    scored = []
    for hit in hits:
        score = (
            s.similarity * max(0.0, hit.similarity) + s.lexical * hit.lexical + s.name * hit.name
        )
        scored.append((max(score, s.hint) if hit.hint else score, bool(hit.hint), hit.head))
    # What the host suggests walks always, whatever its score.
    best = sorted(scored, key=lambda item: (-item[1], -item[0]))[: s.entries]
    return [(head, min(1.0, score)) for score, _, head in sorted(best, key=lambda item: -item[0])]


def _values(values: Iterable[object]) -> set[str]:
    found: set[str] = set()
    for value in values:
        found |= {str(v) for v in value} if isinstance(value, list) else {str(value)}
    return found
