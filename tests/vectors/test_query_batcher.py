"""Queries that wait at the same time are embedded together, each gets its own vector."""

import asyncio
import threading

import minilm
import numpy as np
import pytest

from crabpath_retrievers import InvalidInputError
from crabpath_retrievers.vectors import embedder as module
from crabpath_retrievers.vectors.embedder import Embedder, QueryBatcher


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


@pytest.fixture
def model():
    return Model()


async def embed_together(model, batcher, texts):
    """All at once; the model goes on when all wait."""
    tasks = [asyncio.ensure_future(batcher.embed(text)) for text in texts]
    await asyncio.sleep(0.05)
    model.go_on.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_waits_is_embedded_together(model):
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    vectors = await embed_together(model, QueryBatcher(model, 3), texts)
    assert [vector.tolist() for vector in vectors] == [[1], [2], [3], [4], [5]]
    assert model.batches == [["a"], ["bb", "ccc", "dddd"], ["eeeee"]]
    assert len(model.threads) == 1
    assert threading.get_ident() not in model.threads
    model.go_on.clear()
    found = await embed_together(model, QueryBatcher(model, 3), ["a", "bb", "", "dddd"])
    assert isinstance(found[2], InvalidInputError)  # one bad text does not spoil the others
    assert [found[i].tolist() for i in (0, 1, 3)] == [[1], [2], [4]]


async def test_who_does_not_wait_any_more_is_left_out(model):
    batcher = QueryBatcher(model, 3)
    first = asyncio.ensure_future(batcher.embed("a"))
    gone = asyncio.ensure_future(batcher.embed("bb"))
    await asyncio.sleep(0.05)
    gone.cancel()
    await asyncio.sleep(0.05)
    model.go_on.set()
    assert (await first).tolist() == [1]
    assert (await batcher.embed("ccc")).tolist() == [3]
    assert model.batches == [["a"], ["ccc"]]


def test_every_event_loop_may_wait(model):
    model.go_on.set()
    batcher = QueryBatcher(model, 3)
    assert [asyncio.run(batcher.embed(t)).tolist() for t in ("a", "bb")] == [[1], [2]]


@pytest.mark.slow
@pytest.mark.parametrize("given", [True, False])
async def test_the_local_model_gives_the_same_vectors(given, embeddings, monkeypatch):
    monkeypatch.setattr(module, "load_default_embeddings", minilm.load)
    embedder = Embedder(embeddings if given else None)
    texts = [f"What is the capital of country number {i}?" for i in range(12)]
    together = await asyncio.gather(*[embedder.aquery(text) for text in texts])
    for text, vector in zip(texts, together, strict=True):
        assert float(vector @ embedder.query(text)) == pytest.approx(1.0, abs=1e-5)
