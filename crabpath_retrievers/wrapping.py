"""Wrapping a vector store that exists already: the graph is read off its documents."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever

from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import (
    ConfigurationError,
    CrabPathError,
    EmbeddingMismatchError,
    InvalidInputError,
    NotFoundError,
    StoreError,
)
from crabpath_retrievers.opening import place_of, require_existing, wrapped_store
from crabpath_retrievers.seeds.embedder import Embedder
from crabpath_retrievers.seeds.vectorstore import VectorStoreIndex
from crabpath_retrievers.storage.batching import parts
from crabpath_retrievers.storage.readonly import ReadOnlyStore

_PROBE = "What is there?"
_SHARED = ("k", "filter")  # what a store's own retriever is told in words that ours knows


def store_of(given: Any) -> tuple[VectorStore, dict[str, Any]]:
    """The store that is meant, and the fields that its own retriever gives to ours.

    Args:
        given: A ``VectorStore``, or what its ``as_retriever()`` returns.

    Raises:
        InvalidInputError: It is neither.
    """
    if isinstance(given, VectorStoreRetriever):
        told = given.search_kwargs
        return given.vectorstore, {name: told[name] for name in _SHARED if told.get(name)}
    if isinstance(given, VectorStore):
        return given, {}
    msg = (
        f"from_vectorstore wraps a LangChain VectorStore, not a {type(given).__name__}: "
        "pass the store itself, such as langchain_chroma.Chroma(...)"
    )
    raise InvalidInputError(msg)


def wrap(
    vectorstore: VectorStore,
    *,
    path: str | Path | None,
    documents: Iterable[Document] | None,
    embeddings: Embeddings | None,
    **opening: Any,
) -> CrabPath:
    """A memory over a store that somebody else owns; see ``CrabPathRetriever.from_vectorstore``.

    What keeps the store from being wrapped is found before anything is made at the path.
    """
    index = VectorStoreIndex(vectorstore)
    given = None if documents is None else list(documents)
    embedder = embeddings or _embedder_of(vectorstore)
    _require_abilities(index, vectorstore, embedder, given)
    if path is not None:
        _require_no_other_memory(path)
    memory = CrabPath.open(path, embeddings=embedder, vectors=index, **opening)
    try:
        _require_same_store(memory, index, given or ())
        memory.refresh(given)
    except BaseException:
        memory.close()
        raise
    return memory


def _embedder_of(vectorstore: VectorStore) -> Embeddings | None:
    try:
        return vectorstore.embeddings
    except Exception:  # a property that is not implemented
        return None


def _require_abilities(
    index: VectorStoreIndex,
    vectorstore: VectorStore,
    embedder: Embeddings | None,
    documents: Sequence[Document] | None,
) -> None:
    """Refuse a store that cannot do what is needed; nothing is written to it.

    Raises:
        ConfigurationError: With all that it lacks.
        EmbeddingMismatchError: It was filled with another embedder.
        StoreError: It failed.
    """
    lacks = []
    if embedder is None:
        lacks.append("it does not tell its embedder (pass embeddings=)")
    if documents is None and not index.lists:
        lacks.append("it cannot list its documents (pass them with their ids as documents=)")
    if not all(document.id for document in documents or ()):
        lacks.append("the documents given need their ids (set Document.id on each)")
    lacks += _lacks_of_search(index, vectorstore, embedder)
    if lacks:
        msg = f"{index.description} cannot be wrapped like this: {'; '.join(lacks)}"
        raise ConfigurationError(msg)


def _lacks_of_search(
    index: VectorStoreIndex, vectorstore: VectorStore, embedder: Embeddings | None
) -> list[str]:
    """What the store lacks to be searched, as far as one search shows it."""
    missing = ["it cannot search by vector (similarity_search_by_vector is not implemented)"]
    own = type(vectorstore).similarity_search_by_vector
    if own is VectorStore.similarity_search_by_vector:
        return missing
    if embedder is None:
        return []
    vector = Embedder(embedder).query(_PROBE).tolist()
    try:
        found = vectorstore.similarity_search_by_vector(vector, k=1)
    except NotImplementedError:
        return missing
    except CrabPathError:
        raise
    except Exception as error:
        msg = f"{index.description} failed at a search by vector: {error or type(error).__name__}"
        if isinstance(error, (ValueError, AssertionError)) or "dimension" in str(error):
            msg += "; pass the embedder that it was filled with as embeddings="
            raise EmbeddingMismatchError(msg) from error
        raise StoreError(msg) from error
    if not all(document.id for document in found):
        return ["it returns documents without ids (they must carry Document.id)"]
    index.held([str(document.id) for document in found])  # logs where it cannot tell
    return []


def _require_no_other_memory(path: str | Path) -> None:
    """Refuse a place where a memory keeps documents and vectors of its own.

    Raises:
        ConfigurationError: There is one; it stays as it is.
    """
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
    memory: CrabPath, index: VectorStoreIndex, given: Sequence[Document]
) -> None:
    """Refuse a store that has nothing of what the memory was read off, such as an empty one.

    Raises:
        ConfigurationError: It is another one; the memory stays as it is.
    """
    known = memory.store.catalog.all_ids()
    named = {document.id for document in given}
    for part in parts(known):
        # None where the store cannot tell.
        if named.intersection(part) or index.held(part) != set():
            return
    if known:
        msg = (
            f"{index.description} holds none of the {len(known)} documents of the memory at "
            f"{memory.store.name}: check its collection, or pass another path for another store"
        )
        raise ConfigurationError(msg)
