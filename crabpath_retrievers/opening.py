"""Finding and opening the parts of a memory: its place, its graph store, its vector index."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from langchain_core.vectorstores import VectorStore

from crabpath_retrievers.errors import ConfigurationError, NotFoundError
from crabpath_retrievers.query import path_of
from crabpath_retrievers.routing.policy import Router
from crabpath_retrievers.seeds.index import VectorIndex
from crabpath_retrievers.seeds.vectorstore import VectorStoreIndex
from crabpath_retrievers.storage.engine import open_engine, translated_errors
from crabpath_retrievers.storage.migrations import stored_version


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
