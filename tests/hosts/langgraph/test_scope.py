"""For whom a graph runs: contexts of every kind, configurable, and what each user may touch."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.types import Command
from pydantic import BaseModel
from typing_extensions import TypedDict

from crabpath_retrievers import InvalidInputError
from langgraph_crabpath import crabpath_feedback, crabpath_retrieve


class State(TypedDict, total=False):
    """From question to receipt."""

    question: str
    documents: list
    turn_id: str
    outcome: float
    correction: str
    feedback: dict


class DictContext(TypedDict, total=False):
    """Context as a TypedDict: it arrives as a dict."""

    user_id: str
    namespace: str


@dataclass
class DataContext:
    """Context as a dataclass."""

    user_id: str


class ModelContext(BaseModel):
    """Context as a pydantic model."""

    user_id: str


def built(retriever, schema=None, *, feedback=False, **options):
    """A graph that retrieves, and records if asked to."""
    builder = StateGraph(State, context_schema=schema)
    builder.add_node("retrieve", crabpath_retrieve(retriever, **options))
    builder.set_entry_point("retrieve")
    if feedback:
        builder.add_node("record", crabpath_feedback(retriever, **options))
        builder.add_edge("retrieve", "record")
    return builder.compile()


def whose(result):
    """The namespace that answered."""
    return result["documents"][0].metadata["crabpath"]["namespace"]


@pytest.mark.parametrize(
    ("schema", "context", "namespace"),
    [
        (None, None, "default"),
        (DictContext, {"user_id": "ann"}, "ann"),
        (DictContext, {"user_id": "ann", "namespace": "team"}, "team"),
        (DictContext, {}, "default"),
        (DataContext, DataContext("ann"), "ann"),
        (DataContext, {"user_id": "ann"}, "ann"),
        (ModelContext, ModelContext(user_id="ann"), "ann"),
    ],
)
async def test_the_context_says_who_asks(retriever, question, called, schema, context, namespace):
    """No context, a dict, a dataclass and a model are all understood."""
    graph = built(retriever, schema)
    assert whose(await called(graph, {"question": question}, context=context)) == namespace


@pytest.mark.parametrize(
    ("configurable", "namespace"),
    [
        ({"user_id": "bob"}, "bob"),
        ({"user_id": "bob", "namespace": "team"}, "team"),
        ({"user_id": 7}, "7"),
        ({"user_id": None}, "default"),
    ],
)
async def test_so_does_the_configuration(retriever, question, called, configurable, namespace):
    """``namespace`` goes before ``user_id``; None is nobody."""
    config = {"configurable": configurable}
    assert whose(await called(built(retriever), {"question": question}, config)) == namespace


def test_the_context_goes_before_the_configuration(retriever, question):
    """Where both name somebody, the context counts."""
    config = {"configurable": {"user_id": "bob"}}
    graph = built(retriever, DictContext)
    assert whose(graph.invoke({"question": question}, config, context={"user_id": "ann"})) == "ann"


def test_an_authenticated_user_goes_before_what_a_client_sends(retriever, question):
    """Whom a server has authenticated cannot take another name."""
    user = SimpleNamespace(identity="ann")
    config = {"configurable": {"user_id": "bob", "langgraph_auth_user": user}}
    assert whose(built(retriever).invoke({"question": question}, config)) == "ann"


def test_the_graph_may_decide(retriever, question):
    """A fixed namespace or a function of the run goes before everything else."""
    config = {"configurable": {"user_id": "bob", "tenant": "acme"}}
    fixed = built(retriever, namespace="shared")
    assert whose(fixed.invoke({"question": question}, config)) == "shared"
    tenant = built(retriever, namespace=lambda _, config: config["configurable"]["tenant"])
    assert whose(tenant.invoke({"question": question}, config)) == "acme"


@pytest.mark.parametrize("blank", ["", " ", "\x00"])
def test_a_blank_name_is_nobody(retriever, question, blank):
    """A server without authentication writes one: then the next place says who asks."""
    nobody = {"configurable": {"user_id": blank, "namespace": blank}}
    known = {"configurable": {"user_id": "bob", "namespace": blank}}
    context = {"user_id": blank, "namespace": blank}
    graph = built(retriever, DictContext)
    assert whose(graph.invoke({"question": question}, nobody, context=context)) == "default"
    assert whose(graph.invoke({"question": question}, known, context=context)) == "bob"


async def test_two_users_two_minds(retriever, question, called):
    """What one user corrects changes that user's answers and nobody else's."""
    graph = built(retriever, feedback=True)
    ann, bob = ({"configurable": {"user_id": name}} for name in ("ann", "bob"))
    before = await called(built(retriever), {"question": question}, bob)
    said = {"question": question, "correction": "Both men were American citizens."}
    result = await called(graph, said, ann)
    assert result["feedback"]["status"] == "applied"
    hers = await called(built(retriever), {"question": question}, ann)
    his = await called(built(retriever), {"question": question}, bob)
    assert "Both men were American citizens." in [d.page_content for d in hers["documents"]]
    assert [(d.id, d.metadata["score"]) for d in his["documents"]] == [
        (d.id, d.metadata["score"]) for d in before["documents"]
    ]


async def test_feedback_for_another_users_turn_is_refused(retriever, question, called, caplog):
    """It teaches nothing, says so, and leaves the turn to its owner."""
    turn = retriever.invoke(question, namespace="ann")[0].metadata["crabpath"]["turn_id"]
    said = {"turn_id": turn, "outcome": 1}
    node = crabpath_feedback(retriever)
    theirs = await called(node, said, {"configurable": {"user_id": "bob"}})
    assert theirs["feedback"]["status"] == "refused"
    assert "in namespace 'bob'" in theirs["feedback"]["note"]
    assert "is refused" in caplog.text
    hers = await called(node, said, {"configurable": {"user_id": "ann"}})
    assert hers["feedback"]["status"] == "applied"


def test_a_resume_cannot_name_another_user(retriever, question):
    """The namespace is no field of what a person says."""
    builder = StateGraph(State)
    builder.add_node(crabpath_feedback(retriever, ask=True))
    builder.set_entry_point("crabpath_feedback")
    graph = builder.compile(checkpointer=InMemorySaver())
    turn = retriever.invoke(question, namespace="ann")[0].metadata["crabpath"]["turn_id"]
    config = {"configurable": {"thread_id": "1", "user_id": "bob"}}
    graph.invoke({"turn_id": turn}, config)
    result = graph.invoke(Command(resume={"outcome": 1, "namespace": "ann"}), config)
    assert "unknown fields ['namespace']" in result["__interrupt__"][0].value["error"]
    assert graph.invoke(Command(resume=1), config)["feedback"]["status"] == "refused"


@pytest.mark.parametrize("found", [None, "", " ", 7])
def test_a_function_that_names_nobody_is_refused(retriever, question, found):
    """Else a run without user would search the shared memory, and teach anybody's turns."""
    turn_id = retriever.invoke(question, namespace="bob")[0].metadata["crabpath"]["turn_id"]
    about = {"question": question, "turn_id": turn_id, "outcome": 1.0, "correction": None}
    for node in (crabpath_retrieve, crabpath_feedback):
        with pytest.raises(InvalidInputError, match="must be a non-empty text"):
            node(retriever, namespace=lambda *_: found).invoke(about)
    assert retriever.memory.store.turns.find(turn_id).consumed is None
