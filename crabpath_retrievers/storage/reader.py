"""Reads of a store by topic, on a connection that one operation opens and passes on."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import sqlalchemy as sa

from crabpath_retrievers.storage.database import translate_database_errors
from crabpath_retrievers.storage.fulltext import FullText, FullTextReader
from crabpath_retrievers.storage.read.catalog import Catalog, LinkQueries
from crabpath_retrievers.storage.read.history import HistoryQueries
from crabpath_retrievers.storage.read.learned import LearnedQueries, RegionQueries
from crabpath_retrievers.storage.read.notes import NoteQueries
from crabpath_retrievers.storage.read.turns import TurnLog
from crabpath_retrievers.storage.read.walk import CorpusMemory, WalkQueries

T = TypeVar("T")
Flush = Callable[[], None]
"""Waits until all queued turn records are written."""


@dataclass(slots=True)
class StoreMemory:
    """Cache of a process for a store, which all readers of the store share.

    ``scale`` is the stretch of the embedder's distances, and whether its vectors are informative;
    ``language`` is that of all texts, empty before it was read.
    """

    fulltext: FullText
    corpus: CorpusMemory = field(default_factory=CorpusMemory)
    scale: tuple[float, bool] | None = None
    language: tuple[str | None, ...] = ()


class Reader(ABC):
    """Reads by topic, each on a connection of :meth:`connect`.

    :meth:`GraphStore.open_reader` makes a reader of one connection. The store itself is a reader
    that opens a connection for each call. Optional parts have classes of reads of their own, which
    are made from any reader.
    """

    walk = cached_property(lambda self: WalkQueries(self, self._memory.corpus, self.fulltext))
    """Reads of every query."""
    fulltext = cached_property(lambda self: FullTextReader(self, self._memory.fulltext))
    """Searches of the full-text index."""
    links = cached_property(lambda self: LinkQueries(self, self.fulltext))
    """Reads of the linkers."""
    catalog = cached_property(Catalog)
    """Documents, the ingest queue, statistics."""
    turns = cached_property(TurnLog)
    """Turn records."""
    learned = cached_property(LearnedQueries)
    """Learned state of namespaces, and feedback."""
    history = cached_property(HistoryQueries)
    """Feedback and its effects, for undo; snapshots."""
    notes = cached_property(NoteQueries)
    """Notes of namespaces."""
    regions = cached_property(RegionQueries)
    """Hubs of regions, and transition counts."""

    def __init__(self, memory: StoreMemory) -> None:
        """Share ``memory`` with other readers of the store."""
        self._memory = memory

    @abstractmethod
    def connect(self) -> AbstractContextManager[sa.Connection]:
        """A connection for reads; each statement sees the latest commit."""

    @abstractmethod
    def flush(self) -> None:
        """Wait until all queued turn records are written."""

    @property
    def primary(self) -> "Reader":
        """This reader, or one that reads no replica."""
        return self

    def run(self, step: Callable[[], T]) -> T:
        """Call one step of an operation on a shared connection."""
        return step()

    @property
    def stretch(self) -> float:
        """Stretch of the embedder's distances; 1 until one is recorded."""
        return self._read_scale()[0]

    @property
    def informative(self) -> bool:
        """Whether the embedder tells unrelated texts apart; True until that is recorded."""
        return self._read_scale()[1]

    def _read_scale(self) -> tuple[float, bool]:
        memory = self._memory
        if memory.scale is None and (text := self.catalog.meta().get("embedder")):
            facts = json.loads(text)
            memory.scale = float(facts.get("stretch", 1.0)), bool(facts.get("informative", True))
        return memory.scale or (1.0, True)

    @property
    def language(self) -> str | None:
        """Language of all texts; None to detect that of each."""
        memory = self._memory
        if not memory.language:
            memory.language = (self.catalog.meta().get("language"),)
        return memory.language[0]


class ConnectionReader(Reader):
    """Reader of one open connection."""

    def __init__(self, memory: StoreMemory, connection: sa.Connection, flush: Flush) -> None:
        """Keep the connection to read on; ``flush`` waits until queued turn records are written."""
        super().__init__(memory)
        self._connection, self._flush = connection, flush

    @contextmanager
    def connect(self) -> Iterator[sa.Connection]:
        """The connection; errors of the database are translated."""
        with translate_database_errors(self._connection.engine):
            yield self._connection

    def flush(self) -> None:
        """Wait until all queued turn records are written."""
        self._flush()
