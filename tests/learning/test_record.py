"""Recording feedback: what is learned from it, once, and what is refused and why."""

import asyncio
import itertools
import logging
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from blockbuster import blockbuster_ctx

from crabpath_retrievers import Feedback, StoreError
from crabpath_retrievers.learning.learner import FeedbackLearner
from crabpath_retrievers.rerank.features import FEATURES
from crabpath_retrievers.retriever import CrabPathRetriever

PASSED = (0.0, 1.0)


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("said", "usage", "note"),
    [
        # What was used counts as a win, what was returned beside it as a pass.
        ({"used": ["a"]}, {"a": (1.0, 0.0), "b": PASSED, "c": PASSED}, None),
        ({"used": []}, dict.fromkeys("abc", PASSED), None),
        # An outcome alone says nothing of documents, nor do ids that were not returned.
        ({}, {}, None),
        ({"used": ["x"]}, {}, "1 ids that were not returned are ignored: x"),
        (
            {"used": ["a", "elsewhere"], "unused": ["x"]},
            {"a": (1.0, 0.0), "b": PASSED, "c": PASSED},
            "2 ids that were not returned are ignored: elsewhere, x",
        ),
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


def test_the_first_content_of_an_id_stands(memory, host):
    """All its fields are kept, and a run id stands for its turn; said again it changes nothing."""
    run = str(uuid.uuid4())
    turn, said = host.ask(run_id=run), "Apples are green. 🍏"
    feedback = Feedback(run, 1.0, used=["a"], correction=f"{said}\x00", feedback_id="f")
    assert memory.record(feedback) == memory.record(feedback)
    receipt = memory.record(Feedback(turn, -1.0, used=["b"], feedback_id="f"))
    assert receipt.status == "applied"
    assert "other content, which is kept" in receipt.note
    kept = memory.store.learned.get_feedback("f").feedback
    assert (kept, kept.correction) == (feedback, said)
    assert host.usage()["a"] == (1.0, 0.0)
    assert host.learned() == 1


def test_what_is_refused_is_kept_with_the_reason(memory, host):
    """A consumed turn, an unknown one, one of another namespace; neither namespace learns."""
    turn, other = host.ask(), host.ask("ada")
    memory.record(Feedback(turn, 1.0, used=["a"], feedback_id="first"))
    for said, note in (
        (Feedback(turn, -1.0, feedback_id="f"), f"turn {turn!r} was consumed by feedback 'first'"),
        (Feedback("nope", 1.0), "no turn 'nope' is recorded here"),
        (Feedback(other, 1.0, used=["a"], namespace="grace"), "in namespace 'grace'"),
    ):
        receipt = memory.record(said)
        assert (receipt.status, host.status(said.feedback_id)) == ("refused", "refused")
        assert note in receipt.note
    assert [host.learned(name) for name in ("default", "ada", "grace")] == [1, 0, 0]
    assert memory.record(Feedback(other, 1.0, namespace="ada")).status == "applied"


@pytest.mark.parametrize("ranker", [True, False])
def test_memories_that_prove_false_are_believed_less(open_memory, host_of, ranker):
    """Whether the ranker's other weights learn or not."""
    with open_memory(ranker=ranker) as memory:
        host = host_of(memory)
        worth = []
        for used in (["a"], ["b"], ["c"], ["b"]):
            memory.record(Feedback(host.ask(), 1.0, used=used))
            clock = memory.store.walk.get_clock("default")
            weights = memory._services.retrieval.models.ranker("default", clock).weights
            worth.append(weights[FEATURES.index("usage")])
        assert 0 <= worth[-1] < worth[0] < memory._services.ranker.weights[FEATURES.index("usage")]


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

    def fail(*_arguments):
        raise error

    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(FeedbackLearner, "learn", fail)
        receipt = memory.record(Feedback(host.ask(), 1.0, feedback_id="first"))
    assert receipt.status == "waiting"
    assert "odd" in receipt.note
    assert ("'first' cannot be learned from" in caplog.text) == (then == "waiting")
    assert memory.record(Feedback(host.ask(), 1.0)).status == "applied"
    assert host.status("first") == then
    assert host.learned() == (2 if then == "applied" else 1)


def test_retriever_records(retriever):
    """By turn or run id; without one the last turns of its own namespace are meant."""
    first = retriever.invoke("Which fruit is red?")
    turn = first[0].metadata["crabpath"]["turn_id"]
    assert retriever.record(turn, outcome=1.0, used=[first[0].id]).status == "applied"
    run = uuid.uuid4()
    retriever.invoke("Which fruit is red?", run_id=run, namespace="ada")
    assert retriever.record(run, -1.0, source="self").status == "applied"
    with pytest.raises(TypeError, match="unexpected keyword"):
        retriever.record(turn, 1.0, usd=["a"])
    own = CrabPathRetriever(memory=retriever.memory, namespace="grace")
    own.invoke("Which fruit is red?")
    assert retriever.record(None, 1.0).status == "refused"
    assert own.record(None, 1.0).status == "applied"


@pytest.mark.parametrize("apply", ["inline", "background"])
def test_many_records_from_eight_threads(open_memory, host_of, apply):
    """On two memories of one store: none is lost or applied twice, what they count adds up."""
    with open_memory(apply=apply) as memory, open_memory(apply=apply) as other:
        host = host_of(memory)
        given = [Feedback(host.ask(), 1.0, used=["a"]) for _ in range(50)]
        work = zip(given, itertools.cycle((memory, memory, other)), strict=False)
        with ThreadPoolExecutor(8) as pool:
            receipts = list(pool.map(lambda job: job[1].record(job[0]), list(work)))
        for one in (memory, other):  # one that met too many others is applied with the next
            one.learning.learn_waiting()
            one._services.recorder._worker.drain()
        expected = {"waiting"} if apply == "background" else {"applied", "waiting"}
        assert {receipt.status for receipt in receipts} <= {"applied", *expected}
        assert memory.store.learned.count_feedback() == {"waiting": 0, "applied": 50, "refused": 0}
        assert host.learned() == 50
        assert host.usage() == {"a": (50.0, 0.0), "b": (0.0, 50.0), "c": (0.0, 50.0)}


def test_contradictions_and_repetitions_at_the_same_time(memory, host):
    """Of eight that judge one turn one is heard; all that say the same read that it is applied."""
    turn, feedback = host.ask(), Feedback(host.ask(), 1.0, used=["a"])
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda z: memory.record(Feedback(turn, z)), [1.0, -1.0] * 4))
        same = list(pool.map(memory.record, [feedback] * 8))
    assert sorted(receipt.status for receipt in receipts) == ["applied", *["refused"] * 7]
    assert {receipt.status for receipt in same} == {"applied"}
    assert host.usage()["a"] == (1.0, 0.0)
    assert host.learned() == 2


@pytest.mark.parametrize("apply", ["inline", "background", "external"])
async def test_arecord_does_not_block(open_memory, host_of, apply):
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
        memory._services.recorder._checked_at -= 1
        before = memory._services.recorder._checked_at
        await memory.aio.record(Feedback("nope", 1.0))
        assert memory._services.recorder._checked_at > before
    await asyncio.to_thread(memory.close)
