"""Finding and opening the parts of a memory: its place, its graph store, its vector index.

``vectors`` and ``replica`` are arguments of ``CrabPath.open``; ``place`` and ``location`` the
directory or URL of the graph store, ``meta`` its facts.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import sqlalchemy as sa
from langchain_core.vectorstores import VectorStore
from typing_extensions import TypedDict

from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.query import directory_of, is_url
from crabpath_retrievers.core.text import describe_type, format_value
from crabpath_retrievers.errors import (
    ConfigurationError,
    InvalidInputError,
    NotFoundError,
    StoreError,
)
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.database import is_postgres, open_engine, translate_database_errors
from crabpath_retrievers.storage.store import find_database_file, read_schema_version
from crabpath_retrievers.vectors.base import VectorIndex
from crabpath_retrievers.vectors.chroma import ChromaIndex
from crabpath_retrievers.vectors.chroma_directory import (
    CATALOGUE_FILE,
    DEFAULT_COLLECTION,
)


class ChromaClient(Protocol):
    """A client of Chroma, such as ``chromadb.HttpClient(...)``."""

    def get_or_create_collection(self, name: str) -> Any:
        """Return the collection of vectors called ``name``; create it if there is none."""


VectorPlace: TypeAlias = str | Path | VectorStore | VectorIndex | ChromaClient | None
"""Where a memory's vectors are: a directory, a Chroma server's URL, ``"pgvector"``, a store."""

PGVECTOR = "pgvector"
"""Value of the argument ``vectors`` for the PostgreSQL database of the graph."""

OWN = json.dumps(dict(VectorIndex.place))
"""Value of ``vectors`` in the graph store's facts for an index that belongs to the memory."""

_NO_VECTORS = (
    "a store at a URL needs vectors=: a directory, the URL of a Chroma server, "
    "'pgvector' for the same database, a Chroma client or a VectorStore"
)


def is_pgvector(vectors: Any, meta: Mapping[str, str] | None = None) -> bool:
    """Whether the vectors are in the graph's database.

    If ``vectors`` is None, the metadata ``meta`` of the store tell it.
    """
    if vectors is None:
        return bool(json.loads((meta or {}).get("vectors", "{}")).get("kind") == PGVECTOR)
    return isinstance(vectors, str) and vectors == PGVECTOR


def find_directory(vectors: Any) -> Path | None:
    """Return the directory that ``vectors`` names; None for a URL, a store or ``"pgvector"``."""
    named = isinstance(vectors, (str, os.PathLike)) and not is_url(vectors)
    return directory_of("vectors", vectors) if named and not is_pgvector(vectors) else None


def require_known_vectors(vectors: VectorPlace, place: str | None) -> None:
    """Refuse a value of ``vectors`` that names no place, before anything is created."""
    find_directory(vectors)
    if not isinstance(vectors, str):
        return
    letters = "".join(filter(str.isalnum, vectors)).lower()
    if letters == PGVECTOR and not is_pgvector(vectors):
        msg = f"vectors={vectors!r} is not known: write vectors='{PGVECTOR}'"
        raise ConfigurationError(msg)
    if is_pgvector(vectors) and not is_postgres(place):
        msg = (
            f"vectors='{PGVECTOR}' needs a memory in PostgreSQL: pass its URL as the path, such as "
            "postgresql+psycopg://host/database; or leave vectors out"
        )
        raise ConfigurationError(msg)


def require_replica(replica: str | None, place: str | None) -> None:
    """Refuse a read replica for a memory that can have none, before anything is created."""
    if replica is None:
        return
    if not isinstance(replica, str):
        msg = f"replica must be the URL of a database, not {format_value(replica)}"
        raise InvalidInputError(msg)
    if not (is_postgres(place) and is_postgres(replica)):
        msg = (
            "a read replica needs a memory in PostgreSQL: pass the URL of the primary as the path "
            "and that of its streaming standby as replica, or leave replica out"
        )
        raise ConfigurationError(msg)


def prepare_vectors(connection: sa.Connection, *, vectors: VectorPlace, location: str) -> None:
    """Refuse a new memory whose vectors would have no place, before its tables are created."""
    if is_pgvector(vectors):
        load_part("crabpath_retrievers.parts.pgvector.tables").ensure_extension(connection)
    elif vectors is None and is_url(location) and read_schema_version(connection) is None:
        raise ConfigurationError(_NO_VECTORS)


def open_index(
    vectors: VectorPlace, location: str | Path, store: GraphStore, meta: Mapping[str, str]
) -> VectorIndex:
    """Open the index that ``vectors`` describes; None opens the one that the memory remembers.

    Raises:
        ConfigurationError: ``vectors`` describes none.
    """
    if is_pgvector(vectors, meta):
        index: VectorIndex
        index = load_part("crabpath_retrievers.parts.pgvector.index").PgVectorIndex(store)
        return index
    if vectors is None and is_url(location):
        raise ConfigurationError(_NO_VECTORS)
    directory = Path(location) / "vectors" if vectors is None else find_directory(vectors)
    if directory is not None:
        return ChromaIndex.open_directory(directory)
    if isinstance(vectors, str):
        return ChromaIndex.at_url(vectors)
    if isinstance(vectors, VectorStore):
        index = load_part("crabpath_retrievers.parts.vector_store").VectorStoreIndex(vectors)
        return index
    if hasattr(vectors, "get_or_create_collection"):
        return ChromaIndex.from_client(cast("Any", vectors))
    if isinstance(vectors, VectorIndex):
        return vectors
    msg = (
        f"vectors cannot be {describe_type(vectors)}: "
        "pass a directory, the URL of a Chroma server, 'pgvector', a Chroma client, "
        "a VectorStore or a VectorIndex"
    )
    raise ConfigurationError(msg)


def wrapped_store(meta: Mapping[str, str]) -> str | None:
    """Return the name of the wrapped vector store, such as ``LangChain Chroma``, or None."""
    place = json.loads(meta.get("vectors", "{}"))
    return str(place.get("store")) if place.get("kind") == "wrapped" else None


def vectors_place(index: VectorIndex) -> str:
    """Encode the place of an index, as the value of ``vectors`` in the store's metadata."""
    return json.dumps(dict(index.place))


class MemoryInfo(TypedDict):
    """Contents of a memory, and their places.

    Attributes:
        store: Place of the graph store, without password.
        vectors: Kind and place of the vector index; None where that is not known.
        embedder: Name of the embedder that the vectors come from; None before the first document.
        schema: Version of the database schema.
        nodes: Chunks that queries find.
        retired: Chunks whose text a sync no longer found.
        notes: Notes of all namespaces.
        sources: Sources of the chunks.
        edges: Number of edges read from the text, by kind.
        namespaces: Number of turns by namespace.
        learned_weights: Edges with a learned weight, in all namespaces.
        turns: Recorded turns.
        replica: How the read replica is, in words; None without one.
    """

    store: str
    vectors: str | None
    embedder: str | None
    schema: int
    nodes: int
    retired: int
    notes: int
    sources: int
    edges: dict[str, int]
    namespaces: dict[str, int]
    learned_weights: int
    turns: int
    replica: str | None


def describe(store: GraphStore, vectors: str | None) -> MemoryInfo:
    """Describe a memory's contents and places; only the graph store is read."""
    meta = store.catalog.meta()
    facts = {
        "store": store.name,
        "vectors": vectors,
        "embedder": json.loads(meta["embedder"])["model"] if "embedder" in meta else None,
        "schema": int(meta["schema_version"]),
        **store.catalog.statistics(),
        "replica": None if store.replica is None else store.replica.describe(),
    }
    return cast("MemoryInfo", facts)


def require_vectors(meta: Mapping[str, str], name: str) -> None:
    """Refuse to open a memory that wraps a vector store without that store."""
    wrapped = wrapped_store(meta)
    if wrapped is not None:
        msg = (
            f"{name} wraps a {wrapped}: "
            f"open it with CrabPathRetriever.from_vectorstore(store, path={name!r})"
        )
        raise ConfigurationError(msg)


def place_of(path: str | Path) -> str:
    """Make a directory absolute and expand ``~``; return a database URL as it is."""
    if isinstance(path, str) and is_url(path):
        return path
    if isinstance(path, str) and not path:
        msg = "the path is empty: pass a directory, a database URL, or None for a temporary memory"
        raise ConfigurationError(msg)
    return str(directory_of("path", path))


def require_existing(place: str | None) -> None:
    """Refuse a place where there is no memory, without creating anything there."""
    if place is None:
        exists, name = False, "None"
    elif is_url(place):
        exists, name = _exists_at_url(place)
    else:
        exists, name = _is_file(Path(place) / "graph.sqlite"), place
    if not exists:
        msg = (
            f"there is no memory at {name}: check the path, "
            "or create one with `crabpath add FILES` or CrabPathRetriever.from_documents(...)"
        )
        raise NotFoundError(msg)


def require_graph(place: str) -> None:
    """Refuse to create a memory in the directory of one whose database was lost."""
    if is_url(place):
        return
    file, folder = Path(place) / "graph.sqlite", Path(place) / "vectors"
    if any(_has_content(path) for path in (file, file.with_name(f"{file.name}-wal"))):
        return
    if count := vectors_in(folder):
        state = "is empty" if _is_file(file) else "is missing"
        amount = "vectors" if count < 0 else f"{count} vectors"
        msg = (
            f"{file} {state}, and there are {amount} in {folder}: restore {file.name} from a "
            f"backup; or, to begin anew, move {folder} away"
        )
        raise StoreError(msg)


def vectors_in(path: Path) -> int:
    """Count the document vectors in a directory of Chroma; -1 where it cannot be read."""
    if not _has_content(path / CATALOGUE_FILE):
        return 0
    try:
        part = load_part("crabpath_retrievers.parts.chroma_files")
        count: int = part.peek_collection(path, DEFAULT_COLLECTION, ())[0]
    except StoreError:
        return -1
    return count


def _has_content(file: Path) -> bool:
    try:
        return file.is_file() and file.stat().st_size > 0
    except OSError:  # opening the file reports the reason
        return False


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:  # opening the file reports the reason
        return True


def _exists_at_url(text: str) -> tuple[bool, str]:
    """Check whether the database at a URL holds a memory; also return the URL without password."""
    if (file := find_database_file(text)) is not None:  # an engine would create it
        return _is_file(file), text
    engine = open_engine(text)
    try:
        with translate_database_errors(engine), engine.connect() as connection:
            return read_schema_version(connection) is not None, engine.url.render_as_string()
    finally:
        engine.dispose()
