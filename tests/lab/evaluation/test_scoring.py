"""Measures per query, intervals of means and paired comparisons, by hand."""

import math

import pytest

from crabpath_lab.scoring import bootstrap_interval, compare_paired, score_chunks, score_rankings


def test_rankings():
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


def test_chunks():
    """F1 first at rank 2, F2 first at rank 3: map (1/2 + 1/3) / 2, mrr 1/2, both hits."""
    run = {"q": ["nothing", "…F 1…", "F1 and F\n2", "F2 again"]}
    found = score_chunks({"q": ["F1", "F2"]}, run)
    assert (found["hits@4"], found["hits@10"], found["mrr@10"]) == ([1.0], [1.0], [0.5])
    assert found["map@10"] == [pytest.approx(5 / 12)]


def test_of_chunks_only_the_first_ten_count():
    """Rank 5 is no hit at 4, rank 11 none at all; no answer scores 0."""
    run = {"five": ["x"] * 4 + ["F"], "eleven": ["x"] * 10 + ["F"]}
    found = score_chunks({"five": ["F"], "eleven": ["F"], "none": ["F"]}, run)
    assert found["hits@4"] == [0.0, 0.0, 0.0]
    assert found["hits@10"] == [1.0, 0.0, 0.0]
    assert found["map@10"] == found["mrr@10"] == [0.2, 0.0, 0.0]


def test_a_paired_difference_has_an_interval_and_a_p():
    """Better on 30 of 40 queries and never worse: the interval excludes 0; equal runs have none."""
    result = compare_paired([1.0] * 40, [0.0] * 30 + [1.0] * 10)
    assert result["difference"] == 0.75
    assert result["ci95"][0] > 0.5
    assert result["p"] < 0.01
    assert compare_paired([1.0, 0.0], [1.0, 0.0]) == {"difference": 0.0, "ci95": None, "p": None}


def test_an_interval_of_a_share_covers_what_it_should_and_follows_its_seed():
    """30 of 40: the exact (Clopper-Pearson) interval is .588 to .873; one value has none."""
    low, high = bootstrap_interval([1.0] * 30 + [0.0] * 10)
    assert low == pytest.approx(0.588, abs=0.03)
    assert high == pytest.approx(0.873, abs=0.03)
    values = [n / 37 % 1 for n in range(0, 2000, 11)]
    first, again, other = (bootstrap_interval(values, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert bootstrap_interval([0.5]) is None
