"""For whom a graph runs: contexts of every kind, configurable, and what each user may touch."""

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from blockbuster import blockbuster_ctx
from host_answers import block_of, turn_of
from langgraph.graph import StateGraph
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPathRetriever, InvalidInputError
from langgraph_crabpath import crabpath_feedback, crabpath_retrieve

AUTHENTICATED = SimpleNamespace(identity="ann")
NOBODIES = [{"user_id": blank, "namespace": blank} for blank in ("", " ", "\x00")]


class State(TypedDict, total=False):
    question: str
    documents: list
    turn_id: str
    outcome: float
    correction: str
    feedback: dict


class DictContext(TypedDict, total=False):
    user_id: str
    namespace: str


@dataclass
class DataContext:
    user_id: str


def build(retriever, schema=None, **options):
    builder = StateGraph(State, context_schema=schema)
    builder.add_node("retrieve", crabpath_retrieve(retriever, **options))
    builder.set_entry_point("retrieve")
    return builder.compile()


@pytest.mark.parametrize(
    ("schema", "context", "configurable", "namespace"),
    [
        (None, None, {}, "default"),
        (DictContext, {"user_id": "ann"}, {}, "ann"),
        (DictContext, {"user_id": "ann", "namespace": "team"}, {}, "team"),
        (DataContext, DataContext("ann"), {}, "ann"),
        (DataContext, {"user_id": "ann"}, {}, "ann"),
        (None, None, {"user_id": "bob"}, "bob"),
        (None, None, {"user_id": 7}, "7"),
        (None, None, {"user_id": None}, "default"),
        (DictContext, {"user_id": "ann"}, {"user_id": "bob"}, "ann"),
        (None, None, {"user_id": "bob", "langgraph_auth_user": AUTHENTICATED}, "ann"),
        *((DictContext, nobody, nobody, "default") for nobody in NOBODIES),
        *((DictContext, nobody, {**nobody, "user_id": "bob"}, "bob") for nobody in NOBODIES),
    ],
)
async def test_user_and_namespace_come_from_authentication_context_and_configurable(
    retriever, question, called, schema, context, configurable, namespace
):
    """In this order, ``namespace`` before ``user_id``; a server may write blank texts."""
    config = {"configurable": configurable}
    graph = build(retriever, schema)
    result = await called(graph, {"question": question}, config, context=context)
    assert block_of(result["documents"])["namespace"] == namespace


def test_the_graph_may_decide(retriever, question):
    """A fixed namespace or a function of the run goes before everything else."""
    config = {"configurable": {"user_id": "bob", "tenant": "acme"}}
    chosen = (lambda _, config: config["configurable"]["tenant"]), "shared"
    for given, namespace in zip(chosen, ("acme", "shared"), strict=True):
        result = build(retriever, namespace=given).invoke({"question": question}, config)
        assert block_of(result["documents"])["namespace"] == namespace


async def test_feedback_for_another_users_turn_is_refused(retriever, question, called, caplog):
    """It teaches nothing, says so, and leaves the turn and the feedback's id to its owner."""
    turn = turn_of(retriever.invoke(question, namespace="ann"))
    node = crabpath_feedback(retriever)
    theirs, hers = [
        (await called(node, {"turn_id": turn, "outcome": z}, {"configurable": {"user_id": name}}))
        for name, z in (("bob", -1), ("ann", 1))
    ]
    assert theirs["feedback"]["status"] == "refused"
    assert "in namespace 'bob'" in theirs["feedback"]["note"]
    assert "is refused" in caplog.text
    assert hers["feedback"]["status"] == "applied"


@pytest.mark.parametrize("found", [None, "", " ", 7])
def test_a_function_that_names_nobody_is_refused(retriever, question, found):
    """Else a run without user would search the shared memory, and teach anybody's turns."""
    turn = turn_of(retriever.invoke(question, namespace="bob"))
    about = {"question": question, "turn_id": turn, "outcome": 1.0, "correction": None}
    for node in (crabpath_retrieve, crabpath_feedback):
        with pytest.raises(InvalidInputError, match="must be a non-empty text"):
            node(retriever, namespace=lambda *_: found).invoke(about)
    assert retriever.memory.store.turns.find(turn).consumed is None


@pytest.mark.parametrize(("user", "known"), [("eve", "eve"), ("", None), (None, None)])
def test_who_said_so_is_kept(retriever, question, user, known):
    """The user of the run, also where several share a namespace; nobody where none is known."""
    turn = turn_of(retriever.invoke(question, namespace="team"))
    node = crabpath_feedback(retriever, namespace="team")
    node.invoke({"turn_id": turn, "outcome": 1}, {"configurable": {"user_id": user}})
    (given,) = retriever.memory.learning.feedback(namespace="team")
    assert (given.user, given.turn_id) == (known, turn)


async def test_many_runs_at_once_keep_their_users_apart(retriever, question):
    built = build(retriever)
    users = [f"user {number % 4}" for number in range(40)]
    configs = [{"configurable": {"user_id": user}} for user in users]
    with blockbuster_ctx():
        results = await asyncio.gather(
            *(built.ainvoke({"question": question}, config) for config in configs)
        )
    assert [block_of(result["documents"])["namespace"] for result in results] == users
    assert len({result["turn_id"] for result in results}) == len(users)


@dataclass
class TaskContext:
    task_type: str | None


async def test_the_type_of_the_task_is_the_first_of_option_context_configurable_and_field(
    retriever, question
):
    memory = retriever.memory
    refunds = CrabPathRetriever(memory=memory, task_type="field")
    config, context = {"configurable": {"task_type": "configurable"}}, TaskContext("context")

    async def task(graph, **given):
        turn = (await graph.ainvoke({"question": question}, **given))["turn_id"]
        return memory.explain(turn).turn.task_type

    assert await task(build(retriever, TaskContext)) is None
    plain = build(refunds, TaskContext)
    assert await task(plain) == "field"
    assert await task(plain, config=config) == "configurable"
    assert await task(plain, config=config, context=context) == "context"
    fixed = build(refunds, TaskContext, task_type="option")
    assert await task(fixed, config=config, context=context) == "option"
    chosen = build(refunds, task_type=lambda _, config: config["configurable"].get("kind"))
    assert await task(chosen, config={"configurable": {"kind": "cancel"}}) == "cancel"
    assert await task(chosen) == "field"
