"""Wrapping an existing vector store: the graph is built from its documents."""

import logging
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from pydantic import ValidationError
from typing_extensions import Unpack

from crabpath_retrievers.core.query import require_list
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import (
    ConfigurationError,
    CrabPathError,
    EmbeddingMismatchError,
    InvalidInputError,
    NotFoundError,
    StoreError,
)
from crabpath_retrievers.ingest.chunking import Chunking
from crabpath_retrievers.ingest.pipeline import IngestReport
from crabpath_retrievers.memory.services import OpenOptions, Services
from crabpath_retrievers.parts.vector_store import VectorStoreIndex
from crabpath_retrievers.storage import ReadOnlyStore
from crabpath_retrievers.storage.sql_tools import split_batches
from crabpath_retrievers.vectors.embedder import Embedder, resolve_embeddings
from crabpath_retrievers.vectors.opening import place_of, require_existing, wrapped_store

_log = logging.getLogger(__name__)
_PROBE = "What is there?"


def unwrap_store(given: Any) -> tuple[VectorStore, dict[str, Any]]:
    """Return the vector store, and the search arguments of its LangChain retriever.

    Args:
        given: A ``VectorStore``, or the result of its ``as_retriever()``.

    Raises:
        InvalidInputError: ``given`` is neither.
    """
    if isinstance(given, VectorStoreRetriever):
        search = {"search_type": given.search_type, "search_kwargs": given.search_kwargs}
        return given.vectorstore, search
    if isinstance(given, VectorStore):
        return given, {}
    msg = (
        f"from_vectorstore wraps a LangChain VectorStore, not a {type(given).__name__}: "
        "pass the store itself, such as langchain_chroma.Chroma(...)"
    )
    raise InvalidInputError(msg)


def wrap_vectorstore(
    vectorstore: VectorStore,
    *,
    path: str | Path | None,
    documents: Iterable[Document] | None,
    embeddings: Embeddings | str | None,
    **opening: Unpack[OpenOptions],
) -> CrabPath:
    """Make a memory over another vector store.

    All checks of the store precede any write at the path. Arguments and errors are those of
    ``CrabPathRetriever.from_vectorstore``.
    """
    index = VectorStoreIndex(vectorstore, deletes=False)
    known = None if documents is None else list(documents)
    embedder = resolve_embeddings(embeddings) or _get_embedder(vectorstore)
    _require_capabilities(index, vectorstore, embedder, known)
    if path is not None:
        _require_no_other_memory(path)
    memory = CrabPath.open(path, embeddings=embedder, vectors=index, **opening)
    try:
        _require_same_store(memory, index, known or ())
        report = memory.refresh(known)
        if not (report.added or report.updated or report.unchanged):
            _log.warning("%s holds no documents: check its collection", index.description)
    except BaseException:
        memory.close()
        raise
    return memory


def refresh_wrapped(services: Services, documents: Iterable[Document] | None) -> IngestReport:
    """Read a wrapped vector store again; as ``CrabPath.refresh``."""
    index = services.index
    if not (isinstance(index, VectorStoreIndex) and wrapped_store(services.store.catalog.meta())):
        msg = (
            "this memory wraps no vector store, so there is nothing to refresh it from: "
            "use add_documents or sync"
        )
        raise ConfigurationError(msg)
    if documents is None and not index.lists:
        msg = (
            f"{index.description} cannot list its documents: "
            "pass them with their ids as refresh(documents=...)"
        )
        raise ConfigurationError(msg)
    checked = None if documents is None else require_list("documents", documents)
    if not all(getattr(document, "id", None) for document in checked or ()):
        msg = "the documents of a wrapped store need their ids: set Document.id on each"
        raise ConfigurationError(msg)
    services.identity.verify()
    chunking = Chunking(services.settings.ingest, split=False)
    report = services.ingest.adopt(
        index.documents() if checked is None else checked, chunking=chunking
    )
    index.unknown_reported = False
    return report


def _get_embedder(vectorstore: VectorStore) -> Embeddings | None:
    try:
        return vectorstore.embeddings
    except Exception:  # the property may not be implemented
        return None


def _require_capabilities(
    index: VectorStoreIndex,
    vectorstore: VectorStore,
    embedder: Embeddings | None,
    documents: Sequence[Document] | None,
) -> None:
    """Refuse a store without the needed capabilities; nothing is written to it.

    Raises:
        ConfigurationError: Capabilities are missing; the message lists all of them.
        EmbeddingMismatchError: The store was filled with another embedder.
        StoreError: The store failed.
    """
    missing = []
    if embedder is None:
        missing.append("it does not tell its embedder (pass embeddings=)")
    if documents is None and not index.lists:
        missing.append("it cannot list its documents (pass them with their ids as documents=)")
    if not all(document.id for document in documents or ()):
        missing.append("the documents given need their ids (set Document.id on each)")
    missing += _list_search_problems(index, vectorstore, embedder)
    if missing:
        msg = f"{index.description} cannot be wrapped like this: {'; '.join(missing)}"
        raise ConfigurationError(msg)


def _list_search_problems(
    index: VectorStoreIndex, vectorstore: VectorStore, embedder: Embeddings | None
) -> list[str]:
    """List problems of the store's search, as far as one search shows them."""
    missing = ["it cannot search by vector (similarity_search_by_vector is not implemented)"]
    own = type(vectorstore).similarity_search_by_vector
    if own is VectorStore.similarity_search_by_vector:
        return missing
    if embedder is None:
        return []
    vector = Embedder(embedder).query(_PROBE).tolist()
    try:
        documents = vectorstore.similarity_search_by_vector(vector, k=1)
    except NotImplementedError:
        return missing
    except CrabPathError:
        raise
    except Exception as error:
        msg = f"{index.description} failed at a search by vector: {error or type(error).__name__}"
        if isinstance(error, ValidationError):
            msg += "; fill or delete its documents without a text"
            raise StoreError(msg) from error
        if isinstance(error, (ValueError, AssertionError)) or "dimension" in str(error):
            msg += "; pass the embedder that it was filled with as embeddings="
            raise EmbeddingMismatchError(msg) from error
        raise StoreError(msg) from error
    ids = [index.get_id(document) for document in documents]
    if not all(ids):
        return ["it returns documents without ids (they must carry Document.id)"]
    index.find_existing([str(node_id) for node_id in ids])  # logs a store without look-up
    return []


def _require_no_other_memory(path: str | Path) -> None:
    """Refuse a path with a memory that has documents and vectors of its own."""
    place = place_of(path)
    try:
        require_existing(place)
    except NotFoundError:
        return
    with closing(ReadOnlyStore(place)) as store:
        meta = store.catalog.meta()
    if int(meta.get("nodes", 0)) and wrapped_store(meta) is None:
        msg = (
            f"{path} is a memory with documents and vectors of its own: pass another path to "
            "from_vectorstore, or open it with CrabPathRetriever.from_existing(path)"
        )
        raise ConfigurationError(msg)


def _require_same_store(
    memory: CrabPath, index: VectorStoreIndex, documents: Sequence[Document]
) -> None:
    """Refuse a store that contains no document of an existing memory, such as an empty one."""
    known = memory.store.catalog.all_ids()
    named = {document.id for document in documents}
    for part in split_batches(known):
        # ``find_existing`` returns None if the store cannot look up ids.
        if named.intersection(part) or index.find_existing(part) != set():
            return
    if known:
        msg = (
            f"{index.description} holds none of the {len(known)} documents of the memory at "
            f"{memory.store.name}: check its collection, or pass another path for another store "
            "(a database has one graph per schema: add ?options=-csearch_path%3Dname to its URL)"
        )
        raise ConfigurationError(msg)
