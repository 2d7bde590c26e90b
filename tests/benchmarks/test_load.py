"""Many clients at once, and the synthetic million, on a small scale."""

import numpy as np
import pytest

from benchmarks.load import Load, run_load
from benchmarks.million import measure
from benchmarks.million.corpus import BATCH, DEGREE, Corpus, make_id

pytestmark = pytest.mark.slow


def test_no_call_fails_and_nothing_is_lost():
    """A few seconds of what ``python -m benchmarks load`` does for minutes."""
    figures = run_load(Load(seconds=6, clients=12, processes=2, documents=60))
    assert figures.errors == {}
    assert figures.lost == (0, 0)
    assert all(rate > 0 for rate in (figures.rates["query"], figures.rates["feedback"]))


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_store_that_was_filled_in_bulk_is_whole(database):
    """It has every node and edge, and a query reads texts, words, names and edges of it."""
    opened = measure.open_sqlite if database == "sqlite" else measure.open_postgres
    corpus = Corpus(BATCH)
    with opened() as (place, _):
        measure.create_store(place, corpus)
        with measure.open_store(place, corpus.questions(20, 0)) as memory:
            facts = memory.info()
            assert facts["nodes"] == BATCH + 1
            assert sum(facts["edges"].values()) > 0.99 * BATCH * DEGREE
            (passage, *_), vectors = corpus.passages(0)
            (node,) = memory.store.walk.get_nodes([make_id(0)])
            assert node.title == passage.title
            assert np.allclose(node.vector, vectors[0], atol=1e-3)
            answer = memory.retrieve(f"What is in {passage.title}?", vector=vectors[0], k=3)
            assert make_id(0) in [found.node.id for found in answer.documents]
            assert len(answer.turn.visited) > 3
