"""What is planned is checked before anything is computed."""

from pathlib import Path

import pytest

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.evaluation.plan import EvaluationPlan, parse_cutoffs, split_names


def test_lists_of_names_and_numbers():
    """Spaces and repetitions do not matter; cut-offs rise."""
    assert split_names(" dense, cold,dense,") == ("dense", "cold")
    assert parse_cutoffs("10, 2,5,5") == (2, 5, 10)


@pytest.mark.parametrize("text", ["0", "-1", "5,two", "1.5", "", ",", "²"])
def test_cut_offs_that_are_no_whole_numbers(text):
    """The sentence shows a right one."""
    with pytest.raises(InvalidInputError, match="whole numbers of at least 1, such as 2,5,10"):
        parse_cutoffs(text)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"dataset": "squad"}, "no data set 'squad': choose among hotpotqa"),
        ({"setting": "open"}, "no --setting 'open': choose among pooled, closed"),
        ({"level": "word"}, "no --level 'word': choose among document, chunk"),
        ({"seed": -1}, "--seed must be at least 0"),
    ],
)
def test_what_there_is_not(wrong, sentence):
    """Each with what there is."""
    with pytest.raises(InvalidInputError, match=sentence):
        EvaluationPlan(**{"dataset": "beir", "data": Path("x")} | wrong)
