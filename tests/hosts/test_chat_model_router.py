"""A chat model as router of a whole retriever: what it changes, and what it cannot."""

import json

import pytest
from blockbuster import blockbuster_ctx
from host_answers import QUESTION, ids, turn_of
from langchain_core.tracers.context import collect_runs

from crabpath_retrievers import ChatModelRouter, CrabPathRetriever, RouterSettings


def candidates(body):
    """The numbered candidates of a request, as the model sees them."""
    inside = body["messages"][-1]["content"].split("<candidates>\n")[1].split("\n</candidates>")[0]
    return [line for line in map(json.loads, inside.splitlines()) if line[0] != "avoid"]


def picks(title=None, *, drop=()):
    """Answers with the numbers of the candidates that have these titles."""

    def answer(body):
        numbers = {title: number for number, title, *_ in candidates(body)}
        follow = [numbers[title]] if title in numbers else []
        dropped = [numbers[name] for name in drop if name in numbers]
        return {"follow": follow, "drop": dropped, "stop": not follow, "reason": "so"}

    return answer


@pytest.fixture
def routed(place, embeddings, model):
    """A retriever whose router is a chat model."""
    router = ChatModelRouter(model, RouterSettings(prices=(1.0, 2.0)))
    made = CrabPathRetriever.from_existing(place, embeddings, k=4, router=router)
    yield made
    made.memory.close()


def read_turn(retriever, documents):
    return retriever.memory.explain(turn_of(documents)).turn


def rank(documents, title):
    """Place of a document in an answer; behind all where it is missing."""
    titles = [document.metadata["title"] for document in documents]
    return titles.index(title) if title in titles else len(titles)


def offered(chat_server, routed):
    """Titles of the candidates that the question has, best first."""
    chat_server.says = picks()
    routed.invoke(QUESTION)
    return [title for _, title, *_ in candidates(chat_server.requests[-1])]


def test_a_chat_model_is_asked_once_and_the_turn_keeps_what_that_took(chat_server, routed):
    chat_server.says = picks()
    turn = read_turn(routed, routed.invoke(QUESTION))
    assert (turn.llm_calls, len(chat_server.requests)) == (1, 1)
    assert turn.llm_tokens == turn.llm_input_tokens + turn.llm_output_tokens > 100
    assert turn.cost_usd == pytest.approx(
        (turn.llm_input_tokens + 2 * turn.llm_output_tokens) / 1e6
    )
    assert turn.routing == ("so",)
    assert "chat_model" in {step.decided_by for step in turn.steps}


def test_what_it_picks_comes_sooner_and_what_it_drops_later(chat_server, routed):
    """But nothing that search found leaves the answer, even if it drops all there is."""
    titles = offered(chat_server, routed)
    title, plain = "Adam Collis", routed.invoke(QUESTION, k=30)
    chat_server.says = picks(title)
    assert rank(routed.invoke(QUESTION, k=30), title) < rank(plain, title)
    chat_server.says = picks(drop=[title])
    dropped = routed.invoke(QUESTION, k=30)
    assert rank(plain, title) < rank(dropped, title) < len(dropped)
    chat_server.says = picks(drop=titles)
    assert set(ids(routed.invoke(QUESTION, k=30))) == set(ids(plain))


async def test_the_call_appears_under_the_retriever_and_blocks_nothing(chat_server, routed):
    """Its tokens are not streamed to the user of a graph."""
    chat_server.says = picks()
    with collect_runs() as runs:
        routed.invoke(QUESTION)
        await routed.ainvoke(QUESTION)
        with blockbuster_ctx(scanned_modules="crabpath_retrievers"):
            documents = await routed.ainvoke(QUESTION)
    for run in runs.traced_runs:
        assert {child.name for child in run.child_runs} == {"crabpath_router"}
        assert all("nostream" in child.tags for child in run.child_runs)
    assert len(runs.traced_runs) == 3
    assert read_turn(routed, documents).llm_calls == 1


def test_what_it_chose_is_learned_from(chat_server, routed):
    """A success moves the pointer that led to what was used, by the policy's probability."""
    title = offered(chat_server, routed)[-1]
    chat_server.says = picks(title)
    documents = routed.invoke(QUESTION, namespace="ada", k=30)
    used = documents[rank(documents, title)].id
    routed.record(turn_of(documents), 1.0, used=[used])
    explained = routed.memory.explain(turn_of(documents))
    moved = [e for d in explained.documents for e in d.moved if e.target == used]
    assert moved
    assert all(move.delta > 0 for edge in moved for move in edge.moves if edge.kind != "co_used")


def test_a_question_that_succeeded_is_not_asked_again(chat_server, routed):
    chat_server.says = picks()
    documents = routed.invoke(QUESTION, namespace="bob")
    routed.record(turn_of(documents), 1.0, used=[documents[0].id])
    again, other = (routed.invoke(QUESTION, namespace=name) for name in ("bob", "eve"))
    assert [read_turn(routed, found).llm_calls for found in (again, other)] == [0, 1]
