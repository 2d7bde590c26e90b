"""Reads of the full-text index."""

from collections.abc import Mapping, Sequence

from crabpath_retrievers.storage.fulltext import FullText
from crabpath_retrievers.storage.reading import ReadableStore


class FullTextReader:
    """Searches of the full-text index on a reading connection."""

    def __init__(self, store: ReadableStore, index: FullText) -> None:
        """Read ``index`` from ``store``."""
        self._store = store
        self._index = index

    def search(
        self, idf: Mapping[str, float], limit: int, mean_length: float
    ) -> list[tuple[int, float]]:
        """Keys and BM25 scores of nodes that contain any of the terms, best first."""
        if not idf:
            return []
        with self._store.open_reader() as connection:
            return self._index.search(connection, idf, limit, mean_length)

    def phrase(self, tokens: Sequence[str], limit: int) -> list[int]:
        """Keys of nodes that contain the tokens next to each other, in order."""
        with self._store.open_reader() as connection:
            return self._index.phrase(connection, tokens, limit)
