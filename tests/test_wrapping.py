"""Wrapping a vector store that somebody else owns: read, never written."""

import chromadb
import pytest
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from crabpath_retrievers import CrabPathRetriever
from crabpath_retrievers.errors import ConfigurationError, EmbeddingMismatchError, InvalidInputError
from crabpath_retrievers.vectors import langchain_store
from crabpath_retrievers.vectors.langchain_store import VectorStoreIndex

DOCUMENTS = [
    Document(
        "Ada Lovelace wrote notes on the engine.", id="ada", metadata={"title": "Ada Lovelace"}
    ),
    Document("The engine was designed by Charles Babbage.", id="engine"),
    Document("Charles Babbage knew Ada Lovelace.", id="babbage", metadata={"lang": "en"}),
]


class Counting(DeterministicFakeEmbedding):
    """One vector per text, and how many texts were embedded."""

    size: int = 16
    embedded: list[str] = []  # noqa: RUF012  pydantic copies it

    def embed_documents(self, texts):
        """Note the texts."""
        self.embedded.extend(texts)
        return super().embed_documents(texts)


class Opaque(VectorStore):
    """A store as third parties write them: it searches, but cannot list or tell its embedder."""

    def __init__(self, inner):
        """Search ``inner``."""
        self.inner = inner

    def similarity_search_by_vector(self, embedding, k=4, **kwargs):
        """As the inner store."""
        return self.inner.similarity_search_by_vector(embedding, k, **kwargs)

    def similarity_search(self, query, k=4, **kwargs):
        """Not offered."""
        raise NotImplementedError

    @classmethod
    def from_texts(cls, texts, embedding, metadatas=None, **kwargs):
        """Not offered."""
        raise NotImplementedError


def chroma(path, embedder, documents=DOCUMENTS):
    """A persisted Chroma store as LangChain users have it: Euclidean by default."""
    store = Chroma("theirs", embedder, client=chromadb.PersistentClient(path=str(path)))
    store.add_documents(documents)
    return store


def in_memory(path, embedder, documents=DOCUMENTS):
    """An in-memory store."""
    store = InMemoryVectorStore(embedder)
    store.add_documents(documents)
    return store


@pytest.fixture(params=[chroma, in_memory])
def wrapped(request, tmp_path):
    """A filled store of each kind that can list its documents."""
    return request.param(tmp_path / "theirs", Counting())


def holdings(store):
    """All records of a store with text, metadata and vector."""
    if isinstance(store, InMemoryVectorStore):
        return {key: dict(record) for key, record in store.store.items()}
    found = store.get(include=["documents", "metadatas", "embeddings"])
    rows = zip(found["documents"], found["metadatas"], found["embeddings"].tolist(), strict=True)
    return dict(zip(found["ids"], rows, strict=True))


def forbid_writes(store, monkeypatch):
    """Make every way to write to a store fail."""

    def refuse(*args, **kwargs):
        pytest.fail("the wrapped store was written to")

    for name in ("add_documents", "add_texts", "delete", "aadd_documents", "aadd_texts", "adelete"):
        monkeypatch.setattr(type(store), name, refuse)


def ids(retriever, query, **options):
    """Ids of what a retriever returns."""
    return [document.id for document in retriever.invoke(query, **options)]


def test_a_store_is_searched_under_its_own_ids(wrapped):
    """The most similar document of the store comes first, as its own search says."""
    retriever = CrabPathRetriever.from_vectorstore(wrapped, k=3)
    with retriever.memory:
        text = DOCUMENTS[1].page_content
        assert wrapped.similarity_search(text, k=1)[0].id == "engine"
        assert ids(retriever, text)[0] == "engine"
        assert sorted(ids(retriever, text)) == ["ada", "babbage", "engine"]


def test_the_graph_is_read_off_the_documents_of_the_store(wrapped):
    """A text that names another document's title gets a pointer to it and one back."""
    with CrabPathRetriever.from_vectorstore(wrapped).memory as memory:
        assert memory.info()["nodes"] == 3
        edges = memory.info()["edges"]
    assert (edges["mention"], edges["mentioned_by"]) == (1, 1)


def test_a_wrapped_store_is_not_written_to(wrapped, tmp_path, monkeypatch):
    """Wrapping, asking and wrapping again leave every record as it was, and call no write."""
    before = holdings(wrapped)
    forbid_writes(wrapped, monkeypatch)
    for _ in range(2):
        retriever = CrabPathRetriever.from_vectorstore(wrapped, path=tmp_path / "graph")
        retriever.invoke("Who wrote notes?")
        retriever.memory.close()
    assert holdings(wrapped) == before
    assert not (tmp_path / "graph" / "vectors").exists()


def test_opening_again_embeds_only_what_changed(wrapped, tmp_path):
    """A second wrap with the same path reads new, changed and deleted documents, no others."""
    CrabPathRetriever.from_vectorstore(wrapped, path=tmp_path / "graph").memory.close()
    wrapped.delete(["babbage"])
    wrapped.add_documents(
        [
            Document("The engine was designed in London.", id="engine"),
            Document("Grace Hopper wrote a compiler.", id="hopper"),
        ]
    )
    wrapped.embeddings.embedded.clear()
    retriever = CrabPathRetriever.from_vectorstore(wrapped, path=tmp_path / "graph", k=9)
    with retriever.memory as memory:
        # The first is the sentence that tells whether the embedder is still the same.
        assert sorted(wrapped.embeddings.embedded[1:]) == [
            "Grace Hopper wrote a compiler.",
            "The engine was designed in London.",
        ]
        assert sorted(ids(retriever, "engine")) == ["ada", "engine", "hopper"]
        (engine,) = memory.store.catalog.documents(["engine"]).values()
        assert engine.content == "The engine was designed in London."


def test_a_filter_is_in_the_language_of_the_store(tmp_path):
    """The condition goes to the store as it is given."""
    retriever = CrabPathRetriever.from_vectorstore(chroma(tmp_path, Counting()))
    with retriever.memory:
        assert ids(retriever, "Who knew whom?", filter={"lang": "en"}) == ["babbage"]


def test_a_filter_in_another_language_is_an_input_error():
    """The in-memory store wants a function; a dictionary is refused with the store's name."""
    retriever = CrabPathRetriever.from_vectorstore(in_memory(None, Counting()))
    with retriever.memory:
        english = retriever.invoke("Who?", filter=lambda d: d.metadata.get("lang") == "en")
        assert [document.id for document in english] == ["babbage"]
        with pytest.raises(InvalidInputError, match="InMemoryVectorStore"):
            retriever.invoke("Who?", filter={"lang": "en"})


def test_a_store_is_listed_page_by_page(tmp_path, monkeypatch):
    """More documents than one page holds all arrive, also when the last page is full."""
    monkeypatch.setattr(langchain_store, "_PAGE", 5)
    documents = [Document(f"Text number {i}.", id=f"n{i}") for i in range(10)]
    store = chroma(tmp_path, Counting(), documents)
    assert [d.id for d in VectorStoreIndex(store).documents()] == [f"n{i}" for i in range(10)]


def test_a_subclass_of_a_known_store_can_be_listed(tmp_path):
    """A project's own subclass of Chroma is listed as Chroma is."""

    class Ours(Chroma):
        pass

    store = Ours("ours", Counting(), client=chromadb.EphemeralClient())
    store.add_documents(DOCUMENTS)
    assert {d.id for d in VectorStoreIndex(store).documents()} == {"ada", "engine", "babbage"}


def test_records_without_text_are_passed_over(tmp_path):
    """A record with a vector alone, or with blanks for text, does not stop the wrapping."""
    store = chroma(tmp_path, Counting())
    store._collection.add(ids=["bare", "blank"], embeddings=[[1.0] * 16] * 2, documents=["", " "])
    store._collection.add(ids=["none"], embeddings=[[1.0] * 16])
    retriever = CrabPathRetriever.from_vectorstore(store, k=9)
    with retriever.memory:
        assert sorted(ids(retriever, "engine")) == ["ada", "babbage", "engine"]


def test_a_store_that_cannot_list_asks_for_its_documents():
    """One message names all arguments; with documents and embedder the store is searched."""
    store = Opaque(in_memory(None, Counting()))
    needs = r"Opaque cannot be wrapped like this: .*embedder \(.*embeddings=.*list.*documents="
    with pytest.raises(ConfigurationError, match=needs):
        CrabPathRetriever.from_vectorstore(store)
    retriever = CrabPathRetriever.from_vectorstore(
        store, documents=DOCUMENTS, embeddings=Counting(), k=1
    )
    with retriever.memory:
        assert ids(retriever, DOCUMENTS[1].page_content) == ["engine"]


@pytest.mark.parametrize("node_id", [None, ""])
def test_documents_without_ids_are_refused(node_id):
    """Without the store's own ids its hits could not be matched to documents."""
    nameless = [*DOCUMENTS, Document("Nobody.", id=node_id)]
    with pytest.raises(ConfigurationError, match=r"set Document\.id on each"):
        CrabPathRetriever.from_vectorstore(in_memory(None, Counting()), documents=nameless)


def test_another_embedder_than_before_is_refused(wrapped, tmp_path):
    """A graph that was read with one embedder is not mixed with another one's vectors."""
    CrabPathRetriever.from_vectorstore(wrapped, path=tmp_path / "graph").memory.close()
    with pytest.raises(EmbeddingMismatchError, match="it was filled with as embeddings="):
        CrabPathRetriever.from_vectorstore(
            wrapped, path=tmp_path / "graph", embeddings=DeterministicFakeEmbedding(size=8)
        )


def test_a_failed_wrap_leaves_the_path_usable(tmp_path):
    """After a refusal the same path can be wrapped again in the same process."""
    store = in_memory(None, Counting())
    with pytest.raises(ConfigurationError):
        CrabPathRetriever.from_vectorstore(store, path=tmp_path, documents=[Document("No id.")])
    retriever = CrabPathRetriever.from_vectorstore(store, path=tmp_path, k=9)
    with retriever.memory:
        assert len(ids(retriever, "engine")) == 3
