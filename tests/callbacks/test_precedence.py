"""Which of several events about one turn counts, and what a repeated one does."""

import uuid

import pytest
from langchain_core.callbacks import dispatch_custom_event
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, NotFoundError
from crabpath_retrievers.callbacks import CrabPathCallbackHandler, OutcomePolicy, Rule
from crabpath_retrievers.config import LearningSettings, Settings
from crabpath_retrievers.retriever import CrabPathRetriever

QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"
SILENT = OutcomePolicy(silent_success=Rule(0.2, "harvested"))
EVENT = "crabpath_feedback"


@pytest.fixture
def silent(retriever, told):
    """A handler that counts silence."""
    return CrabPathCallbackHandler(retriever, SILENT, on_receipt=told)


def run(retriever, handler, *steps, **config):
    """One chain that retrieves, does the steps and answers; its run id."""
    run_id = uuid.uuid4()
    chain = retriever | (lambda _: "Both are American.")
    for step in steps:
        chain |= step
    config = {"callbacks": [handler], "run_id": run_id, **config}
    chain.invoke(QUESTION, config)
    return run_id


def says(*events):
    """A step that dispatches feedback and hands its input on."""

    def step(given):
        for event in events:
            dispatch_custom_event(EVENT, event)
        return given

    return RunnableLambda(step)


@tool
def broken(text: str) -> str:
    """Fail."""
    raise ValueError(text)


tries = RunnableLambda(broken.invoke).with_fallbacks([RunnableLambda(lambda given: given)])


@pytest.mark.parametrize(
    ("events", "kind", "outcome"),
    [
        ([], "tool_error", -0.2),
        ([{"score": 1.0}], "score", 1.0),
        ([{"score": 1.0}, {"correction": "No."}, {"score": 0.5}], "correction", -1.0),
        ([{"score": 1.0, "key": "a"}, {"score": 0.25, "key": "b"}], "score", -0.5),
        ([{"outcome": -0.75}], "score", -0.75),
    ],
)
def test_within_a_run_the_most_specific_counts(retriever, silent, told, events, kind, outcome):
    """A correction before a score before a tool's error before silence; the last of equals."""
    run(retriever, silent, tries, says(*events))
    assert (told.kinds, told.statuses) == ([kind], ["applied"])
    assert told[0][0].outcome == outcome


def test_a_score_takes_the_place_of_silence(retriever, silent, told):
    """What silence taught is undone; later the score is replaced by a correction, never back."""
    run_id = run(retriever, silent)
    assert [r.status for r in silent.score(0.0, run_id=run_id, source="human")] == ["applied"]
    assert [r.status for r in silent.correct("No.", run_id=run_id)] == ["applied"]
    (late,) = silent.score(1.0, key="late", run_id=run_id)
    assert (late.status, "consumed by feedback" in late.note) == ("refused", True)
    history = retriever.memory.store.history
    assert [history.get_feedback_state(f.feedback_id).status for f, _ in told] == [
        "undone",
        "undone",
        "applied",
        "refused",
    ]


def test_a_word_takes_the_place_of_silence_that_still_waits(embeddings, passages, told):
    """Feedback that is learned from later, by another process, is taken back in time."""
    settings = Settings(learning=LearningSettings(apply="external"))
    with CrabPath.open(embeddings=embeddings, settings=settings) as memory:
        memory.add_documents(passages)
        retriever = CrabPathRetriever(memory=memory, k=3)
        handler = CrabPathCallbackHandler(retriever, SILENT, on_receipt=told)
        run_id = run(retriever, handler)
        handler.score(0.0, run_id=run_id)
        ids = [feedback.feedback_id for feedback, _ in told]
        assert [memory.store.history.get_feedback_state(i).status for i in ids] == [
            "undone",
            "waiting",
        ]


def test_a_host_that_recorded_by_itself_has_the_last_word(retriever, silent):
    """Feedback that came from no event is never taken back."""
    run_id = uuid.uuid4()
    found = retriever.invoke(QUESTION, {"callbacks": [silent]}, run_id=run_id)
    turn_id = found[0].metadata["crabpath"]["turn_id"]
    assert retriever.record(turn_id, 1.0, feedback_id="own").status == "applied"
    (receipt,) = silent.correct("No.", run_id=run_id)
    assert receipt.status == "refused"
    assert retriever.memory.store.history.get_feedback_state("own").status == "applied"


def test_the_same_again_changes_nothing(retriever, handler):
    """Ids come from turn and event, so events may be delivered twice, also by another process."""
    run_id = run(retriever, handler)
    first = handler.correct("No.", run_id=run_id)
    weights = retriever.memory.info()
    assert handler.correct("No.", run_id=run_id) == first
    turn_id = first[0].feedback_id.rsplit(":", 1)[1]
    (elsewhere,) = CrabPathCallbackHandler(retriever.memory).correct("No.", run_id=turn_id)
    assert elsewhere[:2] == first[0][:2]
    assert retriever.memory.info() == weights


def test_feedback_for_another_namespace_is_refused(retriever, silent, told):
    """Who names a run of somebody else changes nothing of theirs, not even what silence taught."""
    alice = retriever.model_copy(update={"namespace": "alice"})
    run_id = run(alice, silent)
    (receipt,) = silent.score(0.0, run_id=run_id, namespace="bob")
    assert receipt.status == "refused"
    assert "in namespace 'bob'" in receipt.note
    silence = told[0][0].feedback_id
    assert retriever.memory.store.history.get_feedback_state(silence).status == "applied"
    (own,) = silent.score(0.5, run_id=run_id, namespace="alice")
    assert own.status == "applied"


def test_turns_are_found_by_another_process(retriever):
    """A handler that saw nothing finds the retriever's run and the turn in the store."""
    run_id = uuid.uuid4()
    found = retriever.invoke(QUESTION, run_id=run_id)
    fresh = CrabPathCallbackHandler(retriever)
    (by_run,) = fresh.score(1, run_id=run_id, used=[found[0].id])
    (by_turn,) = fresh.score(1, run_id=found[0].metadata["crabpath"]["turn_id"])
    assert by_run.status == by_turn.status == "applied"
    assert by_run.feedback_id == by_turn.feedback_id


def test_an_unknown_run_is_told(handler):
    """The sentence says what to give instead."""
    with pytest.raises(NotFoundError, match=r"no run, thread or turn 'nowhere' .* give the run id"):
        handler.correct("No.", run_id="nowhere")
    with pytest.raises(NotFoundError, match="'t'"):
        handler.score(1, thread_id="t")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda h: h.correct("No."), "exactly one of run_id, thread_id and turn_id"),
        (lambda h: h.correct("No.", run_id="r", thread_id="t"), "exactly one of"),
        (lambda h: h.correct("  ", run_id="r"), "a correction must be a text"),
        (lambda h: h.score(7, run_id="r"), "score must be a number from 0 to 1, not 7"),
        (lambda h: h.score(float("nan"), run_id="r"), "score must be a number from 0 to 1"),
        (lambda h: h.score("good", run_id="r"), "score must be a number from 0 to 1"),
        (lambda h: h.score(None, run_id="r"), "feedback must have correction"),
        (lambda h: h.score(1, run_id="r", sorce="human"), "feedback must be a mapping with some"),
    ],
)
def test_bad_input_gets_a_sentence(handler, call, sentence):
    """One sentence that says what to do."""
    with pytest.raises(InvalidInputError, match=sentence):
        call(handler)


def test_bad_arguments_get_a_sentence(retriever):
    """The same when the handler is made."""
    with pytest.raises(InvalidInputError, match="pass a CrabPathRetriever or its memory, not str"):
        CrabPathCallbackHandler("memory")
    with pytest.raises(InvalidInputError, match="keep at least 1 run"):
        CrabPathCallbackHandler(retriever, most_runs=0)
    with pytest.raises(InvalidInputError, match="outcome must be a number from -1"):
        Rule(2.0, "human")
    with pytest.raises(InvalidInputError, match="unknown source 'me'"):
        Rule(1.0, "me")
    with pytest.raises(InvalidInputError, match="tool_error must be a Rule"):
        OutcomePolicy(tool_error=-1.0)
    with pytest.raises(InvalidInputError, match="feedback_keys must be a tuple of texts"):
        OutcomePolicy(feedback_keys="thumbs")


@pytest.mark.parametrize(
    "event", ["good", {}, {"scor": 1}, {"score": None}, {"score": 1, "run_id": "nowhere"}]
)
def test_a_senseless_event_never_breaks_a_chain(retriever, handler, told, caplog, event):
    """The chain goes on; LangChain's log has the sentence."""
    run(retriever, handler, says(event))
    assert told == []
    assert "CrabPathCallbackHandler.on_custom_event callback" in caplog.text


def test_a_store_that_fails_never_breaks_a_chain(retriever, told, caplog):
    """The answer comes all the same."""
    handler = CrabPathCallbackHandler(retriever, SILENT, on_receipt=told)

    def close(given):
        retriever.memory.close()
        return given

    run(retriever, handler, RunnableLambda(close))
    assert told == []
    assert "this memory was closed" in caplog.text


def test_events_of_others_are_left_alone(retriever, handler, told, caplog):
    """Custom events with other names mean nothing here."""

    def step(given):
        dispatch_custom_event("progress", {"score": 1})
        return given

    run(retriever, handler, RunnableLambda(step))
    assert told == []
    assert caplog.text == ""


def test_rules_that_are_off_do_not_count(retriever, told):
    """A policy that trusts people alone."""
    off = OutcomePolicy(tool_error=Rule(-1.0, "harvested", on=False))
    handler = CrabPathCallbackHandler(retriever, off, on_receipt=told)
    run(retriever, handler, tries)
    assert told == []


def test_a_feedback_id_fits(retriever, handler):
    """Long keys and corrections give ids that the store takes."""
    run_id = run(retriever, handler)
    (receipt,) = handler.score(1, run_id=run_id, key="k" * 5000)
    assert receipt.status == "applied"
    assert Feedback(None, 0.0, feedback_id=receipt.feedback_id)
