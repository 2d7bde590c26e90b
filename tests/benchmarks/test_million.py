"""A memory that grows, at a small size: what is made beside real passages, and what is measured."""

import numpy as np
import pytest

from benchmarks.million.corpus import BATCH, DIMENSIONS, Corpus
from benchmarks.million.measure import INDEXES, Questions, measure_growth

_TOPICS = 20


@pytest.fixture(scope="module")
def corpus():
    """Passages of some topics, each a direction with noise around it."""
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((_TOPICS, DIMENSIONS))
    vectors = topics[np.arange(BATCH) % _TOPICS] + 0.5 * rng.standard_normal((BATCH, DIMENSIONS))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    texts = [
        f"The crane of yard {n % _TOPICS} lifts part {n} and follows Crane {n * 7 % BATCH} there "
        f"before evening, when yard {n % _TOPICS} closes."
        for n in range(BATCH)
    ]
    titled = [(f"Crane {number}", text) for number, text in enumerate(texts)]
    return Corpus(titled, vectors.astype(np.float32))


def test_made_passages_are_the_same_in_every_corpus_and_no_copies(corpus):
    passages, vectors = corpus.make_batch(3)
    again, other = corpus.make_batch(3)
    assert passages == again
    assert np.array_equal(vectors, other)
    assert len({one.title for one in passages}) == BATCH
    assert {one.text for one in passages} - {one.text for one in corpus.make_batch(0)[0]}


def test_made_passages_lie_among_the_real_ones_as_these_do(corpus):
    real, made = corpus.measure_neighbours()
    vectors = corpus.make_batch(1)[1]
    assert np.allclose(real, made, atol=0.1)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("index", INDEXES)
def test_a_memory_grows_and_every_figure_is_measured_at_each_size(corpus, index):
    vectors = corpus.make_batch(0)[1][:300]
    questions = Questions([f"What lifts part {number}?" for number in range(300)], vectors)
    rows = [*measure_growth(corpus, questions, index, [BATCH, 2 * BATCH])][2:]
    figures = {}
    for row in rows:
        size, name, value = (cell.strip() for cell in row.strip("|").split("|"))
        figures.setdefault(size, {})[name] = value
    assert [*figures][2:] == ["1,000", "2,000"]
    assert "added in, s" in figures["1,000"]
    assert "graph written in, s" in figures["2,000"]
    for found in (figures["1,000"], figures["2,000"]):
        assert float(found["recall@10 of the vectors"]) > 0.9
        assert float(found["new question, p50 in ms"]) > 0
        assert float(found["backup, MiB"].replace(",", "")) > 0
