"""Measures per query, by hand."""

import math

import pytest

from crabpath_retrievers.evaluation.scoring.measures import score_rankings


def test_by_hand():
    """q1 finds its two at ranks 1 and 3; q2 its only one at rank 2; q3 has no answer."""
    qrels = {"q1": frozenset("ab"), "q2": frozenset("c"), "q3": frozenset("d")}
    found = score_rankings(qrels, {"q1": ["a", "x", "b"], "q2": ["y", "c"]}, (2, 3))
    assert found["recall@2"] == [0.5, 1.0, 0.0]
    assert found["full@2"] == [0.0, 1.0, 0.0]
    assert found["full@3"] == [1.0, 1.0, 0.0]
    assert found["mrr@10"] == [1.0, 0.5, 0.0]
    ideal = 1 + 1 / math.log2(3)
    assert found["ndcg@10"] == pytest.approx([1.5 / ideal, 1 / math.log2(3), 0.0])


def test_gold_that_is_in_no_corpus_is_a_miss_and_many_can_be_full():
    """Two of three are never full; seven sevenths are all, whatever the rounding."""
    found = score_rankings({"q": frozenset(["a", "b", "unmapped:z"])}, {"q": ["a", "b"]}, (10,))
    assert (found["recall@10"], found["full@10"]) == ([pytest.approx(2 / 3)], [0.0])
    found = score_rankings({"q": frozenset("abcdefg")}, {"q": list("gfedcba")}, (7,))
    assert found["full@7"] == [1.0]
