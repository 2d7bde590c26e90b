"""Feedback may name any document of the memory as relevant or not, whether the turn returned it."""

import numpy as np
import pytest
from langchain_core.documents import Document

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.learning.standalone import StandaloneLearner
from crabpath_retrievers.rerank import FEATURES
from crabpath_retrievers.storage import GraphStore
from tests.seams import get_services

ASKED = "How do I get my money back after a broken order?"
PARAPHRASE = "My order is broken, how do I get the money back?"
OTHER = "When does the harbour open on Sundays?"
RIGHT = "refunds"
TEXTS = {
    RIGHT: "Tool 17 reverses a charge of a merchant.",
    **{f"order{n}": f"How orders get broken, part {n}: money back and order." for n in range(8)},
    **{f"page{n}": f"Page {n} is about harbours, part {n}." for n in range(8)},
}
LONG = (
    "# Rain\n\n" + "It rains on hills. " * 40 + "\n\n# Cards\n\n" + "Money returns to a card. " * 30
)

pytestmark = pytest.mark.both_databases


@pytest.fixture
def open_tools(location, embeddings, tmp_path):
    """Opens a memory in which no word of the question leads to the right document."""

    def open_tools(**learning):
        settings = Settings(learning=LearningSettings(**learning))
        memory = CrabPath.open(
            location, embeddings=embeddings, vectors=tmp_path / "vectors", settings=settings
        )
        new = [Document(text, id=node) for node, text in TEXTS.items()]
        if not memory.info()["nodes"]:
            memory.add_documents(new, split=False)
        return memory

    return open_tools


@pytest.fixture
def tools(open_tools):
    """Such a memory, which learns at once."""
    with open_tools() as memory:
        yield memory


def ask(memory, text=ASKED, k=3, namespace="default"):
    """The turn, and what it returned."""
    answer = memory.retrieve(text, k=k, namespace=namespace)
    return answer.turn.id, [item.node.id for item in answer.documents]


def test_it_is_found_first_next_time_and_by_a_paraphrase(tools):
    """It stays where it was for other questions, and for other namespaces."""
    turn, shown = ask(tools)
    others = ask(tools, OTHER)[1], ask(tools, namespace="bob")[1]
    assert RIGHT not in (*shown, *others[0])
    receipt = tools.record(Feedback(turn, 1.0, relevant=[RIGHT]))
    assert (receipt.status, receipt.note) == ("applied", None)
    assert ask(tools)[1][0] == ask(tools, PARAPHRASE)[1][0] == RIGHT
    assert (ask(tools, OTHER)[1], ask(tools, namespace="bob")[1]) == others


def test_past_turns_of_like_questions_lift_what_was_used_and_lower_the_rest(tools):
    """Told what of the returned was used; an unrelated question gets the same order."""
    turn, (used, *passed) = ask(tools)
    before = {text: read_scores(tools, text) for text in (PARAPHRASE, OTHER)}
    tools.record(Feedback(turn, 1.0, used=[used]))
    after = {text: read_scores(tools, text) for text in before}
    assert after[PARAPHRASE][used] > max(0.5, before[PARAPHRASE][used])
    for node in passed:
        assert after[PARAPHRASE][node] < before[PARAPHRASE][node]
    # Calibration moves all probabilities a little, never their order.
    assert list(after[OTHER]) == list(before[OTHER])
    assert after[OTHER] == pytest.approx(before[OTHER], abs=0.01)


def read_scores(memory, text):
    """Probabilities of the pages that the question is about, or of what was asked before."""
    found = memory.retrieve(text, k=len(TEXTS), record=False).documents
    kind = "page" if text == OTHER else "order"
    return {d.node.id: d.score for d in found if d.node.id.startswith(kind)}


def test_a_failure_teaches_what_would_have_been_right(tools):
    """Nothing that was returned was used, and one more would not have helped either."""
    turn, shown = ask(tools)
    unlike = next(node for node in TEXTS if node not in (RIGHT, *shown))
    tools.record(Feedback(turn, -1.0, used=[], relevant=[RIGHT], irrelevant=[unlike]))
    assert ask(tools)[1][0] == RIGHT
    features = {r.node: r.features for r in tools.retrieve(ASKED, k=17).turn.returned}
    assert features[RIGHT]["again"] == pytest.approx(1.0, abs=1e-3)
    for node in (unlike, *shown):
        assert features[node]["passed"] == pytest.approx(1.0, abs=1e-3)


def test_what_the_namespace_cannot_find_is_named_and_teaches_nothing(tools):
    """An id that nobody has, and a note of another namespace; what else is said counts."""
    note = tools.teach("Refunds take three days.", namespace="bob")
    receipts = {
        about: tools.record(
            Feedback(ask(tools, namespace=about)[0], 1.0, used=[], relevant=["gone", note, *more])
        )
        for about, more in (("ann", [RIGHT]), ("eve", []))
    }
    for receipt in receipts.values():
        assert receipt.status == "applied"
        assert receipt.note == f"2 ids that are not in this memory are ignored: gone, {note}"
    assert ask(tools, namespace="ann")[1][0] == RIGHT
    assert not any(credit > 0 for credit in read_credit(tools, "eve").values())


def read_credit(memory, namespace):
    """Credit by document in the episodes of a namespace."""
    clock = memory.store.walk.get_clock(namespace)
    episodes = memory.store.learned.latest_episodes(clock.key, 9)
    return {node: credit for episode in episodes for node, credit in episode.documents.items()}


@pytest.mark.parametrize(
    "said",
    [{"relevant": ["a"], "irrelevant": ["a"]}, {"used": ["a", "b"], "irrelevant": ["b"]}],
)
def test_contradictions_are_refused(said):
    with pytest.raises(InvalidInputError, match="name each document on one side only"):
        Feedback("turn", 1.0, **said)


@pytest.fixture
def chunks(tools):
    """The chunks of a document about two things, as texts by id."""
    tools.add_documents([Document(LONG, id="long")])
    ids = [chunk.id for chunk in tools.store.catalog.find_chunks(documents=["long"])]
    return {d.id: d.page_content for d in tools.get_by_ids(ids)}


@pytest.mark.parametrize("late", [False, True], ids=["its turn", "the last turns"])
def test_a_document_of_several_chunks_teaches_its_best_chunk(tools, chunks, late):
    """Also where only the store knows its chunks."""
    turn, shown = ask(tools)
    assert len(chunks) >= 2
    assert not chunks.keys() & {*shown}
    receipt = tools.record(Feedback(None if late else turn, 1.0, relevant=["long"]))
    assert (receipt.status, receipt.note) == ("applied", None)
    credit = read_credit(tools, "default")
    (taught,) = (node for node in chunks if credit.get(node, 0.0) > 0)
    assert "Money" in chunks[taught]
    assert ask(tools)[1][0] == taught


def test_the_last_turns_that_returned_it_are_meant(tools):
    """The question before was about something else."""
    ask(tools)
    tools.record(Feedback(None, 1.0, relevant=[ask(tools, OTHER)[1][2]]))
    (episode,) = tools.store.learned.latest_episodes(tools.store.walk.get_clock("default").key, 9)
    assert episode.query == OTHER


@pytest.mark.parametrize(
    "said", [{"outcome": 1.0}, {"outcome": -1.0, "used": [], "irrelevant": ["page3"]}]
)
def test_undo_restores_exactly(tools, state_of, assert_same, said):
    tools.record(Feedback(ask(tools)[0], 1.0, relevant=["order1", "page2"]))
    before = state_of(tools, "default")
    given = Feedback(ask(tools)[0], relevant=[RIGHT, "page1"], **said)
    assert tools.record(given).status == "applied"
    assert state_of(tools, "default") != before
    assert tools.undo(given.feedback_id).status == "undone"
    assert_same(state_of(tools, "default"), before)


def test_the_ranker_learns_from_what_was_not_returned(open_pages, state_of):
    """With the features that it would have had."""
    with open_pages() as memory:
        means = {}
        for name, relevant in (("told", ["c", "a"]), ("untold", [])):
            turn, shown = ask(memory, "What stands above the Grass?", 1, name)
            said = Feedback(turn, 1.0, relevant=relevant)
            _, added = get_services(memory).retrieval.rank_stated(memory.store, said)
            memory.record(said)
            means[name] = np.array(state_of(memory, name)["mean"][()])
            if relevant:
                features = {r.node: r.features for r in added}
                assert features.keys() == {*relevant} - {*shown}
    for values in features.values():
        row = np.array([values.get(name, 0.0) for name in FEATURES])
        assert row @ means["told"] > row @ means["untold"]


def test_another_process_learns_the_same(open_tools, state_of, assert_same, location):
    """The process that answers ranks the documents; the one that learns has no embedder."""
    with open_tools() as memory:
        memory.record(Feedback(ask(memory, namespace="here")[0], 1.0, relevant=[RIGHT]))
    with open_tools(apply="external") as memory:
        turn = ask(memory, namespace="there")[0]
        assert memory.record(Feedback(turn, 1.0, relevant=[RIGHT])).status == "waiting"
        beside = GraphStore(location)
        assert StandaloneLearner(beside).recorder.learn_waiting() == (1, 0, 0)
        beside.close()
        assert ask(memory, namespace="there")[1][0] == RIGHT
        here, there = state_of(memory, "here"), state_of(memory, "there")
        for part in ("clock", "mean", "precision", "baseline"):
            assert_same({part: there[part]}, {part: here[part]})
