"""Estimates of what a ranking without exploration would have brought."""

import numpy as np
import pytest

from crabpath_lab.streams import (
    FeedbackSimulator,
    LoggedTurn,
    Stream,
    StreamSchedule,
    estimate_greedy_uses,
)
from crabpath_retrievers.config import RankSettings, Settings
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.rerank import draw_explored

SCORES = np.array([2.0, 1.0, 0.5, 0.0, -1.0, -2.0])
USED = {"1"}
"""Candidates that are used whenever they are shown; the greedy two are 0 and 1."""


def log_turn(rng):
    drawn, shares = draw_explored(SCORES, 2, rng)
    chances = dict(zip(map(str, drawn), shares, strict=True))
    return LoggedTurn(chances, frozenset(USED & chances.keys()), ("0", "1"), 0, 1)


def test_the_estimates_find_the_uses_of_the_greedy_order():
    rng = np.random.default_rng(0)
    found = estimate_greedy_uses([log_turn(rng) for _ in range(4000)])
    assert found["true"] == 1.0
    assert found["explored"] < 0.95
    for name in ("ips", "snips"):
        assert found[name] == pytest.approx(1.0, abs=0.05)
        low, high = found[f"{name}_ci95"]
        assert low < 1.0 < high


def test_turns_of_unknown_propensity_are_left_out():
    known = LoggedTurn({"a": 1.0}, frozenset("a"), ("a",), 0, 1)
    unknown = known._replace(propensities={"a": None})
    found = estimate_greedy_uses([known, unknown])
    assert (found["turns"], found["left_out"], found["ips"]) == (1, 1, 1.0)
    assert estimate_greedy_uses([unknown]) is None
    assert estimate_greedy_uses([]) is None


def test_a_greedy_document_that_was_not_returned_adds_nothing():
    found = estimate_greedy_uses([LoggedTurn({"b": 0.5}, frozenset("b"), ("a",), 0, 1)])
    assert (found["ips"], found["snips"]) == (0.0, None)


@pytest.mark.parametrize("chance", [0.0, -0.1, 1.5, float("nan")])
def test_a_propensity_that_is_no_probability_is_refused(chance):
    with pytest.raises(InvalidInputError, match="above 0 and at most 1"):
        estimate_greedy_uses([LoggedTurn({"a": chance}, frozenset("a"), ("a",), 0, 1)])


@pytest.mark.parametrize(("share", "kind"), [(0.5, "used"), (0.0, "used"), (0.5, "outcome")])
def test_a_stream_has_estimates_where_it_explores_and_knows_uses(small, cached, share, kind):
    simulator = FeedbackSimulator(kind, 0.0, 4)
    stream = Stream(("learned",), simulator, StreamSchedule(), (4,), 4)
    settings = Settings(rank=RankSettings(explored_share=share))
    found = stream.run(small, cached, settings)["learned"].figures["off_policy"]
    if not share or kind == "outcome":
        assert found is None
        return
    assert (found["turns"], found["left_out"]) == (len(small.queries), 0)
    assert found["ips"] > 0
    assert found["true"] <= 4
