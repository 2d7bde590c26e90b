"""Places for documents that were seldom shown: bounded, logged, and off unless asked for."""

from contextlib import ExitStack

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, Settings
from crabpath_retrievers.config import RankSettings

WORDS = ("apple", "banana", "cherry", "damson", "elder", "fig", "grape", "hazel", "ivy", "jujube")
DOCUMENTS = [
    Document(f"A plant called {word}, number {n} of the list.", id=word)
    for n, word in enumerate(WORDS)
]
QUERY = "Which plant is on the list?"


@pytest.fixture
def open_memory(embeddings):
    """Opens a memory of ten plants in which this share of the places is explored."""
    with ExitStack() as opened:

        def _open(share):
            settings = Settings(rank=RankSettings(explored_share=share))
            memory = opened.enter_context(CrabPath.open(embeddings=embeddings, settings=settings))
            memory.add_documents(DOCUMENTS, split=False)
            return memory

        yield _open


def list_ids(answer):
    return [item.node.id for item in answer.documents]


def test_only_the_last_places_are_drawn_with_known_propensities(open_memory):
    memory = open_memory(0.5)
    best = memory.retrieve(QUERY, k=4, record=False)
    turn = memory.retrieve(QUERY, k=4).turn
    propensities = [item.propensity for item in turn.returned]
    assert [item.node for item in turn.returned][:2] == list_ids(best)[:2]
    assert propensities[:2] == [1.0, 1.0]
    assert all(0 < p <= 1 for p in propensities)
    assert len({item.node for item in turn.returned}) == 4
    assert turn.explored
    assert {item.propensity for item in memory.retrieve(QUERY, k=1).turn.returned} <= {None}


def test_the_same_history_draws_the_same_documents(open_memory):
    first, second = open_memory(0.5), open_memory(0.5)
    drawn = []
    for memory in (first, second):
        turns = []
        for number in range(4):
            turn = memory.retrieve(f"{QUERY} Question {number}.", k=4).turn
            memory.record(Feedback(turn.id, 1.0, used=[turn.returned[0].node]))
            turns.append([item.node for item in turn.returned])
        drawn.append(turns)
    assert drawn[0] == drawn[1]


def test_what_the_question_passed_is_not_drawn_again(open_memory):
    memory = open_memory(0.5)
    turn = memory.retrieve(QUERY, k=4).turn
    best, *passed = (item.node for item in turn.returned)
    memory.record(Feedback(turn.id, 1.0, used=[best]))
    for _ in range(5):
        returned = memory.retrieve(QUERY, k=4).turn.returned
        assert returned[0].node == best
        assert {item.node for item in returned[2:]}.isdisjoint(passed)


def test_without_the_setting_nothing_is_explored(open_memory):
    memory = open_memory(0.0)
    answer = memory.retrieve(QUERY, k=4)
    assert list_ids(answer) == list_ids(memory.retrieve(QUERY, k=4, record=False))
    assert not answer.turn.explored
    assert {item.propensity for item in answer.turn.returned} == {None}


@pytest.mark.parametrize("share", [-0.1, 0.6, float("nan"), "half"])
def test_a_share_beyond_its_bounds_is_refused(share):
    with pytest.raises(InvalidInputError, match=r"RankSettings.explored_share .* at most 0.5"):
        RankSettings(explored_share=share)
