"""The last word of a person stands, whichever door it comes through, and however it is applied.

Each sequence is given about one turn of a namespace; in another namespace only what stands in the
end is given. Both then answer alike.
"""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
from langchain_core.messages import HumanMessage
from mcp.client import Client
from starlette.testclient import TestClient
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath, CrabPathRetriever, Feedback, OutcomePolicy
from crabpath_retrievers.callbacks import CrabPathCallbackHandler
from crabpath_retrievers.cli import app
from crabpath_retrievers.integration import make_event_feedback
from crabpath_retrievers.learning.standalone import StandaloneLearner
from crabpath_retrievers.storage import GraphStore
from crabpath_server import create_app
from crabpath_server.client import ServedMemory
from crabpath_server.mcp import create_local_server
from langgraph_crabpath import CrabPathMiddleware, CrabPathStore, crabpath_feedback
from llama_index.retrievers.crabpath import CrabPathRetriever as LlamaRetriever

QUESTION = "Which fruit is red?"
UP, DOWN, WORDS = (1.0, None), (-1.0, None), (-1.0, "Cherries are red.")
OTHERS = (-1.0, "Plums are red.")


class Said(NamedTuple):
    """A verdict: outcome and correction, and who gave it."""

    what: tuple[float, str | None]
    source: str = "human"
    user: str | None = None


EVENT = Said((-0.2, None), "event")
SELF_UP = Said(UP, "self")
# What is said, and which of it stands in the end.
SEQUENCES: dict[str, tuple[list[Said], list[int]]] = {
    "up up": ([Said(UP)] * 2, [0]),
    "up down": ([Said(UP), Said(DOWN)], [1]),
    "up down up": ([Said(UP), Said(DOWN), Said(UP)], [2]),
    "up words": ([Said(UP), Said(WORDS)], [1]),
    "words up": ([Said(WORDS), Said(UP)], [1]),
    "words down": ([Said(WORDS), Said(DOWN)], [0]),
    "down words down": ([Said(DOWN), Said(WORDS), Said(DOWN)], [1]),
    "words, others": ([Said(WORDS), Said(OTHERS), Said(DOWN)], [1]),
    "event down": ([EVENT, Said(DOWN)], [1]),
    "down event": ([Said(DOWN), EVENT], [0]),
    "model down": ([SELF_UP, Said(DOWN)], [1]),
    "down model": ([Said(DOWN), SELF_UP], [0]),
    "model model": ([SELF_UP, Said(DOWN, "self")], [1]),
    "teacher event model": ([Said(UP, "teacher"), EVENT, Said(DOWN, "self")], [0]),
    "two users": ([Said(UP, user="ann"), Said(DOWN, user="bob")], [0, 1]),
    "two users, one twice": (
        [Said(UP, user="ann"), Said(DOWN, user="bob"), Said(DOWN, user="ann")],
        [1, 2],
    ),
}
Give = Callable[[str, str, Said], Any]


def give_event(memory: CrabPath, turn: str, namespace: str) -> Any:
    """What a host reports by itself, whatever door a person uses."""
    made = make_event_feedback(
        "tool_error", OutcomePolicy(), turn, answer=None, namespace=namespace
    )
    return memory.record(made)


def fields_of(said: Said, *names: str) -> dict[str, Any]:
    """Fields of feedback, with these only."""
    known = {"correction": said.what[1], "source": said.source, "user": said.user}
    return {name: known[name] for name in names if known[name] is not None}


ALL = ("correction", "source", "user")


def open_plain(memory, stack) -> Give:
    return lambda turn, space, said: memory.record(
        Feedback(turn, said.what[0], namespace=space, **fields_of(said, *ALL))
    )


def open_turn(memory, stack) -> Give:
    return lambda turn, space, said: memory.record(turn, said.what[0], **fields_of(said, *ALL))


def open_documents(memory, stack) -> Give:
    def give(turn, space, said):
        documents = memory.as_retriever(namespace=space)
        answer = memory.store.turns.get(turn)
        block = {"turn_id": turn, "namespace": space, "id": answer.returned[0].node}
        held = {"documents": [{"metadata": {"crabpath": block}}]}
        return documents.record(held, said.what[0], **fields_of(said, *ALL))

    return give


def open_last_turn(memory, stack) -> Give:
    return lambda turn, space, said: memory.as_retriever(namespace=space).record(
        None, said.what[0], **fields_of(said, *ALL)
    )


def open_same_id(memory, stack) -> Give:
    return lambda turn, space, said: memory.record(
        turn, said.what[0], feedback_id=f"thumb of {turn}", **fields_of(said, *ALL)
    )


def open_callbacks(memory, stack) -> Give:
    handler = CrabPathCallbackHandler(memory)

    def give(turn, space, said):
        outcome, words = said.what
        fields = fields_of(said, "source", "user")
        if words is not None:
            return handler.correct(words, run_id=turn, **fields)
        return handler.score((outcome + 1) / 2, run_id=turn, **fields)

    return give


def open_node(memory, stack) -> Give:
    retriever = CrabPathRetriever(memory=memory)

    def give(turn, space, said):
        node = crabpath_feedback(retriever, namespace=space, source=said.source)
        state = {"turn_id": turn, "outcome": said.what[0], "correction": said.what[1]}
        return node.invoke(state, {"configurable": {"user_id": said.user}})

    return give


def open_middleware(memory, stack) -> Give:
    def give(turn, space, said):
        middleware = CrabPathMiddleware(CrabPathRetriever(memory=memory), namespace=space)
        outcome, words = said.what
        said_words = {"outcome": outcome} | ({} if words is None else {"correction": words})
        state = {
            "messages": [HumanMessage(" ")],
            "crabpath_turns": [turn],
            "crabpath_feedback": said_words,
        }
        config = {"configurable": {"user_id": said.user}}
        (receipt,) = middleware.before_agent(state, None, config)["crabpath_receipts"]
        return receipt

    return give


def open_llama_index(memory, stack) -> Give:
    retriever = LlamaRetriever(memory)
    return lambda turn, space, said: retriever.record(
        turn, said.what[0], namespace=space, **fields_of(said, *ALL)
    )


def open_store(memory, stack) -> Give:
    store = CrabPathStore(memory)
    return lambda turn, space, said: store.record(
        turn, said.what[0], namespace=space, **fields_of(said, "source", "user")
    )


def open_http(memory, stack) -> Give:
    client = TestClient(create_app(memory), base_url="http://127.0.0.1")

    def give(turn, space, said):
        body = {"turn_id": turn, "outcome": said.what[0], **fields_of(said, *ALL)}
        answer = client.post("/v1/feedback", json=body, headers={"CrabPath-Namespace": space})
        assert answer.status_code in {200, 409}, answer.text
        return answer.json() if answer.status_code == 200 else answer.json()["receipt"]

    return give


def open_client(memory, stack) -> Give:
    url = stack(create_app(memory))

    def give(turn, space, said):
        with ServedMemory(url, namespace=space) as served:
            return served.record(turn, said.what[0], **fields_of(said, *ALL))

    return give


def open_command(memory, stack) -> Give:
    def give(turn, space, said):
        memory.store.flush()
        named = fields_of(said, *ALL).items()
        options = [word for name, value in named for word in (f"--{name}", value)]
        place = ["--store", memory.store.location, "--namespace", space]
        done = CliRunner().invoke(
            app, ["feedback", turn, "--outcome", str(said.what[0]), *place, *options]
        )
        assert done.exit_code == (2 if "Refused" in done.output else 0), done.output
        return done

    return give


DOORS = {
    "a feedback": open_plain,
    "a turn": open_turn,
    "documents": open_documents,
    "the last turn": open_last_turn,
    "one id": open_same_id,
    "callbacks": open_callbacks,
    "LangGraph's node": open_node,
    "middleware": open_middleware,
    "LlamaIndex": open_llama_index,
    "LangGraph's store": open_store,
    "HTTP": open_http,
    "client": open_client,
    "command": open_command,
}
PERSONS_ONLY = {"middleware"}
WITHOUT_WORDS = {"LangGraph's store"}


def ask(memory: CrabPath, namespace: str) -> str:
    return memory.retrieve(QUESTION, namespace=namespace, k=3).turn.id


def answer(memory: CrabPath, namespace: str, within: float = 1e-6) -> list[tuple[str, float]]:
    """What a namespace answers: texts and scores."""
    found = memory.retrieve(QUESTION, namespace=namespace, k=3, record=False).documents
    return [(item.node.content, pytest.approx(item.score, abs=within)) for item in found]


def scores(memory: CrabPath, namespace: str) -> dict[str, float]:
    """Scores of all texts for the question of a namespace."""
    found = memory.retrieve(QUESTION, namespace=namespace, k=10, record=False).documents
    return {item.node.content: item.score for item in found}


def give_what_stands(memory: CrabPath, namespace: str, said: list[Said], stands: list[int]) -> None:
    turn = ask(memory, namespace)
    for one in (said[place] for place in stands):
        if one.source == "event":
            give_event(memory, turn, namespace)
        else:
            outcome, fields = one.what[0], fields_of(one, *ALL)
            assert memory.record(turn, outcome, **fields).status == "applied"


@pytest.mark.slow
@pytest.mark.parametrize("name", DOORS)
def test_the_last_word_of_a_person_stands(memory, serving, name):
    give = DOORS[name](memory, serving)
    for label, (said, stands) in SEQUENCES.items():
        if name in PERSONS_ONLY and {one.source for one in said} - {"human", "event"}:
            continue
        if name in WITHOUT_WORDS and any(one.what[1] is not None for one in said):
            continue
        turn = ask(memory, label)
        for one in said:
            if one.source == "event":
                give_event(memory, turn, label)
            else:
                give(turn, label, one)
        control = f"{label}, only what stands"
        give_what_stands(memory, control, said, stands)
        if name == "command" and "words" in label:
            continue  # without an embedder a correction has the vector of its question
        # What was learned in between depends on what came before it.
        within = 1e-3 if label == "two users, one twice" else 1e-6
        assert answer(memory, label, within) == answer(memory, control, within), label
        texts = [[n.text for n in memory.notes(namespace=space)] for space in (label, control)]
        assert texts[0] == texts[1], label
        statuses = [one.status for one in memory.learning.feedback(namespace=label)]
        assert statuses.count("applied") == len(stands), label


@pytest.fixture
def serving():
    """Starts real servers, which end with the test."""
    from contextlib import ExitStack

    from served import running

    with ExitStack() as stack:
        yield lambda made: stack.enter_context(running(made))


def test_what_a_replayed_session_says_is_a_word_as_any_other(memory, tmp_path):
    """A person has the last word about its turn, and another replay of the file changes nothing."""
    sessions = tmp_path / "sessions.jsonl"
    sessions.write_text(json.dumps({"query": QUESTION, "outcome": 1.0, "used": ["a"]}))
    assert memory.learning.replay(sessions, k=3).learned == 1
    turn = memory.turns()[0].id
    assert memory.record(turn, outcome=True, used=["a"]).repeated
    assert memory.record(turn, outcome=False, source="self", strict=False).reason == "outranked"
    assert memory.record(turn, outcome=False).status == "applied"
    assert memory.learning.replay(sessions, k=3).before == 1
    control = ask(memory, "control")
    memory.record(control, outcome=False)
    assert answer(memory, "default") == answer(memory, "control")
    statuses = [one.status for one in memory.learning.feedback(namespace="default")]
    assert statuses.count("applied") == 1


async def test_over_mcp_a_model_does_not_outvote_the_user(memory):
    async with Client(create_local_server(memory, "ann")) as client:
        for label, order, applied in (
            ("user last", [(1.0, "self"), (-1.0, "human")], -1.0),
            ("model last", [(-1.0, "human"), (1.0, "self")], -1.0),
            ("user twice", [(1.0, "human"), (-1.0, "human"), (-1.0, "human")], -1.0),
        ):
            turn = ask(memory, "ann")
            for outcome, source in order:
                given = {"turn_id": turn, "outcome": outcome, "source": source}
                result = await client.call_tool("record_outcome", given)
                assert not result.is_error, label
            known = memory.learning.feedback(namespace="ann", turn_id=turn)
            assert [one.outcome for one in known if one.status == "applied"] == [applied], label


def test_the_receipt_says_what_happened(memory):
    """For people and for programs; nothing of it is an exception."""
    turn = ask(memory, "default")
    first, again = (memory.record(turn, outcome=True, used=["a"]) for _ in range(2))
    assert (first.status, first.repeated, first.reason) == ("applied", False, None)
    assert (again.status, again.repeated, again.reason) == ("repeated", True, None)
    assert first.feedback_id in again.note
    below = memory.record(turn, outcome=False, source="teacher")
    assert (below.status, below.reason) == ("refused", "outranked")
    assert memory.undo(again.feedback_id).status == "repeated"
    changed = memory.record(turn, outcome=False)
    assert memory.undo(first.feedback_id).note == "it was undone before"
    # After an undo nothing is said, and anybody may speak.
    assert memory.undo(changed.feedback_id).status == "undone"
    assert memory.record(turn, outcome=False, source="teacher").status == "applied"
    same = {"feedback_id": "f"}
    assert memory.record(turn, outcome=True, **same).status == "applied"
    assert memory.undo("f").status == "undone"
    late = memory.record(turn, outcome=True, **same)  # a retry that comes late brings nothing back
    assert (late.status, late.repeated) == ("undone", True)
    assert memory.record(turn, outcome=False, **same).status == "applied"


def test_a_thumb_up_that_takes_back_a_correction_says_so(memory):
    turn = ask(memory, "default")
    memory.record(turn, outcome=False, correction="Cherries are red.")
    told = memory.record(turn, outcome=True)
    assert (told.status, memory.notes()) == ("applied", [])
    assert "the correction that its giver gave before is taken back" in told.note
    assert memory.record(turn, outcome=0.9).note is None


def test_a_window_is_replaced_as_a_whole(open_memory):
    """Feedback on the last turns, twice, then on one of them."""
    with open_memory(window_turns=3) as memory:
        turns = [ask(memory, "default") for _ in range(3)]

        def read() -> dict[str, str]:
            return {t: said.feedback_id for t, said in memory.store.turns.get_verdicts(turns)}

        window = memory.record(None, outcome=True)
        assert memory.record(None, outcome=True).repeated
        other = memory.record(None, outcome=False)
        assert other.status == "applied"
        assert read() == dict.fromkeys(turns, other.feedback_id)
        one = memory.record(turns[0], outcome=True)
        assert read() == {turns[0]: one.feedback_id}
        assert memory.undo(window.feedback_id).status == "undone"


@pytest.mark.slow
@pytest.mark.both_databases
@pytest.mark.parametrize("apply", ["background", "external"])
def test_feedback_that_waits_ends_alike(open_memory, apply):
    with open_memory(apply=apply) as memory:
        for label, (said, _) in SEQUENCES.items():
            turn = ask(memory, label)
            for one in said:
                if one.source == "event":
                    give_event(memory, turn, label)
                else:
                    memory.record(Feedback(turn, one.what[0], **fields_of(one, *ALL)))
            same = {"feedback_id": "one id", "namespace": label, "user": "eve"}
            memory.record(Feedback(turn, 1.0, used=["a"], **same))
            memory.record(Feedback(turn, -1.0, used=["b"], **same))
    with open_memory() as memory:  # another process
        memory.learning.learn_waiting()
        for label, (said, stands) in SEQUENCES.items():
            control = f"{label}, only what stands"
            give_what_stands(memory, control, said, stands)
            turn = memory.turns(namespace=control)[0].id
            memory.record(Feedback(turn, -1.0, used=["b"], user="eve"))
            within = 1e-3 if label == "two users, one twice" else 1e-6
            found, wanted = scores(memory, label), scores(memory, control)
            assert found == pytest.approx(wanted, abs=within), label


@pytest.mark.both_databases
def test_the_word_is_known_after_a_restart(open_memory, state_of):
    with open_memory() as memory:
        turn = ask(memory, "default")
        before = state_of(memory, "default")
        memory.record(turn, outcome=True, used=["a"], feedback_id="f")
    with open_memory() as memory:
        assert memory.record(turn, outcome=True, used=["a"]).repeated
        assert memory.record(turn, outcome=True, used=["a"], feedback_id="f").repeated
        assert memory.record(turn, outcome=False, feedback_id="f").status == "applied"
        memory.undo("f")
        assert state_of(memory, "default") == before


@pytest.mark.both_databases
def test_threads_and_processes_at_once(open_memory, location, state_of):
    """Double clicks through two processes: one verdict of each person counts, once."""
    with open_memory() as memory:
        turn, once = ask(memory, "default"), ask(memory, "once")
        memory.store.flush()
        beside = GraphStore(location)
        learner = StandaloneLearner(beside)
        together = threading.Barrier(6)

        def click(number: int) -> Any:
            together.wait()
            door = memory if number % 2 else learner
            said = {"used": ["a"], "user": ("ann", "bob")[number % 3 == 0]}
            return [door.record(Feedback(turn, 1.0, **said)).status for _ in range(3)]

        with ThreadPoolExecutor(6) as pool:
            statuses = [one for found in pool.map(click, range(6)) for one in found]
        beside.close()
        assert (statuses.count("applied"), statuses.count("repeated")) == (2, 16)
        for user in ("ann", "bob"):
            memory.record(Feedback(once, 1.0, used=["a"], user=user))
        assert answer(memory, "default") == answer(memory, "once")
        for one in memory.learning.feedback(namespace="default"):
            memory.undo(one.feedback_id, namespace="default")
        assert answer(memory, "default") == answer(memory, "never asked")


def test_feedback_goes_to_its_conversation(memory):
    """A thumb in one chat never touches another one, with its session or without."""

    def chat(session, count=1):
        options = {"namespace": "ann", "k": 3, "session": session}
        return [memory.retrieve(QUESTION, **options).turn.id for _ in range(count)]

    first, second, third = chat("A", 2), chat("B"), chat("A")
    own = memory.as_retriever(namespace="ann")
    late = own.record(None, outcome=False, session="B")
    known = dict(memory.store.turns.get_verdicts([*first, *second, *third]))
    assert {turn: one.feedback_id for turn, one in known.items()} == {second[0]: late.feedback_id}
    assert memory.record(third[0], outcome=True).status == "applied"
    # Without a session that of the last turn is meant.
    own.record(None, outcome=False)
    known = dict(memory.store.turns.get_verdicts([*first, *second, *third]))
    assert {turn: one.outcome for turn, one in known.items()} == {second[0]: -1.0, third[0]: -1.0}
    wrong = memory.record(first[0], outcome=True, session="B", strict=False)
    assert (wrong.status, wrong.reason) == ("refused", "other_session")
    unseen = own.record(None, outcome=True, session="C", strict=False)
    assert (unseen.status, unseen.reason) == ("refused", "no_turn")
    plain = chat(None)
    assert memory.record(None, outcome=True, namespace="ann").status == "applied"
    assert plain[0] in dict(memory.store.turns.get_verdicts(plain))


@pytest.mark.parametrize("name", ["thread_id", "session_id", "conversation_id"])
def test_the_conversation_of_a_host_is_that_of_its_config(memory, name):
    retriever = memory.as_retriever(k=3)
    chats = {}
    for session in ("A", "B", "long " * 100):
        retriever.invoke(QUESTION, {"configurable": {name: session}})
        chats[session] = memory.turns()[0].id
    found = {memory.store.turns.get(turn).session for turn in chats.values()}
    assert {"A", "B"} < found
    assert {len(session) for session in found} == {1, 64}
    memory.record(None, outcome=True, session="A")
    assert dict(memory.store.turns.get_verdicts(list(chats.values()))).keys() == {chats["A"]}
