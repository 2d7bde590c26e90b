"""Answers and citations in the shapes that chains return, and the policy as the pages tell it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from pydantic import BaseModel

from crabpath_retrievers import OutcomePolicy
from crabpath_retrievers.integration import (
    METADATA_KEY,
    EventKind,
    find_turns_in_state,
    parse_output,
)

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "feedback-callbacks.md"
TEXT = "It is blue."
DOCUMENTS = [Document("The sky is blue.", id="b")]
CALL = {"name": "search", "args": {}, "id": "1", "type": "tool_call"}
CYCLE: dict[str, Any] = {}
CYCLE["output"] = CYCLE


class Cited(BaseModel):
    answer: str
    citations: list[Any] = []


@dataclass
class Plain:
    answer: str
    context: list[Document]


@pytest.mark.parametrize(
    "output",
    [
        TEXT,
        AIMessage(TEXT),
        AIMessage([{"type": "text", "text": TEXT}, {"type": "reasoning", "reasoning": "hm"}]),
        [HumanMessage("why?"), AIMessage(TEXT)],
        {"messages": [HumanMessage("why?"), AIMessage(TEXT)]},
        {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": TEXT}]},
        {"input": "why?", "context": DOCUMENTS, "answer": TEXT},
        {"query": "why?", "result": TEXT, "source_documents": DOCUMENTS},
        {"question": "why?", "generation": AIMessage(TEXT), "documents": DOCUMENTS},
        {"answer": Cited(answer=TEXT)},
        {"messages": [AIMessage("{}")], "structured_response": Cited(answer=TEXT)},
        Plain(TEXT, DOCUMENTS),
        LLMResult(generations=[[ChatGeneration(message=AIMessage(TEXT))]]),
    ],
)
def test_the_answer_is_found(output):
    assert parse_output(output) == (TEXT, ())


@pytest.mark.parametrize(
    "output",
    [
        None,
        [],
        DOCUMENTS,
        HumanMessage("why?"),
        {"messages": [AIMessage("", tool_calls=[CALL])]},
        {"messages": [AIMessage("first"), HumanMessage("and now?")]},
        {"messages": [AIMessage("", tool_calls=[CALL]), ToolMessage("x", tool_call_id="1")]},
        LLMResult(generations=[]),
        CYCLE,
    ],
)
def test_what_is_no_answer_is_not_taken_for_one(output):
    """Documents, questions and calls of tools answer nothing."""
    assert parse_output(output).text is None


@pytest.mark.parametrize(
    ("field", "cited"),
    [
        ({"citations": ["a", "b"]}, ("a", "b")),
        ({"citations": [1, 3]}, (1, 3)),
        ({"citations": [{"source_id": "a", "quote": "…"}, {"id": "b"}]}, ("a", "b")),
        ({"cited_ids": ("a",)}, ("a",)),
        ({"sources": "a, b"}, ("a, b", "a", "b")),
        ({"sources": DOCUMENTS}, ()),
        ({"citations": {"a": 1}}, ()),
        ({"citations": [True, None, 1.5]}, ()),
        ({"answer": Cited(answer=TEXT, citations=["x"])}, ("x",)),
    ],
)
def test_citations_are_found(field, cited):
    """Ids, places and sources; whole documents are what was given, not what was used."""
    assert parse_output({"answer": TEXT, **field}) == (TEXT, cited)


RETRIEVED = [
    Document(
        "…", metadata={**names, METADATA_KEY: {"turn_id": "t", "namespace": "default", "id": node}}
    )
    for node, names in {
        "a": {"source": "notes.md"},
        "b": {"source": "notes.md", "title": "The sky"},
        "c": {"source": "https://x.org/c"},
    }.items()
]
(TURN,) = find_turns_in_state({"documents": RETRIEVED})


@pytest.mark.parametrize(
    ("cited", "used"),
    [
        (("b",), ("b",)),
        (("The sky",), ("b",)),
        (("https://x.org/c",), ("c",)),
        (("notes.md",), ("a", "b")),
        ((0, 2), ("a", "c")),
        ((3,), ("c",)),
        ((1,), None),
        ((1, 2), None),
        ((0, 3), None),
        (("a", "b", "c"), None),
        ((), None),
    ],
)
def test_cited_documents_are_those_that_are_surely_meant(cited, used):
    """Numbers count where they tell from where they are counted; a list of all says nothing."""
    assert TURN.select_used(cited, places=True) == used
    if any(str(one).isdecimal() for one in cited):  # among several turns places mean nothing
        assert TURN.select_used(cited, places=False) is None


def policy_row(kind):
    """Outcome, source and switch of an event, as a row of a table has them."""
    rule = OutcomePolicy().rule(kind)
    outcome = "2s-1" if kind in {"langsmith", "score"} else f"{rule.outcome:g}"
    return [kind, outcome, rule.source, "yes" if rule.on else "no"]


def test_page_and_docstring_say_what_the_policy_does():
    """Every event, in the order of precedence."""
    kinds = get_args(EventKind)
    lines = PAGE.read_text(encoding="utf-8").replace("−", "-").replace("2s - 1", "2s-1")
    cells = [[c.strip(" `*") for c in line.split("|")[1:5]] for line in lines.splitlines()]
    text = str(OutcomePolicy.__doc__).replace("2s - 1", "2s-1").splitlines()
    words = [line.split()[:4] for line in text]
    for table in (cells, words):
        assert [row for row in table if row and row[0] in kinds] == [*map(policy_row, kinds)]
