"""The embedder: found offline, checked, always unit vectors, and the same one for a memory."""

import asyncio
import importlib.util
import sys
import threading

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
from crabpath_retrievers.integration import Embedder
from crabpath_retrievers.vectors import embedder
from crabpath_retrievers.vectors.embedder import QueryBatcher, to_unit_vector

SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)
CRABS = Document("Crabs walk sideways.", id="crabs")
LOBSTERS = Document("Lobsters too.", id="lobsters")


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


class Short(Fixed):
    """Skips the last of several texts."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.vector for _ in texts[1:] or texts]


def test_a_missing_local_extra_names_both_ways_out(monkeypatch):
    monkeypatch.setattr(embedder, "load_default_embeddings", minilm.load)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "langchain_huggingface", None)
    with CrabPath.open() as memory:
        with pytest.raises(MissingExtraError, match=r"embeddings=\.\.\.") as error:
            memory.add_documents([CRABS])
        assert isinstance(error.value, ImportError)
        assert "pip install 'crabpath-retrievers[local]'" in str(error.value)


def test_the_default_embedder_gives_unit_vectors_that_mean_something(embeddings):
    """MiniLM has 384 dimensions, and puts a paraphrase nearer than another subject."""
    dog, puppy, tax = Embedder(embeddings).documents(["A dog.", "A puppy.", "Income tax law."])
    assert (dog.shape, dog.dtype) == ((384,), np.float32)
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


@settings(max_examples=50)
@given(st.lists(SINGLE, min_size=1, max_size=8).filter(any))
def test_unit_keeps_direction_and_has_length_one(numbers):
    """For any float32 vector that is not zero, however large or small its numbers."""
    result = to_unit_vector(numbers)
    assert result.dtype == np.float32
    assert np.linalg.norm(result) == pytest.approx(1, abs=1e-5)
    exact = np.array(numbers, dtype=np.float64)
    assert result == pytest.approx(exact / np.linalg.norm(exact), abs=1e-6)


def test_a_memory_refuses_another_embedder(tmp_path):
    """Reading and writing both fail, and nothing is lost."""
    for unusable, message in ((Fixed(float("nan")), "finite"), (Short(1, 0), "vectors for")):
        with CrabPath.open(tmp_path / "new", embeddings=unusable) as memory:
            with pytest.raises(InvalidInputError, match=message):
                memory.add_documents([CRABS, LOBSTERS])
            assert memory.info()["nodes"] == 0
    with CrabPath.open(tmp_path, embeddings=Fixed(1, 0)) as memory:
        memory.retrieve("crabs")  # binds an empty memory to no embedder
    with CrabPath.open(tmp_path, embeddings=Fixed(1, 0, 0)) as memory:
        memory.add_documents([CRABS])
    for other, message in (
        (Fixed(0, 1, 0), "built with model 'fixed-model'; the embedder given is 'fixed-model'"),
        (Fixed(1, 0), "built with 3 dimensions, not 2: open it with the embedder"),
    ):
        with CrabPath.open(tmp_path, embeddings=other) as memory:
            with pytest.raises(EmbeddingMismatchError, match=message):
                memory.retrieve("crabs")
            with pytest.raises(EmbeddingMismatchError, match=message):
                memory.add_documents([LOBSTERS])
    # cosine of (1, 0) and (1, 0.1) is 1/√1.01 = .995, within the tolerance of .99
    with CrabPath.open(tmp_path, embeddings=Fixed(1, 0.1, 0)) as memory:
        assert [d.node.id for d in memory.retrieve("crabs").documents] == ["crabs"]


class Model:
    """Embeds a text as its length; the first call waits until it may go on."""

    def __init__(self):
        self.batches, self.threads = [], set()
        self.go_on = threading.Event()

    def __call__(self, texts):
        """One vector per text; an empty one cannot be embedded."""
        self.go_on.wait(5)
        self.batches.append(list(texts))
        self.threads.add(threading.get_ident())
        if "" in texts:
            raise InvalidInputError
        return [np.array([len(text)], dtype=np.float32) for text in texts]


async def test_queries_that_wait_are_embedded_together():
    """Each gets its own vector; a bad text does not spoil the others, one given up is left out."""
    model = Model()
    batcher = QueryBatcher(model, 3)
    texts = ["a", "bb", "gone", "ccc", "", "eeeee"]
    tasks = [asyncio.ensure_future(batcher.embed(text)) for text in texts]
    await asyncio.sleep(0.05)
    tasks[2].cancel()
    await asyncio.sleep(0.05)
    model.go_on.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [found[n].tolist() for n in (0, 1, 3, 5)] == [[1], [2], [3], [5]]
    assert isinstance(found[4], InvalidInputError)
    assert model.batches == [["a"], ["bb", "ccc"], ["", "eeeee"], [""], ["eeeee"]]
    assert len(model.threads) == 1
    assert threading.get_ident() not in model.threads
    # Every event loop may wait.
    assert (await asyncio.to_thread(asyncio.run, batcher.embed("dddd"))).tolist() == [4]


@pytest.mark.slow
@pytest.mark.parametrize("given", [True, False])
async def test_the_local_model_gives_the_same_vectors_in_batches(given, embeddings, monkeypatch):
    monkeypatch.setattr(embedder, "load_default_embeddings", minilm.load)
    local = Embedder(embeddings if given else None)
    texts = [f"What is the capital of country number {i}?" for i in range(12)]
    together = await asyncio.gather(*[local.aquery(text) for text in texts])
    for text, vector in zip(texts, together, strict=True):
        assert float(vector @ local.query(text)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.slow
def test_loading_a_model_draws_no_bars(capfd):
    """Those of other libraries; an application that wants them still has them afterwards."""
    bars = pytest.importorskip("transformers.utils.logging")
    bars.enable_progress_bar()
    assert len(embedder.load_default_embeddings().embed_query("crab")) == 384
    assert (capfd.readouterr().err, bars.is_progress_bar_enabled()) == ("", True)
