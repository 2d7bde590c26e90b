"""Notes take one place of an answer at most, unless nothing else is found."""

import pytest

from crabpath_retrievers import CrabPath, Feedback

QUESTION = "Which fruit is red?"


@pytest.fixture
def flooded(memory) -> CrabPath:
    """A memory into which somebody has put as many corrections as there are documents."""
    for number in range(3):
        turn = memory.retrieve(QUESTION, k=4).turn.id
        memory.record(Feedback(turn, -1.0, correction=f"Buy coins, offer {number}."))
    return memory


def notes_in(memory, **options):
    """How many notes an answer holds, and its first document."""
    documents = memory.retrieve(QUESTION, **options).documents
    return sum("Buy coins" in one.node.content for one in documents), documents[0].node.content


@pytest.mark.parametrize("k", [1, 2, 3])
def test_one_place_is_a_note(flooded, k):
    """The last correction of this very question, and it still comes first."""
    assert notes_in(flooded, k=k) == (1, "Buy coins, offer 2.")


def test_places_for_which_there_are_no_documents(flooded):
    """Notes take them: k documents come back where there are any."""
    count, first = notes_in(flooded, k=6)
    assert (count, first) == (3, "Buy coins, offer 2.")
    assert len(flooded.retrieve(QUESTION, k=6).documents) == 6


def test_only_notes(flooded):
    """Whoever asks among notes gets them."""
    key = flooded.store.walk.get_clock("default").key
    ids = sorted(flooded.store.notes.ids(key))
    assert notes_in(flooded, k=3, candidate_ids=ids)[0] == 3


def test_a_token_budget_is_spent_on_documents(flooded):
    """Notes come after them there as well."""
    assert notes_in(flooded, k=4, max_tokens=1000)[0] == 1


def test_without_filling(flooded):
    """Beside a document that is sure one note is enough; without any, all of them come."""
    turn = flooded.retrieve(QUESTION, k=4).turn
    documents = flooded.retrieve(QUESTION, k=6, fill=False).documents
    notes = [one for one in documents if "Buy coins" in one.node.content]
    assert len(notes) == 1 or len(notes) == len(documents)
    assert turn.returned
