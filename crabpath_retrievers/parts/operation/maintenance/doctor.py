"""Diagnoses a store without changing it; each finding comes with a fix.

The reads, whose cost grows with the store; the checks of files, graph store and embedder; those of
the vectors; and the run of all of them.
"""

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa

from crabpath_retrievers.core.processes import raise_interruption
from crabpath_retrievers.core.query import is_url
from crabpath_retrievers.core.records import compute_hub_level
from crabpath_retrievers.errors import (
    ConfigurationError,
    CrabPathError,
    EmbeddingMismatchError,
    StoreError,
    StoreLockedError,
    StoreUnavailableError,
)
from crabpath_retrievers.ingest.linking import UNFINISHED_SINCE
from crabpath_retrievers.parts.chroma_files import find_damage, open_vectors, read_collections
from crabpath_retrievers.parts.chroma_server import create_client
from crabpath_retrievers.parts.pgvector.queries import VectorQueries
from crabpath_retrievers.parts.pgvector.tables import DOCUMENTS
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.database import parse_url
from crabpath_retrievers.storage.read.notes import IS_SEARCHED
from crabpath_retrievers.storage.schema import (
    TABLES,
    contents,
    edges,
    feedback,
    list_orphans,
    namespaces,
    nodes,
    staging,
)
from crabpath_retrievers.storage.sql_tools import Queries, ReadableStore
from crabpath_retrievers.storage.store import (
    SCHEMA_VERSION,
    UNRELEASED,
    ReadOnlyStore,
    find_database_file,
    read_schema_version,
)
from crabpath_retrievers.vectors.base import find_differing
from crabpath_retrievers.vectors.chroma import ChromaIndex, close_client
from crabpath_retrievers.vectors.chroma_directory import (
    DEFAULT_COLLECTION,
    QUARANTINE_PREFIX,
)
from crabpath_retrievers.vectors.embedder import (
    DEFAULT_MODEL,
    Embedder,
    EmbedderIdentity,
    parse_identity,
    require_same_embedder,
)
from crabpath_retrievers.vectors.opening import (
    PGVECTOR,
    find_directory,
    is_pgvector,
    place_of,
    vectors_in,
    wrapped_store,
)

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

_KEYS_OF_TEXT = {"sqlite": "rowid", "postgresql": "node"}


class Checks(Queries):
    """Reads of several checks; their cost grows with the store."""

    def chunks(self) -> Sequence[Any]:
        """All document chunks: ``key``, ``id``, and ``level`` of the hub that each is (0: none)."""
        query = sa.select(nodes.c.key, nodes.c.id, nodes.c.level).where(nodes.c.owner == 0)
        return self._rows(query)

    def get_staged_ids(self) -> dict[str, set[str]]:
        """Ids in the ingest queue, by their operation."""
        found: dict[str, set[str]] = {}
        for name, operation in self._rows(sa.select(staging.c.id, staging.c.operation)):
            found.setdefault(operation, set()).add(name)
        return found

    def get_companion_ids(self, *, waiting: bool = False) -> dict[str, set[str]]:
        """Ids that the collections of episodes and notes must hold, by name of the collection.

        ``waiting`` includes ids that are still queued for the index.
        """
        least = 0 if waiting else 1
        of_episodes = sa.select(s.episodes.c.namespace, s.episodes.c.id).where(
            s.episodes.c.indexed >= least
        )
        of_notes = (
            sa.select(s.notes.c.namespace, nodes.c.id)
            .join(nodes, nodes.c.key == s.notes.c.node)
            .where(s.notes.c.indexed >= least, IS_SEARCHED)
        )
        found: dict[str, set[str]] = {}
        for kind, query in (("episodes", of_episodes), ("notes", of_notes)):
            for namespace, name in self._rows(query):
                found.setdefault(f"{kind}-{namespace}", set()).add(name)
        return found


Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        check: Name of the check.
        severity: ``error`` is broken, ``warning`` should be fixed, ``info`` is good to know.
        message: The problem, in one sentence.
        fix: What to do about it, in one sentence.
    """

    check: str
    severity: Severity
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings of one store.

    Attributes:
        place: Location of the store, without password.
        checked: Names of the checks that were completed.
        findings: Findings, the worst first.
    """

    place: str
    checked: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> bool:
        """Whether there is a finding of severity ``error``."""
        return any(finding.severity == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Convert the diagnosis to plain, JSON-safe data."""
        return {**asdict(self), "broken": self.broken}


_DAY = 86_400.0
_READD = "forget these documents and add them again (`crabpath forget`, `crabpath add`)"
_SWEEP = "run `crabpath maintain`, which deletes them"
_RERUN = "run the ingest again: it goes on, and links what it published"
_REOPEN = "open the memory once, for example with `crabpath info`: it finishes the work"


def check_version(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check that this release can read the schema; if not, nothing else is checked."""
    with store.connect() as connection:
        found = read_schema_version(connection)
    if found == SCHEMA_VERSION:
        return
    if found is None:
        message = "the database contains no memory, or an incomplete one"
        fix = "check the path or URL; if the first `crabpath add` was interrupted, run it again"
    elif found > SCHEMA_VERSION:
        message = (
            f"the store has schema version {found}, but this release supports {SCHEMA_VERSION}"
        )
        fix = "upgrade crabpath-retrievers"
    elif found != UNRELEASED:
        message = f"the store has schema version {found}, and this release {SCHEMA_VERSION}"
        fix = "open the memory once, for example with `crabpath info`: it upgrades the store"
        yield Finding("schema", "warning", message, fix)
        return
    else:
        message = "the store was written before the first release and its schema is not supported"
        fix = "add the documents to a new store"
    yield Finding("schema", "error", message, fix)


def check_integrity(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check that the database file is intact and has all tables."""
    damage, missing = "ok", {*s.metadata.tables, "crabpath_fulltext"}
    with store.connect() as connection:
        if connection.dialect.name == "sqlite":
            damage = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
        missing.difference_update(sa.inspect(connection).get_table_names())
    messages = [] if damage == "ok" else [f"the database file is damaged ({damage})"]
    messages += [f"the database lacks {', '.join(sorted(missing))}"] if missing else []
    fix = "restore it from a backup, or add the documents again to a new directory"
    for message in messages:
        yield Finding("integrity", "error", message, fix)


def check_references(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check that the owner of each row is there."""
    lost = list_orphans()
    del lost["feedback"]  # on a turn that never was, it is kept with the reason
    lost["nodes"] |= ~sa.exists().where(contents.c.node == nodes.c.key)
    for name, condition in lost.items():
        table = TABLES[name]
        if count := _count(store, sa.select(sa.func.count()).select_from(table).where(condition)):
            message = f"{count} rows of {table.name} belong to nothing that is left"
            fix = _READD if table is nodes else _SWEEP
            yield Finding("references", "error", message, fix)


def _count(store: ReadOnlyStore, query: sa.Select[Any]) -> int:
    with store.connect() as connection:
        return int(connection.scalar(query) or 0)


def check_unfinished(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check for an interrupted ingest."""
    staged, trash = Checks(store).get_staged_ids(), store.catalog.get_index_deletions()
    count = sum(map(len, staged.values())) + len(trash)
    if count:
        message = f"an ingest was interrupted or is still running: {count} chunks are waiting"
        is_bulk = store.catalog.meta().get(UNFINISHED_SINCE)
        yield Finding("unfinished", "warning", message, _RERUN if is_bulk else _REOPEN)


def check_drift(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check that indexes and counters of the graph store agree with its documents."""
    chunks, meta = Checks(store).chunks(), store.catalog.meta()
    with store.connect() as connection:
        key = _KEYS_OF_TEXT[connection.dialect.name]
        texts = {*connection.exec_driver_sql(f"SELECT {key} FROM crabpath_fulltext").scalars()}
    if unread := sum(chunk.key not in texts for chunk in chunks):
        message = f"{unread} chunks are missing in the full-text index: no word finds them"
        yield Finding("full text", "error", message, _READD)
    counted = int(meta.get("nodes", 0))
    if counted != len(chunks):
        message = (
            f"the counter says {counted} chunks, there are {len(chunks)}: BM25 weights are wrong"
        )
        yield Finding("statistics", "warning", message, _READD)
    wrong = sum(compute_hub_level(chunk.id) != chunk.level for chunk in chunks)
    if wrong:
        message = f"{wrong} chunks have a level that does not match their id: regions are wrong"
        yield Finding("regions", "warning", message, _READD)
    if any(chunk.level for chunk in chunks) and not int(meta.get("hubs", 0)):
        message = "there are region hubs, but their counter is 0, so queries ignore them"
        fix = "add a few more documents: the next hub among them corrects the counter"
        yield Finding("regions", "warning", message, fix)


def check_orphans(store: ReadOnlyStore) -> Iterator[Finding]:
    """List isolated chunks, which only search finds."""
    touched = (nodes.c.key == edges.c.source, nodes.c.key == edges.c.target)
    alone = [~sa.exists().where(side) for side in touched]
    query = sa.select(sa.func.count()).select_from(nodes).where(nodes.c.owner == 0, *alone)
    if count := _count(store, query):
        message = f"{count} chunks have no text edges: only search finds them"
        fix = "nothing needs to be done; titles, links and aliases in the documents would join them"
        yield Finding("orphans", "info", message, fix)


def check_namespaces(store: ReadOnlyStore) -> Iterator[Finding]:
    """List frozen namespaces, which do not learn."""
    query = sa.select(namespaces.c.name).where(namespaces.c.frozen != 0)
    with store.connect() as connection:
        frozen = connection.scalars(query.order_by(namespaces.c.name)).all()
    if frozen:
        shown = ", ".join(frozen[:5]) + (" …" if frozen[5:] else "")
        message = f"{len(frozen)} namespaces are frozen and learn nothing: {shown}"
        fix = "run `crabpath history unfreeze --namespace NAME` if one should learn again"
        yield Finding("namespaces", "info", message, fix)


def check_feedback(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check for feedback that is waiting or was refused."""
    of = feedback.c.status
    waits = sa.select(sa.func.count(), sa.func.min(feedback.c.created)).where(of == "waiting")
    with store.connect() as connection:
        waiting, oldest = connection.execute(waits).one()
    refused = _count(store, sa.select(sa.func.count()).where(of == "refused"))
    if waiting:
        late = oldest is not None and time.time() - oldest > _DAY
        since = ", the oldest for more than a day" if late else ""
        message = f"{waiting} feedback records wait to be applied{since}"
        yield Finding("feedback", "warning" if late else "info", message, "run `crabpath learn`")
    if refused:
        message = f"{refused} feedback records were refused, each with a note that says why"
        fix = "to read the note, send the same feedback again (`crabpath feedback ... --id ID`)"
        yield Finding("feedback", "info", message, fix)


CHECKS = {
    "references": check_references,
    "unfinished": check_unfinished,
    "drift": check_drift,
    "orphans": check_orphans,
    "namespaces": check_namespaces,
    "feedback": check_feedback,
}
"""Checks by name; each needs an intact store of this release's schema."""


_REBUILD = "add the documents again to a new directory, with one embedder"


def check_embedder(store: ReadOnlyStore, embeddings: Any = None) -> Iterator[Finding]:
    """Check that the stored fingerprint fits the stored vectors and the embedder in use.

    ``embeddings`` is the embedder or its ``"provider:model"``; None takes the one that the store
    remembers, or the default one.
    """
    meta = store.catalog.meta()
    if not {"nodes", "notes"} & set(meta):  # nothing was ever embedded
        return
    try:
        identity = parse_identity(meta["embedder"])
    except (KeyError, TypeError, ValueError):
        message = "the store does not record which embedder it was built with"
        yield Finding("embedder", "error", message, _REBUILD)
        return
    differing = sa.func.length(nodes.c.embedding) != 2 * identity.probe.size  # half precision
    if other := _count(store, sa.select(sa.func.count()).where(differing)):
        message = (
            f"the dimension of {other} vectors is not {identity.probe.size}, that of "
            f"{identity.model!r}"
        )
        yield Finding("embedder", "error", message, _REBUILD)
    embeddings = identity.name if embeddings is None else embeddings
    if embeddings is None and identity.model != DEFAULT_MODEL:
        yield Finding(
            "embedder",
            "warning",
            f"the store was built with {identity.model!r}; `crabpath add` and `crabpath query` "
            f"use {DEFAULT_MODEL!r} and refuse this store",
            "name its embedder: --embeddings PROVIDER:MODEL, CrabPath.open(path, embeddings=...)",
        )
        return
    yield from _compare(identity, embeddings)


def _compare(identity: EmbedderIdentity, embeddings: Any) -> Iterator[Finding]:
    try:
        at_hand = Embedder(embeddings)
        at_hand.use_by_default(identity)
        require_same_embedder(identity, at_hand.identify())
    except EmbeddingMismatchError as error:
        fix = "open the store with the embedder that it was built with"
        yield Finding("embedder", "error", str(error), fix)
    except CrabPathError as error:
        yield Finding(
            "embedder", "info", f"the embedder was not checked: {error}", "see the message"
        )
    except Exception as error:
        raise_interruption(error)
        message = f"the embedder does not answer ({type(error).__name__}: {error!s:.200})"
        yield Finding("embedder", "warning", message, "check its service and its key")


_CRITICAL_SPACE, _LOW_SPACE = 10 * 2**20, 100 * 2**20  # bytes


def check_location(file: Path, vectors: Path | None = None) -> Iterator[Finding]:
    """Check that the file of the graph store exists and is accessible.

    ``vectors`` is the directory of the vectors, None if they are elsewhere.
    """
    if problem := _find_location_problem(file, vectors):
        yield Finding("place", "error", *problem)


def _find_location_problem(file: Path, vectors: Path | None) -> tuple[str, str] | None:
    """Return what is wrong with the place of a memory, and what to do; None if nothing is.

    ``file`` is that of the graph store; ``vectors`` the directory of the vectors, if any.
    """
    place = file.parent
    held = vectors_in(vectors) if vectors is not None else 0
    some = "vectors" if held < 0 else f"{held} vectors"
    restore = (
        f"restore {file.name} from a backup; or, to start over, move {vectors} away and add the "
        "documents"
    )
    allow = "run as the user who owns it, or give that user its permissions back with chmod"
    problem: tuple[str, str] | None = None
    if not place.exists():
        fix = "check the path, or create a memory there with `crabpath add`"
        problem = f"there is no memory at {place}", fix
    elif not place.is_dir():
        problem = f"{place} is not a directory", "give the directory of a memory"
    elif not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        problem = f"this user cannot read and write {place}", allow
    elif not file.is_file():
        others = ", but other files" if any(place.iterdir()) else ""
        others += f", among them {some}" if held else ""
        fix = "check the path; if the file was lost, restore it or add the documents again"
        problem = f"{place} holds no {file.name}{others}", restore if held else fix
    elif not os.access(file, os.R_OK | os.W_OK):
        problem = f"this user cannot read and write {file}", allow
    elif file.stat().st_size == 0 and held:
        problem = f"{file} is empty, but there are {some}", restore
    elif file.stat().st_size == 0:
        problem = f"{file} is empty: creating the memory was interrupted", "add the documents"
    return problem


def check_permissions(place: Path) -> Iterator[Finding]:
    """Check that only the owner can open the files."""
    if exposed := sorted(_find_exposed(place)):
        more = f" and {len(exposed) - 1} more" if exposed[1:] else ""
        message = f"other users of this machine can read or change {exposed[0]}{more}"
        yield Finding("permissions", "warning", message, f"run `chmod -R go-rwx {place}`")


def check_disk(place: Path) -> Iterator[Finding]:
    """Check that there is enough disk space."""
    free = shutil.disk_usage(place).free
    if free < _LOW_SPACE:
        severity: Severity = "error" if free < _CRITICAL_SPACE else "warning"
        message = f"only {free / 2**20:.0f} MiB of disk space are free at {place}"
        fix = "free some space, or move the memory to a larger disk"
        yield Finding("disk", severity, message, fix)


def _find_exposed(path: Path) -> Iterator[Path]:
    """Yield files that other users can open; a private directory protects its content."""
    mode = path.lstat().st_mode
    if stat.S_ISDIR(mode):
        if mode & (stat.S_IXGRP | stat.S_IXOTH) and os.access(path, os.R_OK):
            for entry in path.iterdir():
                yield from _find_exposed(entry)
    elif stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield path


_MAX_SHOWN = 3


def check_lock(path: Path) -> Iterator[Finding]:
    """Check whether a process has the directory of the vectors open."""
    lock = path / "crabpath.lock"
    taken = _is_locked(lock) if lock.is_file() else False
    if taken is None:
        message = f"this system cannot tell whether a process uses {path}"
        fix = "if opening the memory is refused, close it in the other process"
        yield Finding("vectors", "info", message, fix)
    elif taken:
        message = f"a process uses {path}: no other process can open the memory"
        yield Finding("vectors", "info", message, "close the memory there to use it elsewhere")


def check_files(path: Path, advice: str) -> Iterator[Finding]:
    """Check that Chroma can read the files of the vectors, and list files that were set aside.

    ``advice`` says how to index them again.
    """
    if why := find_damage(path, DEFAULT_COLLECTION, whole=True):
        lock = path / "crabpath.lock"
        if lock.is_file() and _is_locked(lock):
            message = (
                f"the vectors in {path} cannot be read now ({why}): a process may be writing them"
            )
            yield Finding("vectors", "warning", message, "check again when the process is done")
        else:
            message = f"the vectors in {path} cannot be read ({why})"
            fix = f"{advice}: they are set aside, and indexed again from the graph store"
            yield Finding("vectors", "error", message, fix)
    for aside in sorted(path.glob(f"{QUARANTINE_PREFIX}*")):
        message = f"{aside} holds vectors that could not be read and were indexed again"
        yield Finding("vectors", "info", message, "delete it: nothing reads it")


def load_collections(vectors: Any, store: ReadableStore) -> tuple[dict[str, set[str]], str]:
    """Load the ids in all collections of a vector index, by name of the collection.

    ``vectors`` is a directory, URL or client, or ``"pgvector"`` for those of ``store``.

    Returns:
        The ids by collection; and the name of the collection of documents.
    """
    if is_pgvector(vectors):
        return _load_from_database(store), DOCUMENTS
    if (directory := find_directory(vectors)) is not None:
        return read_collections(directory), DEFAULT_COLLECTION
    if isinstance(vectors, str):
        with open_server_client(vectors) as (client, name):
            return _load_from_client(client, name), name
    return _load_from_client(vectors, DEFAULT_COLLECTION), DEFAULT_COLLECTION


def _load_from_database(store: ReadableStore) -> dict[str, set[str]]:
    documents = VectorQueries(store)
    if documents.find_type() is None:
        return {}
    queries = {
        f"{DOCUMENTS}-{name}": VectorQueries(store, name) for name in documents.collections()
    }
    queries[DOCUMENTS] = documents
    return {name: {one for page in each.ids() for one in page} for name, each in queries.items()}


def _load_from_client(client: Any, name: str) -> dict[str, set[str]]:
    try:
        known = [one.name for one in client.list_collections()]
        return {
            one: set(client.get_collection(one).get(include=[])["ids"])
            for one in known
            if one == name or one.startswith(f"{name}-")
        }
    except Exception as error:
        msg = f"the Chroma server failed: {error}"
        raise StoreError(msg) from error


def check_agreement(store: ReadOnlyStore, vectors: Any, advice: str) -> Iterator[Finding]:
    """Check that graph store and vector index hold the same ids.

    ``vectors`` is as for :func:`load_collections`; ``advice`` says how to index them again.
    """
    try:
        known, name = load_collections(vectors, store)
    except CrabPathError as error:
        if ids := Checks(store).chunks():
            message = f"{error}: {len(ids)} chunks are found by full-text search alone"
            own = find_directory(vectors) is not None
            fix = f"check the path; if it is right, {advice}" if own else "check the URL"
            yield Finding("vectors", "error", message, fix)
        return
    yield from _compare_documents(store, known.get(name, set()), f"the collection {name!r}", advice)
    yield from _compare_vectors(store, vectors, known.get(name, set()), advice)
    companions = {
        one.removeprefix(f"{name}-"): ids
        for one, ids in known.items()
        if one.startswith((f"{name}-episodes-", f"{name}-notes-"))
    }
    yield from _compare_companions(store, companions, advice)


def _compare_documents(
    store: ReadOnlyStore, found: set[str], where: str, advice: str
) -> Iterator[Finding]:
    ids = {chunk.id for chunk in Checks(store).chunks()}
    staged, trash = Checks(store).get_staged_ids(), set(store.catalog.get_index_deletions())
    missing = sorted(ids - found)
    surplus = sorted(found - (ids | trash | set().union(*staged.values())))
    if ids and not ids & found and surplus:
        yield _make_mismatch(
            f"{where} holds {len(surplus)} vectors, but none of the {len(ids)} chunks"
        )
        return
    if missing:
        message = f"{len(missing)} chunks are missing in the vector index: {_format_ids(missing)}"
        if not found:
            message += f"; {where} is empty or missing"
            advice = f"check where the vectors are; if that is right, {advice}"
        yield Finding("vectors", "error", message, advice)
    if surplus and not ids:
        yield _make_mismatch(f"{where} holds {len(surplus)} vectors, but the database no documents")
    elif surplus:
        some = _format_ids(surplus)
        message = f"{len(surplus)} vectors belong to no chunk and displace search results: {some}"
        yield Finding("vectors", "warning", message, f"{advice}: it deletes them")


def _compare_vectors(
    store: ReadOnlyStore, vectors: Any, found: set[str], advice: str
) -> Iterator[Finding]:
    """Check that the vectors are those of the graph store; in one database they cannot differ.

    ``vectors`` is as for :func:`load_collections`; ``found`` are the ids that the index holds;
    ``advice`` says how to index them again.
    """
    if is_pgvector(vectors) or not found:
        return
    with ExitStack() as opened:
        if (directory := find_directory(vectors)) is not None:
            read = open_vectors(directory, DEFAULT_COLLECTION)
        else:
            client, name = vectors, DEFAULT_COLLECTION
            if isinstance(vectors, str):
                client, name = opened.enter_context(open_server_client(vectors))
            read = ChromaIndex.from_client(client, name).read_vectors
        others = [one for one in find_differing(store.catalog, read) if one in found]
    if others:
        message = (
            f"{len(others)} vectors are those of other texts: database and vectors are not of the "
            f"same moment: {_format_ids(others)}"
        )
        yield Finding("vectors", "error", message, advice)


def _make_mismatch(message: str) -> Finding:
    fix = (
        "check where database and vectors are, and restore the one that was lost from a backup; or "
        "index the vectors again elsewhere: `crabpath reindex PATH --vectors DIRECTORY_OR_URL`"
    )
    return Finding("vectors", "error", message, fix)


def _compare_companions(
    store: ReadOnlyStore, known: Mapping[str, set[str]], advice: str
) -> Iterator[Finding]:
    wanted, own = Checks(store).get_companion_ids(), Checks(store).get_companion_ids(waiting=True)
    for kind in ("episodes", "notes"):
        lost = sum(len(ids - known.get(name, set())) for name, ids in _select_kind(kind, wanted))
        if lost:
            message = f"{lost} {kind} are missing in their vector index and are not retrieved"
            yield Finding("vectors", "warning", message, advice)
        surplus = sum(len(ids - own.get(name, set())) for name, ids in _select_kind(kind, known))
        if surplus:
            message = f"{surplus} vectors of {kind} belong to no stored item"
            yield Finding("vectors", "warning", message, f"{advice}: it deletes them")


def _select_kind(kind: str, ids: Mapping[str, set[str]]) -> list[tuple[str, set[str]]]:
    return [(name, some) for name, some in ids.items() if name.startswith(f"{kind}-")]


def _format_ids(ids: list[str]) -> str:
    return ", ".join(ids[:_MAX_SHOWN]) + (
        f" and {len(ids) - _MAX_SHOWN} more" if ids[_MAX_SHOWN:] else ""
    )


def _is_locked(lock: Path) -> bool | None:
    """Whether a process holds the lock file; None if that is unknown without writing."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return None
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


_BY_SEVERITY = ("error", "warning", "info")
_FIXES = (
    (StoreLockedError, "end the process that holds it, or wait until it is done"),
    (StoreUnavailableError, "start the database, or correct its path or URL"),
    (PermissionError, "run as the user who owns the memory, or give that user its permissions"),
)
_RESTORE = "restore the store from a backup, or add the documents again to a new directory"


def examine(location: str | Path, *, vectors: Any = None, embeddings: Any = None) -> Diagnosis:
    """Diagnose a memory. Nothing is created, migrated or written.

    Args:
        location: A directory or an SQLAlchemy URL.
        vectors: Directory of the vectors, URL of a Chroma server, a Chroma client, or
            ``"pgvector"``; None for the subdirectory ``vectors`` of the memory, or for the database
            where the memory has its vectors there.
        embeddings: The embedder to use with the memory; None for the default one.

    Raises:
        ConfigurationError: The location is empty.
    """
    where = place_of(location)
    return _Examination(where, vectors, embeddings).run()


class _Examination:
    """State of a diagnosis: checks made and findings so far."""

    def __init__(self, where: str, vectors: Any, embeddings: Any) -> None:
        """Keep the place of the memory and the arguments of :func:`examine`."""
        self._where, self._embeddings = where, embeddings
        directory = not is_url(where)
        self._vectors = Path(where) / "vectors" if vectors is None and directory else vectors
        self._checked: list[str] = []
        self._findings: list[Finding] = []

    def run(self) -> Diagnosis:
        """Run every check that is possible."""
        file, there = find_database_file(self._where), True
        if file is not None:
            there = self._check("place", check_location, file, self._directory)
            if file.parent.is_dir():
                self._check("permissions", check_permissions, file.parent)
                self._check("disk", check_disk, file.parent)
        if there:
            self._look_inside()
        ranked = sorted(self._findings, key=lambda finding: _BY_SEVERITY.index(finding.severity))
        return Diagnosis(_hide_password(self._where), tuple(self._checked), tuple(ranked))

    def _look_inside(self) -> None:
        try:
            opened = ReadOnlyStore(self._where)
        except (ConfigurationError, StoreError) as error:
            self._findings.append(Finding("place", "error", str(error), "correct the URL"))
            return
        with closing(opened) as store:
            if not self._check("schema", check_version, store):
                return
            if not self._check("integrity", check_integrity, store):
                return
            for name, check in CHECKS.items():
                self._check(name, check, store)
            self._look_at_vectors(store)
            self._check("embedder", check_embedder, store, self._embeddings)

    def _look_at_vectors(self, store: ReadOnlyStore) -> None:
        meta = store.catalog.meta()
        if is_pgvector(self._vectors, meta):
            self._vectors = PGVECTOR
        wrapped = wrapped_store(meta)
        if wrapped is not None:
            message = f"the vectors are in the wrapped {wrapped} and were not checked"
            fix = (
                "open it with CrabPathRetriever.from_vectorstore(store, path=...): it takes over "
                "added, changed and removed documents"
            )
            self._findings.append(Finding("vectors", "info", message, fix))
            return
        if self._vectors is None:
            message = "the vectors were not checked: a database URL does not say where they are"
            fix = "give their directory or URL: --vectors, or CRABPATH_VECTORS"
            self._findings.append(Finding("vectors", "info", message, fix))
            return
        whole = True
        if self._directory is not None:
            self._check("in use", check_lock, self._directory)
            whole = self._check("files", check_files, self._directory, self._reindex_advice)
        if whole or not any(
            one.check == "vectors" and one.severity == "error" for one in self._findings
        ):
            self._check("vectors", check_agreement, store, self._vectors, self._reindex_advice)

    @property
    def _directory(self) -> Path | None:
        """Directory of the vectors; None if they are elsewhere."""
        return find_directory(self._vectors)

    @property
    def _reindex_advice(self) -> str:
        """The command that fills the index again."""
        inside = not is_url(self._where) and self._vectors == Path(self._where) / "vectors"
        named = isinstance(self._vectors, (str, Path)) and not inside
        option = f" --vectors {quote(str(self._vectors))}" if named else ""
        return f"run `crabpath reindex {quote(_hide_password(self._where))}{option}`"

    def _check(self, name: str, check: Callable[..., Iterator[Finding]], *given: Any) -> bool:
        """Run a check, and return whether it found nothing.

        An error that prevents the check is a finding, too.
        """
        before = len(self._findings)
        try:
            self._findings += check(*given)
            self._checked.append(name)
        except (CrabPathError, sa.exc.SQLAlchemyError, OSError) as error:
            fix = next((fix for kind, fix in _FIXES if isinstance(error, kind)), _RESTORE)
            self._findings.append(Finding(name, "error", _format_error(error), fix))
        return len(self._findings) == before


def _format_error(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _hide_password(where: str) -> str:
    """Return a location without its password."""
    if not is_url(where):
        return where
    try:
        return parse_url(where).render_as_string(hide_password=True)
    except ConfigurationError:
        return "a URL that cannot be read"


@contextmanager
def open_server_client(url: str) -> "Iterator[tuple[ClientAPI, str]]":
    """Open a client of the server at a URL; also yield the name of the collection in the URL."""
    client, name = create_client(url)
    try:
        yield client, name
    finally:
        close_client(client)
