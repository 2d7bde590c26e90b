"""Whether the database and the vector store of a memory answer, for the probes of a host."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from crabpath_retrievers.core.query import is_url
from crabpath_retrievers.core.time_limit import run_with_timeout, shorten_waiting
from crabpath_retrievers.errors import ConfigurationError, StoreError
from crabpath_retrievers.maintenance.doctor.checks import check_version
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.engine import open_engine
from crabpath_retrievers.storage.replica import Replica, ReplicaState
from crabpath_retrievers.storage.store import ReadOnlyStore
from crabpath_retrievers.vectors.base import VectorIndex
from crabpath_retrievers.vectors.chroma import ChromaIndex, open_server_client
from crabpath_retrievers.vectors.chroma_directory import DEFAULT_COLLECTION
from crabpath_retrievers.vectors.chroma_files import peek_collection
from crabpath_retrievers.vectors.embedder import EmbedderFingerprint
from crabpath_retrievers.vectors.opening import (
    find_directory,
    is_pgvector,
    place_of,
    require_existing,
    require_replica,
    wrapped_store,
)

_PATIENCE = 1.0  # seconds for all answers together; the usual limit of a probe
_ABSENT = "crabpath-ready"  # an id to ask for; whether there is one does not matter


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a memory can serve.

    Attributes:
        ready: Whether the database and the vector store answer.
        reason: What answers or does not, in one sentence.
    """

    ready: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Convert it to plain, JSON-safe data."""
        return asdict(self)


def check_open_memory(
    store: GraphStore, index: VectorIndex, identity: EmbedderFingerprint
) -> Readiness:
    """Whether both stores of an open memory answer within a second; never raises.

    A memory whose embedder another process has changed is not ready: it refuses all questions.
    """

    def ask_database() -> None:
        store.require_in_place()
        identity.require_current()

    def ask_vectors() -> None:
        index.find_existing([_ABSENT])
        if isinstance(index, ChromaIndex) and index.local:
            index.glance([_ABSENT])  # reads the files that are there now

    asked = {"database": ask_database, "vector store": ask_vectors}
    return _add_replica(_ask(asked, "the database and the vector store answer"), store.replica)


def _add_replica(found: Readiness, replica: ReplicaState | None) -> Readiness:
    """Add the state of the read replica, without which queries are answered, too."""
    if not found.ready or replica is None:
        return found
    return replace(found, reason=f"{found.reason}; {replica.describe()}")


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

    Raises:
        ConfigurationError: The path is empty.
        InvalidInputError: It is no path.
    """
    place = place_of(path)
    require_replica(replica, place)
    found = _check_stores(place, vectors)
    if not found.ready or replica is None:
        return found
    try:
        return _add_replica(found, run_with_timeout(partial(_ask_replica, place, replica), 1.0))
    except (TimeoutError, ConfigurationError, StoreError) as error:
        return replace(found, reason=f"{found.reason}; queries go to the primary: {error}")


def _ask_replica(place: str, replica: str) -> ReplicaState:
    engine = open_engine(place, reading=True)
    try:
        asked = Replica(replica, engine, time_limit=_PATIENCE)
        with closing(asked):
            asked.find_identity()
            asked.check()
            return asked.state
    finally:
        engine.dispose()


def _check_stores(place: str, vectors: str | None) -> Readiness:
    """Whether database and vector store answer; see :func:`check_place`."""
    where = str(Path(place) / "vectors") if vectors is None and not is_url(place) else vectors
    asked: dict[str, Callable[[], object]] = {"database": lambda: _ask_database(place, where)}
    if where is None or is_pgvector(where):
        return _ask(asked, "the database answers; vectors elsewhere were not asked: give --vectors")
    asked["vector store"] = lambda: _ask_vectors(where)
    return _ask(asked, "the database and the vector store answer")


def _ask(parts: Mapping[str, Callable[[], object]], good: str) -> Readiness:
    """Ask one part after the other, all of them within a second."""
    until = monotonic() + _PATIENCE
    for name, ask in parts.items():
        try:
            _wait_for(ask, until - monotonic())
        except TimeoutError:
            reason = f"the {name} gave no answer within {_PATIENCE:g} s"
            return Readiness(ready=False, reason=reason)
        except Exception as error:
            reason = " ".join(str(error).split()) or f"the {name} failed"
            return Readiness(ready=False, reason=reason)
    return Readiness(ready=True, reason=good)


def _wait_for(ask: Callable[[], object], seconds: float) -> None:
    """Ask in a thread: drivers round limits up, and foreign stores have their own."""

    def ask_briefly() -> None:
        with shorten_waiting(seconds):
            ask()

    run_with_timeout(ask_briefly, max(0.0, seconds))


def _ask_database(place: str, vectors: str | None) -> None:
    require_existing(place)
    with closing(ReadOnlyStore(place)) as store:
        for finding in check_version(store):
            msg = f"{finding.message}: {finding.fix}"
            raise StoreError(msg)
        wrapped = wrapped_store(store.catalog.meta())
    if wrapped is not None and vectors is not None:
        msg = f"the memory wraps a {wrapped}, which only the process that opens it can ask"
        raise StoreError(msg)


def _ask_vectors(vectors: str) -> None:
    if (directory := find_directory(vectors)) is not None:
        peek_collection(directory, DEFAULT_COLLECTION, [])
        return
    with open_server_client(vectors) as (client, name):
        client.get_collection(name).get(ids=[_ABSENT], include=[])
