"""Choosing documents for a token budget."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.core.graph import Node, NodeHead
from crabpath_retrievers.rerank.ranker import SelectionLimits, select_within_budget


def chosen(*texts, vectors=None, k=9, max_tokens=1000, per_token=4.0, missing=()):
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
    return select_within_budget(heads, documents, SelectionLimits(k, max_tokens, per_token))


def test_documents_are_taken_in_rank_order_up_to_k():
    """Without a tight budget the first k stay."""
    assert chosen("a", "b", "c", k=2) == [0, 1]


def test_a_document_that_does_not_fit_is_passed_over():
    """Of 2 + 3 + 1 tokens, rounded up from 8, 9 and 4 characters, 3 hold the first and third."""
    assert chosen("a" * 8, "b" * 9, "c" * 4, max_tokens=3) == [0, 2]


def test_a_budget_too_small_for_anything_returns_nothing():
    """Five characters are two tokens."""
    assert chosen("a" * 5, "b" * 6, max_tokens=1) == []


def test_the_same_text_comes_once():
    """Equal contents are one document, however they were embedded."""
    assert chosen("same", "same", "other") == [0, 2]


def test_near_duplicates_come_once():
    """Cosines of .96 and above .95 say the same; .9 does not."""
    near = [[1, 0], [0.96, 0.28], [0.9, 0.436]]
    assert chosen("one", "two", "three", vectors=near) == [0, 2]


def test_a_duplicate_costs_no_budget():
    """Four tokens hold two different documents of two tokens with a copy between them."""
    assert chosen("a" * 8, "a" * 8, "b" * 8, max_tokens=4) == [0, 2]


def test_a_document_that_went_away_is_left_out():
    """What was forgotten during the query is skipped."""
    assert chosen("a", "b", missing=(0,)) == [1]


@given(st.lists(st.text(max_size=60), max_size=12), st.integers(1, 40), st.integers(1, 6))
def test_any_selection_keeps_its_bounds(texts, max_tokens, k):
    """At most k documents, within the budget, in rank order, none twice."""
    kept = chosen(*texts, k=k, max_tokens=max_tokens)
    assert len(kept) <= k
    assert sum(-(-len(texts[i]) // 4) for i in kept) <= max_tokens
    assert kept == sorted(kept)
    assert len({texts[i] for i in kept}) == len(kept)
