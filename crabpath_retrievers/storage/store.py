"""The graph store: reads by topic, opening, connections, and ``apply``, which writes everything."""

import json
import logging
import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.calls import DEFAULT_TIME_LIMIT, limit_waiting
from crabpath_retrievers.core.changes import (
    Change,
    ConsumeFeedback,
    KeepFeedback,
    RecordTurn,
)
from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.processes import leave_engine, register_owner, require_engine
from crabpath_retrievers.core.query import is_url
from crabpath_retrievers.core.records import Turn, Vector
from crabpath_retrievers.errors import (
    ForkedError,
    SchemaVersionError,
    StoreError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from crabpath_retrievers.storage.database import (
    MAX_CONNECTIONS,
    OWN_TABLES,
    lock_schema,
    open_connection,
    open_engine,
    open_snapshot_connection,
    process_lock,
    rewrite_tables,
    translate_database_errors,
)
from crabpath_retrievers.storage.fulltext import (
    TAKE_IN,
    FullText,
    FullTextReader,
    get_fulltext_index,
)
from crabpath_retrievers.storage.read.catalog import Catalog, LinkQueries
from crabpath_retrievers.storage.read.history import HistoryQueries
from crabpath_retrievers.storage.read.learned import LearnedQueries, RegionQueries
from crabpath_retrievers.storage.read.notes import NoteQueries
from crabpath_retrievers.storage.read.turns import TurnLog
from crabpath_retrievers.storage.read.walk import CorpusMemory, WalkQueries
from crabpath_retrievers.storage.schema import meta, metadata
from crabpath_retrievers.storage.sql_tools import open_driver_cursor, repeat_transaction
from crabpath_retrievers.storage.write import learned, notes, weights
from crabpath_retrievers.storage.write.learned import record_turns
from crabpath_retrievers.storage.write.nodes import (
    publish_staged,
    put_edges,
    put_meta,
    renew_corpus_version,
)
from crabpath_retrievers.storage.write.transaction import Transaction, Write
from crabpath_retrievers.storage.write.turn_queue import TurnWriter

if TYPE_CHECKING:
    from crabpath_retrievers.parts.replica import Replica, ReplicaState

SCHEMA_VERSION = 6
"""Version of the tables in ``storage.schema``: the latest of ``parts.schema_upgrades``."""

DEFAULT_MAX_LAG = 5.0
"""Seconds that a replica may be behind."""

UNRELEASED = 0
"""Version of stores that were written before the first release; they cannot be read."""

_NAME = "schema_version"
# Stores from before the first release counted their own versions, from 1, under this name.
_UNRELEASED_NAME = "schema"


def ensure_schema(connection: sa.Connection, fulltext: FullText) -> None:
    """Create the tables of a new store and its full-text index, or upgrade those of an older one.

    The open transaction may write, and keeps other processes out.

    Raises:
        SchemaVersionError: The store has a later version than ``SCHEMA_VERSION``, or is from before
            the first release.
    """
    found = read_schema_version(connection)
    if found is None:
        metadata.create_all(connection)
        fulltext.create(connection)
        connection.execute(meta.insert().values(name=_NAME, value=str(SCHEMA_VERSION)))
    elif found > SCHEMA_VERSION:
        msg = (
            f"the store has schema version {found}, but this release supports {SCHEMA_VERSION}: "
            "upgrade crabpath-retrievers"
        )
        raise SchemaVersionError(msg)
    elif found == UNRELEASED:
        msg = (
            "the store was written before the first release and its schema is not supported: "
            "add the documents to a new store"
        )
        raise SchemaVersionError(msg)
    elif found < SCHEMA_VERSION:
        part = load_part("crabpath_retrievers.parts.schema_upgrades")
        part.upgrade_schema(connection, found, SCHEMA_VERSION)
        written = meta.update().where(meta.c.name == _NAME).values(value=str(SCHEMA_VERSION))
        connection.execute(written)


def read_schema_version(connection: sa.Connection) -> int | None:
    """The schema version of a store: ``UNRELEASED`` for an outdated one, None without tables."""
    if not sa.inspect(connection).has_table(meta.name):
        return None
    query = sa.select(meta.c.name, meta.c.value).where(meta.c.name.in_((_NAME, _UNRELEASED_NAME)))
    versions = {name: value for name, value in connection.execute(query)}
    if _NAME in versions:
        return int(versions[_NAME])
    return UNRELEASED if _UNRELEASED_NAME in versions else None


P = ParamSpec("P")
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


_log = logging.getLogger(__name__)


class Store(Reader):
    """Reads by topic, and changes: of a store, or of one transaction that is open in it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """URL of the database, without password."""

    @abstractmethod
    def open_reader(self) -> AbstractContextManager[Reader]:
        """Open a reader of one connection, for all the reads of an operation."""

    @abstractmethod
    def start_query(self) -> Reader:
        """Make a reader for one query, whose steps :meth:`Reader.run` calls."""

    @abstractmethod
    def apply(self, changes: Sequence[Change]) -> list[Any]:
        """Apply and journal all changes in one transaction, or none of them.

        Afterwards they survive a power failure, except turn records, and what is repeated at the
        next opening: learning from stored feedback, publishing and linking of staged documents.

        The result has, for each change, the value that its writer returns, mostly None.
        """

    def write(
        self,
        work: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Call ``work`` with a transaction and these arguments; return its result."""
        found: T = self.apply([Write(work, *args, **options)])[0]
        return found

    @abstractmethod
    def apply_together(self, work: Callable[["Store"], T]) -> T:
        """Call ``work``, whose changes become one transaction; it may be called again.

        ``work`` gets the transaction. Its reads see what it has changed; nobody else does before
        the end. Each call of ``apply`` and of this method within is carried out whole or not at
        all, and turns are recorded at once.
        """

    @abstractmethod
    def record(self, turn: Turn, vector: Vector | None = None, owner: int = 0) -> None:
        """Record a turn, as :class:`RecordTurn`.

        ``vector`` is that of its question, None without one; ``owner`` the key of the namespace.
        """

    @abstractmethod
    def require_in_place(self) -> None:
        """Refuse if the SQLite file was deleted, replaced or made unreadable while open."""


class GraphStore(Store):
    """Nodes, edges, learned state of each namespace, and turn records, in one SQL database."""

    def __init__(
        self,
        location: str | Path,
        *,
        time_limit: float = DEFAULT_TIME_LIMIT,
        max_connections: int = MAX_CONNECTIONS,
        replica: str | None = None,
        max_replica_lag: float = DEFAULT_MAX_LAG,
        prepare: Callable[[sa.Connection], None] | None = None,
    ) -> None:
        """Open or create the store.

        Args:
            location: A directory (SQLite inside, files private to the user) or an SQLAlchemy URL.
            time_limit: Seconds to connect, and to write queued turn records, > 0.
            max_connections: Most connections to a server of PostgreSQL, >= 4; to a replica half as
                many.
            replica: SQLAlchemy URL of a streaming standby, which queries read; None for none.
            max_replica_lag: Seconds that the replica may be behind; if it is later, queries read
                the store itself.
            prepare: Called before tables are created; if it raises, none are. None for nothing.
        """
        self._time_limit = time_limit
        limits: Any = {"time_limit": time_limit, "connections": max_connections}
        self._engine = open_engine(location, **limits)
        self._reader = open_engine(location, reading=True, **limits)
        self._fulltext = get_fulltext_index(self._engine.dialect.name)
        super().__init__(StoreMemory(self._fulltext))
        self._ingest = threading.RLock()
        self._recorder = TurnWriter(self._write_turns)
        self._ingesting = self._closed = False
        self._replica: Replica | None = None
        register_owner(self)
        try:
            with translate_database_errors(self._engine), self._engine.begin() as connection:
                lock_schema(connection)
                if prepare is not None:
                    prepare(connection)
                ensure_schema(connection, self._fulltext)
                if replica is not None:
                    part = load_part("crabpath_retrievers.parts.replica")
                    limits |= {"identity": part.ensure_identity(connection)}
                    self._replica = part.Replica(
                        replica, self._reader, max_lag=max_replica_lag, **limits
                    )
            self._file = None if self.dialect != "sqlite" else self._identify_file()
            if self._replica is not None:
                self._replica.start()
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        """URL of the database, without password."""
        return self._engine.url.render_as_string(hide_password=True)

    def forget_scale(self) -> None:
        """Read scale and language anew, after a change of the embedder or an import."""
        self._memory.scale, self._memory.language = None, ()

    def set_language(self, language: str) -> None:
        """Set the language of all texts and queries from now on."""
        if language != self.language:
            if self.catalog.meta().get("nodes", "0") != "0":
                _log.warning(
                    "the language of %s is now %r: texts that were added before keep their words "
                    "until they are added again",
                    self.name,
                    language,
                )
            self.write(put_meta, {"language": language})
            self._memory.language = (language,)

    @property
    def location(self) -> str:
        """Directory or URL, with its password, by which another process opens the store."""
        url = self._engine.url
        if self.dialect == "sqlite" and (file := Path(str(url.database))).name == "graph.sqlite":
            return str(file.parent.resolve())
        return url.render_as_string(hide_password=False)

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._engine.dialect.name

    def _identify_file(self) -> tuple[int, int]:
        state = Path(str(self._engine.url.database)).stat()
        return state.st_dev, state.st_ino

    def require_in_place(self) -> None:
        """Override :class:`Store`."""
        if self._file is None:
            return
        file = str(self._engine.url.database)
        try:
            found = self._identify_file()
        except PermissionError as error:
            msg = f"{file} cannot be looked at: change the permissions of its directory"
            raise StoreReadOnlyError(msg) from error
        except OSError as error:
            msg = f"{file} cannot be found any more ({error.strerror}): restore it, or open another"
            raise StoreUnavailableError(msg) from error
        if found != self._file:
            msg = f"{file} was replaced while it was open: close the memory and open it again"
            raise StoreUnavailableError(msg)
        if not os.access(file, os.R_OK | os.W_OK):
            msg = f"{file} cannot be read and written: change its permissions"
            raise StoreReadOnlyError(msg)

    @contextmanager
    def connect(self) -> Iterator[sa.Connection]:
        """Open a connection for reads; each statement sees the latest commit."""
        with translate_database_errors(self._engine), open_connection(self._reader) as connection:
            yield connection

    @contextmanager
    def open_reader(self) -> Iterator[Reader]:
        """Override :class:`Store`."""
        with self.connect() as connection:
            yield ConnectionReader(self._memory, connection, self.flush)

    @property
    def replica(self) -> "ReplicaState | None":
        """State of the read replica; None without one."""
        return None if self._replica is None else self._replica.state

    def start_query(self) -> "QueryReader":
        """Make a reader of the replica while that is fresh, else of this store."""
        return QueryReader(self, self._memory, self._replica)

    @contextmanager
    def open_snapshot(self) -> Iterator[sa.Connection]:
        """Open a connection that sees one state of the store, which later changes do not affect."""
        self.flush()
        with (
            translate_database_errors(self._engine),
            open_snapshot_connection(self._reader) as connection,
        ):
            yield connection

    def apply(self, changes: Sequence[Change]) -> list[Any]:
        """Override :class:`Store`."""
        if not changes:
            return []

        def work() -> list[Any]:
            with self._begin(lazy=_allows_lazy_commit(changes)) as done:
                return done.carry_out(changes)

        return repeat_transaction(work)

    def apply_together(self, work: Callable[[Store], T]) -> T:
        """Override :class:`Store`."""

        def join() -> T:
            with self._begin() as done:
                return work(done)

        return repeat_transaction(join)

    @contextmanager
    def _begin(self, *, lazy: bool = False) -> Iterator["_OpenTransaction"]:
        self.flush()
        opened = open_connection(self._engine, lazy=lazy)
        with translate_database_errors(self._engine), opened as connection, connection.begin():
            done = _OpenTransaction(self, self._memory, connection)
            yield done
            if done.touches_corpus:
                renew_corpus_version(Transaction(connection, self._fulltext))
        if self._replica is not None and not done.kinds <= {RecordTurn}:
            self._replica.note_write()
        if done.touches_corpus:
            self._memory.corpus.forget()

    def _write_turns(self, records: Sequence[RecordTurn]) -> None:
        try:
            with limit_waiting(self._time_limit):
                self._apply_records(records)
        finally:
            if self._closed:  # meanwhile, while the database did not answer
                self._engine.dispose()

    def _apply_records(self, records: Sequence[RecordTurn]) -> None:
        if self.dialect == "sqlite":
            self.apply(records)
            return
        # One statement, which needs no transaction around it.
        with translate_database_errors(self._engine), open_connection(self._reader) as connection:
            record_turns(Transaction(connection, self._fulltext), records)

    def record(self, turn: Turn, vector: Vector | None = None, owner: int = 0) -> None:
        """Queue a turn record, as :class:`RecordTurn`, which is written in the background."""
        self._recorder.add(RecordTurn(turn, vector, owner))

    def flush(self) -> None:
        """Wait until all queued turn records are written."""
        self._recorder.settle()

    def refresh_statistics(self) -> None:
        """Let PostgreSQL measure its tables and complete its index, after much has been added.

        It does so by itself within minutes; until then it reads whole tables to find a few rows.
        Does nothing on SQLite.
        """
        if self.dialect == "postgresql":
            with translate_database_errors(self._engine), self._reader.connect() as connection:
                names = connection.exec_driver_sql(OWN_TABLES).scalars().all()
                connection.exec_driver_sql(f"ANALYZE {', '.join(names)}")
                connection.exec_driver_sql(TAKE_IN)

    def erase(self) -> None:
        """Write the database anew, so that none of its files holds what was deleted."""
        self.flush()
        if self.dialect == "postgresql":
            if not rewrite_tables(self._engine, self._time_limit):
                raise StoreLockedError(_UNERASED.format(self.name))
            return
        with translate_database_errors(self._engine), self._reader.connect() as connection:
            self._fulltext.complete(connection)
            connection.exec_driver_sql("PRAGMA temp_store=FILE")  # of the size of the database
            connection.exec_driver_sql("VACUUM")
            connection.exec_driver_sql("PRAGMA temp_store=MEMORY")
            if connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]:
                raise StoreLockedError(_UNERASED.format(self.name))

    @contextmanager
    def hold_ingest_lock(self, *, wait: bool = True) -> Iterator[bool]:
        """Hold the ingest lock: one thread of one process ingests into a store at a time.

        The thread that holds it may take it again. Yields whether it is held.
        """
        if not self._ingest.acquire(blocking=wait):
            yield False
            return
        try:
            if self._ingesting:
                yield True
                return
            with (
                translate_database_errors(self._engine),
                process_lock(self._reader, "ingest", wait=wait) as held,
            ):
                self._ingesting = held
                try:
                    self.require_in_place()
                    yield held
                    self.require_in_place()  # else what is acknowledged would be lost
                finally:
                    self._ingesting = False
        finally:
            self._ingest.release()

    @contextmanager
    def hold_change_lock(self) -> Iterator[None]:
        """Hold the lock of changing the embedder; StoreLockedError if another process has it."""
        with (
            translate_database_errors(self._engine),
            process_lock(self._reader, "reembed", wait=False) as held,
        ):
            if not held:
                msg = f"the embedder of {self.name} is being changed already: wait until it is done"
                raise StoreLockedError(msg)
            yield

    def leave_to_parent(self) -> None:
        """Refuse to connect in a forked process; waiting turn records are the parent's."""
        if not self._closed:
            leave_engine(self.dialect)
        for engine in (self._engine, self._reader):
            engine.pool = NullPool(_refuse_to_connect)
        self._replica, self._ingest = None, threading.RLock()
        self._recorder = TurnWriter(self._write_turns)

    def close(self) -> None:
        """Close all connections; turn records that cannot be written in time are lost."""
        try:
            with limit_waiting(self._time_limit):
                self.flush()
        except StoreError as error:
            _log.warning("turn records are lost: %s", error)
        self._closed = True
        self._recorder.close()
        if self._replica is not None:
            self._replica.close()
        self._reader.dispose()
        self._engine.dispose()


def _refuse_to_connect() -> NoReturn:
    raise ForkedError


@contextmanager
def _open_savepoint(connection: sa.Connection) -> Iterator[None]:
    """Undo the changes made inside, and none before, if they fail."""
    # SQLAlchemy's own savepoints take several times as long.
    with open_driver_cursor(connection) as cursor:
        cursor.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            cursor.execute("ROLLBACK TO SAVEPOINT part")
            raise
        finally:
            cursor.execute("RELEASE SAVEPOINT part")


class _OpenTransaction(ConnectionReader, Store):
    """A transaction that is open in a store, and a record of the changes carried out in it."""

    def __init__(self, store: GraphStore, memory: StoreMemory, connection: sa.Connection) -> None:
        """Keep the connection to read and write on; ``memory`` has the caches of the store."""
        super().__init__(memory, connection, lambda: None)  # nobody else writes meanwhile
        self._store = store
        self.kinds, self.touches_corpus = set[type[Change]](), False

    def carry_out(self, changes: Sequence[Change]) -> list[Any]:
        """Carry out changes; returns what their writers return."""
        self.kinds.update(map(type, changes))
        # It knows nothing that was undone.
        transaction = Transaction(self._connection, self._memory.fulltext)
        found = [apply_change(transaction, change) for change in changes]
        self.touches_corpus |= transaction.touches_corpus
        return found

    @property
    def name(self) -> str:
        """URL of the database, without password."""
        return self._store.name

    @contextmanager
    def open_reader(self) -> Iterator[Reader]:
        """Override :class:`Store`: reads are on the connection of the transaction."""
        yield self

    def start_query(self) -> Reader:
        """Override :class:`Store`: queries see the changes of the transaction."""
        return self

    def apply(self, changes: Sequence[Change]) -> list[Any]:
        """Override :class:`Store`."""
        with _open_savepoint(self._connection):
            return self.carry_out(changes)

    def apply_together(self, work: Callable[[Store], T]) -> T:
        """Override :class:`Store`."""
        with _open_savepoint(self._connection):
            return work(self)

    def record(self, turn: Turn, vector: Vector | None = None, owner: int = 0) -> None:
        """Override :class:`Store`: record the turn at once."""
        self.apply([RecordTurn(turn, vector, owner)])

    def require_in_place(self) -> None:
        """Override :class:`Store`."""
        self._store.require_in_place()


class ReplicaAwayError(StoreUnavailableError):
    """The replica failed or is too old for this query, which the primary answers instead."""


class QueryReader(Reader):
    """Reader of one query: of the replica until it fails, then of the primary to the end.

    It never goes back: caches may hold what is newer than the version they are for, never older.
    """

    def __init__(self, store: GraphStore, memory: StoreMemory, replica: "Replica | None") -> None:
        """Keep where to read: ``replica`` while it is fresh, otherwise ``store``."""
        super().__init__(memory)
        self._store, self._replica = store, replica
        self._connection: sa.Connection | None = None  # of the present step

    @property
    def primary(self) -> Reader:
        """Override :class:`Reader`."""
        return self if self._replica is None else self._store

    @contextmanager
    def connect(self) -> Iterator[sa.Connection]:
        """Return the connection of the present step; between steps open one of the store."""
        if self._connection is None:
            with self._store.connect() as connection:
                yield connection
        elif self._replica is not None:
            yield self._connection  # errors lead to another attempt on the primary
        else:
            with translate_database_errors(self._connection.engine):
                yield self._connection

    def flush(self) -> None:
        """Wait until all queued turn records are written."""
        self._store.flush()

    def run(self, step: Callable[[], T]) -> T:
        """Call a step on one connection; if the replica fails, call it once more on the store.

        A step within a step shares its connection.
        """
        if self._connection is not None:
            return step()
        if self._replica is not None:
            try:
                with self._replica.connect() as connection, self._use(connection):
                    return step()
            except ReplicaAwayError as error:
                _log.debug("the primary is asked: %s", error)
                self._replica = None
        with self._store.connect() as connection, self._use(connection):
            return step()

    @contextmanager
    def _use(self, connection: sa.Connection) -> Iterator[None]:
        self._connection = connection
        try:
            yield
        finally:
            self._connection = None


_UNERASED = (
    "{} is in use: what was forgotten is deleted, but still in its files and statistics; end the "
    "transactions of this server that are open for long, such as those of exports, and call "
    "forget(erase=True) again"
)

# What the next opening repeats if it is lost: documents that are staged durably are published and
# linked again.
_REPEATED = {publish_staged, put_edges}


def _allows_lazy_commit(changes: Sequence[Change]) -> bool:
    """Whether the commit need not be synced to disk; the next synced commit includes it."""
    kinds = {change.work if isinstance(change, Write) else type(change) for change in changes}
    learned_again = ConsumeFeedback in kinds and KeepFeedback not in kinds
    return learned_again or kinds == {RecordTurn} or kinds <= _REPEATED


_LOCK_TIMEOUT = 1.0  # seconds to wait for a lock, which is worth reporting soon


class ReadOnlyStore:
    """A graph store that is only read."""

    def __init__(self, location: str | Path) -> None:
        """Keep a directory or an SQLAlchemy URL; the first read opens it."""
        file = find_database_file(location)
        self._engine = open_engine(location) if file is None else _open_readonly_engine(file)
        self.catalog = Catalog(self)

    @contextmanager
    def connect(self) -> Iterator[sa.Connection]:
        """A connection that cannot write."""
        with translate_database_errors(self._engine), self._engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execution_options(postgresql_readonly=True)
            yield connection

    def flush(self) -> None:
        """Do nothing: a read-only store writes no turn records."""

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def find_database_file(location: str | Path) -> Path | None:
    """The file of an SQLite store, by its directory or URL; None for another database."""
    if not is_url(location):
        return Path(location) / "graph.sqlite"
    try:
        url = sa.make_url(str(location))
    except (sa.exc.ArgumentError, ValueError):  # the latter for an invalid port
        return None
    is_file = url.database not in {None, "", ":memory:"}
    return Path(str(url.database)) if url.get_backend_name() == "sqlite" and is_file else None


def build_readonly_uri(file: Path) -> str:
    """URI with which SQLite reads a file without creating others beside it.

    Without a write-ahead log no process has the file open, so no shared-memory file is needed.
    """
    has_log = os.path.exists(f"{file}-wal")  # noqa: PTH110  False without the right to look
    return f"{file.resolve().as_uri()}?mode=ro{'' if has_log else '&immutable=1'}"


def _open_readonly_engine(file: Path) -> sa.Engine:
    def connect() -> sqlite3.Connection:
        require_engine("sqlite")
        return sqlite3.connect(
            build_readonly_uri(file), uri=True, timeout=_LOCK_TIMEOUT, check_same_thread=False
        )

    url = sa.URL.create("sqlite", database=str(file))
    return sa.create_engine(url, creator=connect, poolclass=NullPool)


_WRITERS: Mapping[type[c.Change], Callable[[Transaction, Any], Any]] = {
    c.AdjustWeights: weights.adjust_weights,
    c.RecordTurn: learned.record_turn,
    c.KeepFeedback: learned.keep_feedback,
    c.ConsumeFeedback: learned.consume_feedback,
    c.AddUsage: learned.add_usage,
    c.AddPairCounts: learned.add_pair_counts,
    c.KeepEpisode: learned.keep_episode,
    c.AddTransitions: learned.add_transitions,
    c.KeepNote: notes.keep_note,
    c.UseNotes: notes.use_notes,
}


def apply_change(tx: Transaction, change: c.Change) -> Any:
    """Carry out one change on an open transaction; returns what its writer returns."""
    if isinstance(change, Write):
        return change.carry_out(tx)
    writer = _WRITERS.get(type(change))
    if writer is None:
        msg = f"unknown change {type(change).__name__}"
        raise TypeError(msg)
    return writer(tx, change)
