"""Influence between entities: a planted one is found, its reverse and noise are not."""

import sys

import numpy as np
import pytest

from crabpath_retrievers.errors import MissingExtraError
from crabpath_retrievers.typed_search.granger import MAX_ENTITIES, build_series, find_influences


def noise(seed, entities=6, windows=200):
    """Independent series of sparse uses."""
    rng = np.random.default_rng(seed)
    return {f"e{i}": (rng.random(windows) < 0.3).astype(float) for i in range(entities)}


def planted(seed, sign=1.0):
    """As noise, but b follows on a in four of five windows."""
    series = noise(seed)
    rng = np.random.default_rng(seed + 1)
    follows = np.roll(series["e0"], 1) * (rng.random(200) < 0.8)
    series["e1"] = sign * follows + 0.1 * rng.standard_normal(200)
    return series


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_planted_direction_is_found_with_its_sign_and_not_the_reverse(sign):
    for seed in range(2):
        found = find_influences(planted(seed, sign))
        assert found[0][:2] == ("e0", "e1")
        assert found[0].weight * sign > 0.5
        assert found[0].q < 0.001
        assert ("e1", "e0") not in {one[:2] for one in found}


def test_on_noise_hardly_ever_anything_is_found():
    """Where nothing is true, any find is a false one: at most in the controlled share of draws.

    Of 20 draws 1 is expected at a level of .05; more than 4 would be a chance of about .3 %.
    """
    draws = [find_influences(noise(100 + seed)) for seed in range(20)]
    assert sum(map(bool, draws)) <= 4


def test_series_that_cannot_be_compared_are_passed_over():
    """Short and constant ones, a lone one, two that are one, one that its own past explains."""
    long, beat = planted(0), np.tile([0.0, 1.0], 100)
    one = long["e0"]
    for series in (
        {name: values[:20] for name, values in long.items()},
        {"a": np.zeros(200), "b": np.ones(200)},
        {"a": one},
        {},
        {"a": one, "b": one.copy()},
    ):
        assert find_influences(series) == []
    assert ("e0", "beat") not in {each[:2] for each in find_influences({**noise(8), "beat": beat})}
    # The past of a perfect follower is that of its leader, a window later.
    found = find_influences({"a": one, "b": np.roll(one, 1)}, lags=2)
    assert [(*each[:2], each.weight) for each in found] == [("a", "b", pytest.approx(1.0))]


def test_series_add_up_by_window_and_keep_the_most_used():
    """Turns 10 to 13 in windows of two; of thirty entities the twenty most used."""
    found = build_series([(10, "a", 1.0), (11, "a", 0.5), (13, "a", -1.0), (12, "b", 2.0)], 2)
    assert found["a"].tolist() == [1.5, -1.0]
    assert found["b"].tolist() == [0.0, 2.0]
    many = build_series([(0, f"e{i:02}", 1.0 + i) for i in range(30)], 1)
    assert set(many) == {f"e{i:02}" for i in range(30 - MAX_ENTITIES, 30)}
    assert build_series([], 1) == {}


def test_without_statsmodels_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels.stats.multitest", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'crabpath-retrievers\[influence\]'"):
        find_influences(planted(0))
