"""Reads of every query: nodes, outgoing edges of a frontier, names, term statistics.

Nodes of documents, their edges and the statistics are the same for all namespaces and change
rarely: a process remembers what it has read of the current version of the corpus, and of the
learned state of each namespace.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from crabpath_retrievers.core.query import METADATA_KEY
from crabpath_retrievers.core.records import (
    OVERLAY_KINDS,
    EdgeKind,
    Node,
    NodeHead,
    OutgoingEdge,
    StoredWeight,
    Vector,
    choose_nearest,
    to_single_precision,
)
from crabpath_retrievers.storage.fulltext import FullTextReader
from crabpath_retrievers.storage.schema import (
    contents,
    edges,
    meta,
    names,
    namespaces,
    nodes,
    overlay,
    terms,
)
from crabpath_retrievers.storage.sql_tools import (
    CompiledSelect,
    Queries,
    ReadableStore,
    decode_rows,
    decode_vectors,
    split_batches,
)

_Postings = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Keys of nodes with a word, and its part of their scores, both of shape ``[n]``."""

_KINDS = {kind.value: kind for kind in EdgeKind}  # three times faster than EdgeKind(value)


class Clock(NamedTuple):
    """Clock and counters of a namespace.

    Attributes:
        key: Key of the namespace; 0 for one that does not exist.
        turn: Number of its last turn.
        exponent: Accumulated decay exponent.
        learned: Version of its learned state; 0 before it first learned.
        notes: Number of its notes.
        hubs: Version of the set of hubs; 0 in a corpus without any.
        weights: 1 if it has learned weights of edges, else 0.
        knobs: Settings that override the configured ones, as JSON; see
            :mod:`crabpath_retrievers.config.settings`.
        corpus: Version of the corpus; None where it was not read.
    """

    key: int
    turn: int
    exponent: float
    learned: int = 0
    notes: int = 0
    hubs: int = 0
    weights: int = 0
    knobs: str | None = None
    corpus: int | None = None


class QueryFacts(NamedTuple):
    """Facts about a query before its candidates are read.

    The clock is all 0 for a namespace that does not exist; unknown words and names are left out.
    """

    clock: Clock
    frequencies: dict[str, int]
    total: int
    mean_length: float
    named: dict[str, list[int]]


class Frontier(NamedTuple):
    """Outgoing edges of a frontier, and the weight of STOP by key of the node that has one."""

    pointers: list[OutgoingEdge]
    stops: dict[int, float]


_IS_CLOCK, _IS_TERM, _IS_COUNTER, _IS_NAME = range(4)

_HEAD = (
    *(nodes.c.key, nodes.c.id, nodes.c.title, nodes.c.mentions, nodes.c.embedding, nodes.c.terms),
    *(nodes.c.authority, nodes.c.owner),
)
_ZERO = sa.literal_column("0", sa.Integer)
_IS_VISIBLE = sa.or_(nodes.c.owner == _ZERO, nodes.c.owner == sa.bindparam("namespace"))
_BY_ID = sa.select(*_HEAD).where(_IS_VISIBLE, nodes.c.id.in_(sa.bindparam("ids", expanding=True)))
_BY_KEY = sa.select(*_HEAD).where(
    _IS_VISIBLE, nodes.c.key.in_(sa.bindparam("keys", expanding=True))
)
_HEADS = CompiledSelect(sa.union_all(_BY_ID, _BY_KEY))
_IDS = CompiledSelect(
    sa.select(nodes.c.key, nodes.c.id).where(nodes.c.key.in_(sa.bindparam("keys", expanding=True)))
)
_VECTORS = CompiledSelect(sa.select(nodes.c.id, nodes.c.embedding).where(nodes.c.owner == _ZERO))
_HUBS = sa.select(sa.cast(meta.c.value, sa.BigInteger)).where(meta.c.name == "hubs")
_WEIGHTS = sa.exists().where(overlay.c.namespace == namespaces.c.key)
CLOCK_COLUMNS: tuple[sa.ColumnElement[Any], ...] = (
    namespaces.c.key,
    namespaces.c.turn,
    namespaces.c.exponent,
    namespaces.c.version,
    namespaces.c.note_count,
    sa.func.coalesce(_HUBS.scalar_subquery(), 0),
    sa.cast(_WEIGHTS, sa.Integer),
    namespaces.c.knobs,
)
"""Columns of a :class:`Clock`, from ``namespaces``."""
_KEY, *_COUNTERS, _KNOBS = CLOCK_COLUMNS

_CLOCK = CompiledSelect(sa.select(*CLOCK_COLUMNS).where(namespaces.c.name == sa.bindparam("name")))


def _select_fact(kind: int, text: Any, number: Any, *more: Any) -> sa.Select[Any]:
    """Select a row of ``_FACTS``; its columns that ``more`` does not fill are NULL.

    Args:
        kind: What the row tells, such as the frequency of a term.
        more: Further columns, at most 6.
    """
    nothing: list[Any] = [sa.literal_column("NULL")] * (6 - len(more))
    return sa.select(sa.literal(kind), text, number, *more, *nothing)


_FACTS = CompiledSelect(
    sa.union_all(
        _select_fact(_IS_CLOCK, _KNOBS, _KEY, *_COUNTERS).where(
            namespaces.c.name == sa.bindparam("namespace")
        ),
        _select_fact(_IS_TERM, terms.c.term, terms.c.frequency).where(
            terms.c.term.in_(sa.bindparam("terms", expanding=True))
        ),
        _select_fact(_IS_COUNTER, meta.c.name, sa.cast(meta.c.value, sa.BigInteger)).where(
            meta.c.name.in_(["nodes", "tokens", "corpus"])
        ),
        _select_fact(_IS_NAME, names.c.name, names.c.node)
        .join(nodes, nodes.c.key == names.c.node)
        .where(names.c.name.in_(sa.bindparam("names", expanding=True)), nodes.c.owner == 0),
    )
)

_FRONTIER: sa.BindParameter[int] = sa.bindparam("keys", expanding=True)
_OUTGOING = CompiledSelect(
    sa.select(
        edges.c.source,
        edges.c.kind,
        edges.c.prior,
        edges.c.floor,
        edges.c.decay_at,
        *_HEAD,
    )
    .select_from(edges.join(nodes, nodes.c.key == edges.c.target))
    .where(edges.c.source.in_(_FRONTIER))
)
# A STOP edge has a weight and no target.
_LEARNED = CompiledSelect(
    sa.select(
        overlay.c.source,
        overlay.c.target,
        overlay.c.kind,
        overlay.c.weight,
        overlay.c.decay_at,
        sa.func.coalesce(nodes.c.authority, 0),
    )
    .select_from(overlay.outerjoin(nodes, nodes.c.key == overlay.c.target))
    .where(overlay.c.namespace == sa.bindparam("namespace"), overlay.c.source.in_(_FRONTIER))
)


_Weights = dict[tuple[int, EdgeKind], StoredWeight]
"""Learned weights of the edges that leave a node, as stored, by key of the target and kind."""


class _OutgoingEdges(NamedTuple):
    """Edges of the text that leave one node, with their weights as stored."""

    edges: list[OutgoingEdge]
    weights: list[StoredWeight]
    steady: bool  # without feedback no weight decays

    def weigh(self, learned: _Weights, exponent: float) -> list[OutgoingEdge]:
        """Return the edges with a namespace's weights; ``learned`` are by target and kind."""
        if not learned and (self.steady or not exponent):
            return self.edges
        weighed = []
        for edge, text in zip(self.edges, self.weights, strict=True):
            own = learned.get((edge.target.key, edge.kind))
            if own:
                weight = own._replace(floor=text.floor).decay_to(exponent)
            else:  # most edges are steady, and a call for each of them would be felt
                weight = edge.weight if self.steady else text.decay_to(exponent)
            weighed.append(edge if weight == edge.weight else edge._replace(weight=weight))
        return weighed


_MAX_BYTES = 64 << 20  # of what a process remembers, roughly
_HEAD_BYTES, _EDGE_BYTES, _WORD_BYTES = 600, 200, 200  # besides vectors and texts
_MOST_COPIED = 3 << 20  # numbers of all vectors; what is larger than caches is slower than HNSW
_MOST_POSTINGS = 4096  # of one word; others are searched by the database
_ASKED_OFTEN = 32  # queries of one version that pay for a copy of the vectors


class _Corpus:
    """Cache of a process for one version of the corpus.

    Threads that still read an older version fill their own record, which no new query reads.
    """

    def __init__(self, version: int | None) -> None:
        """Begin an empty cache of a version."""
        self.version, self.size = version, 0
        self.by_key: dict[int, NodeHead] = {}
        self.by_id: dict[str, NodeHead] = {}
        self.contents: dict[str, Sequence[Any]] = {}
        self.outgoing: dict[int, _OutgoingEdges] = {}
        self.frequencies: dict[str, int] = {}  # 0 for a word that no text has
        self.owners: dict[str, list[int]] = {}  # empty for a name that no node has
        self.postings: dict[str, _Postings] = {}
        self.ids: dict[int, str] = {}  # of nodes that were equally good by their words
        self.queries = 0
        self.vectors: tuple[list[str], Vector] | None = None  # ids of all documents, and ``[n, d]``

    def add_nodes(self, rows: Sequence[Sequence[Any]]) -> dict[int, NodeHead]:
        """Decode rows of ``_HEAD`` to nodes by key, and remember those that all namespaces see."""
        new = {row[0]: row for row in rows if row[0] not in self.by_key}
        heads = _heads(new.values())
        for head, row in zip(heads, new.values(), strict=True):
            if not row[-1]:
                self.by_key[head.key] = self.by_id[head.id] = head
                texts = len(head.id) + len(head.title) + len(head.terms)
                self.size += head.vector.nbytes + texts + _HEAD_BYTES
        return {head.key: head for head in heads}

    def add_edges(self, sources: Iterable[int], rows: Sequence[Sequence[Any]]) -> None:
        """Remember the edges that leave these nodes, from rows of ``_OUTGOING``."""
        hidden = self.add_nodes([row[5:] for row in rows])
        outgoing = dict.fromkeys(sources, _NO_EDGES)
        for source, leaving in groupby(sorted(rows, key=itemgetter(0)), key=itemgetter(0)):
            found, weights = [], []
            for _, kind, prior, floor, decay_at, key, *_ in leaving:
                target = self.by_key.get(key) or hidden[key]
                found.append(OutgoingEdge(source, target, _KINDS[kind], prior, prior))
                weights.append(StoredWeight(prior, decay_at, floor, target.authority))
            steady = all(stored.weight == stored.floor for stored in weights)
            outgoing[source] = _OutgoingEdges(found, weights, steady)
            self.size += _EDGE_BYTES * len(found)
        self.outgoing.update(outgoing)  # at once: other threads read it meanwhile

    def add_contents(self, rows: Sequence[Sequence[Any]]) -> None:
        """Remember texts and metadata of nodes that all namespaces see, from ``CONTENTS``."""
        for row in rows:
            if row[0] in self.by_id and row[1]:  # notes have no document
                self.contents[row[0]] = row
                self.size += sum(len(value) for value in row if isinstance(value, str))

    def add_words(self, frequencies: Mapping[str, int], owners: Mapping[str, list[int]]) -> None:
        """Remember the statistics of words, and the owners of names."""
        self.frequencies.update(frequencies)
        self.owners.update(owners)
        self.size += _WORD_BYTES * (len(frequencies) + len(owners))

    def add_postings(self, words: Sequence[str], rows: Sequence[tuple[int, int, float]]) -> None:
        """Remember which nodes have each of some words, from rows with places of the words."""
        table = np.array(rows, dtype=np.float64).reshape(len(rows), 3)
        for place, word in enumerate(words):
            found = table[table[:, 0] == place]
            self.postings[word] = found[:, 1].astype(np.int64), np.maximum(found[:, 2], 0.0)
        self.size += _WORD_BYTES * len(words) + 16 * len(rows)


_NO_EDGES = _OutgoingEdges([], [], steady=True)

CONTENT = (
    nodes.c.id,
    contents.c.document,
    contents.c.source,
    contents.c.content,
    nodes.c.title,
    contents.c.position,
    contents.c.metadata,
    contents.c.digest,
)
_CONTENT_NAMES = tuple(column.name for column in CONTENT)
CONTENTS = CompiledSelect(
    sa.select(*CONTENT)
    .join(contents, contents.c.node == nodes.c.key)
    .where(
        nodes.c.id.in_(sa.bindparam("ids", expanding=True)),
        sa.or_(
            nodes.c.owner == 0,
            nodes.c.owner == sa.bindparam("namespace"),
        ),
    )
    .order_by(nodes.c.owner.desc())
)
"""Texts and metadata of nodes by id, as far as a namespace sees them.

Documents come last: each hides a note with its id.
"""


def decode_node(row: Sequence[Any]) -> Node:
    """Decode a row of ``CONTENTS`` to a node without vector."""
    values = dict(zip(_CONTENT_NAMES, row, strict=True))
    values["metadata"] = metadata = json.loads(values["metadata"])
    if isinstance(metadata.get(METADATA_KEY), list):  # no document has such metadata
        values["then"], values["overlap"] = metadata.pop(METADATA_KEY)
    return Node(**values)


K = TypeVar("K", int, str)
V = TypeVar("V")
_MAX_NAMESPACES, _MAX_ROWS = 32, 2048  # of each namespace


class VersionCache(Generic[K, V]):
    """Rows of the learned state by key, read once per version of a namespace.

    A row may have been written after the version that it is remembered for, never before it.
    """

    def __init__(self) -> None:
        """Begin with an empty cache."""
        self._namespaces: dict[int, tuple[tuple[int, ...], dict[K, V | None]]] = {}

    def get_rows(
        self, clock: Clock, keys: Collection[K], fetch: Callable[[list[K]], Mapping[K, V]]
    ) -> dict[K, V]:
        """Return the rows with these keys, cached or fetched; keys without a row are left out.

        If ``clock`` has no version of the corpus, nothing is cached.
        """
        if clock.corpus is None:
            return {**fetch(list(keys))}
        version = (clock.learned, clock.notes, clock.corpus)
        known, rows = self._namespaces.get(clock.key, (version, dict[K, V | None]()))
        if known != version or len(rows) > _MAX_ROWS:
            rows = {}
        if new := [key for key in keys if key not in rows]:
            found = fetch(new)
            rows.update({key: found.get(key) for key in new})
            self._namespaces.pop(clock.key, None)
            self._namespaces[clock.key] = version, rows
            for oldest in list(self._namespaces)[:-_MAX_NAMESPACES]:
                self._namespaces.pop(oldest, None)
        return {key: row for key in keys if (row := rows.get(key)) is not None}

    def follow_lesson(self, before: Clock, changed: Iterable[K]) -> None:
        """Keep what is cached for ``before`` for the next version, without the ``changed`` rows.

        Call it after a lesson of this process was written that found the version of ``before``.
        """
        known, rows = self._namespaces.get(before.key, ((-1, -1, -1), {}))
        learned, notes, corpus = known
        if (learned, notes) == (before.learned, before.notes):
            kept = rows.copy()  # another thread may still read for the former version
            for key in changed:
                kept.pop(key, None)
            self._namespaces[before.key] = (learned + 1, notes, corpus), kept

    def forget(self, namespace: int) -> None:
        """Drop the cache of a namespace."""
        self._namespaces.pop(namespace, None)


_Leaving = tuple[list[OutgoingEdge], float | None]
"""The edges that leave a node in one namespace, and the weight of STOP; None without one."""


class CorpusMemory:
    """Cache of a process for the corpus and for learned weights of edges."""

    def __init__(self) -> None:
        """Begin with an empty cache."""
        self.forget()

    def forget(self) -> None:
        """Drop the cache, so that no forgotten text stays in the process."""
        self.corpus, self.leaving = _Corpus(None), VersionCache[int, _Leaving]()
        self.weights = VersionCache[int, _Weights]()

    def get_corpus(self, version: int | None) -> _Corpus:
        """Return the cache of a version of the corpus; an empty one if that is unknown."""
        corpus = self.corpus
        if version is None:
            return _Corpus(None)
        if corpus.version != version or corpus.size > _MAX_BYTES:
            self.corpus = corpus = _Corpus(version)
        return corpus


class WalkQueries(Queries):
    """Reads whose cost does not grow with the corpus."""

    def __init__(
        self, store: ReadableStore, memory: CorpusMemory, fulltext: FullTextReader
    ) -> None:
        """Keep the store to read from, ``memory``, its cache, and its full-text index."""
        super().__init__(store)
        self._memory, self._fulltext = memory, fulltext

    def forget_corpus(self) -> None:
        """Drop the cache, so that no forgotten text stays in the process."""
        self._memory.forget()

    def get_nodes(
        self,
        ids: Sequence[str],
        keys: Sequence[int] = (),
        *,
        namespace: int = 0,
        corpus: int | None = None,
    ) -> list[NodeHead]:
        """Read nodes by id and by key, each once; unknown ones are left out.

        Nodes by id come first, in order of ids; then those by key, in order of keys. Notes are
        visible to the namespace with this key only. If ``corpus``, the version of the corpus, is
        given, cached nodes are not read again.
        """
        known = self._memory.get_corpus(corpus)
        new_ids = [node for node in ids if node not in known.by_id]
        new_keys = [key for key in keys if key not in known.by_key]
        own: dict[int | str, NodeHead] = {}
        if new_ids or new_keys:
            rows = self._run(_HEADS, ids=new_ids, keys=new_keys, namespace=namespace)
            for head in known.add_nodes(rows).values():
                own[head.key] = own[head.id] = head
        found = [known.by_id.get(node) or own.get(node) for node in sorted(ids)]
        found += [known.by_key.get(key) or own.get(key) for key in sorted(keys)]
        return list({head.key: head for head in found if head}.values())

    def find_nearest(self, vector: Vector, k: int, facts: QueryFacts) -> list[str] | None:
        """Find the ids of the ``k`` documents nearest to a unit vector ``[d]``, nearest first.

        They are compared in the process, with a copy of all vectors. None for a corpus that is
        large, or was asked seldom since it changed: it has no copy.
        """
        corpus = self._memory.get_corpus(facts.clock.corpus)
        corpus.queries += 1
        if corpus.vectors is None:
            is_small = facts.total * len(vector) <= _MOST_COPIED
            if corpus.queries <= _ASKED_OFTEN or not is_small:
                return None
            if not (rows := sorted(self._run(_VECTORS), key=itemgetter(0))):
                return []
            ids, embeddings = zip(*rows, strict=True)
            corpus.vectors = [*ids], to_single_precision(decode_vectors(embeddings))
            corpus.size += corpus.vectors[1].nbytes
        names, matrix = corpus.vectors
        return [names[row] for row in choose_nearest(matrix, vector, k)]

    def search_words(
        self, idf: Mapping[str, float], limit: int, facts: QueryFacts
    ) -> list[tuple[int, float]]:
        """Find at most ``limit`` nodes with any of the terms: keys with BM25 scores, best first.

        ``idf`` has the terms with their weights in nats. The postings of a term are read once for
        each version of the corpus. They have no notes that were added since: a namespace with notes
        asks the database. Of equally good nodes at the limit, those with the first ids are found.
        """
        if not idf:
            return []
        clock, mean_length = facts.clock, facts.mean_length
        most = max(facts.frequencies.get(word, 0) for word in idf)
        corpus = self._memory.get_corpus(clock.corpus)
        if clock.corpus is None or clock.notes or most > _MOST_POSTINGS:
            return self._fulltext.search(idf, limit, mean_length)
        if new := {word: idf[word] for word in idf if word not in corpus.postings}:
            corpus.add_postings([*new], self._fulltext.find_postings(new, mean_length))
        keys, parts = zip(*(corpus.postings[word] for word in idf), strict=True)
        distinct, row = np.unique(np.concatenate(keys), return_inverse=True)
        scores = np.bincount(row, np.concatenate(parts), len(distinct))
        best = np.argsort(-scores, kind="stable")[: limit + 1]
        if len(best) > limit > 0:
            least = scores[best[limit]]
            if least == scores[best[limit - 1]]:
                equal = np.flatnonzero(scores == least)
                ids = self._get_ids(distinct[equal].tolist(), corpus)
                equal = equal[sorted(range(len(equal)), key=ids.__getitem__)]
                best = np.concatenate([best[scores[best] > least], equal])
        best = best[:limit]
        return [*zip(distinct[best].tolist(), scores[best].tolist(), strict=True)]

    def _get_ids(self, keys: Sequence[int], corpus: _Corpus) -> list[str]:
        """Return the ids of nodes that exist, by key; those in ``corpus`` are not read again."""
        for new in split_batches([key for key in keys if key not in corpus.ids]):
            found = dict(self._run(_IDS, keys=new))
            corpus.ids.update(found)
            corpus.size += sum(map(len, found.values())) + _WORD_BYTES * len(found)
        return [corpus.ids.get(key, "") for key in keys]

    def get_documents(self, ids: Sequence[str], clock: Clock) -> dict[str, Node]:
        """Nodes by id with text and metadata, without vectors; unknown ids are left out."""
        corpus = self._memory.get_corpus(clock.corpus)
        found = {node: row for node in ids if (row := corpus.contents.get(node))}
        for new in split_batches([node for node in ids if node not in found]):
            rows = self._run(CONTENTS, ids=new, namespace=clock.key)
            corpus.add_contents(rows)
            found |= {row[0]: row for row in rows}
        # Decoded each time: the caller may change the metadata.
        return {node.id: node for node in decode_rows("a chunk", found.values(), decode_node)}

    def get_outgoing_edges(self, keys: Sequence[int], clock: Clock) -> Frontier:
        """Read the edges that leave the nodes ``keys``, with the weights of one namespace."""
        corpus = self._memory.get_corpus(clock.corpus)
        new = [key for key in keys if key not in corpus.outgoing]
        if new:
            corpus.add_edges(new, self._run(_OUTGOING, keys=new))
        if not clock.weights:
            weighed = (corpus.outgoing[key].weigh({}, clock.exponent) for key in sorted(keys))
            return Frontier([edge for edges in weighed for edge in edges], {})
        leaving = self._memory.leaving.get_rows(
            clock, sorted(keys), lambda new: self._read_leaving(new, clock, corpus)
        )
        return Frontier(
            [edge for edges, _ in leaving.values() for edge in edges],
            {key: stop for key, (_, stop) in leaving.items() if stop is not None},
        )

    def _read_leaving(
        self, keys: Sequence[int], clock: Clock, corpus: _Corpus
    ) -> dict[int, _Leaving]:
        """Read the edges that leave the nodes ``keys``; text edges come first.

        Nodes whose edges the cache ``corpus`` holds are not read again.
        """
        learned = self._memory.weights.get_rows(clock, keys, partial(self._read_weights, clock))
        created, stops = self._get_created_edges(learned, clock)
        return {
            key: (
                [
                    *corpus.outgoing[key].weigh(learned.get(key, {}), clock.exponent),
                    *created.get(key, ()),
                ],
                stops.get(key),
            )
            for key in keys
        }

    def _read_weights(self, clock: Clock, keys: Sequence[int]) -> dict[int, _Weights]:
        """Read the learned weights of edges that leave the nodes ``keys``."""
        learned: dict[int, _Weights] = {}
        for source, target, kind, weight, decay_at, authority in self._run(
            _LEARNED, keys=list(keys), namespace=clock.key
        ):
            stored = StoredWeight(weight, decay_at, authority=authority)
            learned.setdefault(source, {})[target, _KINDS[kind]] = stored
        return learned

    def follow_lesson(self, before: Clock, sources: Iterable[int]) -> None:
        """Keep the cached weights but of edges that leave ``sources``, which a lesson changed.

        As :meth:`VersionCache.follow_lesson`.
        """
        self._memory.weights.follow_lesson(before, sources)

    def _get_created_edges(
        self, learned: Mapping[int, _Weights], clock: Clock
    ) -> tuple[dict[int, list[OutgoingEdge]], dict[int, float]]:
        """Select from learned weights the edges that only feedback created, and STOP.

        ``learned`` is by key of the source, and by target and kind.

        Returns:
            Edges with effective weights, and weights of STOP, both by key of the source.
        """
        now = {
            (source, target, kind): stored.decay_to(clock.exponent)
            for source, weights in learned.items()
            for (target, kind), stored in weights.items()
            if kind in _CREATED
        }
        targets = list(dict.fromkeys(target for _, target, _ in now if target))
        heads = self.get_nodes((), targets, namespace=clock.key, corpus=clock.corpus)
        by_key = {head.key: head for head in heads}
        created: dict[int, list[OutgoingEdge]] = {}
        for (source, target, kind), weight in now.items():
            if target in by_key:
                edge = OutgoingEdge(source, by_key[target], kind, weight, 0.0)
                created.setdefault(source, []).append(edge)
        return created, {key: weight for (key, target, _), weight in now.items() if not target}

    def get_clock(self, namespace: str) -> Clock:
        """Clock of a namespace; all 0 for one that does not exist."""
        rows = self._run(_CLOCK, name=namespace)
        return Clock(*rows[0]) if rows else Clock(0, 0, 0.0)

    def read_facts(
        self, namespace: str, words: Sequence[str], names: Sequence[str] = ()
    ) -> QueryFacts:
        """Read clock, frequencies of ``words`` and owners of ``names``, in one statement.

        Names are normalised; words and names that no node has are left out.
        """
        known = self._memory.corpus
        new_words = [word for word in words if word not in known.frequencies]
        new_names = [name for name in names if name not in known.owners]
        rows = self._run(_FACTS, namespace=namespace, terms=new_words, names=new_names)
        clock, counters = Clock(0, 0, 0.0), {}
        frequencies = dict.fromkeys(new_words, 0)
        owners: dict[str, list[int]] = {name: [] for name in new_names}
        for kind, text, number, *more in rows:
            if kind == _IS_TERM:
                frequencies[text] = number
            elif kind == _IS_NAME:
                owners[text].append(number)
            elif kind == _IS_COUNTER:
                counters[text] = number
            else:
                clock = Clock._make((number, *more, text, None))
        version = counters.get("corpus", 0)
        corpus = self._memory.get_corpus(version)
        if corpus is not known and (len(new_words), len(new_names)) != (len(words), len(names)):
            return self.read_facts(namespace, words, names)  # some belong to another version
        corpus.add_words(frequencies, owners)
        total = counters.get("nodes", 0)
        return QueryFacts(
            clock._replace(corpus=version),
            {word: count for word in words if (count := corpus.frequencies[word])},
            total,
            max(1.0, counters.get("tokens", 0) / max(1, total)),
            {name: keys for name in names if (keys := corpus.owners[name])},
        )

    def read_more_facts(
        self, namespace: str, words: Sequence[str], facts: QueryFacts
    ) -> QueryFacts:
        """Read facts with the frequencies of other words than ``facts`` has.

        If all of the words are cached, nothing is read: the other fields are those of ``facts``.
        """
        remembered = self._memory.get_corpus(facts.clock.corpus).frequencies
        if any(word not in remembered for word in words):
            return self.read_facts(namespace, words)
        counts = {word: count for word in words if (count := remembered[word])}
        return facts._replace(frequencies=counts)


_CREATED = frozenset((EdgeKind.STOP, *OVERLAY_KINDS))  # kinds of edges that no text creates


def _heads(rows: Collection[Sequence[Any]]) -> list[NodeHead]:
    """Decode rows of ``_HEAD``, column by column."""
    if not rows:
        return []
    keys, ids, titles, mentions, embeddings, terms, authorities, _ = zip(*rows, strict=True)
    vectors = to_single_precision(decode_vectors(embeddings))
    columns = zip(keys, ids, titles, mentions, vectors, terms, authorities, strict=True)
    return list(map(partial(tuple.__new__, NodeHead), columns))
