"""Which of several events about one turn counts, and what a repeated one does."""

import uuid

import pytest
from langchain_core.callbacks import dispatch_custom_event
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from crabpath_retrievers import (
    CrabPathRetriever,
    InvalidInputError,
    NotFoundError,
    OutcomePolicy,
    Rule,
)
from crabpath_retrievers.callbacks import CrabPathCallbackHandler
from crabpath_retrievers.config import LearningSettings, Settings

QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"
EVENT = "crabpath_feedback"


def run(retriever, handler, *steps):
    """One chain that retrieves, does the steps and answers; its run id."""
    run_id = uuid.uuid4()
    chain = retriever | (lambda _: "Both are American.")
    for step in steps:
        chain |= step
    chain.invoke(QUESTION, {"callbacks": [handler], "run_id": run_id})
    return run_id


def says(*events, name=EVENT):
    """A step that dispatches feedback and hands its input on."""

    def step(given):
        for event in events:
            dispatch_custom_event(name, event)
        return given

    return RunnableLambda(step)


@tool
def broken(text: str) -> str:
    """Fail."""
    raise ValueError(text)


tries = RunnableLambda(broken.invoke).with_fallbacks([RunnableLambda(lambda given: given)])


@pytest.fixture
def status(retriever):
    """What became of the feedback of an id."""
    return lambda given: retriever.memory.store.history.get_feedback_state(given).status


@pytest.mark.parametrize(
    ("events", "kind", "outcome"),
    [
        ([], "tool_error", -0.2),
        ([{"score": 1.0}], "score", 1.0),
        ([{"score": 1.0}, {"correction": "No."}, {"score": 0.5}], "correction", -1.0),
        ([{"score": 1.0, "key": "a"}, {"score": 0.25, "key": "b"}], "score", -0.5),
        ([{"outcome": -0.75}], "score", -0.75),
        ([{"score": 1.0, "correction": " \u200b\n"}], "score", 1.0),
    ],
)
def test_within_a_run_the_most_specific_counts(retriever, silent, recorded, events, kind, outcome):
    """A correction before a score before a tool's error before silence; the last of equals."""
    off = OutcomePolicy(tool_error=Rule(-1.0, "harvested", on=False))
    run(retriever, CrabPathCallbackHandler(retriever, off, on_receipt=recorded), tries)
    assert recorded == []
    run(retriever, silent, tries, says({"score": 0}, name="of another"), says(*events))
    assert (recorded.kinds, recorded.statuses) == ([kind], ["applied"])
    assert recorded[0][0].outcome == outcome


async def test_a_score_takes_the_place_of_silence(retriever, silent, recorded, status):
    """What silence taught is undone; then the person's last word counts, whatever it is."""
    run_id = run(retriever, silent)
    assert [r.status for r in silent.score(0.0, run_id=run_id, source="human")] == ["applied"]
    assert [r.status for r in await silent.acorrect("No.", run_id=run_id)] == ["applied"]
    (late,) = await silent.ascore(1.0, key="late" * 1000, run_id=run_id)
    assert late.status == "applied"
    found = [status(feedback.feedback_id) for feedback, _ in recorded]
    assert found == ["undone", "undone", "undone", "applied"]
    assert retriever.memory.notes(namespace=retriever.namespace) == []


def test_a_score_takes_the_place_of_silence_that_still_waits(silence, recorded):
    """Of feedback that is learned from later, the same counts."""
    settings = Settings(learning=LearningSettings(apply="external"))
    vectors = DeterministicFakeEmbedding(size=8)
    made = CrabPathRetriever.from_texts(["Both."], vectors, settings=settings)
    with made.memory as memory:
        handler = CrabPathCallbackHandler(made, silence, on_receipt=recorded)
        handler.score(0.0, run_id=run(made, handler))
        assert sum(memory.learning.learn_waiting()) == 2
        states = [memory.store.history.get_feedback_state(f.feedback_id) for f, _ in recorded]
        assert [state.status for state in states] == ["undone", "applied"]


@pytest.mark.parametrize("options", [{}, {"source": "teacher"}])
def test_a_thumb_is_a_persons(retriever, handler, recorded, options):
    """Of full weight, unless it says that an evaluator gave it."""
    handler.score(0, run_id=run(retriever, handler), **options)
    assert recorded[-1][0].source == options.get("source", "human")


def test_a_run_does_not_say_who_speaks_about_it(retriever, handler, recorded):
    """The caller may be somebody else than its user, and names who speaks."""
    run_id = uuid.uuid4()
    ann = {"callbacks": [handler], "configurable": {"user_id": "ann"}}
    (retriever | str).invoke(QUESTION, {**ann, "run_id": run_id})
    handler.score(1, run_id=run_id)
    handler.score(0, run_id=run_id, user="ann")
    assert [given.user for given, _ in recorded] == [None, "ann"]


def test_a_host_that_recorded_by_itself_has_the_last_word(retriever, silent, status):
    """No event takes it back, and only the same giver can."""
    run_id = uuid.uuid4()
    found = retriever.invoke(QUESTION, {"callbacks": [silent]}, run_id=run_id)
    turn_id = found[0].metadata["crabpath"]["turn_id"]
    own = uuid.uuid4().hex
    assert retriever.record(turn_id, 1.0, feedback_id=own).status == "applied"
    for options in ({"source": "teacher"}, {"source": "self"}):
        (receipt,) = silent.correct("No.", run_id=run_id, **options)
        assert (receipt.status, receipt.reason, status(own)) == ("refused", "outranked", "applied")
    (receipt,) = silent.correct("No.", run_id=run_id, user="ann")
    assert (receipt.status, status(own)) == ("applied", "applied")
    (receipt,) = silent.correct("No.", run_id=run_id)
    assert (receipt.status, status(own)) == ("applied", "undone")


def test_the_same_again_changes_nothing(retriever, handler):
    """Ids come from turn and event, so events may be delivered twice, also by another process.

    That one finds the retriever's run and the turn in the store.
    """
    run_id = run(retriever, handler)
    first = handler.correct("No.", run_id=run_id)
    before = retriever.memory.info()
    (again,) = handler.correct("No.", run_id=run_id)
    assert (again[:2], again.repeated) == (first[0][:2], True)
    elsewhere = CrabPathCallbackHandler(retriever.memory)
    turn_id = first[0].feedback_id.rsplit(":", 1)[1]
    for name in (turn_id, retriever.memory.explain(turn_id).turn.run_id):
        (again,) = elsewhere.correct("No.", run_id=name, namespace=retriever.namespace)
        assert again[:2] == first[0][:2]
    assert retriever.memory.info() == before


def test_feedback_for_another_namespace_is_refused(retriever, silent, recorded, status):
    """Who names a run of somebody else changes nothing of theirs, not even what silence taught."""
    run_id = run(retriever, silent)
    (receipt,) = silent.score(0.0, run_id=run_id, namespace="bob")
    assert receipt.status == "refused"
    assert "in namespace 'bob'" in receipt.note
    assert status(recorded[0][0].feedback_id) == "applied"
    (own,) = silent.score(0.5, run_id=run_id, namespace=retriever.namespace)
    assert own.status == "applied"


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda h: h.correct("No.", run_id="?"), NotFoundError, "no run, .* '.' .* give the run"),
        (lambda h: h.correct("No.", run_id="r", thread_id="t"), InvalidInputError, "exactly one"),
        (lambda h: h.correct(" ", run_id="r"), InvalidInputError, "a correction must be a text"),
        (
            lambda h: h.correct("\ufeff", run_id="r"),
            InvalidInputError,
            "a correction must be a text",
        ),
        (lambda h: h.score(7, run_id="r"), InvalidInputError, "a number from 0 to 1, not 7"),
        (lambda h: h.score(None, run_id="r"), InvalidInputError, "must have correction"),
        (lambda h: h.score(1, run_id="r", sorce="x"), InvalidInputError, "a mapping with some"),
        (lambda _: CrabPathCallbackHandler("memory"), InvalidInputError, "its memory, not str"),
        (lambda _: Rule(2.0, "human"), InvalidInputError, "must be a number of at least -1"),
        (lambda _: Rule(1.0, "me"), InvalidInputError, "one of human, .*not 'me'"),
    ],
)
def test_bad_input_gets_a_sentence(handler, call, error, sentence):
    with pytest.raises(error, match=sentence):
        call(handler)


def test_a_handler_keeps_a_run(retriever):
    with pytest.raises(InvalidInputError, match="keep at least 1 run"):
        CrabPathCallbackHandler(retriever, most_runs=0)


@pytest.mark.parametrize(
    "event", ["good", {}, {"scor": 1}, {"score": None}, {"score": 1, "run_id": "nowhere"}]
)
def test_a_senseless_event_never_breaks_a_chain(retriever, handler, recorded, caplog, event):
    run(retriever, handler, says(event))
    assert recorded == []
    assert "CrabPathCallbackHandler.on_custom_event callback" in caplog.text


def test_a_store_that_fails_never_breaks_a_chain(silence, recorded, caplog):
    retriever = CrabPathRetriever.from_texts(["Both."], DeterministicFakeEmbedding(size=8))
    handler = CrabPathCallbackHandler(retriever, silence, on_receipt=recorded)
    run(retriever, handler, RunnableLambda(lambda _: retriever.memory.close() or "Yes."))
    assert recorded == []
    assert "this memory was closed" in caplog.text
