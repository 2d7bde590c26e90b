"""Recording feedback: what is learned from it, once, and what is refused and why."""

import logging
import math
import uuid

import pytest

from crabpath_retrievers import Feedback, InvalidInputError, StoreError
from crabpath_retrievers.core.changes import SetFrozen
from crabpath_retrievers.learning.learner import FeedbackLearner
from crabpath_retrievers.rerank.features import FEATURES
from crabpath_retrievers.retriever import CrabPathRetriever

pytestmark = pytest.mark.both_databases


def test_a_success_is_learned_from(memory, host):
    receipt = memory.record(Feedback(host.ask(), 1.0, used=["a"]))
    assert (receipt.status, receipt.note) == ("applied", None)
    assert host.usage() == {"a": (1.0, 0.0), "b": (0.0, 1.0), "c": (0.0, 1.0)}
    assert host.learned() == 1


def test_a_run_id_stands_for_its_turn(memory, host):
    run = str(uuid.uuid4())
    turn = host.ask(run_id=run)
    assert memory.record(Feedback(run, 1.0, used=["a"])).status == "applied"
    assert "consumed" in memory.record(Feedback(turn, 1.0)).note


def test_partial_feedback_says_nothing_of_documents(memory, host):
    """An outcome alone is applied, and no document is counted as used or passed."""
    assert memory.record(Feedback(host.ask(), 1.0)).status == "applied"
    assert host.learned() == 1
    assert host.usage() == {}


def test_repeated_feedback_is_applied_once(memory, host):
    """The same id with the same content changes nothing, and the receipt is the same."""
    feedback = Feedback(host.ask(), 1.0, used=["a"], feedback_id="f")
    assert memory.record(feedback) == memory.record(feedback)
    assert host.learned() == 1


def test_the_first_content_of_an_id_stands(memory, host):
    """The same id with other content changes nothing, and the receipt says so."""
    turn = host.ask()
    memory.record(Feedback(turn, 1.0, used=["a"], feedback_id="f"))
    receipt = memory.record(Feedback(turn, -1.0, used=["b"], feedback_id="f"))
    assert receipt.status == "applied"
    assert "other content, which is kept" in receipt.note
    assert host.usage()["a"] == (1.0, 0.0)
    assert host.learned() == 1


def test_contradicting_feedback_is_refused(memory, host):
    """The first feedback about a turn consumes it; the second is kept, and told by which."""
    turn = host.ask()
    memory.record(Feedback(turn, 1.0, used=["a"], feedback_id="first"))
    receipt = memory.record(Feedback(turn, -1.0, used=["a"], feedback_id="second"))
    assert receipt == ("second", "refused", f"turn {turn!r} was consumed by feedback 'first'")
    assert host.status("second") == "refused"
    assert host.learned() == 1


def test_feedback_on_an_unknown_turn_is_refused_and_kept(memory, host):
    """The receipt names the turn that is not there; the feedback stays in the store."""
    receipt = memory.record(Feedback("nope", 1.0, feedback_id="f"))
    assert receipt.status == "refused"
    assert "no turn 'nope' is recorded here" in receipt.note
    assert host.status("f") == "refused"


def test_feedback_on_the_turn_of_another_namespace_is_refused(memory, host):
    turn = host.ask("ada")
    receipt = memory.record(Feedback(turn, 1.0, used=["a"], namespace="grace"))
    assert receipt.status == "refused"
    assert "in namespace 'grace'" in receipt.note
    assert (host.learned("ada"), host.learned("grace")) == (0, 0)
    assert memory.record(Feedback(turn, 1.0, namespace="ada")).status == "applied"


def test_a_frozen_namespace_learns_nothing(memory, host):
    frozen, free = host.ask("frozen"), host.ask("free")
    memory.store.apply([SetFrozen("frozen", frozen=True)])
    assert "is frozen" in memory.record(Feedback(frozen, 1.0)).note
    assert memory.record(Feedback(free, 1.0)).status == "applied"
    assert host.learned("frozen") == 0


def test_used_documents_that_were_not_returned_are_ignored(memory, host):
    receipt = memory.record(Feedback(host.ask(), 1.0, used=["a", "elsewhere"], unused=["x"]))
    assert receipt.status == "applied"
    assert receipt.note == "2 ids that were not returned are ignored: elsewhere, x"
    assert host.usage()["a"] == (1.0, 0.0)
    assert host.memory.store.learned.get_feedback(receipt.feedback_id).note == receipt.note


def test_used_documents_of_which_none_was_returned_blame_nobody(memory, host):
    assert memory.record(Feedback(host.ask(), 1.0, used=["elsewhere"])).status == "applied"
    assert host.usage() == {}


def test_no_document_used_is_a_pass_for_all(memory, host):
    memory.record(Feedback(host.ask(), 1.0, used=[]))
    assert host.usage() == dict.fromkeys("abc", (0.0, 1.0))


@pytest.mark.parametrize("outcome", [math.nan, math.inf, -math.inf, 1.01, True, "1", None])
def test_outcomes_that_are_no_numbers_are_refused(memory, host, outcome):
    with pytest.raises(InvalidInputError, match="outcome must be a number from -1"):
        memory.record(Feedback(host.ask(), outcome))
    assert memory.store.learned.count_feedback() == {"waiting": 0, "applied": 0, "refused": 0}


@pytest.mark.parametrize("ranker", [True, False])
def test_memories_that_prove_false_are_believed_less(open_memory, host_of, ranker):
    with open_memory(ranker=ranker) as memory:
        host = host_of(memory)
        worth = []
        for used in (["a"], ["b"], ["c"], ["b"]):
            memory.record(Feedback(host.ask(), 1.0, used=used))
            clock = memory.store.walk.get_clock("default")
            weights = memory._services.retrieval.minds.ranker("default", clock).weights
            worth.append(weights[FEATURES.index("usage")])
        assert 0 <= worth[-1] < worth[0] < memory._services.ranker.weights[FEATURES.index("usage")]


def test_sources_weigh(memory, host):
    """What a harvested outcome teaches counts 0.3, as the settings say."""
    memory.record(Feedback(host.ask(), 1.0, used=["a"], source="harvested"))
    assert host.usage()["a"] == (pytest.approx(0.3), 0.0)


def test_a_correction_is_kept(memory, host):
    given = Feedback(host.ask(), -1.0, correction="Apples are green. 🍏\x00", answer="Red.")
    memory.record(given)
    kept = memory.store.learned.get_feedback(given.feedback_id).feedback
    assert kept == given
    assert kept.correction == "Apples are green. 🍏"


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


def test_feedback_that_cannot_be_learned_from_stops_no_other(memory, host, monkeypatch, caplog):
    """It waits, with a note, for a program that can learn from it; the host sees no error."""

    def fail(*_arguments):
        msg = "singular matrix"
        raise ArithmeticError(msg)

    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(FeedbackLearner, "compute_changes", fail)
        receipt = memory.record(Feedback(host.ask(), 1.0, feedback_id="odd"))
    assert receipt.status == "waiting"
    assert "singular matrix" in receipt.note
    assert "'odd' cannot be learned from" in caplog.text
    assert memory.record(Feedback(host.ask(), 1.0)).status == "applied"


def test_a_store_that_is_away_gets_its_lesson_later(memory, host, monkeypatch):
    first = Feedback(host.ask(), 1.0, feedback_id="first")

    def fail(*_arguments):
        msg = "the database is down"
        raise StoreError(msg)

    with monkeypatch.context() as broken:
        broken.setattr(FeedbackLearner, "compute_changes", fail)
        receipt = memory.record(first)
    assert (receipt.status, "is down" in receipt.note) == ("waiting", True)
    memory.record(Feedback(host.ask(), 1.0))
    assert host.status("first") == "applied"
    assert host.learned() == 2


def test_retriever_records(retriever):
    """The retriever takes the turn or the run id, the outcome and the other fields."""
    first = retriever.invoke("Which fruit is red?")
    turn = first[0].metadata["crabpath"]["turn_id"]
    assert retriever.record(turn, outcome=1.0, used=[first[0].id]).status == "applied"
    run = uuid.uuid4()
    retriever.invoke("Which fruit is red?", run_id=run, namespace="ada")
    assert retriever.record(run, -1.0, source="self").status == "applied"
    with pytest.raises(TypeError, match="unexpected keyword"):
        retriever.record(turn, 1.0, usd=["a"])


def test_retriever_records_late_feedback_of_its_namespace(retriever):
    """Without a turn id the last turns of the retriever's own namespace are meant."""
    own = CrabPathRetriever(memory=retriever.memory, namespace="ada")
    own.invoke("Which fruit is red?")
    assert retriever.record(None, 1.0).status == "refused"
    assert own.record(None, 1.0).status == "applied"
