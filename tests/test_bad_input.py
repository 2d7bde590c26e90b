"""Bad questions and bad documents: one clear error each, or a sensible result; nothing is lost."""

import datetime as dt
import hashlib
import re
from collections.abc import Iterator

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_retrievers import (
    CrabPath,
    CrabPathRetriever,
    DuplicateIdError,
    EmbeddingMismatchError,
    InvalidInputError,
    NotFoundError,
)

TEXTS = {"a": "Apples are red fruit.", "b": "The sky is blue.", "c": "Grass is green."}


class Words(Embeddings):
    """Hashed bag of words: texts that share words are near."""

    def __init__(self, size: int = 64) -> None:
        """Vectors have ``size`` dimensions."""
        self.size = size

    def embed_documents(self, texts):
        """One vector per text."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        """Counts of the words, by hash."""
        vector = np.full(self.size, 1e-3)
        for word in re.findall(r"\w+", text.lower()):
            vector[int(hashlib.sha256(word.encode()).hexdigest(), 16) % self.size] += 1
        return vector.tolist()


class NotNumbers(Words):
    """Gives NaN for texts that mention it, as half-broken servers do."""

    def embed_query(self, text):
        """NaN in one place."""
        vector = super().embed_query(text)
        return [float("nan"), *vector[1:]] if "nan" in text else vector


class TooFew(Words):
    """Returns one vector too few for a batch."""

    def embed_documents(self, texts):
        """Lose the last."""
        found = super().embed_documents(texts)
        return found[:-1] if len(found) > 1 else found


@pytest.fixture
def retriever() -> Iterator[CrabPathRetriever]:
    """Three documents."""
    made = CrabPathRetriever.from_texts(TEXTS.values(), Words(), ids=list(TEXTS), k=3)
    yield made
    made.memory.close()


@pytest.fixture
def unchanged(retriever) -> Iterator[None]:
    """Both stores hold afterwards what they held before, and no turn was recorded."""
    before = {**retriever.memory.info(), "vectors": retriever.memory.index.count()}
    yield
    assert {**retriever.memory.info(), "vectors": retriever.memory.index.count()} == before


@pytest.mark.parametrize("query", ["", "   ", "\n\t", "\x00"])
async def test_empty_query(retriever, unchanged, query):
    """An empty question is refused, sync and async."""
    with pytest.raises(InvalidInputError, match="the query is empty: pass a question"):
        retriever.invoke(query)
    with pytest.raises(InvalidInputError, match="the query is empty: pass a question"):
        await retriever.ainvoke(query)


@pytest.mark.parametrize("query", [None, 5, {"input": "sky"}, ["sky"]])
def test_query_that_is_no_text(retriever, unchanged, query):
    """A question that is no text is refused, and the message names its type."""
    with pytest.raises(InvalidInputError, match=f"must be a text, not {type(query).__name__}"):
        retriever.invoke(query)


@pytest.mark.parametrize("query", ["blue sky " * 11112, "x" * 100_000])
def test_query_of_100000_characters(retriever, query):
    """A question of 100,000 characters is answered."""
    assert len(retriever.invoke(query)) == 3


@pytest.mark.parametrize(
    "query", ["blue \ud83d sky", "blue\x00 sky", "🦀 blue sky مرحبا", "?!'\"*()"]
)
def test_query_of_odd_characters(retriever, query):
    """Lone surrogates, NUL, emoji, right-to-left text and operators are answered and recorded."""
    turn_id = retriever.invoke(query)[0].metadata["crabpath"]["turn_id"]
    assert retriever.memory.explain(turn_id).turn.returned


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", True])
def test_k_that_is_no_positive_whole_number(retriever, unchanged, k):
    """K below 1 or not whole is refused."""
    with pytest.raises(InvalidInputError, match=r"k must be a whole number of at least 1, not"):
        retriever.invoke("sky", k=k)


@pytest.mark.parametrize("field", [{"max_tokens": 0}, {"max_tokens": -5}, {"namespace": ""}])
def test_unusable_option(retriever, unchanged, field):
    """A budget below 1 and an empty namespace are refused."""
    with pytest.raises(InvalidInputError, match="must be"):
        retriever.invoke("sky", **field)


@pytest.mark.parametrize("seed", [-1, "three", 1.5])
def test_unusable_seed_of_exploration(retriever, unchanged, seed):
    """A seed that is no whole number of at least 0 is refused."""
    with pytest.raises(InvalidInputError, match="explore must be True, False or a seed"):
        retriever.invoke("sky", explore=seed)


@pytest.mark.parametrize("namespace", ["müller 🦀", "user:42/agent", "n" * 200])
def test_unusual_namespace(retriever, namespace):
    """Any text serves as namespace."""
    found = retriever.invoke("sky", namespace=namespace)
    assert found[0].metadata["crabpath"]["namespace"] == namespace
    assert retriever.memory.info()["namespaces"] == {namespace: 1}


@pytest.mark.parametrize(
    "where", ["sky", [1], {"a": 1, "b": 2}, {"a": {"$nope": 1}}, {"a": None}, {"a": {"$in": []}}]
)
def test_wrong_filter(retriever, unchanged, where):
    """A filter that the vector store does not understand is refused with its own words."""
    with pytest.raises(InvalidInputError, match="filter"):
        retriever.invoke("sky", filter=where)


def test_filter_on_an_unknown_key(retriever):
    """A filter on a key that no document has gives nothing."""
    assert retriever.invoke("sky", filter={"colour": "blue"}) == []


@pytest.mark.parametrize("vector", [[float("nan")] * 64, [0.0] * 64, [], [[1.0] * 64]])
def test_unusable_query_vector(retriever, unchanged, vector):
    """A query vector that is no finite direction is refused."""
    with pytest.raises(InvalidInputError, match="must be a finite vector"):
        retriever.memory.retrieve("sky", vector=vector)


def test_query_vector_of_wrong_dimension(retriever, unchanged):
    """A query vector of another dimension is refused and both dimensions are told."""
    with pytest.raises(EmbeddingMismatchError, match="has 3 dimensions, the memory 64"):
        retriever.memory.retrieve("sky", vector=[1.0, 2.0, 3.0])


def test_query_embedded_as_nan(retriever, unchanged):
    """An embedder that returns NaN for a question is told so, and nothing is recorded."""
    with CrabPath.open(embeddings=NotNumbers()) as memory:
        memory.add_documents([Document("The sky is blue.")])
        with pytest.raises(InvalidInputError, match="must be a finite vector"):
            memory.retrieve("nan")
        assert memory.info()["turns"] == 0


async def test_empty_corpus():
    """A memory without documents answers with nothing."""
    empty = CrabPathRetriever.from_documents([], Words())
    assert empty.invoke("sky") == []
    assert await empty.ainvoke("sky", fill=False, filter={"a": 1}, max_tokens=5) == []
    empty.memory.close()


def test_no_documents_added(retriever, unchanged):
    """Adding nothing does nothing."""
    assert retriever.add_documents([]) == []


@pytest.mark.parametrize("text", ["", "  \n ", "\x00"])
def test_document_without_text(retriever, unchanged, text):
    """A document without text is refused together with the batch that it came in."""
    batch = [Document("Snow is white.", id="d"), Document(text, id="e")]
    with pytest.raises(InvalidInputError, match="document 'e' has no text: leave it out or fill"):
        retriever.add_documents(batch)


def test_duplicate_id_with_different_text(retriever, unchanged):
    """One id for two texts is refused; nothing of the batch is kept."""
    batch = [Document("Snow is white.", id="d"), Document("Coal is black.", id="d")]
    with pytest.raises(DuplicateIdError, match="two documents have the id 'd'"):
        retriever.add_documents(batch)


def test_duplicate_document(retriever):
    """The same document twice in a batch is stored once."""
    batch = [Document("Snow is white.", id="d")] * 2
    assert retriever.add_documents(batch) == ["d"]
    assert retriever.memory.info()["nodes"] == retriever.memory.index.count() == 4


def test_ids_that_do_not_match_the_documents(retriever, unchanged):
    """Another number of ids than documents is refused."""
    with pytest.raises(InvalidInputError, match="2 ids for 1 documents: pass one id per document"):
        retriever.add_documents([Document("Snow is white.")], ids=["d", "e"])


def test_something_else_than_a_document(retriever, unchanged):
    """A plain text in place of a document is refused."""
    with pytest.raises(InvalidInputError, match="expected a LangChain Document, got str"):
        retriever.add_documents(["Snow is white."])


def test_documents_without_titles_and_ids(retriever):
    """Documents need neither title nor id nor source; equal texts are one document."""
    ids = retriever.add_documents([Document("Snow is white."), Document("Coal is black.")])
    assert retriever.add_documents([Document("Snow is white.")]) == ids[:1]
    assert retriever.invoke("white snow", k=1)[0].page_content == "Snow is white."


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("crab 🦀 party", "crab 🦀 party"),
        ("مرحبا بالعالم", "مرحبا بالعالم"),
        ("日本語のテキスト", "日本語のテキスト"),
        ("bin\x00ary \x01\x7f\xff tail", "binary \x01\x7f\xff tail"),
        ("lone \ud83d surrogate", "lone ? surrogate"),
        ("\u202eright to left\u202c \ufeff\u200b", "\u202eright to left\u202c \ufeff\u200b"),
    ],
)
def test_text_of_odd_characters(retriever, text, kept):
    """Odd text comes back as it was, without what no database can store."""
    (node_id,) = retriever.add_documents([Document(text)])
    found = {document.id: document.page_content for document in retriever.invoke(text, k=4)}
    assert found[node_id] == kept


def test_metadata_that_chroma_rejects(retriever):
    """Metadata that the vector store cannot hold comes back with the document, as JSON has it."""
    metadata = {
        "nested": {"a": [1, {"b": None}]},
        "mixed": [1, "a"],
        "empty": [],
        "none": None,
        "day": dt.date(2026, 11, 20),
        "nan": float("nan"),
        "big": 2**70,
        "flag": True,
    }
    retriever.add_documents([Document("Snow is white.", id="d", metadata=metadata)])
    (found,) = retriever.invoke("white snow", k=1)
    kept = {**metadata, "day": "2026-11-20", "nan": None}
    assert {name: found.metadata[name] for name in kept} == kept
    assert retriever.invoke("white snow", k=1, filter={"flag": True})[0].id == "d"


@pytest.mark.parametrize("embeddings", [NotNumbers(), TooFew()])
def test_embedder_that_fails_for_a_document(embeddings):
    """An embedder's wrong answer is refused, and nothing of the batch is left in either store."""
    with CrabPath.open(embeddings=embeddings) as memory:
        memory.add_documents([Document("The sky is blue.")])
        with pytest.raises(InvalidInputError, match=r"finite vector|returned 1 vectors for 2"):
            memory.add_documents([Document("Snow is nan."), Document("Coal is black.")])
        assert memory.info()["nodes"] == memory.index.count() == 1
        assert not memory.store.catalog.unfinished()
        assert [d.node.content for d in memory.retrieve("sky").documents] == ["The sky is blue."]


def test_forgetting_what_is_not_there(retriever, unchanged):
    """Unknown ids, sources and namespaces are forgotten without complaint, as 0 documents."""
    memory = retriever.memory
    assert memory.forget(["nope"]) == memory.forget([]) == memory.forget("nope") == 0
    assert memory.forget(source="nope") == memory.forget(namespace="nope") == 0


@pytest.mark.parametrize("given", [{}, {"ids": ["a"], "source": "a"}])
def test_forgetting_without_saying_what(retriever, unchanged, given):
    """Forget wants exactly one of its arguments."""
    with pytest.raises(InvalidInputError, match="give exactly one of ids, source and namespace"):
        retriever.memory.forget(**given)


def test_unknown_turn(retriever):
    """A turn that is not recorded is told as such."""
    with pytest.raises(NotFoundError, match="no turn 'nope' is recorded here"):
        retriever.memory.explain("nope")
