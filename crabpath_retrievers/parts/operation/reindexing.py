"""Indexing all vectors again, and deleting those that belong to nothing any more."""

from collections.abc import Callable, Iterable
from functools import partial

from crabpath_retrievers.ingest.reindex import SAMPLE_SIZE, Reindexer
from crabpath_retrievers.vectors.base import VectorIndex


def reindex_all(own: Reindexer) -> None:
    """Index all vectors again, and delete those that belong to no node.

    Raises:
        ConfigurationError: The index holds vectors, but none of this memory.
        InvalidInputError: The graph store is empty, but the index is not.
    """
    with own.store.hold_ingest_lock():
        some = own.store.catalog.some_chunk_ids(SAMPLE_SIZE)
        count, held = own.index.count_and_find(some) or (0, set())
        own.require_own(count, some, held)
        own.index.inspect()
        own.fill()
        _delete_surplus(own)
        own.ingest.stamp()


def sweep_vectors(own: Reindexer) -> None:
    """Finish an interrupted ingest, and delete vectors of episodes and notes that are gone."""
    own.ingest.recover()
    _delete_strays(own)


def _delete_surplus(own: Reindexer) -> None:
    # List the index first: nodes added meanwhile are in the graph store before the index.
    _delete_others(own.index, own.store.catalog.chunk_ids)
    _delete_strays(own)


def _delete_strays(own: Reindexer) -> None:
    for name in own.index.list_siblings():
        kind, _, key = name.partition("-")
        reads = own.store.learned.episode_ids if kind == "episodes" else own.store.notes.ids
        _delete_others(own.index.open_sibling(name), partial(reads, int(key)))


def _delete_others(index: VectorIndex, list_wanted: Callable[[], Iterable[str]]) -> None:
    held = [one for part in index.ids() for one in part]
    wanted = set(list_wanted())
    if surplus := [one for one in held if one not in wanted]:
        index.delete(surplus)
