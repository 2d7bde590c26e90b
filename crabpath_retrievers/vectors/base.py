"""The base class of vector indexes.

The SQL store has the vectors themselves, so an index only finds ids; scores are computed here in
the same way for every index, whatever its distance.

One collection of vectors per namespace, in the vector store of the documents.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from crabpath_retrievers.core.changes import Change
from crabpath_retrievers.core.metadata import OF_LISTS, list_keys, make_test, parse_filter
from crabpath_retrievers.core.query import MetadataFilter, require_result
from crabpath_retrievers.core.records import Vector, choose_nearest, stack_vectors
from crabpath_retrievers.errors import ConfigurationError, InvalidInputError, StoreReadOnlyError
from crabpath_retrievers.storage import GraphStore, Reader, Store
from crabpath_retrievers.storage.read.catalog import Catalog
from crabpath_retrievers.storage.read.walk import Clock
from crabpath_retrievers.storage.sql_tools import split_batches

_COMPARED = 1000  # vectors that are compared at a time
_SAME = 1.0 - 1e-5  # cosine of a vector and itself in half precision
_log = logging.getLogger(__name__)
Ids = TypeVar("Ids", bound=Collection[str])
FindExisting = Callable[[Sequence[str]], set[str] | None]
"""Finds those of the ids that a vector store has; None if the store cannot be asked."""


class VectorIndex(ABC):
    """Finds the ids of nearest vectors. Subclasses must be thread-safe.

    What not every index can do has a default here.

    Attributes:
        reads_filters: Whether it searches with filters; queries with one are refused otherwise.
        foreign: Whether it belongs to another application.
        is_copied: Whether it finds what an exact search over the vectors in the graph store finds;
            a process then searches small corpora by a copy of these.
        deletes: Whether documents are deleted here; else only their owner deletes them.
        refill: Called after damaged files were replaced, to fill the index again; None leaves it
            empty.
        has_collections: Whether :meth:`open_sibling` opens further collections.
        unknown_reported: Whether documents that the graph does not know are not reported (again).
        ignored: Ids of documents that the graph left out, which are not reported either.
        read_only: Whether only queries may use it; opening a memory over it repairs nothing.
        removal: For an index in the graph's database: function that deletes the vectors of removed
            documents in the transaction that removes them.
        switch: For such an index: function that replaces it by that of :meth:`open_next` in the
            transaction that changes the embedder.
        deferral: For such an index: function that begins a bulk ingest of a new memory; searches
            are slower until ``completion``.
        completion: For such an index: function that ends a bulk ingest.
        place: Where it is, as the graph store remembers it; see :mod:`~..vectors.opening`.
    """

    reads_filters: bool = False
    foreign: bool = False
    is_copied: bool = False
    deletes: bool = True
    refill: Callable[[], None] | None = None
    has_collections: bool = False
    unknown_reported: bool = True
    ignored: AbstractSet[str | None] = frozenset()
    read_only: bool = False
    removal: tuple[Change, ...] = ()
    switch: tuple[Change, ...] = ()
    deferral: tuple[Change, ...] = ()
    completion: tuple[Change, ...] = ()
    place: Mapping[str, str] = MappingProxyType({"kind": "own"})

    @property
    def local(self) -> bool:
        """Whether the index is embedded, with files of its own in a directory."""
        return False

    @property
    def generation(self) -> int:
        """Number of times that damaged files were replaced since this process opened them."""
        return 0

    @property
    @abstractmethod
    def description(self) -> str:
        """Kind and place of the index, for messages."""

    @abstractmethod
    def upsert(
        self,
        ids: Sequence[str],
        vectors: Sequence[Vector],
        texts: Sequence[str],
        metadatas: Sequence[Mapping[str, Any]],
    ) -> None:
        """Add vectors, or replace those with the same id.

        Args:
            ids: Node ids, distinct.
            vectors: Unit vectors, each of shape ``[d]``.
            texts: The embedded texts.
            metadatas: JSON-safe metadata to filter by.
        """

    def prepare_upsert(
        self,
        ids: Sequence[str],
        vectors: Sequence[Vector],
        texts: Sequence[str],
        metadatas: Sequence[Mapping[str, Any]],
    ) -> tuple[Change, ...]:
        """Add vectors before their documents become visible; arguments as :meth:`upsert`.

        Returns:
            For an index in the graph's database, the changes that add the vectors in the
            transaction that publishes the documents. Empty for any other index, which adds them at
            once.
        """
        self.upsert(ids, vectors, texts, metadatas)
        return ()

    @abstractmethod
    def delete(self, ids: Sequence[str]) -> None:
        """Delete vectors; unknown ids are ignored."""

    @abstractmethod
    def search(self, vector: Vector, k: int, filter: MetadataFilter = None) -> list[str]:  # noqa: A002
        """Find the ids of the k nearest vectors, nearest first.

        Args:
            vector: Unit query vector, shape ``[d]``.
            k: Number of hits, at least 1.
            filter: Condition on metadata, in the index's own syntax; None for none.

        Raises:
            InvalidInputError: The index cannot apply the filter; no filter may be ignored.
        """

    def on(self, read: Reader) -> "VectorIndex":  # noqa: ARG002  for one in the graph's database
        """Return the index; one in the graph's database then uses the connection of ``read``."""
        return self

    def search_ahead(
        self,
        vectors: Sequence[Vector],  # noqa: ARG002
        k: int,  # noqa: ARG002
    ) -> AbstractContextManager[object]:
        """Search for several vectors at once, if that takes less time than one by one.

        In the block, a search for ``k`` hits of one of these vectors, without a filter, uses the
        result.
        """
        return nullcontext()

    def filter_ids(self, ids: Sequence[str], vector: Vector, filter: MetadataFilter) -> set[str]:  # noqa: A002, ARG002
        """Select the ids whose metadata satisfies a filter; None selects all of them.

        ``vector`` is that of the query: some stores can only filter while they search.
        """
        self.require_no_filter(filter)
        return set(ids)

    def require_no_filter(self, filter: MetadataFilter) -> None:  # noqa: A002
        """Refuse a filter, in an index that reads none."""
        if filter:
            msg = f"{self.description}: filters are not read here, so ask without one"
            raise InvalidInputError(msg)

    def count(self) -> int:
        """Number of vectors; -1 for an index that cannot count."""
        return -1

    def close(self) -> None:  # noqa: B027  an index without files has nothing to release
        """Release files and connections."""

    def find_existing(self, ids: Sequence[str]) -> set[str] | None:  # noqa: ARG002
        """Select the ids that the index contains; None if it cannot be asked."""
        return None

    def read_vectors(self, ids: Sequence[str]) -> Mapping[str, Vector] | None:  # noqa: ARG002
        """Read the vectors ``[d]`` of the ids that the index contains, by id; None if it cannot."""
        return None

    def read_stamp(self) -> str | None:
        """Read the stamp written last by :meth:`write_stamp`; None if there is none."""
        return None

    def write_stamp(self, stamp: str) -> None:  # noqa: B027  an index in the graph's database
        """Store the stamp that ties the vectors to a state of the graph store."""

    def count_and_find(self, ids: Sequence[str]) -> tuple[int, set[str]] | None:  # noqa: ARG002
        """Count all vectors, and select the ids that exist; None if that takes long."""
        return None

    def inspect(self) -> None:  # noqa: B027  as above
        """Read all files, and replace them if one is damaged."""

    def erase(self) -> None:  # noqa: B027  as above
        """Erase deleted vectors from the files of an embedded index."""

    def ids(self) -> Iterable[list[str]]:
        """Yield all ids in pages; none of an index that cannot list them."""
        return ()

    def open_sibling(self, name: str) -> "VectorIndex":
        """Open another collection in the same place; see ``has_collections``."""
        raise NotImplementedError

    def list_siblings(self) -> list[str]:
        """List the names of the other collections, as :meth:`open_sibling` expects them."""
        return []

    def drop(self) -> None:
        """Delete a collection that :meth:`open_sibling` opened, with all its vectors."""
        raise NotImplementedError

    def open_next(self, *, anew: bool) -> "VectorIndex":
        """Open an index for another embedder, beside this one until the memory changes to it.

        Args:
            anew: Whether the index begins empty; if not, vectors of an earlier attempt are kept.

        Raises:
            ConfigurationError: There can be none.
        """
        del anew
        msg = (
            f"the vectors of this memory are in {self.description}, where there is no place for "
            "those of another embedder: keep them in Chroma or pgvector, or fill the store anew "
            "with the other embedder and wrap it again"
        )
        raise ConfigurationError(msg)

    def drop_next(self) -> None:  # noqa: B027  where there can be none
        """Delete the collections of :meth:`open_next`, if any."""

    def use_next(self, following: "VectorIndex") -> None:  # noqa: B027  as above
        """Search the index ``following`` from now on; the graph store has changed to it."""

    def take_next(self) -> None:  # noqa: B027  as above
        """Replace this index by the next one, if there is one; safe to repeat."""

    def report_unknown(self, ids: Sequence[str]) -> None:  # noqa: B027  see ``unknown_reported``
        """Log that the index contains documents that the graph does not know."""


class StoredVectors(VectorIndex):
    """Exact search over vectors in the graph store, while another process holds the index.

    Each query reads all vectors, in blocks of bounded size.
    """

    read_only = is_copied = True

    def __init__(self, store: GraphStore) -> None:
        """Keep the graph store to search, which is closed with the index."""
        self._store = store

    @property
    def description(self) -> str:
        """Kind and place of the index, for messages."""
        return f"the vectors in {self._store.name}"

    def search(self, vector: Vector, k: int, filter: MetadataFilter = None) -> list[str]:  # noqa: A002
        """Find the ids of the k nearest vectors, nearest first.

        Raises:
            InvalidInputError: A filter is given.
        """
        self.require_no_filter(filter)
        best: list[tuple[str, Vector]] = []
        for block in self._store.regions.iterate_nodes():
            best += [(node.id, node.vector) for node in block]
            matrix = stack_vectors([own for _, own in best])
            best = [best[row] for row in choose_nearest(matrix, vector, k)]
        return [name for name, _ in best]

    def upsert(self, *_: object) -> None:
        """Refuse to write."""
        msg = f"{self.description} were opened for queries alone: another process holds the index"
        raise StoreReadOnlyError(msg)

    def delete(self, ids: Sequence[str]) -> None:
        """Refuse to write, as :meth:`upsert`."""
        self.upsert(ids)

    def close(self) -> None:
        """Close the graph store."""
        self._store.close()


def find_ids(
    index: VectorIndex,
    vector: Vector,
    k: int,
    filter: MetadataFilter = None,  # noqa: A002
) -> Sequence[str]:
    """Find the ids of the k vectors nearest to a unit vector ``[d]``, nearest first.

    Raises:
        InvalidInputError: The index reads no filters, or does not return ids.
    """
    if not index.reads_filters:
        index.require_no_filter(filter)
    return _require_ids(index.search(vector, k, filter), index, "search", list)


def select_ids(
    read: Reader,
    index: VectorIndex,
    ids: Sequence[str],
    vector: Vector,
    filter: MetadataFilter,  # noqa: A002
    found: AbstractSet[str] = frozenset(),
) -> set[str]:
    """Select the ids whose metadata satisfies a filter.

    Ids in ``found`` were returned by a search with the same filter, and the index is not asked
    about them again. ``vector`` is that of the query: some stores can only filter while they
    search.

    Raises:
        InvalidInputError: As for :func:`find_ids`.
    """
    if not index.reads_filters:
        index.require_no_filter(filter)
    others = [node for node in ids if node not in found]
    kept = _require_ids(index.filter_ids(others, vector, filter), index, "filter_ids", set)
    kept = {node for node in ids if node in kept or node in found}
    if is_ours(index) or not isinstance(filter, Mapping):
        return kept
    nodes = read.catalog.documents([*kept])
    metadata = {name: node.metadata for name, node in nodes.items()}
    return metadata.keys() - find_leaked(index, filter, metadata)


def is_ours(part: object) -> bool:
    """Whether a part is of this package, whose tests show that it applies filters."""
    return type(part).__module__.startswith("crabpath_retrievers.")


def find_leaked(
    index: object,
    filter: Mapping[str, Any],  # noqa: A002
    metadata: Mapping[str, Mapping[str, Any]],
    *,
    is_our_language: bool = True,
) -> set[str]:
    """Find documents that an index returned although the filter does not allow their metadata.

    ``metadata`` are by id. The caller leaves the found documents out, and the log says so once: an
    error would also fail sound queries, since an index has the new metadata of a document a moment
    before the graph. A filter in another language is not judged. If not ``is_our_language``,
    neither is one that may be in another language: no document has its keys, or values are not
    plain.
    """
    try:
        condition = parse_filter(filter, "the index", OF_LISTS)
    except InvalidInputError:
        return set()
    if not is_our_language:
        for key in list_keys(condition):
            values = [own[key] for own in metadata.values() if own.get(key) is not None]
            if not values or not all(isinstance(value, (str, int, float)) for value in values):
                return set()
    satisfies = make_test(condition)
    leaked = {node for node, own in metadata.items() if not satisfies(own)}
    if leaked:
        _warn_of_leak(type(index).__name__)
    return leaked


@lru_cache(maxsize=1024)
def _warn_of_leak(name: str) -> None:
    _log.warning(
        "%s returned documents that the filter does not allow; they were left out. Correct its "
        "searches with a filter: the suites of crabpath_retrievers.testing try them",
        name,
    )


def _require_ids(found: Ids, index: VectorIndex, method: str, kind: type) -> Ids:
    fits = isinstance(found, kind) and all(isinstance(node, str) for node in found)
    what = f"a {kind.__name__} of ids, which are texts, from {method}"
    require_result(index, what, found, fits=fits)
    return found


def get_owner_lookup(index: VectorIndex) -> FindExisting | None:
    """Return the function that looks up ids in a store of others; None for our own index."""
    return index.find_existing if index.foreign else None


def require_deleting(index: VectorIndex) -> None:
    """Refuse to delete documents from a store that is only searched."""
    if not index.deletes:
        msg = (
            "this memory wraps a store of yours, and deletes nothing from it: delete the documents "
            "there, then call refresh(); CrabPath.open(path, vectors=store) deletes in the store"
        )
        raise ConfigurationError(msg)


def find_deleted(
    find_existing: FindExisting, read: Reader, ids: Sequence[str], clock: Clock
) -> set[str]:
    """Find documents that the owner of the vector store has deleted from it.

    Args:
        read: Reader of the graph store; notes are never in the owner's store.
    """
    found = read.notes.get_facts(ids) if clock.notes else ()
    notes = {note.id for note in found if note.owner == clock.key}
    documents = [node for node in ids if node not in notes]
    existing = find_existing(documents) if documents else None
    return set() if existing is None else set(documents) - existing


def find_differing(
    catalog: Catalog, read_vectors: Callable[[Sequence[str]], Mapping[str, Vector] | None]
) -> Iterator[str]:
    """Find the ids of chunks whose vector is missing in an index, or is another one there."""
    for part in split_batches(catalog.chunk_ids(), _COMPARED):
        found = read_vectors(part) or {}
        for node, vector in catalog.vectors(part).items():
            other = found.get(node)
            if other is None or (other.shape == vector.shape and not is_same(vector, other)):
                yield node


def is_same(a: Vector, b: Vector) -> bool:
    """Whether two vectors ``[d]`` have one direction, up to rounding; lengths do not matter."""
    if a.shape != b.shape:
        return False
    own, other = a.astype(np.float64), b.astype(np.float64)
    return bool(own @ other >= _SAME * np.sqrt((own @ own) * (other @ other) or 1.0))


class CollectionEntry(NamedTuple):
    """A unit vector ``[d]`` for the collection of a namespace, which is given by its key."""

    namespace: int
    id: str
    vector: Vector
    text: str = ""


class NamespaceCollections:
    """Opens collections on demand, in an index that has them."""

    def __init__(self, index: VectorIndex | None, name: str) -> None:
        """Keep the index in whose store the collections are, called ``name-<namespace key>``.

        ``index`` is None in a process without one.
        """
        self._index, self._name = index, name
        self._open: dict[int, VectorIndex] = {}

    @property
    def has_index(self) -> bool:
        """Whether this process has the vector index; if not, another one fills the collections."""
        return self._index is not None

    @property
    def available(self) -> bool:
        """Whether the index supports further collections."""
        return self._index is not None and self._index.has_collections

    def of(self, namespace: int) -> VectorIndex:
        """Open the collection of a namespace, given by key; a missing one is created."""
        if namespace not in self._open:
            assert self._index is not None  # noqa: S101
            self._open[namespace] = self._index.open_sibling(f"{self._name}-{namespace}")
        return self._open[namespace]

    def fill(
        self,
        store: Store,
        entries: Iterable[CollectionEntry],
        mark: Callable[[], object],
        find: Callable[[int, list[str]], set[str]],
    ) -> None:
        """Add new vectors, one write per namespace; delete those whose rows are gone afterwards.

        Args:
            entries: The vectors; without collections they are not added.
            find: Selects the ids of a namespace that the graph store still has.
        """
        groups: dict[int, list[CollectionEntry]] = {}
        for entry in entries if self.available else ():
            groups.setdefault(entry.namespace, []).append(entry)
        for namespace, group in groups.items():
            self.of(namespace).upsert(
                [entry.id for entry in group],
                [entry.vector.astype(np.float32) for entry in group],
                [entry.text for entry in group],
                [{} for _ in group],
            )
        mark()
        for namespace, group in groups.items():
            ids = [entry.id for entry in group]
            present = find(namespace, ids)
            self.delete(store, namespace, [entry for entry in ids if entry not in present])

    def delete(self, store: Store, namespace: int, ids: Sequence[str]) -> None:
        """Delete the vectors ``ids`` of a namespace, given by key; unknown ids are ignored.

        If ``store`` is an open transaction, they are deleted in it.
        """
        if self.available and ids:
            self.of(namespace).on(store).delete(ids)

    def reopen(self) -> None:
        """Open all collections again, after those of another embedder have replaced them."""
        self._open = {}

    def forget(self, namespace: int) -> None:
        """Delete the collection of a namespace."""
        if self.available:
            index = self.of(namespace)
            self._open.pop(namespace)
            index.drop()
