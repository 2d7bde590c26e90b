"""Embeddings that are known already are not made again."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_retrievers import CrabPath, EmbeddingMismatchError, InvalidInputError

TEXTS = {"a": "Apples are red.", "b": "The sky is blue."}


class Counting(Embeddings):
    """Embeds by length, and notes what."""

    def __init__(self):
        """Start with nothing."""
        self.asked = []

    def embed_documents(self, texts):
        """One dimension for the length, one to be different."""
        self.asked += texts
        return [[float(len(text)), 1.0] for text in texts]

    def embed_query(self, text):
        """As a document."""
        return self.embed_documents([text])[0]


@pytest.fixture
def counting():
    """An embedder that counts."""
    return Counting()


@pytest.fixture
def memory(counting):
    """An empty memory."""
    with CrabPath.open(embeddings=counting) as opened:
        yield opened


def documents():
    """Two of them."""
    return [Document(text, id=name) for name, text in TEXTS.items()]


def test_a_known_vector_is_used(memory, counting):
    """Scaled to length 1; the other document is embedded."""
    memory.add_documents(documents(), split=False, vectors={"a": [0.0, 5.0], "nobody": [1.0, 1.0]})
    assert TEXTS["a"] not in counting.asked
    assert TEXTS["b"] in counting.asked
    (head,) = memory.store.walk.get_nodes(["a"])
    assert head.vector.tolist() == [0.0, 1.0]
    assert memory.retrieve("x", vector=[0.0, 1.0]).documents[0].node.id == "a"


def test_a_document_of_several_chunks_is_embedded(memory, counting):
    """One vector cannot stand for them."""
    long = Document("Apples are red. " * 200, id="a")
    report = memory.add_documents([long], vectors={"a": [0.0, 1.0]})
    assert report.added > 1
    assert len(counting.asked) == report.added + 1  # and the sentence that tells embedders apart


@pytest.mark.parametrize(
    ("vector", "error", "message"),
    [
        ([1.0, 2.0, 3.0], EmbeddingMismatchError, "has 3 dimensions, the memory 2"),
        ([float("nan"), 1.0], InvalidInputError, "finite vector"),
        ([0.0, 0.0], InvalidInputError, "not all zero"),
        ("ab", InvalidInputError, "finite vector"),
    ],
)
def test_an_unusable_vector_is_refused(memory, vector, error, message):
    """And nothing is added."""
    with pytest.raises(error, match=message):
        memory.add_documents(documents(), split=False, vectors={"a": vector})
    assert memory.info()["nodes"] == 0
