"""Finding and opening the parts of a memory: its place, its graph store, its vector index."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from langchain_core.vectorstores import VectorStore

from crabpath_retrievers.errors import ConfigurationError, NotFoundError, StoreError
from crabpath_retrievers.query import path_of
from crabpath_retrievers.routing.policy import Router
from crabpath_retrievers.seeds.chroma_directory import COLLECTION
from crabpath_retrievers.seeds.chroma_files import FILE, glance
from crabpath_retrievers.seeds.index import VectorIndex
from crabpath_retrievers.seeds.vectorstore import VectorStoreIndex
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.engine import open_engine, translated_errors
from crabpath_retrievers.storage.migrations import stored_version

OWN = json.dumps({"kind": "own"})
"""What a graph store remembers under ``vectors`` of an index that is the memory's own."""


def open_index(vectors: Any, location: str | Path) -> VectorIndex:
    """The vector index for what the caller passed as ``vectors``.

    Raises:
        ConfigurationError: It is none of the supported kinds, or is missing with a URL.
    """
    from crabpath_retrievers.seeds.chroma import ChromaIndex

    if vectors is None:
        if "://" in str(location):
            msg = (
                "a store at a URL needs vectors=: a directory, the URL of a Chroma server, "
                "a Chroma client or a VectorStore"
            )
            raise ConfigurationError(msg)
        return ChromaIndex.embedded(Path(location) / "vectors")
    if isinstance(vectors, str) and "://" in vectors:
        return ChromaIndex.at_url(vectors)
    if isinstance(vectors, (str, Path)):
        return ChromaIndex.embedded(Path(vectors))
    if isinstance(vectors, VectorStore):
        return VectorStoreIndex(vectors)
    if hasattr(vectors, "get_or_create_collection"):
        return ChromaIndex.from_client(vectors)
    if hasattr(vectors, "upsert") and hasattr(vectors, "matching"):
        index: VectorIndex = vectors
        return index
    msg = (
        f"vectors cannot be a {type(vectors).__name__}: "
        "pass a directory, the URL of a Chroma server, a Chroma client, a VectorStore "
        "or a VectorIndex"
    )
    raise ConfigurationError(msg)


def wrapped_store(meta: Mapping[str, str]) -> str | None:
    """What the store that a memory wraps is called, such as ``LangChain Chroma``.

    Args:
        meta: Facts about the graph store.

    Returns:
        None where the vectors are the memory's own.
    """
    place = json.loads(meta.get("vectors", "{}"))
    return str(place.get("store")) if place.get("kind") == "wrapped" else None


def vectors_place(index: VectorIndex) -> str:
    """Where a memory keeps its vectors, as its graph store remembers it under ``vectors``."""
    if isinstance(index, VectorStoreIndex):
        return json.dumps({"kind": "wrapped", "store": index.description})
    return OWN


def describe(store: GraphStore, vectors: str | None) -> dict[str, Any]:
    """What a memory holds, and where; the graph store alone is read.

    Args:
        store: Of the memory.
        vectors: What and where its vector index is, for people; None where that is not known.
    """
    meta = store.catalog.meta()
    return {
        "store": store.name,
        "vectors": vectors,
        "embedder": json.loads(meta["embedder"])["model"] if "embedder" in meta else None,
        "schema": int(meta["schema_version"]),
        **store.catalog.statistics(),
    }


def require_vectors(meta: Mapping[str, str], name: str) -> None:
    """Refuse to open a memory without its vector store when it wraps one.

    Args:
        meta: Facts about the graph store.
        name: Where it is, for people.

    Raises:
        ConfigurationError: It wraps one.
    """
    wrapped = wrapped_store(meta)
    if wrapped is not None:
        msg = (
            f"{name} wraps a {wrapped}: "
            f"open it with CrabPathRetriever.from_vectorstore(store, path={name!r})"
        )
        raise ConfigurationError(msg)


def router_of(router: Any) -> Router:
    """The router for what the caller passed as ``router``: a router, or a chat model for one.

    Raises:
        InvalidInputError: It is neither.
    """
    if hasattr(router, "route") and hasattr(router, "aroute"):
        given: Router = router
        return given
    from crabpath_retrievers.routing.chat_model import ChatModelRouter

    return ChatModelRouter(router)


def place_of(path: str | Path) -> str:
    """A directory with ``~`` expanded, or a database URL as it is.

    Raises:
        ConfigurationError: The path is empty.
        InvalidInputError: It is no path.
    """
    if isinstance(path, str) and "://" in path:
        return path
    if isinstance(path, str) and not path:
        msg = "the path is empty: pass a directory, a database URL, or None for a temporary memory"
        raise ConfigurationError(msg)
    return str(path_of("path", path))


def require_existing(place: str | None) -> None:
    """Refuse a place where there is no memory, without leaving anything behind there.

    Raises:
        NotFoundError: There is none.
    """
    if place is None:
        found, name = False, "None"
    elif "://" in place:
        found, name = _existing_at_url(place)
    else:
        found, name = (Path(place) / "graph.sqlite").is_file(), place
    if not found:
        msg = (
            f"there is no memory at {name}: check the path, "
            "or create one with CrabPathRetriever.from_documents(documents, path=...)"
        )
        raise NotFoundError(msg)


def require_graph(place: str) -> None:
    """Refuse to begin a memory anew in the directory of one whose database was lost.

    Raises:
        StoreError: The database is missing or empty, and the vectors beside it are not.
    """
    if "://" in place:
        return
    file, where = Path(place) / "graph.sqlite", Path(place) / "vectors"
    if any(_filled(one) for one in (file, file.with_name(f"{file.name}-wal"))):
        return
    if count := vectors_in(where):
        what = "is empty" if file.is_file() else "is missing"
        shown = "vectors" if count < 0 else f"{count} vectors"
        msg = (
            f"{file} {what}, and there are {shown} in {where}: restore {file.name} from a backup; "
            f"or, to begin anew, move {where} away"
        )
        raise StoreError(msg)


def vectors_in(path: Path) -> int:
    """How many vectors of documents a directory of Chroma holds; -1 where it cannot be read."""
    if not _filled(path / FILE):
        return 0
    try:
        return glance(path, COLLECTION, ())[0]
    except StoreError:
        return -1


def _filled(file: Path) -> bool:
    try:
        return file.is_file() and file.stat().st_size > 0
    except OSError:  # opening says why it cannot be read
        return False


def _existing_at_url(text: str) -> tuple[bool, str]:
    """Whether a database holds a memory, and its URL without password."""
    if text.startswith("sqlite"):  # an engine would create the file
        return Path(sa.make_url(text).database or "").is_file(), text
    engine = open_engine(text)
    try:
        with translated_errors(engine), engine.connect() as connection:
            return stored_version(connection) is not None, engine.url.render_as_string()
    finally:
        engine.dispose()


class Closable(Protocol):
    """What a memory consists of."""

    def close(self) -> None:
        """Release what it holds."""


def close_all(*parts: Closable) -> None:
    """Close every part in order, also when closing one of them fails."""
    with ExitStack() as stack:
        for part in reversed(parts):
            stack.callback(part.close)
