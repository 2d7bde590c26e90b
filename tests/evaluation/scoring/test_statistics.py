"""Intervals of means and paired comparisons."""

import pytest

from crabpath_retrievers.evaluation.scoring.statistics import bootstrap_interval, compare_paired


def test_a_paired_difference_has_an_interval_and_a_p():
    """Better on 30 of 40 queries and never worse: the interval excludes 0."""
    result = compare_paired([1.0] * 40, [0.0] * 30 + [1.0] * 10)
    assert result["difference"] == 0.75
    assert result["ci95"][0] > 0.5
    assert result["p"] < 0.01


def test_equal_runs_have_no_interval():
    assert compare_paired([1.0, 0.0], [1.0, 0.0]) == {"difference": 0.0, "ci95": None, "p": None}
    assert compare_paired([1.0, 1.0], [0.5, 0.5])["difference"] == pytest.approx(0.5)


def test_an_interval_of_a_share_covers_what_it_should():
    """30 of 40: the exact (Clopper-Pearson) interval is .588 to .873."""
    low, high = bootstrap_interval([1.0] * 30 + [0.0] * 10)
    assert low == pytest.approx(0.588, abs=0.03)
    assert high == pytest.approx(0.873, abs=0.03)


def test_resamples_follow_the_seed():
    values = [n / 37 % 1 for n in range(0, 2000, 11)]
    first, again, other = (bootstrap_interval(values, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert bootstrap_interval([0.5]) is None
