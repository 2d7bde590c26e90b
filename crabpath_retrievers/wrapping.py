"""Wrapping a vector store that exists already: the graph is read off its documents."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore

from crabpath_retrievers.errors import ConfigurationError
from crabpath_retrievers.memory import CrabPath

_PAGE = 1000


def wrap(
    vectorstore: VectorStore,
    *,
    path: str | Path | None,
    documents: Iterable[Document] | None,
    embeddings: Embeddings | None,
    **opening: Any,
) -> CrabPath:
    """A memory over a store that somebody else owns; see ``CrabPathRetriever.from_vectorstore``."""
    embedder = embeddings or vectorstore.embeddings
    if embedder is None:
        msg = (
            f"{type(vectorstore).__name__} does not tell its embedder: "
            "pass embeddings= to from_vectorstore"
        )
        raise ConfigurationError(msg)
    given = list(documents if documents is not None else stored_documents(vectorstore))
    if not all(document.id for document in given):
        msg = "the documents of a wrapped store need their ids: set Document.id on each"
        raise ConfigurationError(msg)
    memory = CrabPath.open(path, embeddings=embedder, vectors=vectorstore, **opening)
    try:
        memory.adopt(given)
    except BaseException:
        memory.close()
        raise
    return memory


def stored_documents(vectorstore: VectorStore) -> Iterable[Document]:
    """All documents of a store, with ids, for the stores that can list them.

    Raises:
        ConfigurationError: The store cannot list its documents.
    """
    listings = {"Chroma": _chroma, "InMemoryVectorStore": _in_memory, "FAISS": _faiss}
    for base in type(vectorstore).__mro__:
        if base.__name__ in listings:
            found = listings[base.__name__](vectorstore)
            # A record without text can be searched, but nothing can be read off it.
            return (document for document in found if document.page_content.strip())
    name = type(vectorstore).__name__
    msg = f"{name} cannot list its documents: pass them as documents= to from_vectorstore"
    raise ConfigurationError(msg)


def _chroma(vectorstore: Any) -> Iterable[Document]:
    offset = 0
    while True:
        page = vectorstore.get(limit=_PAGE, offset=offset, include=["documents", "metadatas"])
        for node_id, text, metadata in zip(
            page["ids"], page["documents"], page["metadatas"], strict=True
        ):
            yield Document(id=node_id, page_content=text or "", metadata=metadata or {})
        if len(page["ids"]) < _PAGE:
            return
        offset += _PAGE


def _in_memory(vectorstore: Any) -> Iterable[Document]:
    for node_id, record in vectorstore.store.items():
        yield Document(id=node_id, page_content=record["text"], metadata=record["metadata"])


def _faiss(vectorstore: Any) -> Iterable[Document]:
    for node_id in vectorstore.index_to_docstore_id.values():
        document = vectorstore.docstore.search(node_id)
        if isinstance(document, Document):
            yield document.model_copy(update={"id": node_id})
