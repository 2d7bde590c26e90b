"""Recording feedback: what is learned from it, once, and when; what is refused and why."""

import asyncio
import itertools
import logging
import math
import os
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.utils.uuid import uuid7

from crabpath_retrievers import (
    CrabPathRetriever,
    Feedback,
    Settings,
    StoreError,
    StoreUnavailableError,
    Turn,
)
from crabpath_retrievers.config import EpisodeSettings, LearningSettings
from crabpath_retrievers.core.text import QueryInformation
from crabpath_retrievers.integration import BackgroundWorker
from crabpath_retrievers.learning.standalone import (
    StandaloneLearner,
    parse_settings,
    publish_settings,
    read_published_settings,
)
from crabpath_retrievers.retrieval.episodes import EpisodeQuery
from crabpath_retrievers.storage import GraphStore
from tests.seams import finish_learning, get_services, set_bounds

PASSED = (0.0, 1.0)


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("said", "usage", "note"),
    [
        # What was used counts as a win, what was returned beside it as a pass.
        ({"used": ["a"]}, {"a": (1.0, 0.0), "b": PASSED, "c": PASSED}, None),
        ({"used": []}, dict.fromkeys("abc", PASSED), None),
        # An outcome alone says nothing of documents.
        ({}, {}, None),
        # What a harvested outcome teaches counts 0.3, as the settings say.
        (
            {"used": ["a"], "source": "harvested"},
            {"a": (0.3, 0.0), "b": (0.0, 0.3), "c": (0.0, 0.3)},
            None,
        ),
    ],
)
def test_a_success_is_learned_from(memory, host, said, usage, note):
    receipt = memory.record(Feedback(host.ask(), 1.0, **said))
    assert (receipt.status, receipt.note) == ("applied", note)
    assert memory.store.learned.get_feedback(receipt.feedback_id).note == note
    assert host.usage() == {node: pytest.approx(counts) for node, counts in usage.items()}
    assert host.learned() == 1


@pytest.mark.parametrize("door", ["turn", "answer", "documents"])
@pytest.mark.parametrize(
    "said", [{}, {"used": ["a"]}, {"answer": "Apples are red."}, {"correction": "It is blue."}]
)
def test_a_turn_is_read_once(memory, monkeypatch, door, said):
    """Its record holds each step of its walk, and is what takes longest to read."""
    read, decode = list[str](), Turn.from_dict
    monkeypatch.setattr(Turn, "from_dict", lambda data: read.append(data["id"]) or decode(data))
    answer = memory.retrieve("Which fruit is red?", k=3)
    about, turn = (answer if door == "answer" else answer.turn.id), answer.turn.id
    if door == "documents":
        about = memory.as_retriever(k=3).invoke("Which fruit is red?")
        turn = about[0].metadata["crabpath"]["turn_id"]
    outcome = -1.0 if "correction" in said else 1.0
    memory.record(about, outcome, **said)
    assert read == [turn]


def test_a_failure_among_failures_says_nothing_of_documents(memory, host):
    """Nor does a success for other questions; where chains succeed, a failure counts again."""

    def record(outcome, count):
        """What the question has stored after so many outcomes."""
        for _ in range(count):
            memory.record(Feedback(host.ask(), outcome))
        key = memory.store.walk.get_clock("default").key
        (episode,) = memory.store.learned.latest_episodes(key, 9)
        return episode.documents

    blamed = record(-1.0, 3)
    assert max(blamed.values()) < 0
    assert record(-1.0, 10) == blamed
    assert min(record(1.0, 5).values()) > min(blamed.values())
    assert host.weights() == {}
    credited = record(1.0, 40)
    assert min(record(-1.0, 1)[node] - value for node, value in credited.items()) < 0


def test_the_last_content_of_an_id_stands(memory, host):
    """All its fields are kept, and a run id stands for its turn; said again it changes nothing."""
    run = str(uuid.uuid4())
    turn, said = host.ask(run_id=run), "Apples are green. 🍏"
    feedback = Feedback(run, 1.0, used=["a"], correction=f"{said}\x00", feedback_id="f")
    assert memory.record(feedback).status == "applied"
    again = memory.record(feedback)
    assert (again.status, again.repeated) == ("applied", True)
    kept = memory.store.learned.get_feedback("f").feedback
    assert (kept, kept.correction) == (feedback, said)
    assert (host.usage()["a"], host.learned()) == ((1.0, 0.0), 1)
    changed = memory.record(Feedback(turn, 1.0, used=["b"], feedback_id="f"))
    assert (changed.status, changed.repeated, changed.feedback_id) == ("applied", False, "f")
    assert host.usage() == {"a": (0.0, 1.0), "b": (1.0, 0.0), "c": (0.0, 1.0)}
    assert [note.text for note in memory.notes()] == [said]  # not said again, and still meant
    memory.forget([note.id for note in memory.notes()])
    elsewhere = memory.record(Feedback(host.ask(), 1.0, feedback_id="f"))
    assert (elsewhere.status, elsewhere.reason) == ("refused", "id_taken")
    assert host.consumers([turn]) == {turn: "f"}


def test_what_is_refused_is_kept_with_the_reason(memory, host):
    """A person has spoken; an unknown turn, one of another namespace; neither namespace learns."""
    turn, other = host.ask(), host.ask("ada")
    memory.record(Feedback(turn, 1.0, used=["a"], feedback_id="first"))
    for said, note in (
        (Feedback(turn, -1.0, source="self"), f"what a person said about turn {turn!r} stands"),
        (Feedback("nope", 1.0), "no turn 'nope' is recorded here"),
        (Feedback(other, 1.0, used=["a"], namespace="grace"), "in namespace 'grace'"),
    ):
        receipt = memory.record(said)
        assert (receipt.status, host.status(said.feedback_id)) == ("refused", "refused")
        assert note in receipt.note
    assert [host.learned(name) for name in ("default", "ada", "grace")] == [1, 0, 0]
    assert memory.record(Feedback(other, 1.0, namespace="ada")).status == "applied"


@pytest.mark.both_databases
def test_forgetting_a_namespace_forgets_what_was_said_about_it(open_memory, host_of):
    """Feedback on its turns goes, applied, refused or waiting, and that of others stays."""
    with open_memory(apply="external") as memory:
        host = host_of(memory)
        memory.record(Feedback(host.ask("ada"), 1.0, answer="private", feedback_id="waiting"))
        memory.record(Feedback(None, 1.0, namespace="unseen", feedback_id="late"))
        memory.record(Feedback(host.ask("grace"), 1.0, feedback_id="grace"))
        memory.forget(namespace="ada")
        memory.forget(namespace="unseen")
        kept = memory.store.learned.get_waiting_feedback(10)
    assert [item.feedback.feedback_id for item in kept] == ["grace"]


@pytest.mark.parametrize(
    ("error", "then"), [(ArithmeticError("odd"), "waiting"), (StoreError("odd"), "applied")]
)
def test_feedback_that_cannot_be_learned_from_stops_no_other(
    memory, host, monkeypatch, caplog, error, then
):
    """It waits, with a note, for a program that can; what a store missed comes with the next."""
    apply = memory.store.apply

    def fail(changes):
        if any(type(change).__name__ == "ConsumeFeedback" for change in changes):
            raise error
        return apply(changes)

    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(memory.store, "apply", fail)
        receipt = memory.record(Feedback(host.ask(), 1.0, feedback_id="first"))
    assert receipt.status == "waiting"
    assert "odd" in receipt.note
    assert ("'first' cannot be learned from" in caplog.text) == (then == "waiting")
    assert memory.record(Feedback(host.ask(), 1.0)).status == "applied"
    assert host.status("first") == then
    assert host.learned() == (2 if then == "applied" else 1)


@pytest.mark.parametrize("apply", ["inline", "background"])
@pytest.mark.slow
def test_many_records_from_eight_threads(open_memory, host_of, apply):
    """On two memories of one store: none is lost or applied twice, what they count adds up."""
    with open_memory(apply=apply) as memory, open_memory(apply=apply) as other:
        host = host_of(memory)
        given = [Feedback(host.ask(), 1.0, used=["a"]) for _ in range(50)]
        again = [one for one in given[:5] for _ in range(8)]  # the same, at the same time
        work = zip([*given, *again], itertools.cycle((memory, memory, other)), strict=False)
        with ThreadPoolExecutor(8) as pool:
            receipts = list(pool.map(lambda job: job[1].record(job[0]), list(work)))
        for one in (memory, other):  # one that met too many others is applied with the next
            one.learning.learn_waiting()
            finish_learning(one)
        expected = {"waiting"} if apply == "background" else {"applied", "waiting"}
        assert {receipt.status for receipt in receipts} <= {"applied", *expected}
        assert memory.store.learned.count_feedback() == {"waiting": 0, "applied": 50, "refused": 0}
        assert host.learned() == 50
        assert host.usage() == {"a": (50.0, 0.0), "b": (0.0, 50.0), "c": (0.0, 50.0)}


def test_one_of_several_that_come_at_once_is_the_first(memory, host):
    """The others are told that the same was given before, though it waited when they came."""
    for _ in range(5):
        said = Feedback(host.ask(), 1.0, feedback_id=uuid.uuid4().hex)
        with ThreadPoolExecutor(4) as pool:
            receipts = list(pool.map(memory.record, [said] * 4))
        assert {receipt.status for receipt in receipts} == {"applied"}
        assert [receipt.repeated for receipt in receipts].count(False) == 1


def test_feedback_about_a_turn_that_is_looked_for_holds_up_no_other(memory, host):
    """While one caller gives wrong turn ids, many others of its process are learned from."""
    turns = [host.ask() for _ in range(40)]
    over, wrong = threading.Event(), []

    def look():
        while not over.is_set():  # such an id is looked for until a second after it was made
            wrong.append(memory.record(Feedback(str(uuid7()), 1.0)).reason)

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            for turn in turns:
                assert memory.record(Feedback(turn, 1.0)).status == "applied"
        finally:
            over.set()
        looking.result()
    assert set(wrong) == {"unknown_turn"}
    assert len(wrong) < len(turns) / 3


async def test_feedback_about_unknown_turns_takes_no_thread_from_questions(memory):
    """As many as there are threads, twice: a question does not wait for those that look."""
    made = int((time.time() + 0.9) * 1000)  # their ids are recent for two seconds
    ids = [f"{made:012x}7{number:019x}" for number in range(2 * min(32, os.cpu_count() + 4))]
    await memory.aio.retrieve("Apple")
    looking = [asyncio.create_task(memory.aio.record(Feedback(turn, 1.0))) for turn in ids]
    await asyncio.sleep(0)
    await memory.aio.retrieve("Blue Sky")
    assert sum(task.done() for task in looking) < len(looking) / 2
    receipts = await asyncio.gather(*looking)
    assert {receipt.reason for receipt in receipts} == {"unknown_turn"}


@pytest.mark.parametrize("apply", ["inline", "background", "external"])
async def test_arecord_does_not_block(open_memory, host_of, monkeypatch, apply):
    """Neither of the memory nor of the retriever, whoever learns, also many at once."""
    memory = await asyncio.to_thread(open_memory, apply=apply)
    retriever = CrabPathRetriever(memory=memory)
    expected = "applied" if apply == "inline" else "waiting"
    with blockbuster_ctx():
        found = await retriever.ainvoke("Which fruit is red?")
        turn = found[0].metadata["crabpath"]["turn_id"]
        assert (await retriever.arecord(turn, 1.0, used=["a"])).status == expected
        turns = [await asyncio.to_thread(host_of(memory).ask) for _ in range(10)]
        receipts = await asyncio.gather(*(memory.aio.record(Feedback(t, 1.0)) for t in turns))
        assert {receipt.status for receipt in receipts} == {expected}
        assert (await memory.aio.record(Feedback("nope", 1.0))).status != "applied"
        # The feedback after which a look for new episodes is due hands it to a thread.
        woken, wake = [], BackgroundWorker.wake
        monkeypatch.setattr(BackgroundWorker, "wake", lambda own: woken.append(own) or wake(own))
        set_bounds(monkeypatch, episodes_indexed=1, seconds_between_checks=0.0)
        receipt = await memory.aio.record(Feedback("nope", 1.0))
        is_applied_there = (receipt.status, apply) == ("waiting", "background")
        assert len(woken) == 1 + is_applied_there
    await asyncio.to_thread(memory.close)


QUESTION = "Which fruit is red?"


@pytest.mark.parametrize(("source", "weight"), [("human", 1.0), ("self", 0.6)])
def test_late_feedback_is_shared_among_the_last_turns(open_memory, host_of, source, weight):
    """Those of its namespace; together they count as one success, as its source weighs."""
    with open_memory(window_turns=10) as memory:
        host = host_of(memory)
        elsewhere, turns = host.ask("ada"), [host.ask() for _ in range(3)]
        receipt = memory.record(Feedback(None, 1.0, used=["a"], source=source))
        assert host.consumers([elsewhere, *turns]) == dict.fromkeys(turns, receipt.feedback_id)
        assert receipt.turn_id == turns[-1]
        assert host.usage()["a"] == (pytest.approx(weight), 0.0)
        memory.record(Feedback(None, 1.0, namespace="ada"))
        assert host.consumers([elsewhere])


def test_later_turns_get_more(open_memory, host_of):
    """The later of two turns gets e^{-0} / (1 + e^{-2λ}), two turns after the earlier one."""
    with open_memory(turn_decay=math.log(3) / 2, window_turns=10) as memory:
        host = host_of(memory)
        host.ask()
        memory.record(Feedback(host.ask(), 1.0))
        memory.retrieve(QUESTION, filter=None, k=1)
        memory.record(Feedback(None, -1.0, used=["a", "b", "c"]))
        # The turn with all three counts 1/4, the later one with a single document 3/4.
        losses = sorted(lost for _, lost in host.usage().values())
    assert losses == pytest.approx([0.25, 0.25, 1.0])


@pytest.mark.parametrize("turns", [1, 10])
def test_the_last_turn_is_meant_judged_or_not(open_memory, turns):
    """By the rule of verdicts; those before it only if nobody has judged them."""
    with open_memory(window_turns=turns) as memory:
        first, second, third = (memory.retrieve(QUESTION).turn.id for _ in range(3))

        def read() -> list[set[str]]:
            known = memory.store.turns.get_verdicts([first, second, third])
            return [{f.feedback_id for t, f in known if t == one} for one in (first, second, third)]

        mine = memory.record(first, outcome=True).feedback_id
        model = memory.record(third, outcome=True, source="self").feedback_id
        late = memory.record(None, outcome=False)
        assert (late.status, late.turn_id) == ("applied", third)
        before = {late.feedback_id} if turns > 1 else set()
        assert read() == [{mine}, before, {late.feedback_id}]
        assert memory.undo(model).note == "it was undone before"
        again = memory.record(None, outcome=False)
        assert (again.status, again.turn_id) == ("repeated", third)
        outranked = memory.record(None, outcome=True, source="self")
        assert (outranked.reason, outranked.turn_id) == ("outranked", None)
        other = memory.record(None, outcome=False, user="eve").feedback_id
        assert read() == [{mine}, before, {late.feedback_id, other}]
        changed = memory.record(None, outcome=True)
        assert (changed.status, changed.turn_id) == ("applied", third)
        before = {changed.feedback_id} if turns > 1 else set()
        assert read() == [{mine}, before, {changed.feedback_id, other}]


def test_an_id_that_is_given_again_means_the_turns_of_the_first_time(memory, host):
    first = host.ask()
    memory.record(Feedback(None, 1.0, feedback_id="f"))
    second = host.ask()
    assert memory.record(Feedback(None, -1.0, feedback_id="f")).turn_id == first
    memory.record(Feedback(first, 1.0))
    assert memory.record(Feedback(None, -1.0, feedback_id="f")).turn_id == first
    assert host.consumers([first, second]) == {first: "f"}


def test_without_a_turn_there_is_nothing_to_judge(memory):
    unseen = memory.record(Feedback(None, 1.0, namespace="unseen"))
    assert (unseen.status, unseen.reason) == ("refused", "no_turn")
    assert "namespace 'unseen' has no turn within 900 seconds before" in unseen.note
    assert "learning.window_seconds" in unseen.note
    assert "give the turn id" in unseen.note
    own = CrabPathRetriever(memory=memory, namespace="grace")  # means its own namespace
    own.invoke(QUESTION)
    assert own.record(None, 1.0).status == "applied"


def test_the_window_ends_after_so_many_turns_and_fifteen_minutes(open_memory, host_of):
    """One more turn back is out of reach, consumed ones counting too, and one of 901 s ago."""
    with open_memory(window_turns=10) as memory:
        turns = [host_of(memory).ask() for _ in range(12)]
        memory.record(Feedback(turns[-2], 1.0))
        memory.record(Feedback(None, 1.0))
        assert set(host_of(memory).consumers(turns)) == set(turns[2:])


def test_the_window_ends_after_fifteen_minutes(memory, host):
    turn = memory.retrieve(QUESTION, namespace="old", record=False).turn
    for age in (901, 890):
        memory.store.record(replace(turn, id=f"{age}", created=time.time() - age))
    memory.record(Feedback(None, 1.0, namespace="old"))
    assert set(host.consumers(["901", "890"])) == {"890"}


def test_the_window_ends_when_the_feedback_was_given(open_memory, host_of):
    """However late it is applied, turns that came after it are not meant."""
    with open_memory(apply="external") as memory:
        host = host_of(memory)
        before = host.ask()
        memory.record(Feedback(None, 1.0))
        after = host.ask()
    with open_memory() as memory:
        assert set(host_of(memory).consumers([before, after])) == {before}


def test_documents_say_which_turns_are_meant(open_memory, host_of):
    """Turns that returned none of the named documents are left for other feedback."""
    with open_memory(window_turns=2) as memory:
        host = host_of(memory)
        whole = host.ask()
        single = memory.retrieve(QUESTION, k=1)
        (shown,) = (item.node.id for item in single.documents)
        used = [min({"a", "b", "c"} - {shown})]
        memory.record(Feedback(None, 1.0, used=used))
        assert memory.record(Feedback(None, 1.0, used=used)).repeated
        assert set(host.consumers([whole, single.turn.id])) == {whole}


@pytest.fixture
def learn_beside(location):
    """Learns as another process does, from the store alone."""

    def learn(work=lambda learner: learner.recorder.learn_waiting()):
        beside = GraphStore(location)
        done = work(StandaloneLearner(beside))
        beside.close()
        return done

    return learn


def test_background_feedback_is_applied_by_the_time_of_closing(open_memory, host_of, location):
    """Receipts say that it waits; closing waits for the thread that learns."""
    with open_memory(apply="background") as memory:
        turns = [host_of(memory).ask() for _ in range(10)]
        receipts = [memory.record(Feedback(turn, 1.0, used=["a"])) for turn in turns]
        # The thread may be done with one before its receipt is written.
        assert {receipt.status for receipt in receipts} <= {"waiting", "applied"}
    store = GraphStore(location)
    assert store.learned.count_feedback() == {"waiting": 0, "applied": 10, "refused": 0}
    store.close()


@pytest.mark.parametrize("apply", ["inline", "background"])
def test_what_waits_is_applied_at_open(open_memory, host_of, learn_beside, apply):
    """By a memory that learns; an external one leaves it waiting.

    A server that is asked to end stops after the feedback at hand.
    """
    for _ in range(2):
        with open_memory(apply="external") as memory:
            host = host_of(memory)
            for _ in range(2):
                assert memory.record(Feedback(host.ask(), 1.0)).status == "waiting"
            assert host.learned() == 0
    with open_memory(apply="external") as memory:
        host = host_of(memory)
        assert (
            learn_beside(lambda learner: learner.serve(0.01, lambda: host.learned() >= 1))[0] == 1
        )
        assert memory.store.learned.count_feedback()["waiting"] == 3
    with open_memory(apply=apply) as memory:
        finish_learning(memory)
        assert host_of(memory).learned() == 4


async def test_learn_waiting_applies_and_indexes_all(open_memory, host_of):
    """Without blocking an event loop."""
    with open_memory(apply="external") as memory:
        host = host_of(memory)
        for _ in range(3):
            memory.record(Feedback(host.ask(), 1.0, used=["a"]))
        memory.record(Feedback("nobody", 1.0))
        with blockbuster_ctx():
            assert await memory.aio.learning.learn_waiting() == (3, 1, 0)
        assert (host.learned(), memory.store.learned.count_unindexed_episodes()) == (3, 0)
        assert memory.learning.learn_waiting() == (0, 0, 0)
    with pytest.raises(StoreUnavailableError, match="open it again"):
        memory.learning.learn_waiting()


@pytest.mark.parametrize(("sources", "weight"), [({}, 1.0), ({"human": 0.25}, 0.25)])
def test_another_process_learns_with_the_settings_of_the_server(
    open_memory, host_of, learn_beside, monkeypatch, sources, weight
):
    """The server sees it at once, recalls it, and indexes it behind further feedback."""
    with open_memory(apply="external", **({"sources": sources} if sources else {})) as memory:
        host = host_of(memory)
        memory.record(Feedback(host.ask(), 1.0, used=["a"]))
        assert learn_beside() == (1, 0, 0)
        assert host.usage()["a"] == (weight, 0.0)
        clock = memory.store.walk.get_clock("default")
        vector = memory.embedder.query("Which fruit is red?")
        question = EpisodeQuery("Which fruit is red?", vector, QueryInformation.from_idf({}))

        def recall():
            found = get_services(memory).retrieval.models.recall(memory.store, question, clock)
            [turns] = found[0]
            waiting = memory.store.learned.count_unindexed_episodes()
            return waiting, turns.same * turns.documents["a"]

        assert recall() == (1, pytest.approx(weight, abs=1e-3))
        set_bounds(monkeypatch, episodes_indexed=1, seconds_between_checks=0.0)
        memory.record(Feedback(host.ask(), 1.0))
        finish_learning(memory)
        assert recall()[0] == 0


def test_settings_are_published_as_they_are(store):
    """Of another release they are read as far as they are known."""
    learning = LearningSettings(apply="external", usage_prior=(1.0, 9.0), learning_rate=0.5)
    settings = Settings(learning=learning, episode=EpisodeSettings(neighbours=7))
    publish_settings(store, settings)
    assert parse_settings(read_published_settings(store)) == settings
    text = '{"learning": {"learning_rate": 0.5, "newer": 1}, "other": {}}'
    assert parse_settings(text) == Settings(learning=LearningSettings(learning_rate=0.5))
    assert parse_settings(None) == Settings()


def test_waking_a_worker_at_work_makes_it_work_once_more(caplog):
    """An error is logged and ends no worker; no idle thread stays behind."""
    gate, done = threading.Event(), []

    def work():
        gate.wait(5)
        done.append(1)
        if len(done) == 1:
            msg = "the database is down"
            raise OSError(msg)

    worker = BackgroundWorker(work, "test-thread")
    worker.drain()  # nothing was ever to do
    for _ in range(3):
        worker.wake()
        time.sleep(0.05)  # it has begun and waits
    gate.set()
    worker.drain()
    assert len(done) == 2
    assert "test-thread could not finish" in caplog.text
    assert "test-thread" not in {thread.name for thread in threading.enumerate()}


def test_feedback_without_an_id_gets_one():
    """None means the same as leaving it out, also from callers without type checks."""
    first, second = (Feedback(None, 1.0, feedback_id=None) for _ in range(2))
    assert len(first.feedback_id) == 32
    assert first.feedback_id != second.feedback_id
