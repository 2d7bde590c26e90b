"""Entry search: dense, lexical and name hits of one query, joined, each with its scores."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from crabpath_retrievers.config import SeedSettings, Settings
from crabpath_retrievers.graph import NodeHead, Vector, cosines
from crabpath_retrievers.query import Query
from crabpath_retrievers.rerank.features import Hit
from crabpath_retrievers.seeds.episodes import Question, Recalled
from crabpath_retrievers.seeds.index import VectorIndex
from crabpath_retrievers.seeds.lexical import lexical_hits, names_in, query_terms
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.replaced import WHOLES
from crabpath_retrievers.storage.retired import RETIRED
from crabpath_retrievers.storage.walk_queries import Clock
from crabpath_retrievers.terms import Information
from crabpath_retrievers.text import tokens

_LONGEST_QUERY = 20_000  # characters that lexical search reads
_FARTHEST = 8192  # hits for which an index is asked at most
_CHUNKS = 3  # of one document that search may find before it finds another document


class Wording(NamedTuple):
    """What the words of a query find.

    Attributes:
        lexical: BM25 relative to the best hit, in [0, 1], by node key.
        named: Keys of the nodes whose name stands in the query; 1 where nothing else does, else 0.
        information: What the query asks for.
    """

    lexical: dict[int, float]
    named: dict[int, float]
    information: Information


class Found(NamedTuple):
    """The namespace's clock, all hits with their scores by node key, what the query asks for."""

    clock: Clock
    hits: dict[int, Hit]
    information: Information


class Recollection(NamedTuple):
    """What a namespace remembers at a question.

    Attributes:
        said: What past turns say of documents, by node id.
        notes: Ids of the notes that are near.
    """

    said: Mapping[str, Recalled]
    notes: Sequence[str] = ()


Recall = Callable[[Question, Clock], Recollection]


class Near(NamedTuple):
    """Ids that a vector index found, and the nodes that are known, which may be more or fewer."""

    ids: Sequence[str]
    heads: list[NodeHead]


def nearest(store: GraphStore, index: VectorIndex, vector: Vector, k: int) -> list[NodeHead]:
    """The k documents nearest to a unit vector ``[d]``; notes are not among them."""
    ids = index.search(vector, k)
    near = Near(ids, store.walk.heads(ids))
    if len(near.heads) < len(ids):
        near = search_farther(store, partial(index.search, vector), near, k, k)
    place = {node: number for number, node in enumerate(near.ids)}
    return sorted(near.heads, key=lambda head: place[head.id])[:k]


def search_farther(
    store: GraphStore, ask: Callable[[int], list[str]], near: Near, asked: int, wanted: int
) -> Near:
    """Ask an index for more hits where it has vectors of documents that are not there any more.

    Args:
        store: Knows the documents.
        ask: Finds so many hits.
        near: What it has found so far.
        asked: For how many hits it was asked.
        wanted: How many known ones there shall be.
    """
    ids, heads = near
    known = {head.id for head in heads}
    while len(known.intersection(ids)) < wanted and len(ids) >= asked and asked < _FARTHEST:
        asked = min(2 * asked, _FARTHEST)
        ids = ask(asked)
        heads = heads + store.walk.heads([one for one in ids if one not in known])
        known = {head.id for head in heads}
    return Near(ids, heads)


class Search:
    """Finds where a walk may start."""

    def __init__(
        self, store: GraphStore, index: VectorIndex, settings: Settings, recall: Recall
    ) -> None:
        """Search ``store`` and ``index``; ``recall`` finds documents of past turns."""
        self._store, self._index, self._settings = store, index, settings
        self._recall = recall

    def find(self, query: Query, vector: Vector) -> Found:
        """Ask all engines once."""
        # At least k, so that the answer can be filled.
        seeds = self._settings.seeds
        wanted = query.k
        if query.one_per_document:
            wanted *= _CHUNKS
            # Not validated: a multiple may be above what a user may set.
            seeds = seeds.model_copy(
                update={
                    "hits_per_engine": seeds.hits_per_engine * _CHUNKS,
                    "max_postings": seeds.max_postings * _CHUNKS,
                }
            )
        text = query.text[:_LONGEST_QUERY]
        asked = max(seeds.hits_per_engine, wanted)
        dense: Sequence[str] = self._index.search(vector, asked, query.filter)
        with self._store.reading():
            clock = self._store.walk.clock(query.namespace)
            words = self._words(text, seeds)
            said, notes = self._recall(Question(text, vector, words.information), clock)
            used = [node for node, told in said.items() if told.alike > 0 or told.same > 0]
            ids = (*dense, *query.seed_ids, *(query.candidate_ids or ()), *used, *notes)
            keys = (*words.lexical, *words.named)
            heads = self._store.walk.heads(ids, keys, namespace=clock.key)
        self._report_unknown(dense, heads)
        if len({head.id for head in heads}.intersection(dense)) < min(wanted, len(dense)):
            ask = partial(self._index.search, vector, filter=query.filter)
            dense, heads = search_farther(self._store, ask, Near(dense, heads), asked, wanted)
        if query.filter:
            near = set(dense)
            others = [head.id for head in heads if head.id not in near]
            allowed = near | self._index.matching(others, vector, query.filter)
            heads = [head for head in heads if head.id in allowed]
        scored = _scored(heads, vector, words, set(query.seed_ids))
        for key, hit in scored.items():
            if told := said.get(hit.head.id):
                again, passed = max(0.0, told.same), max(0.0, -told.same)
                scored[key] = hit._replace(episode=told.alike, again=again, passed=passed)
        return Found(clock, scored, words.information)

    def _report_unknown(self, dense: Sequence[str], heads: Sequence[NodeHead]) -> None:
        """Say, once, that a store of somebody else has documents that the graph does not know."""
        if getattr(self._index, "unknown_reported", True):
            return
        unknown = set(dense) - {head.id for head in heads}
        if unknown:
            hidden = self._store.catalog.known(ids=unknown, owners=(*WHOLES, RETIRED))
            if unknown := unknown - {known.id for known in hidden}:
                self._index.report_unknown(sorted(unknown))  # type: ignore[attr-defined]

    def _words(self, text: str, settings: SeedSettings) -> Wording:
        terms = query_terms(self._store, tokens(text), settings)
        scores = lexical_hits(self._store, terms, settings)
        best = max(scores.values(), default=0.0) or 1.0
        lexical = {key: score / best for key, score in scores.items()}
        information = Information.of(terms.idf)
        return Wording(lexical, self._named(text, information), information)

    def _named(self, text: str, information: Information) -> dict[int, float]:
        """Nodes whose name stands in the query; a longer name silences those inside it."""
        links = self._settings.links
        owners: dict[str, list[int]] = {}
        for name, key in self._store.walk.owners(names_in(text, links.max_name_words)):
            owners.setdefault(name, []).append(key)
        named: dict[int, float] = {}
        taken = ""
        for name in sorted(owners, key=len, reverse=True):
            if f" {name} " not in taken and len(owners[name]) <= links.max_owners:
                named |= dict.fromkeys(owners[name], float(information.names_all(name.split())))
                taken += f" {name} "
        return named


def _scored(
    heads: Sequence[NodeHead], vector: Vector, words: Wording, hinted: set[str]
) -> dict[int, Hit]:
    if not heads:
        return {}
    return {
        head.key: Hit(
            head,
            similarity,
            lexical=words.lexical.get(head.key, 0.0),
            name=head.rarity if head.key in words.named else 0.0,
            exact=words.named.get(head.key, 0.0),
            hint=1.0 if head.id in hinted else 0.0,
        )
        for head, similarity in zip(
            heads, cosines([head.vector for head in heads], vector), strict=True
        )
    }
