"""How far one user may speak against others: a share of what these said, however often."""

import pytest

from crabpath_retrievers.learning.rules.episode_credit import limit_user_share

ANN = {"ann": {"right": 1.0, "other": -1.0}}


@pytest.mark.parametrize(
    ("said", "voices", "expected"),
    [
        ({"wrong": 1.0, "right": -1.0}, {}, 1.0),  # nobody has spoken
        ({"wrong": 1.0}, {"eve": {"right": 3.0}}, 1.0),  # she herself has
        ({"right": 1.0, "other": -1.0}, ANN, 1.0),  # she says the same
        ({"wrong": 1.0, "right": -1.0}, ANN, 0.5),  # against it, half as much
        ({"wrong": 1.0}, ANN, 0.5),  # beside it
        ({"right": -0.25}, ANN, 1.0),  # less than she may
        ({"wrong": 1.0, "right": -1.0}, {**ANN, "eve": {"wrong": 0.5, "right": -0.5}}, 0.0),
        ({"wrong": 1.0, "right": -1.0}, {**ANN, "bob": {"right": 1.0}}, 1.0),  # half of two
        ({"wrong": 1.0}, {**ANN, "bob": {"wrong": 0.5}}, 1.0),  # who agrees with somebody
    ],
)
def test_what_counts(said, voices, expected):
    """Against what others favour, or beside it, half of that at most, all together."""
    assert limit_user_share(said, "eve", voices, 0.5) == pytest.approx(expected)


def test_a_share_of_nothing():
    """Who may not contradict others at all still agrees with them."""
    assert limit_user_share({"wrong": 1.0}, "eve", ANN, 0.0) == 0.0
    assert limit_user_share({"right": 1.0}, "eve", ANN, 0.0) == 1.0
