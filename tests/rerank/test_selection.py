"""What is chosen of ranked documents: coverage of words, one chunk a document, a token budget."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from crabpath_retrievers import Node
from crabpath_retrievers.core.records import Candidate, NodeHead
from crabpath_retrievers.core.text import QueryInformation, encode_terms
from crabpath_retrievers.rerank import (
    FEATURES,
    Evidence,
    greedy_coverage,
    select_best_chunks,
    select_within_budget,
)


@pytest.mark.parametrize(
    ("odds", "present", "weight", "k", "order", "gains"),
    [
        pytest.param(
            [3.0, 2.0, 1.5],
            [[1, 0], [1, 0], [0, 1]],
            1.0,
            2,
            [0, 2, 1],
            [1, 0, 1],
            id="a document that adds words passes one that repeats",
        ),
        pytest.param(
            [1.0, 2.0, 2.0], np.eye(3), 0.0, 3, [1, 2, 0], [1, 1, 1], id="without weight: relevance"
        ),
        pytest.param(
            [0.0] * 3,
            [[2, 0], [2, 0], [0, 1]],
            1.0,
            1,
            [0, 2, 1],
            [2, 0, 1],
            id="beyond k by what they would add",
        ),
        pytest.param([], np.zeros((0, 3)), 1.0, 5, [], [], id="no documents"),
        pytest.param([1.0, 2.0], np.zeros((2, 0)), 1.0, 5, [1, 0], [0, 0], id="no words"),
    ],
)
def test_order_by_what_documents_add(odds, present, weight, k, order, gains):
    found, added = greedy_coverage(np.array(odds), np.array(present, dtype=float), weight, k)
    assert (found, added.tolist()) == (order, gains)


@settings(max_examples=30)
@given(
    arrays(np.float64, 12, elements=st.floats(-9, 9)),
    arrays(np.float64, (12, 4), elements=st.sampled_from([0.0, 1.0])),
    st.integers(0, 14),
)
def test_the_score_never_rises_along_the_order(odds, present, k):
    order, added = greedy_coverage(odds, present * np.array([3.0, 1.0, 0.5, 0.2]), 0.7, k)
    assert sorted(order) == list(range(12))
    assert (np.diff((odds + 0.7 * added)[order]) <= 1e-9).all()


def test_the_best_chunk_of_each_document_stands_for_it():
    """Chunks 2 and 0 are of one document and hold 30 and 15 nats: 4.5 units together."""
    texts = ["path", "sea", "crab"]
    vector = np.zeros(2, dtype=np.float32)
    heads = [NodeHead(i, f"n{i}", "", 0, vector, encode_terms([t])) for i, t in enumerate(texts)]
    asked = QueryInformation.from_idf({"crab": 30.0, "path": 15.0, "sea": 5.0})
    evidence = Evidence.from_pool([Candidate(head, 0.5) for head in heads], [], {}, asked)
    matrix = np.zeros((3, len(FEATURES)))
    assert select_best_chunks(["a", "b", "a"], [2, 1, 0], evidence, matrix) == [2, 1]
    assert matrix[:, FEATURES.index("document")].tolist() == [0.0, 0.5, 4.5]
    nothing = Evidence.from_pool([], [], {}, QueryInformation.from_idf({}))
    assert select_best_chunks([], [], nothing, np.zeros((0, len(FEATURES)))) == []


def choose(*texts, vectors=None, k=9, max_tokens=1000, missing=(), likely=()):
    """Indices that are kept of ranked texts, orthogonal to each other unless said otherwise."""
    if vectors is None:
        vectors = np.eye(max(1, len(texts)))
    heads = [
        NodeHead(i, f"n{i}", "", 0, np.array(vector, dtype=np.float16))
        for i, vector in enumerate(vectors[: len(texts)])
    ]
    documents = {
        f"n{i}": Node(id=f"n{i}", document="d", source="s", content=text)
        for i, text in enumerate(texts)
        if i not in missing
    }
    confident = [place in likely for place in range(len(texts))]
    return select_within_budget(heads, documents, k, max_tokens, 4.0, 1.0, confident)


@pytest.mark.parametrize(
    ("texts", "options", "kept"),
    [
        pytest.param("abc", {"k": 2}, [0, 1], id="rank order up to k"),
        # Of 2 + 3 + 1 tokens, rounded up from 8, 9 and 4 characters.
        pytest.param(["a" * 8, "b" * 9, "c" * 4], {"max_tokens": 3}, [0], id="does not fit"),
        pytest.param(
            ["a" * 9, "b" * 4, "c" * 4],
            {"max_tokens": 2, "likely": {2}},
            [2],
            id="what is likely takes the place of what does not fit",
        ),
        pytest.param(["a" * 5, "b" * 6], {"max_tokens": 1}, [], id="nothing fits"),
        pytest.param(["same", "same", "other"], {}, [0, 2], id="equal texts come once"),
        pytest.param(
            ["one", "two", "three"],
            {"vectors": [[1, 0], [0.96, 0.28], [0.9, 0.436]]},
            [0, 2],
            id="cosines above .95 come once",
        ),
        pytest.param(
            ["a" * 8, "a" * 8, "b" * 8], {"max_tokens": 4}, [0, 2], id="a copy costs no budget"
        ),
        pytest.param("ab", {"missing": (0,)}, [1], id="forgotten during the query"),
    ],
)
def test_choice_within_a_token_budget(texts, options, kept):
    assert choose(*texts, **options) == kept


@settings(max_examples=30)
@given(st.lists(st.text(max_size=60), max_size=12), st.integers(1, 40), st.integers(1, 6))
def test_any_selection_keeps_its_bounds(texts, max_tokens, k):
    kept = choose(*texts, k=k, max_tokens=max_tokens)
    assert len(kept) <= k
    assert sum(-(-len(texts[i]) // 4) for i in kept) <= max_tokens
    assert kept == sorted(kept)
    assert len({texts[i] for i in kept}) == len(kept)
