"""What names the documents of feedback: ids, documents, sources; and what names none is refused."""

import numpy as np
import pytest
from langchain_core.documents import Document

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError

NAMES = {
    "id": lambda found: found[1].id,
    "document": lambda found: found[1],
    "source": lambda found: found[1].metadata["source"],
}


@pytest.fixture
def retriever(memory):
    memory.add_documents(
        [Document(f"Page about topic{n}.", metadata={"source": f"p{n}.md"}) for n in range(4)],
        progress=None,
    )
    memory.forget(["a", "b", "c"])
    return memory.as_retriever(k=3)


def read_usage(memory, document):
    (key,) = memory.store.learned.keys([document.id]).values()
    found = memory.store.learned.usage(memory.store.walk.get_clock("default").key, [key])
    return found[key][:2] if found else None


@pytest.mark.slow
@pytest.mark.both_databases
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("door", ["documents", "turn", "feedback"])
def test_used_names_a_returned_document(retriever, name, listed, door):
    """In every form and through every door it is the same use."""
    found = retriever.invoke("Which page is about topic2?")
    used = NAMES[name](found)
    used = [used] if listed else used
    turn = found[0].metadata["crabpath"]["turn_id"]
    if door == "feedback":
        receipt = retriever.memory.record(Feedback(turn, 1.0, used=used))
    else:
        receipt = retriever.record(turn if door == "turn" else found, 1.0, used=used)
        receipt = receipt if door == "turn" else receipt[0]
    assert (receipt.status, receipt.note) == ("applied", None)
    assert read_usage(retriever.memory, found[1]) == (1.0, 0.0)
    assert read_usage(retriever.memory, found[0]) == (0.0, 1.0)


@pytest.mark.both_databases
@pytest.mark.parametrize("field", ["used", "unused"])
def test_what_was_not_returned_is_refused_and_the_turn_is_not_spent(retriever, field):
    found = retriever.invoke("Which page is about topic2?")
    turn, memory = found[0].metadata["crabpath"]["turn_id"], retriever.memory
    for name in ("no such document", "a"):
        with pytest.raises(
            InvalidInputError, match=f"'{name}' in used or unused names no document"
        ):
            retriever.record(found, 1.0, **{field: [found[0], name]})
    assert memory.record(Feedback(turn, 1.0, **{field: ["x"]})).status == "refused"
    assert retriever.record(turn, 1.0, **{field: [found[0]]}).status == "applied"


@pytest.mark.slow
@pytest.mark.parametrize("field", ["relevant", "irrelevant"])
@pytest.mark.parametrize("name", NAMES)
def test_relevant_and_irrelevant_take_the_same(retriever, field, name):
    found = retriever.invoke("Which page is about topic2?")
    (receipt,) = retriever.record(found, 1.0, **{field: NAMES[name](found)})
    assert (receipt.status, receipt.note) == ("applied", None)
    assert read_usage(retriever.memory, found[1]) == (
        (1.0, 0.0) if field == "relevant" else (0.0, 1.0)
    )


def test_of_several_turns_each_gets_what_it_returned(retriever):
    """A document of one turn is no fault of the other one."""
    first = retriever.invoke("Which page?", filter={"source": "p0.md"})
    second = retriever.invoke("Which page?", filter={"source": "p3.md"})
    assert first[0].id != second[0].id
    receipts = retriever.record(
        [*first, *second], 1.0, used=[first[0].metadata["source"], second[0]]
    )
    assert [receipt.status for receipt in receipts] == ["applied", "applied"]
    assert (
        read_usage(retriever.memory, first[0]) == read_usage(retriever.memory, second[0]) == (1, 0)
    )


@pytest.mark.parametrize("outcome", [np.float32(0.5), np.int64(1), np.True_, np.array(0.5)])
def test_outcomes_of_numpy_are_numbers(memory, host, outcome):
    assert memory.record(host.ask(), outcome).status == "applied"
    assert Feedback("t", np.float64(-1)).outcome == -1.0
    with pytest.raises(InvalidInputError, match="from -1 to 1"):
        memory.record(host.ask(), np.array([0.5, 1.0]))


def test_a_list_of_names_is_bounded(memory, host):
    with pytest.raises(InvalidInputError, match="relevant has 10,001 values: give at most 10,000"):
        memory.record(host.ask(), 1.0, relevant=[f"d{n}" for n in range(10_001)])
    assert isinstance(memory, CrabPath)
