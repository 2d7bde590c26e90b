"""Fewer questions: which, and what remains of the corpus."""

import pytest

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.evaluation.datasets.dataset import ContextQuestion, pool_questions


@pytest.fixture
def data():
    """Twenty questions with a gold paragraph each, and one that all share."""
    questions = (
        ContextQuestion(f"q{n}", f"{n}?", [(f"t{n}", "text"), ("shared", "text")], {0})
        for n in range(20)
    )
    return pool_questions("made up", questions)


def test_a_limit_takes_the_first_questions_and_pools_their_paragraphs(data):
    fewer = data.sample(3)
    assert list(fewer.queries) == ["q0", "q1", "q2"]
    assert [d.metadata["title"] for d in fewer.documents] == ["t0", "shared", "t1", "t2"]
    assert fewer.unmapped_gold == {}


def test_a_seed_draws_the_questions_and_draws_the_same_again(data):
    """Another seed draws others; the order of the file is kept."""
    drawn = list(data.sample(5, seed=1).queries)
    assert drawn == list(data.sample(5, seed=1).queries)
    assert drawn != list(data.sample(5, seed=2).queries)
    assert drawn == sorted(drawn, key=list(data.queries).index)

    assert data.sample(100) == data.sample(100, seed=1) == data.sample(None) == data


def test_one_id_for_two_questions_is_refused():
    """One of them would silently take the place of the other."""
    question = ContextQuestion("q", "?", [("t", "text")], {0})
    with pytest.raises(InvalidInputError, match="stands twice"):
        pool_questions("made up", [question, question])
