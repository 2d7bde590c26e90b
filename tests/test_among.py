"""The options of a query, and ranking only the nodes that the host names."""

from dataclasses import fields

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import CrabPathRetriever, Feedback, InvalidInputError
from crabpath_retrievers.core.query import Query, QueryOptions, RetrieverOptions

QUESTION = "Which fruit is red?"


def ids(answer):
    """Ids in order."""
    return [document.node.id for document in answer.documents]


def test_options_are_declared_once():
    """A query has the options and its text; a retriever has those that all retrievers have."""
    assert {field.name for field in fields(Query)} == {"text", *QueryOptions.__annotations__}
    assert set(RetrieverOptions.__annotations__) <= set(CrabPathRetriever.model_fields)


def test_only_those_that_are_named(retriever):
    """In the order that they have among all."""
    every = ids(retriever.memory.retrieve(QUESTION, k=3))
    for left_out in every:
        named = [node for node in every if node != left_out]
        assert ids(retriever.memory.retrieve(QUESTION, k=3, candidate_ids=named[::-1])) == named


def test_also_those_that_search_would_not_find(retriever):
    """Search finds one document here; the others are ranked by what is known of them."""
    memory = retriever.memory
    memory.add_documents(many())
    found = set(ids(memory.retrieve(QUESTION, k=5)))
    others = sorted({f"n{number}" for number in range(60)} - found)[:3]
    assert set(ids(memory.retrieve(QUESTION, k=5, candidate_ids=others))) == set(others)


def many():
    """More than an answer holds."""
    return [Document(f"Number {number} is a number.", id=f"n{number}") for number in range(60)]


async def test_unknown_ids_are_ignored(retriever):
    """All of them unknown is an empty answer, whose turn can be asked for."""
    answer = await retriever.memory.aio.retrieve(QUESTION, k=3, candidate_ids=["never", "a"])
    assert ids(answer) == ["a"]
    empty = await retriever.memory.aio.retrieve(QUESTION, k=3, candidate_ids=["never"])
    assert empty.documents == ()
    assert retriever.memory.explain(empty.turn.id).turn.returned == ()
    assert ids(retriever.memory.retrieve(QUESTION, candidate_ids=[])) == []


def test_with_the_other_options(retriever):
    """Distinct, filter, budget and k still hold."""
    memory = retriever.memory
    assert len(ids(memory.retrieve(QUESTION, k=1, candidate_ids=["a", "b"]))) == 1
    assert set(
        ids(memory.retrieve(QUESTION, k=3, candidate_ids=["a", "b"], one_per_document=True))
    ) == {"a", "b"}
    assert ids(memory.retrieve(QUESTION, k=3, candidate_ids=["a"], max_tokens=1000)) == ["a"]
    assert ids(memory.retrieve(QUESTION, k=3, candidate_ids=["a"], filter={"no": "such"})) == []
    with pytest.raises(InvalidInputError, match="candidate_ids must be a list of texts"):
        memory.retrieve(QUESTION, candidate_ids=3)


def test_notes_of_others_stay_theirs(retriever):
    """Naming the note of another namespace does not show it."""
    note = retriever.memory.teach("Cherries are red.", namespace="ann")
    ann = retriever.memory.retrieve(QUESTION, namespace="ann", candidate_ids=[note])
    assert ids(ann) == [note]
    assert ids(retriever.memory.retrieve(QUESTION, namespace="bob", candidate_ids=[note])) == []


def test_it_is_a_turn_that_teaches(retriever):
    """What was used comes first the next time."""
    memory = retriever.memory
    first = memory.retrieve(QUESTION, k=3, candidate_ids=["a", "b", "c"])
    last = ids(first)[-1]
    assert memory.record(Feedback(first.turn.id, 1.0, used=[last])).status == "applied"
    assert ids(memory.retrieve(QUESTION, k=3, candidate_ids=["a", "b", "c"])).index(last) < 2
