"""The graph store: opening, reading connections, and the one place where anything changes."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import sqlalchemy as sa

from crabpath_retrievers.changes import Change, ConsumeFeedback, KeepFeedback, RecordTurn
from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.storage.apply import Writer
from crabpath_retrievers.storage.catalog import Catalog
from crabpath_retrievers.storage.dump import Dump
from crabpath_retrievers.storage.engine import (
    connected,
    moment,
    open_engine,
    translated_errors,
)
from crabpath_retrievers.storage.fulltext import full_text
from crabpath_retrievers.storage.fulltext_reader import FullTextReader
from crabpath_retrievers.storage.health_queries import HealthQueries
from crabpath_retrievers.storage.history_queries import HistoryQueries
from crabpath_retrievers.storage.learned_queries import LearnedQueries
from crabpath_retrievers.storage.link_queries import LinkQueries
from crabpath_retrievers.storage.locks import ingest_lock, lock_schema
from crabpath_retrievers.storage.migrations import prepare
from crabpath_retrievers.storage.note_queries import NoteQueries
from crabpath_retrievers.storage.region_queries import RegionQueries
from crabpath_retrievers.storage.trial_queries import TrialQueries
from crabpath_retrievers.storage.turn_log import TurnLog
from crabpath_retrievers.storage.turn_writer import TurnWriter
from crabpath_retrievers.storage.twin_queries import TwinQueries
from crabpath_retrievers.storage.typed_queries import TypedQueries
from crabpath_retrievers.storage.upkeep_queries import UpkeepQueries
from crabpath_retrievers.storage.walk_queries import WalkQueries
from crabpath_retrievers.time_limit import TIME_LIMIT, limited
from crabpath_retrievers.trajectory import Turn

_log = logging.getLogger(__name__)


class GraphStore:
    """Nodes, edges, what each namespace learned, and the turn log, in one SQL database.

    Attributes:
        walk: Reads of the hot path.
        fulltext: Searches of the full-text index.
        links: Reads of the linkers.
        catalog: Documents, staged work, statistics.
        turns: Turn records and the change journal.
        learned: What namespaces have learned, and feedback.
        history: What of it can be taken back, and snapshots.
        notes: Notes of namespaces.
        regions: Hubs of regions, and what became of steps.
        typed: Edges by their kind.
        health: What health is measured on, and what was found before.
        upkeep: What maintenance looks at.
        twins: Texts that may be merged or split.
        trials: Turns and feedback of A/B trials, and where these stand.
    """

    def __init__(self, location: str | Path, *, time_limit: float = TIME_LIMIT) -> None:
        """Open or create the store.

        Args:
            location: A directory (SQLite inside, files private to the user) or an SQLAlchemy URL.
            time_limit: Seconds that connecting, and writing turns behind answers, may take.

        Raises:
            StoreReadOnlyError: The directory or database cannot be written.
            StoreUnavailableError: The database cannot be reached.
            SchemaVersionError: The store was written by a newer release.
        """
        self._time_limit = time_limit
        self._engine = open_engine(location, time_limit=time_limit)
        self._reader = open_engine(location, reading=True, time_limit=time_limit)
        self._fulltext = full_text(self._engine.dialect.name)
        self._ingest = threading.RLock()
        self._recorder = TurnWriter(self._keep_turns)
        self._ingesting = False
        self._current: ContextVar[sa.Connection | None] = ContextVar("reading", default=None)
        try:
            with translated_errors(self._engine), self._engine.begin() as connection:
                lock_schema(connection)
                prepare(connection, self._fulltext)
        except BaseException:
            self.close()
            raise
        self.walk = WalkQueries(self)
        self.fulltext = FullTextReader(self, self._fulltext)
        self.links = LinkQueries(self, self.fulltext)
        self.catalog = Catalog(self)
        self.turns = TurnLog(self)
        self.learned = LearnedQueries(self)
        self.history = HistoryQueries(self)
        self.notes = NoteQueries(self)
        self.regions = RegionQueries(self)
        self.typed = TypedQueries(self)
        self.health = HealthQueries(self)
        self.upkeep = UpkeepQueries(self)
        self.twins = TwinQueries(self)
        self.trials = TrialQueries(self)

    @property
    def name(self) -> str:
        """Where the store is, without password."""
        return self._engine.url.render_as_string(hide_password=True)

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._engine.dialect.name

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection for reads; each statement sees the latest commit.

        Within another ``reading()`` of the same context the outer connection serves.
        """
        current = self._current.get()
        if current is not None:
            with translated_errors(self._engine):
                yield current
            return
        with translated_errors(self._engine), connected(self._reader) as connection:
            token = self._current.set(connection)
            try:
                yield connection
            finally:
                self._current.reset(token)

    @contextmanager
    def dumping(self) -> Iterator[Dump]:
        """The store as it is now, however long it takes to read and whatever changes meanwhile.

        Raises:
            StoreError: Documents are half added.
        """
        self.settle()
        with translated_errors(self._engine), moment(self._reader) as connection:
            dump = Dump(connection)
            dump.require_finished()
            yield dump

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply all changes in one transaction, or none of them, and journal them.

        Once it returns they survive a loss of power, but for what nobody was promised or what is
        done again: turn records, and what was learned from feedback that is kept.

        Raises:
            StoreError: The database failed; nothing of this call is kept.
        """
        if not changes:
            return
        self.settle()
        opened = connected(self._engine, lazy=_may_be_late(changes))
        with translated_errors(self._engine), opened as connection, connection.begin():
            writer = Writer(connection, self._fulltext)
            for change in changes:
                writer.apply(change)

    def _keep_turns(self, records: Sequence[RecordTurn]) -> None:
        with limited(self._time_limit):
            self.apply(records)

    def record(self, turn: Turn, vector: Vector | None = None) -> None:
        """Keep a turn record: it is written behind the answer, see :mod:`turn_writer`."""
        self._recorder.put(RecordTurn(turn, vector))

    def settle(self) -> None:
        """Wait until all turn records that were handed over are written."""
        self._recorder.settle()

    @contextmanager
    def ingesting(self, *, wait: bool = True) -> Iterator[bool]:
        """Hold the right to ingest: one writer of documents per store at a time.

        The thread that holds it may ask again.

        Args:
            wait: Whether to wait while somebody else ingests.

        Yields:
            Whether the right is held; always True with ``wait``.
        """
        if not self._ingest.acquire(blocking=wait):
            yield False
            return
        try:
            if self._ingesting:
                yield True
                return
            with translated_errors(self._engine), ingest_lock(self._reader, wait=wait) as held:
                self._ingesting = held
                try:
                    yield held
                finally:
                    self._ingesting = False
        finally:
            self._ingest.release()

    def close(self) -> None:
        """Close all connections; turn records that cannot be written in time are given up."""
        try:
            with limited(self._time_limit):
                self.settle()
        except StoreError as error:
            _log.warning("turn records are lost: %s", error)
        self._reader.dispose()
        self._engine.dispose()


def _may_be_late(changes: Sequence[Change]) -> bool:
    """Whether the disk need not hold changes yet; whatever is committed later syncs them too."""
    kinds = {type(change) for change in changes}
    learned_again = ConsumeFeedback in kinds and KeepFeedback not in kinds
    return learned_again or kinds == {RecordTurn}
