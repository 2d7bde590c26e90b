"""The embedder: found offline, checked, always unit vectors, and the same one for a memory."""

import importlib.util
import sys

import minilm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

from crabpath_retrievers import CrabPath
from crabpath_retrievers.errors import (
    EmbeddingMismatchError,
    InvalidInputError,
    MissingExtraError,
)
from crabpath_retrievers.vectors import embedder
from crabpath_retrievers.vectors.embedder import (
    Embedder,
    find_packaged_weights,
    require_same_embedder,
    to_unit_vector,
)

SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)


class Fixed(Embeddings):
    """Gives one vector for every text."""

    model = "fixed-model"

    def __init__(self, *vector: float) -> None:
        self.vector = list(vector)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vector, once per text; no text is an error, as in hosted embedders."""
        if not texts:
            raise ValueError
        return [self.vector for _ in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.vector


def test_the_packaged_weights_are_found_without_executing_their_package():
    before = set(sys.modules)
    found = find_packaged_weights()
    assert found is not None
    assert (found / "model.safetensors").is_file()
    assert set(sys.modules) == before
    assert embedder._WEIGHTS_PACKAGE not in sys.modules


@pytest.mark.parametrize("content", [b"other weights", None])
def test_weights_that_are_not_the_official_file_are_refused(tmp_path, monkeypatch, content):
    """A wrong digest and a missing file name the extra to reinstall; nothing is executed."""
    package = tmp_path / embedder._WEIGHTS_PACKAGE
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('executed')")
    if content is not None:
        (package / "model" / "model.safetensors").write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EmbeddingMismatchError, match="reinstall the local extra"):
        find_packaged_weights()


def test_without_the_package_there_are_no_packaged_weights(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert find_packaged_weights() is None


def test_a_missing_local_extra_names_both_ways_out(monkeypatch):
    monkeypatch.setattr(embedder, "load_default_embeddings", minilm.load)
    monkeypatch.setitem(sys.modules, "langchain_huggingface", None)
    with CrabPath.open() as memory:
        with pytest.raises(MissingExtraError, match=r"embeddings=\.\.\.") as error:
            memory.add_documents([Document("text")])
        assert isinstance(error.value, ImportError)
        assert "pip install 'crabpath-retrievers[local]'" in str(error.value)


def test_the_default_embedder_gives_unit_vectors_that_mean_something(embeddings):
    """MiniLM has 384 dimensions, and puts a paraphrase nearer than another subject."""
    dog, puppy, tax = Embedder(embeddings).documents(["A dog.", "A puppy.", "Income tax law."])
    assert dog.shape == (384,)
    assert dog.dtype == np.float32
    assert dog @ puppy > 0.5 > dog @ tax


def test_the_model_is_named_alike_however_it_was_loaded(embeddings):
    assert Embedder(embeddings).model == Embedder(None).model == embedder.DEFAULT_MODEL
    assert Embedder(Fixed(1, 0)).model == "fixed-model"
    assert Embedder(DeterministicFakeEmbedding(size=4)).model == "DeterministicFakeEmbedding"


async def test_a_query_is_the_same_sync_and_async():
    """Both ways give the same unit vector, 3-4-5 scaled to .6 and .8; no texts need no embedder."""
    one = Embedder(Fixed(3, 4))
    assert one.documents([]) == []
    for vector in (one.query("x"), await one.aquery("x")):
        assert vector.tolist() == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize(
    "vector",
    [[], [0, 0], [1, float("nan")], [1, float("inf")], [[1, 2]], 7, None, [None], ["a"], [1, [2]]],
)
def test_what_is_no_embedding_is_refused(vector):
    with pytest.raises(InvalidInputError, match="finite vector of numbers"):
        to_unit_vector(vector)


def test_an_embedder_that_skips_a_text_is_refused():
    class Short(Fixed):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [self.vector]

    with pytest.raises(InvalidInputError, match="1 vectors for 2 texts"):
        Embedder(Short(1, 0)).documents(["a", "b"])


@settings(max_examples=50)
@given(st.lists(SINGLE, min_size=1, max_size=8).filter(any))
def test_unit_keeps_direction_and_has_length_one(numbers):
    """For any float32 vector that is not zero, however large or small its numbers."""
    result = to_unit_vector(numbers)
    assert result.dtype == np.float32
    assert np.linalg.norm(result) == pytest.approx(1, abs=1e-5)
    exact = np.array(numbers, dtype=np.float64)
    assert result == pytest.approx(exact / np.linalg.norm(exact), abs=1e-6)


def test_require_same_tells_dimension_from_meaning():
    x, y = to_unit_vector([1, 0]), to_unit_vector([0, 1])
    with pytest.raises(EmbeddingMismatchError, match="2 dimensions, not 3"):
        require_same_embedder(x, to_unit_vector([1, 0, 0]), stored_model="a", model="b")
    with pytest.raises(EmbeddingMismatchError, match="'a'; the embedder given is 'b'"):
        require_same_embedder(x, y, stored_model="a", model="b")
    # cosine of (1, 0) and (1, 0.1) is 1/√1.01 = .995, within the tolerance of .99
    require_same_embedder(x, to_unit_vector([1, 0.1]), stored_model="a", model="b")


def test_a_memory_refuses_another_embedder(tmp_path):
    """Reading and writing both fail, and nothing is lost."""
    crabs = Document("Crabs walk sideways.", id="crabs")
    with CrabPath.open(tmp_path, embeddings=Fixed(float("nan"))) as memory:
        with pytest.raises(InvalidInputError, match="finite"):
            memory.add_documents([crabs])
        assert (memory.info()["nodes"], memory.info()["embedder"]) == (0, None)
    with CrabPath.open(tmp_path, embeddings=Fixed(1, 0, 0)) as memory:
        memory.add_documents([crabs])
    for other in (Fixed(0, 1, 0), Fixed(1, 0)):
        with CrabPath.open(tmp_path, embeddings=other) as memory:
            with pytest.raises(EmbeddingMismatchError, match="open it with the embedder"):
                memory.retrieve("crabs")
            with pytest.raises(EmbeddingMismatchError):
                memory.add_documents([Document("Lobsters too.", id="lobsters")])
    with CrabPath.open(tmp_path, embeddings=Fixed(1, 0, 0)) as memory:
        assert [d.node.id for d in memory.retrieve("crabs").documents] == ["crabs"]
