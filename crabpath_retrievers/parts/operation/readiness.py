"""Whether the stores of a memory answer that this process has not opened."""

from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from crabpath_retrievers.core.calls import DEFAULT_TIME_LIMIT, run_with_timeout
from crabpath_retrievers.core.query import is_url
from crabpath_retrievers.errors import ConfigurationError, StoreError
from crabpath_retrievers.memory.services import ABSENT, PATIENCE, Readiness, add_replica, ask_parts
from crabpath_retrievers.parts.chroma_files import peek_collection
from crabpath_retrievers.parts.chroma_server import create_client, ping_server
from crabpath_retrievers.parts.operation.maintenance.doctor import check_version
from crabpath_retrievers.parts.replica import Replica, ReplicaState
from crabpath_retrievers.storage import ReadOnlyStore
from crabpath_retrievers.storage.database import open_engine, require_writable
from crabpath_retrievers.vectors.chroma import close_client
from crabpath_retrievers.vectors.chroma_directory import DEFAULT_COLLECTION
from crabpath_retrievers.vectors.opening import (
    find_directory,
    is_pgvector,
    place_of,
    require_existing,
    require_replica,
    wrapped_store,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from chromadb.api import ClientAPI


def check_place(
    path: str | Path, vectors: str | None = None, replica: str | None = None
) -> Readiness:
    """Whether the stores of a memory that this process has not opened answer within a second.

    Nothing is created, upgraded or written, and nothing is raised but for a path that is none.

    Args:
        path: A directory or an SQLAlchemy URL.
        vectors: Directory of the vectors, URL of a Chroma server, or ``"pgvector"``; None for the
            subdirectory ``vectors`` of a directory. With a database URL and None, and with
            ``"pgvector"``, only the database is asked.
        replica: URL of a read replica; None for none.
    """
    place = place_of(path)
    require_replica(replica, place)
    found = _check_stores(place, vectors)
    if not found.ready or replica is None:
        return found
    try:
        return add_replica(found, run_with_timeout(partial(_ask_replica, place, replica), 1.0))
    except (TimeoutError, ConfigurationError, StoreError) as error:
        return replace(found, reason=f"{found.reason}; queries go to the primary: {error}")


def _ask_replica(place: str, replica: str) -> ReplicaState:
    engine = open_engine(place, reading=True)
    try:
        asked = Replica(replica, engine, time_limit=PATIENCE)
        with closing(asked):
            asked.find_identity()
            asked.check()
            return asked.state
    finally:
        engine.dispose()


def _check_stores(place: str, vectors: str | None) -> Readiness:
    """Check whether database and vector store answer; arguments as for :func:`check_place`."""
    where = str(Path(place) / "vectors") if vectors is None and not is_url(place) else vectors
    for needed, by in (("psycopg", place), ("chromadb", where or "")):
        if is_url(by):  # an import takes longer than the answer of a server
            with suppress(ImportError):
                import_module(needed)
    asked: dict[str, Callable[[], object]] = {"database": lambda: _ask_database(place, where)}
    if where is None or is_pgvector(where):
        return ask_parts(
            asked, "the database answers; vectors elsewhere were not asked: give --vectors"
        )
    good = "the database and the vector store answer"
    if (directory := find_directory(where)) is not None:
        asked["vector store"] = lambda: peek_collection(directory, DEFAULT_COLLECTION, [])
        return ask_parts(asked, good)
    asked["vector store"] = lambda: ping_server(where)
    found, opened = ask_parts(asked, good), list["tuple[ClientAPI, str]"]()
    if found.ready:  # opening a client is work of this process
        part = {"vector store": lambda: opened.append(create_client(where))}
        found = ask_parts(part, good, DEFAULT_TIME_LIMIT)
    for client, name in opened:
        found = ask_parts({"vector store": partial(_ask_collection, client, name)}, good)
        close_client(client)
    return found


def _ask_database(place: str, vectors: str | None) -> None:
    require_existing(place)
    with closing(ReadOnlyStore(place)) as store:
        for finding in check_version(store):
            msg = f"{finding.message}: {finding.fix}"
            raise StoreError(msg)
        wrapped = wrapped_store(store.catalog.meta())
        with store.connect() as connection:
            require_writable(connection)
    if wrapped is not None and vectors is not None:
        msg = f"the memory wraps a {wrapped}, which only the process that opens it can ask"
        raise StoreError(msg)


def _ask_collection(client: "ClientAPI", name: str) -> None:
    client.get_collection(name).get(ids=[ABSENT], include=[])
