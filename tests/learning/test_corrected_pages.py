"""Documents that were corrected, and then got another text: what was said was about the former."""

import pytest
from langchain_core.documents import Document

QUESTION = "Which fruit is red?"
RIGHT = "Strawberries are red as well."
FIXED = "Apples and strawberries are red fruit."
PRESENT = f'Correction of the answer to "{QUESTION}":\n{RIGHT}'
OUTDATED = (
    f'Correction of the answer to "{QUESTION}", given before the document was changed:\n{RIGHT}'
)


def replace_page(memory, text=FIXED, **metadata):
    memory.add_documents([Document(text, id="a", metadata=metadata)])


def give_correction(memory, host):
    """A person says that the page was wrong, and what is right."""
    turn = host.answer().turn.id
    return memory.record(turn, -1.0, used=["a"], correction=RIGHT, user="eve")


def correct_directly(memory, host):
    memory.correct(RIGHT, turn_id=host.answer().turn.id, wrong=["a"])


def read_answer(host):
    """The text and metadata of the correction, and what speaks against the page."""
    documents = {item.node.id: item for item in host.answer().documents}
    (note,) = [item.node for name, item in documents.items() if name.startswith("correction:")]
    features = documents["a"].returned.features
    against = {name for name in ("inhibition", "passed") if features.get(name)}
    return note.content, note.metadata.get("outdated"), against, features.get("usage", 0.0) < 0


@pytest.mark.both_databases
@pytest.mark.parametrize("say", [give_correction, correct_directly])
def test_a_page_with_another_text_is_not_held_back(memory, host, say):
    """The correction still answers its question, and says that it is older than the page."""
    say(memory, host)
    text, outdated, against, _ = read_answer(host)
    assert (text, outdated) == (PRESENT, None)
    assert "inhibition" in against
    replace_page(memory)
    assert read_answer(host) == (OUTDATED, True, set(), False)


def test_other_metadata_alone_changes_nothing(memory, host):
    give_correction(memory, host)
    before = read_answer(host)
    replace_page(memory, "Apples are red fruit.", checked="yes")
    assert read_answer(host) == before


@pytest.mark.parametrize("say", [give_correction, correct_directly])
def test_said_again_it_is_about_the_new_text(memory, host, say):
    say(memory, host)
    replace_page(memory)
    say(memory, host)
    text, outdated, against, _ = read_answer(host)
    assert (text, outdated) == (PRESENT, None)
    assert "inhibition" in against


@pytest.mark.both_databases
def test_later_blame_counts_and_all_can_be_undone(memory, host, state_of, assert_same):
    """What was taken back is not added when the feedback is undone."""
    host.answer()
    before = state_of(memory, "default")
    first = give_correction(memory, host)
    replace_page(memory)
    second = memory.record(host.answer().turn.id, -1.0, used=["a"], user="ann")
    assert "passed" in read_answer(host)[2]
    for receipt in (second, first):
        assert memory.undo(receipt.feedback_id).status == "undone"
    assert_same(state_of(memory, "default"), before)
    assert host.weights() == {}
