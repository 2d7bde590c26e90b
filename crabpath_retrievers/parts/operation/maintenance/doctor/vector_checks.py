"""Checks of the vector index against the graph store."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from crabpath_retrievers.errors import CrabPathError, StoreError
from crabpath_retrievers.parts.operation.maintenance.doctor.checks import Finding
from crabpath_retrievers.parts.operation.maintenance.doctor.queries import Checks
from crabpath_retrievers.parts.pgvector.queries import VectorQueries
from crabpath_retrievers.parts.pgvector.tables import DOCUMENTS
from crabpath_retrievers.storage.sql_tools import ReadableStore
from crabpath_retrievers.storage.store import ReadOnlyStore
from crabpath_retrievers.vectors.base import find_differing
from crabpath_retrievers.vectors.chroma import ChromaIndex, open_server_client
from crabpath_retrievers.vectors.chroma_directory import (
    DEFAULT_COLLECTION,
    QUARANTINE_PREFIX,
    find_damage,
    open_vectors,
    read_collections,
)
from crabpath_retrievers.vectors.opening import find_directory, is_pgvector

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

    Args:
        path: Directory of the vectors.
        advice: The command that fills the index again.
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
    """Load the collections of a vector index, and the name of the main collection.

    Args:
        vectors: Directory, URL or client of the vectors; ``"pgvector"`` for those of ``store``.
        store: The graph store.

    Raises:
        CrabPathError: They cannot be read.
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

    Args:
        store: The graph store.
        vectors: Directory, URL or client of the vectors, or ``"pgvector"``.
        advice: The command that fills the index again.
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
    """Check that the vectors are those of the graph store; in one database they cannot differ."""
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
