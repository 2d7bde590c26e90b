"""Every method finds what it should, over the same chunks."""

from collections import Counter

import numpy as np
import pytest
from langchain_core.documents import Document

from crabpath_lab import METHODS, EvaluationCorpus
from crabpath_retrievers.vectors.embedder import to_unit_vector


@pytest.fixture(scope="module")
def corpus(small, cached):
    return EvaluationCorpus.from_documents(small.documents, cached, split=False)


@pytest.fixture(scope="module")
def question(small, cached):
    text = next(iter(small.queries.values()))
    return text, to_unit_vector(cached.embed_query(text))


@pytest.mark.parametrize("name", METHODS)
def test_rankings_hold_each_chunk_once_and_at_most_k(corpus, question, name):
    with METHODS[name](corpus) as rank:
        for depth in (1, 10, len(corpus.chunks), len(corpus.chunks) + 5):
            found = rank(*question, depth)
            assert len(set(found)) == len(found) <= min(depth, len(corpus.chunks))
            assert {f.document for f in found} <= {d.id for d in corpus.documents}
        assert len(rank(*question, 10)) == 10


def test_dense_is_exact_cosine_search(corpus, question, cached):
    """The order of all paragraphs by their cosine, computed in full."""
    _, vector = question
    cosines = np.stack([to_unit_vector(v) for v in cached.embed_documents(corpus.texts())]) @ vector
    expected = [corpus.chunks[i].document for i in np.argsort(-cosines, kind="stable")[:20]]
    with METHODS["dense"](corpus) as rank:
        assert [found.document for found in rank(*question, 20)] == expected


def test_lexical_finds_shared_words_only(cached):
    """Of three, two share a word with the question, the rarer word wins."""
    corpus = of(cached, a="the sky is blue", b="the grass is green", c="green apples, green pears")
    with METHODS["lexical"](corpus) as rank:
        assert documents(rank, "Pears, green?") == ["c", "b"]
        assert documents(rank, "nothing of it") == []
        assert documents(rank, "?!") == []


def test_hybrid_adds_reciprocal_ranks(cached):
    """What stands high in both lists wins: 1/61 + 1/62 for the best two, less for the others."""
    corpus = of(cached, a="a green apple", b="green", c="the apple tree", d="quantum physics")
    asked = ("green apple", to_unit_vector(cached.embed_query("green apple")), 4)
    scores = Counter()
    for method in (METHODS["dense"], METHODS["lexical"]):
        with method(corpus) as rank:
            scores.update({f.document: 1 / (60 + n) for n, f in enumerate(rank(*asked), start=1)})
    with METHODS["hybrid"](corpus) as rank:
        assert [found.document for found in rank(*asked)] == [d for d, _ in scores.most_common()]


def of(embeddings, **texts):
    documents = [Document(id=name, page_content=text) for name, text in texts.items()]
    return EvaluationCorpus.from_documents(documents, embeddings, split=False)


def documents(rank, text):
    """Ids found by words alone."""
    return [found.document for found in rank(text, np.zeros(1, dtype=np.float32), 3)]
