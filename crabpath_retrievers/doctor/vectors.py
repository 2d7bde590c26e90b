"""Checks of the vector index against the graph store."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crabpath_retrievers.seeds.chroma_files import Vectors, collections
from crabpath_retrievers.doctor.finding import Finding
from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.seeds.chroma import COLLECTION
from crabpath_retrievers.storage.readonly import ReadOnlyStore

_REINDEX = "open the memory and call `reindex()`: it fills the index from the graph store"
_SHOWN = 3


def in_use(path: Path) -> Iterator[Finding]:
    """Whether a process has the directory of the vectors open."""
    lock = path / "crabpath.lock"
    if lock.is_file() and _locked(lock):
        yield Finding(
            "vectors",
            "info",
            f"{path} is in use by a process: others cannot open the memory",
            "close it there when you need the memory elsewhere",
        )


def known_vectors(vectors: Any, names: set[str]) -> dict[str, Vectors]:
    """The collections of a directory of Chroma, or those with these names behind a client.

    Raises:
        StoreError: They cannot be read.
    """
    if isinstance(vectors, (str, Path)):
        return collections(Path(vectors))
    try:
        there = {one.name for one in vectors.list_collections()} & names
        return {name: _of_client(vectors.get_collection(name)) for name in there}
    except Exception as error:
        msg = f"the Chroma server failed: {error}"
        raise StoreError(msg) from error


def _of_client(collection: Any) -> Vectors:
    return Vectors(None, set(collection.get(include=[])["ids"]))


def agreement(store: ReadOnlyStore, vectors: Any) -> Iterator[Finding]:
    """Whether graph store and vector index hold the same ids, dimension included."""
    beside = store.checks.beside()
    wanted = {COLLECTION, *(f"{COLLECTION}-{name}" for name in beside)}
    try:
        known = known_vectors(vectors, wanted)
    except StoreError as error:
        if ids := store.checks.chunks():
            message = f"{error}: {len(ids)} chunks are found by their words alone"
            fix = "check the path, restore the vectors, or add the documents to a new directory"
            yield Finding("vectors", "error", message, fix)
        return
    yield from _documents(store, known.get(COLLECTION, Vectors(None, set())))
    yield from _beside(beside, known)


def _documents(store: ReadOnlyStore, found: Vectors) -> Iterator[Finding]:
    ids = {chunk.id for chunk in store.checks.chunks()}
    staged, trash = store.checks.staged(), set(store.catalog.trash())
    if missing := sorted(ids - found.ids):
        message = f"{len(missing)} chunks are not in the vector index: {_few(missing)}"
        yield Finding("vectors", "error", message, _REINDEX)
    explained = ids | trash | set().union(*staged.values())
    if surplus := sorted(found.ids - explained):
        message = f"{len(surplus)} vectors belong to no chunk and take the place of hits"
        fix = f"delete these ids from the collection {COLLECTION!r} of Chroma: {_few(surplus)}"
        yield Finding("vectors", "warning", message, fix)


def _beside(wanted: Mapping[str, set[str]], known: Mapping[str, Vectors]) -> Iterator[Finding]:
    lost = {
        name: len(ids - known.get(f"{COLLECTION}-{name}", Vectors(None, set())).ids)
        for name, ids in wanted.items()
    }
    for kind in ("episodes", "notes"):
        count = sum(number for name, number in lost.items() if name.startswith(f"{kind}-"))
        if count:
            message = f"{count} {kind} are not in their vector index and are not recalled"
            fix = "restore the vectors from a backup; new ones are indexed as they come"
            yield Finding("vectors", "warning", message, fix)


def _few(ids: list[str]) -> str:
    return ", ".join(ids[:_SHOWN]) + (f" and {len(ids) - _SHOWN} more" if ids[_SHOWN:] else "")


def _locked(lock: Path) -> bool:
    """Whether somebody holds a lock file; taken for a moment, nothing is written."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return False
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
