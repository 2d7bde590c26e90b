"""The embedder: found offline, checked, always unit vectors, and the same one for a memory."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

from crabpath_retrievers import CrabPath
from crabpath_retrievers.errors import EmbeddingMismatchError, InvalidInputError
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
        """Always answer ``vector``."""
        self.vector = list(vector)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vector, once per text; no text is an error, as in hosted embedders."""
        if not texts:
            raise ValueError
        return [self.vector for _ in texts]

    def embed_query(self, text: str) -> list[float]:
        """The vector."""
        return self.vector


def in_subprocess(code: str, *path: str) -> str:
    """Standard output of Python code in a fresh interpreter, with entries before its path."""
    program = f"import sys\nsys.path[:0] = {list(path)!r}\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


def weights_in(directory: Path, content: bytes | None) -> None:
    """A package with the name of the packaged weights, which must never be executed."""
    package = directory / embedder._WEIGHTS_PACKAGE
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('executed')")
    if content is not None:
        (package / "model" / "model.safetensors").write_bytes(content)


def test_the_find_packaged_weights_are_found_without_executing_their_package():
    """Looking the weights up imports nothing: the modules of the interpreter stay the same."""
    before = set(sys.modules)
    found = find_packaged_weights()
    assert found is not None
    assert (found / "model.safetensors").is_file()
    assert set(sys.modules) == before
    assert embedder._WEIGHTS_PACKAGE not in sys.modules


@pytest.mark.parametrize("content", [b"other weights", None])
def test_weights_that_are_not_the_official_file_are_refused(tmp_path, content):
    """A wrong digest and a missing file name the extra to reinstall; nothing is executed."""
    weights_in(tmp_path, content)
    code = """
from crabpath_retrievers.errors import EmbeddingMismatchError
from crabpath_retrievers.vectors.embedder import find_packaged_weights
try:
    find_packaged_weights()
except EmbeddingMismatchError as error:
    print(error)
"""
    assert "not the official file: reinstall the local extra" in in_subprocess(code, str(tmp_path))


def test_without_the_package_there_are_no_find_packaged_weights(monkeypatch):
    """The default then falls back to the model's hub name."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert find_packaged_weights() is None


def test_a_missing_local_extra_names_both_ways_out():
    """Without the extra, the error says to pass an embedder or what to install."""
    code = """
sys.modules["langchain_huggingface"] = None
from crabpath_retrievers import CrabPath
from crabpath_retrievers.errors import MissingExtraError
from langchain_core.documents import Document
with CrabPath.open() as memory:
    try:
        memory.add_documents([Document("text")])
    except MissingExtraError as error:
        print(isinstance(error, ImportError), error)
"""
    said = in_subprocess(code)
    assert said.startswith("True")
    assert "embeddings=..." in said
    assert "pip install 'crabpath-retrievers[local]'" in said


def test_the_default_embedder_gives_unit_vectors_that_mean_something(embeddings):
    """MiniLM has 384 dimensions, and puts a paraphrase nearer than another subject."""
    dog, puppy, tax = Embedder(embeddings).documents(["A dog.", "A puppy.", "Income tax law."])
    assert dog.shape == (384,)
    assert dog.dtype == np.float32
    assert dog @ puppy > 0.5 > dog @ tax


def test_the_model_is_named_alike_however_it_was_loaded(embeddings):
    """The packaged weights, the default and the hub name are one model; others tell theirs."""
    assert Embedder(embeddings).model == Embedder(None).model == embedder.DEFAULT_MODEL
    assert Embedder(Fixed(1, 0)).model == "fixed-model"
    assert Embedder(DeterministicFakeEmbedding(size=4)).model == "DeterministicFakeEmbedding"


def test_no_texts_need_no_embedder():
    """An empty batch returns no vectors and does not bother the embedder."""
    assert Embedder(Fixed(1)).documents([]) == []


async def test_a_query_is_the_same_sync_and_async():
    """Both ways give the same unit vector, 3-4-5 scaled to .6 and .8."""
    one = Embedder(Fixed(3, 4))
    assert one.query("x").tolist() == pytest.approx([0.6, 0.8])
    assert (await one.aquery("x")).tolist() == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize(
    "vector",
    [[], [0, 0], [1, float("nan")], [1, float("inf")], [[1, 2]], 7, None, [None], ["a"], [1, [2]]],
)
def test_what_is_no_embedding_is_refused(vector):
    """Empty, zero, not finite, not flat and not numeric are one clear input error."""
    with pytest.raises(InvalidInputError, match="finite vector of numbers"):
        to_unit_vector(vector)


def test_an_embedder_that_skips_a_text_is_refused():
    """One vector per text: otherwise texts would get each other's vectors."""

    class Short(Fixed):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [self.vector]

    with pytest.raises(InvalidInputError, match="1 vectors for 2 texts"):
        Embedder(Short(1, 0)).documents(["a", "b"])


@given(st.lists(SINGLE, min_size=1, max_size=8).filter(any))
def test_unit_keeps_direction_and_has_length_one(numbers):
    """For any float32 vector that is not zero, however large or small its numbers."""
    result = to_unit_vector(numbers)
    assert result.dtype == np.float32
    assert np.linalg.norm(result) == pytest.approx(1, abs=1e-5)
    exact = np.array(numbers, dtype=np.float64)
    assert result == pytest.approx(exact / np.linalg.norm(exact), abs=1e-6)


def test_require_same_tells_dimension_from_meaning():
    """Another size names both sizes, another direction names both models; noise is forgiven."""
    x, y = to_unit_vector([1, 0]), to_unit_vector([0, 1])
    with pytest.raises(EmbeddingMismatchError, match="2 dimensions, not 3"):
        require_same_embedder(x, to_unit_vector([1, 0, 0]), stored_model="a", model="b")
    with pytest.raises(EmbeddingMismatchError, match="'a'; the embedder given is 'b'"):
        require_same_embedder(x, y, stored_model="a", model="b")
    # cosine of (1, 0) and (1, 0.1) is 1/√1.01 = .995, within the tolerance of .99
    require_same_embedder(x, to_unit_vector([1, 0.1]), stored_model="a", model="b")


@pytest.mark.parametrize("other", [Fixed(0, 1, 0), Fixed(1, 0)], ids=["same size", "smaller"])
def test_a_memory_refuses_another_embedder(tmp_path, other):
    """Reading and writing with a changed embedder both fail, and nothing is lost."""
    with CrabPath.open(tmp_path, embeddings=Fixed(1, 0, 0)) as memory:
        memory.add_documents([Document("Crabs walk sideways.", id="crabs")])
    with CrabPath.open(tmp_path, embeddings=other) as memory:
        with pytest.raises(EmbeddingMismatchError, match="open it with the embedder"):
            memory.retrieve("crabs")
        with pytest.raises(EmbeddingMismatchError):
            memory.add_documents([Document("Lobsters too.", id="lobsters")])
    with CrabPath.open(tmp_path, embeddings=Fixed(1, 0, 0)) as memory:
        assert [d.node.id for d in memory.retrieve("crabs").documents] == ["crabs"]


def test_a_query_vector_of_another_dimension_is_refused(tmp_path):
    """A caller's own query vector must fit the memory."""
    with CrabPath.open(tmp_path, embeddings=Fixed(1, 0, 0)) as memory:
        memory.add_documents([Document("Crabs walk sideways.", id="crabs")])
        with pytest.raises(EmbeddingMismatchError, match="has 2 dimensions, the memory 3"):
            memory.retrieve("crabs", vector=[1.0, 0.0])


def test_an_unusable_embedding_changes_nothing(tmp_path):
    """An embedder that returns NaN is refused before anything is stored."""
    with CrabPath.open(tmp_path, embeddings=Fixed(float("nan"))) as memory:
        with pytest.raises(InvalidInputError, match="finite"):
            memory.add_documents([Document("Crabs.", id="crabs")])
        assert memory.info()["nodes"] == 0
        assert memory.info()["embedder"] is None
