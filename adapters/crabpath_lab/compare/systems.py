"""Opens the two systems of a comparison: what is there, and a memory over the same documents."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever

from crabpath_lab.compare.answers import Search
from crabpath_retrievers import CrabPath
from crabpath_retrievers.core.extras import import_attribute
from crabpath_retrievers.errors import (
    ConfigurationError,
    CrabPathError,
    EmbeddingMismatchError,
    InvalidInputError,
    MissingExtraError,
    NotFoundError,
    StoreError,
)
from crabpath_retrievers.parts.chroma_server import create_client
from crabpath_retrievers.parts.vector_store import VectorStoreIndex
from crabpath_retrievers.parts.wrapping import wrap_vectorstore
from crabpath_retrievers.vectors.embedder import load_default_embeddings, resolve_embeddings

_SAME = 0.98  # cosine of a stored vector and that of its text, by the embedder that made it
_NOTES = "crabpath:"  # beginning of the sources of notes and corrections
_CHECKED = 3  # stored documents of which that is tried
_PAGE = 2_000
_RECIPE = (
    "put its documents into a memory (crabpath add FILES --store ./memory, or "
    "CrabPath.open('./memory').add_documents(documents)) and give --memory ./memory"
)


class Place(NamedTuple):
    """Names of the two systems, as options give them.

    Attributes:
        store: Directory or address of a Chroma store.
        collection: Its collection; None for the only one.
        retriever: ``module:attribute`` of a vector store, retriever or function.
        memory: Directory or database URL of a memory; None for one that is built and deleted.
        embeddings: An embedder, or ``provider:model``; None for all-MiniLM-L6-v2, or that of the
            store.
        most: Documents of a store from which a sample is compared.
    """

    store: str | None = None
    collection: str | None = None
    retriever: str | None = None
    memory: str | None = None
    embeddings: Embeddings | str | None = None
    most: int = 10_000


class Systems(NamedTuple):
    """Both systems, ready to be asked.

    Attributes:
        searches: Search by name of the system.
        list_corpus: Lists the documents that the memory holds.
        notes: Sentences that a reader of the figures must know.
    """

    searches: Mapping[str, Search]
    list_corpus: Callable[[], Iterable[Document]]
    notes: tuple[str, ...] = ()


@contextmanager
def open_systems(place: Place) -> Iterator[Systems]:
    """Open both systems; nothing is written to the store, and nothing is recorded.

    Raises:
        InvalidInputError: The options do not go together, or one cannot be used.
        NotFoundError: There is no such store, collection or memory.
        ConfigurationError: The store cannot list its documents, and no memory is given.
        EmbeddingMismatchError: The collection was filled with another embedder.
        MissingExtraError: ``langchain-chroma`` is not installed.
    """
    if place.store and place.retriever:
        msg = "give --store or --with, not both: each names the retriever that is there"
        raise InvalidInputError(msg)
    if not (place.store or place.retriever or place.memory):
        msg = (
            "name what to compare: --store ./chroma, --with module:attribute, or --memory ./memory"
        )
        raise InvalidInputError(msg)
    with ExitStack() as stack:
        notes: list[str] = []
        given = None
        if place.store:
            given = _open_chroma(place, stack, notes)
        elif place.retriever:
            given = _load_retriever(place.retriever)
        memory = stack.enter_context(_open_memory(place, given))
        condition = None
        if isinstance(given, VectorStoreRetriever):
            condition = given.search_kwargs.get("filter")
        searches: dict[str, Search] = {
            "present": _make_search(given, memory),
            "memory": partial(_search_memory, memory, condition),
        }
        if place.memory and memory.info()["turns"]:
            notes.append(
                "The memory has learned before: questions that it knows are no fair test. Its "
                "notes and corrections are left out."
            )
        if isinstance(given, (VectorStore, VectorStoreRetriever)) and _has_titles(memory):
            notes.append(
                "The memory embeds titles, too, which the texts of the present store lack: a part "
                "of the difference may come from them."
            )
        yield Systems(searches, lambda: memory.documents(limit=1_000_000), tuple(notes))


def _has_titles(memory: CrabPath) -> bool:
    """Whether a document of the memory has a title that its text lacks, among the first ones."""
    return any(
        str(document.metadata.get("title") or "") not in document.page_content
        for document in memory.documents(limit=_PAGE)
    )


def _make_search(given: Any, memory: CrabPath) -> Search:
    """Make the search of a given object; None gives plain similarity search of the memory.

    Raises:
        InvalidInputError: The object is no retriever, vector store or function of a question.
    """
    if given is None:
        return lambda text, k: [found for found, _ in memory.similarity_search(text, k=k)]
    if isinstance(given, VectorStore):
        return lambda text, k: given.similarity_search(text, k=k)
    if isinstance(given, VectorStoreRetriever):
        return lambda text, k: given.model_copy(
            update={"search_kwargs": given.search_kwargs | {"k": k}}
        ).invoke(text)
    if hasattr(given, "invoke"):
        return lambda text, _k: given.invoke(text)
    if hasattr(given, "retrieve"):
        return lambda text, _k: [_to_document(found) for found in given.retrieve(text)]
    if callable(given):
        return lambda text, _k: given(text)
    msg = (
        f"a {type(given).__name__} cannot be asked: name a LangChain or LlamaIndex retriever, "
        "a vector store, or a function from a question to documents"
    )
    raise InvalidInputError(msg)


def _to_document(found: Any) -> Document:
    """Convert a LlamaIndex node with its score to a document."""
    node = getattr(found, "node", found)
    return Document(node.get_content(), id=node.node_id, metadata=dict(node.metadata))


def _search_memory(memory: CrabPath, condition: Any, text: str, k: int) -> list[Document]:
    """Search a memory, without notes: a title or a place would give them away."""
    found = memory.retrieve(text, k=2 * k, filter=condition, record=False).documents
    nodes = [item.node for item in found if not item.node.source.startswith(_NOTES)]
    return [Document(node.content, id=node.id, metadata=node.metadata) for node in nodes[:k]]


@contextmanager
def _open_memory(place: Place, given: Any) -> Iterator[CrabPath]:
    """Open the memory of the options, or a temporary one over the vector store."""
    embedder = resolve_embeddings(place.embeddings)
    store = given.vectorstore if isinstance(given, VectorStoreRetriever) else given
    if place.memory:
        try:
            memory = CrabPath.open(place.memory, embeddings=embedder, create=False)
        except ConfigurationError:
            if not isinstance(store, VectorStore):
                raise
            memory = wrap_vectorstore(store, path=place.memory, documents=None, embeddings=embedder)
        with memory:
            yield memory
        return
    if not isinstance(store, VectorStore):
        msg = f"a {type(given).__name__} does not list its documents: {_RECIPE}"
        raise ConfigurationError(msg)
    if not VectorStoreIndex(store).lists:
        msg = f"{type(store).__name__} cannot list its documents: {_RECIPE}"
        raise ConfigurationError(msg)
    with (
        TemporaryDirectory(prefix="crabpath-", ignore_cleanup_errors=True) as folder,
        wrap_vectorstore(store, path=folder, documents=None, embeddings=embedder) as memory,
    ):
        if not memory.info()["nodes"]:
            msg = "the store holds no document with a text: there is nothing to compare"
            raise InvalidInputError(msg)
        yield memory


def _load_retriever(name: str) -> Any:
    """Load the object of ``module:attribute``.

    Raises:
        InvalidInputError: It cannot be loaded.
    """
    try:
        found = import_attribute(name)
        made = found() if _is_factory(found) else found
    except CrabPathError:
        raise
    except Exception as error:
        msg = f"--with {name} cannot be loaded ({type(error).__name__}: {error})"
        raise InvalidInputError(msg) from error
    if made is None:
        msg = f"--with takes module:attribute, not {name!r}"
        raise InvalidInputError(msg)
    return made


def _is_factory(found: Any) -> bool:
    """Whether an object makes a retriever: a class, or a function without a required argument."""
    if isinstance(found, type):
        return True
    if not callable(found) or hasattr(found, "invoke") or hasattr(found, "retrieve"):
        return False
    parameters = inspect.signature(found).parameters.values()
    return all(
        p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters
    )


def _open_chroma(place: Place, stack: ExitStack, notes: list[str]) -> VectorStore:
    """Open a collection as a LangChain store; a large one as a sample in a new store."""
    try:
        from langchain_chroma import Chroma
    except ImportError as error:
        msg = (
            "--store needs langchain-chroma: pip install langchain-chroma, or name your own store "
            "by --with module:attribute"
        )
        raise MissingExtraError(msg) from error
    client = _connect(place.store or "")
    collection = _find_collection(client, place)
    embedder = resolve_embeddings(place.embeddings) or load_default_embeddings()
    _require_same_embedder(collection, embedder)
    count = collection.count()
    if count > place.most:
        notes.append(
            f"The collection holds {count:,} documents: both systems search the same "
            f"{place.most:,}, drawn at random. Give --most for more."
        )
        folder = stack.enter_context(
            TemporaryDirectory(prefix="crabpath-", ignore_cleanup_errors=True)
        )
        space = collection.configuration["hnsw"]["space"]
        sample = Chroma(
            "sample",
            embedding_function=embedder,
            persist_directory=folder,
            collection_configuration={"hnsw": {"space": space}},
        )
        _copy_sample(collection, sample._collection, place.most)  # noqa: SLF001
        return sample
    return Chroma(
        collection.name,
        embedding_function=embedder,
        client=client,
        create_collection_if_not_exists=False,
    )


def _connect(store: str) -> Any:
    """Connect to a Chroma directory or server."""
    import chromadb
    from chromadb.config import Settings

    if store.startswith(("http://", "https://")):
        return create_client(store)[0]
    if not (Path(store) / "chroma.sqlite3").is_file():
        msg = f"there is no Chroma store at {store}: give the directory with chroma.sqlite3"
        raise NotFoundError(msg)
    # Chroma distinguishes clients by the spelling of their path.
    place, settings = str(Path(store).resolve()), Settings(anonymized_telemetry=False)
    try:
        return chromadb.PersistentClient(place, settings=settings)
    except Exception as error:
        msg = f"the Chroma store at {store} cannot be opened: {error or type(error).__name__}"
        raise StoreError(msg) from error


def _find_collection(client: Any, place: Place) -> Any:
    try:
        names = sorted(collection.name for collection in client.list_collections())
    except Exception as error:
        msg = f"the Chroma store at {place.store} does not answer: {error}"
        raise StoreError(msg) from error
    name = place.collection or (names[0] if len(names) == 1 else None)
    if name is None or name not in names:
        listed = ", ".join(names[:10]) or "none"
        asked = f"no collection {name!r}" if name else "several collections"
        msg = f"{place.store} has {asked}: give --collection, one of: {listed}"
        raise NotFoundError(msg)
    collection = client.get_collection(name, embedding_function=None)
    if not collection.count():
        msg = f"the collection {name!r} is empty: there is nothing to compare"
        raise InvalidInputError(msg)
    return collection


def _require_same_embedder(collection: Any, embedder: Embeddings) -> None:
    """Refuse an embedder that does not give the stored vectors of some texts.

    Raises:
        EmbeddingMismatchError: Their vectors are others.
        InvalidInputError: The collection has no texts.
    """
    rows = collection.get(limit=_CHECKED, include=["documents", "embeddings"])
    pairs = [
        (text, np.asarray(vector, dtype=np.float64))
        for text, vector in zip(rows["documents"] or (), rows["embeddings"], strict=False)
        if text
    ]
    if not pairs:
        msg = (
            f"the collection {collection.name!r} has vectors but no texts, so that no memory can "
            f"be built over it: {_RECIPE}"
        )
        raise InvalidInputError(msg)
    for (_, stored), made in zip(
        pairs, embedder.embed_documents([t for t, _ in pairs]), strict=True
    ):
        vector = np.asarray(made, dtype=np.float64)
        size = np.linalg.norm(stored) * np.linalg.norm(vector)
        if len(vector) != len(stored) or not size or vector @ stored / size < _SAME:
            msg = (
                f"the vectors of {collection.name!r} ({len(stored)} dimensions) are not those of "
                "its texts by this embedder: give the one that filled it by --embeddings, or your "
                "store by --with if it embeds other texts than it keeps"
            )
            raise EmbeddingMismatchError(msg)


def _copy_sample(source: Any, target: Any, most: int) -> None:
    """Copy ``most`` documents, drawn with a fixed seed, with their vectors."""
    ids = source.get(include=[])["ids"]
    drawn = np.random.default_rng(0).choice(len(ids), size=most, replace=False)
    for start in range(0, most, _PAGE):
        part = [ids[i] for i in drawn[start : start + _PAGE]]
        rows = source.get(ids=part, include=["documents", "embeddings", "metadatas"])
        if rows["ids"]:  # deleted meanwhile
            target.add(
                ids=rows["ids"],
                embeddings=rows["embeddings"],
                documents=rows["documents"],
                metadatas=[meta or None for meta in rows["metadatas"]],
            )
