"""What may be said about a turn."""

import math

import pytest

from crabpath_retrievers.core.feedback import Credit, Feedback
from crabpath_retrievers.errors import InvalidInputError

NO_OUTCOMES = [math.nan, math.inf, -math.inf, 1.01, -1.01, "1", None, True]


@pytest.mark.parametrize("value", NO_OUTCOMES)
def test_what_is_no_outcome_is_refused(value):
    """Neither a host nor an attribution can give anything but a number in [-1, 1]."""
    with pytest.raises(InvalidInputError, match="outcome must be a number"):
        Feedback("turn", value)
    with pytest.raises(InvalidInputError, match="outcome must be a number"):
        Credit(value)
    with pytest.raises(InvalidInputError, match="the credit of 'a' must be a number"):
        Credit(1.0, documents={"a": value})


@pytest.mark.parametrize("value", [*NO_OUTCOMES, -0.1])
def test_what_is_no_weight_is_refused(value):
    """A credit counts between not at all and fully."""
    with pytest.raises(InvalidInputError, match="weight must be a number from 0 to 1"):
        Credit(1.0, value)


def test_a_credit_knows_what_a_success_rests_on():
    """Credit above 0, in order."""
    assert Credit(1.0, documents={"b": 0.5, "a": 0.0, "c": 1.0, "d": -1.0}).used == ("b", "c")
