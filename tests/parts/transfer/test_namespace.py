"""What a namespace has learned travels by the ids of documents."""

import time

import pytest
import sqlalchemy as sa
import tables
from langchain_core.embeddings import DeterministicFakeEmbedding
from learned_memory import EMBEDDINGS, PAGES, QUESTIONS, answered, corpus, teach

from crabpath_retrievers import CrabPath, EmbeddingMismatchError, Feedback, InvalidInputError
from crabpath_retrievers.errors import NotFoundError
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel
from tests.seams import get_services, make_change

# All numbers that a namespace has learned of nodes: columns with keys of these, and others.
LEARNED = {
    tables.overlay: (("source", "target"), "kind, weight, decay_at"),
    tables.pair_counts: (("source", "target"), "kind, count"),
    tables.usage: (("node",), "wins, losses, decay"),
    tables.transitions: (("region", "next"), "level, action, trials, wins"),
}
NAME = f"""
coalesce((SELECT CASE WHEN owner > 0 THEN 'note' ELSE id END FROM {tables.nodes} n
          WHERE n.key = w.%s), '')
"""


def numbers(memory: CrabPath, namespace: str) -> dict:
    """What a namespace knows by table, by ids of documents, whatever their keys."""
    memory.store.flush()
    clock = memory.store.walk.get_clock(namespace)
    found: dict = {"clock": clock[1:5]}
    with memory.store.connect() as connection:
        for table, (nodes, values) in LEARNED.items():
            names = ", ".join(NAME % node for node in nodes)
            query = f"SELECT {names}, {values} FROM {table} w WHERE namespace = {clock.key}"
            rows = connection.execute(sa.text(query))
            found[table.name.removeprefix("crabpath_")] = sorted(map(tuple, rows))
    known = memory.store.learned.get_state(namespace)
    mind = NamespaceModel.from_json(known.model, get_services(memory).history.prior)
    return {**found, "mind": (mind.posterior.mean.tolist(), mind.baseline, dict(mind.trust.spoken))}


def answers(memory: CrabPath, namespace: str) -> list:
    """What is answered, with scores, whatever the id of the note."""
    found = answered(memory, namespace)
    return [[(i if i[0] == "d" else "note", score) for i, score in answer] for answer in found]


@pytest.mark.slow
def test_into_the_same_corpus(learned, taught, open_memory, location):
    """Added elsewhere, with other keys: the same numbers and results, and none for others."""
    there = open_memory(location, documents=3)
    there.forget(["d0", "d1", "d2"])
    there.add_documents(corpus(), split=False)
    cold = answered(there, "bob")
    found = there.transfer.import_archive(taught.mind)
    assert (found.namespace, found.left_out, found.missing) == ("default", {}, 0)
    assert numbers(there, "default") == numbers(learned, "default")
    if there.store.dialect == "sqlite":  # full text ranks otherwise on PostgreSQL
        assert answered(there) == answered(learned)
    assert answered(there, "bob") == cold


def test_it_goes_on_learning_alike(learned, taught, open_memory, tmp_path):
    """The same feedback afterwards, and the same one undone, come to the same numbers."""
    there = open_memory(tmp_path / "there", documents=PAGES)
    there.transfer.import_archive(taught.mind)
    for memory in (learned, there):
        answer = memory.retrieve(QUESTIONS[7])
        assert memory.record(Feedback(answer.turn.id, -1.0, feedback_id="last")).status == "applied"
        assert memory.undo("n6").status == "undone"
    one, two = (numbers(memory, "default") for memory in (there, learned))
    assert one == two
    assert one["clock"][2] == 25
    old = learned.store.turns.window("default", until=time.time(), turns=5, seconds=900)[-1].turn.id
    found = [memory.explain(old).to_dict() for memory in (there, learned)]
    for document in (document for each in found for document in each["documents"]):
        for move in (move for edge in document["moved"] for move in edge["moves"]):
            if move["feedback_id"] == "last":
                del move["created"]  # it was given twice
    assert found[0] == found[1]


def test_feedback_that_waits_goes_along(learned, open_memory, tmp_path):
    """It is learned from there."""
    turn = learned.retrieve(QUESTIONS[1]).turn.id
    learned.store.apply([make_change("KeepFeedback", Feedback(turn, 1.0, feedback_id="late"))])
    there = open_memory(tmp_path / "there", documents=PAGES)
    there.transfer.import_archive(
        learned.transfer.export(tmp_path / "mind", namespace="default").path
    )
    assert there.learning.learn_waiting().applied == 1
    assert there.store.walk.get_clock("default").learned == 24


def test_relevant_documents_that_were_not_returned_go_along(learned, tmp_path):
    """As they were ranked, and under the names that they have there."""
    turn = learned.retrieve(QUESTIONS[1], k=1).turn.id
    told = Feedback(turn, 1.0, relevant=["d30", "n"], feedback_id="late")
    told, added = get_services(learned).retrieval.rank_stated(learned.store, told)
    assert {item.node for item in added} == {"d30", "n"}
    learned.store.apply([make_change("KeepFeedback", told, added=added)])
    mind = learned.transfer.export(tmp_path / "mind", namespace="default").path
    learned.transfer.import_archive(mind, rename="copy")
    key = learned.store.walk.get_clock("copy").key
    (note,) = [n.id for n in learned.notes(namespace="copy")]
    waiting = [one for one in learned.store.learned.get_waiting_feedback(9) if one.added]
    assert [{item.node for item in one.added} for one in waiting] == [{"d30", "n"}, {"d30", note}]
    assert [[item.features for item in one.added] for one in waiting] == [
        [item.features for item in added]
    ] * 2
    assert learned.learning.learn_waiting().applied == 2
    episodes = learned.store.learned.latest_episodes(key, 99)
    assert any({"d30", note} <= episode.documents.keys() for episode in episodes)


def test_documents_that_are_not_there(learned, taught, open_memory, location):
    """What speaks of them is left out and counted; the rest is as it was."""
    there = open_memory(location, documents=PAGES // 2)
    found = there.transfer.import_archive(taught.mind)
    held = {f"d{n}" for n in range(PAGES // 2)}
    assert 0 < found.missing <= PAGES // 2
    here, then = numbers(there, "default"), numbers(learned, "default")
    # Of STOP and of everywhere there is no document.
    for table, ends in {"overlay": 2, "pair_counts": 2, "usage": 1}.items():
        kept = [row for row in then[table] if {*row[:ends]} <= {*held, "", "note"}]
        assert here[table] == kept
        assert found.left_out.get(table, 0) == len(then[table]) - len(kept)
        assert found.rows[table] == len(kept)
    assert here["mind"] == then["mind"]
    assert there.undo("n5").status == "undone"
    assert there.explain(there.store.turns.latest("default")).documents


def test_a_namespace_that_has_learned_is_not_lost(taught, open_memory, tmp_path):
    """It is replaced when told so, and its vectors with it; another name keeps both."""
    with CrabPath.open(tmp_path / "there", embeddings=EMBEDDINGS) as there:
        there.add_documents(corpus(), split=False)
        teach(there, name="other", turns=3)
        before = numbers(there, "default")
        with pytest.raises(InvalidInputError, match="already: replace it, or import it under"):
            there.transfer.import_archive(taught.mind)
        there.transfer.import_archive(taught.mind, rename="guest")
        assert numbers(there, "default") == before
        assert there.transfer.import_archive(taught.mind, replace=True).namespace == "default"
        assert numbers(there, "default") == numbers(there, "guest") != before
        assert answers(there, "default") == answers(there, "guest")
        with pytest.raises(NotFoundError):
            there.store.turns.get("other1")
        beside = {f"{kind}-{key}" for kind in ("notes", "episodes") for key in (2, 3)}
        assert {*there.index.list_siblings()} == beside


def test_a_copy_beside_the_original(learned, taught):
    """Ids are those of the original; what the copy learns and undoes is its own alone."""
    found = learned.transfer.import_archive(taught.mind, rename="copy")
    assert found.left_out == {}
    assert numbers(learned, "copy") == numbers(learned, "default")
    assert answers(learned, "copy") == answers(learned, "default")
    before = numbers(learned, "default")
    with pytest.raises(InvalidInputError, match="several namespaces have feedback 'n6'"):
        learned.undo("n6")
    assert learned.undo("n6", namespace="copy").status == "undone"
    turn = learned.retrieve(QUESTIONS[3], namespace="copy").turn.id
    assert learned.record(Feedback(turn, 1.0)).status == "applied"
    assert numbers(learned, "default") == before
    learned.forget(namespace="copy")
    assert numbers(learned, "default") == before
    assert learned.undo("n6").status == "undone"


def test_one_of_a_whole_memory(learned, open_memory, tmp_path):
    """The archive of a whole memory gives any of its namespaces."""
    teach(learned, "alice", name="a", turns=5)
    whole = learned.transfer.export(tmp_path / "all").path
    there = open_memory(tmp_path / "there", documents=PAGES)
    found = there.transfer.import_archive(whole, namespace="alice")
    own = open_memory(tmp_path / "own", documents=PAGES)
    alone = own.transfer.import_archive(
        learned.transfer.export(tmp_path / "a", namespace="alice").path
    )
    assert found == alone
    assert numbers(there, "alice") == numbers(own, "alice") == numbers(learned, "alice")
    assert there.info()["namespaces"] == {"alice": 6}
    with pytest.raises(
        InvalidInputError, match="does not contain namespace 'carol': it contains 'alice'"
    ):
        there.transfer.import_archive(whole, namespace="carol")
    with pytest.raises(InvalidInputError, match="say which namespace of it is meant"):
        there.transfer.import_archive(whole, rename="bob")
    with pytest.raises(NotFoundError, match="'carol' has neither asked nor learned"):
        there.transfer.export(tmp_path / "c", namespace="carol")
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_another_embedder(taught, tmp_path):
    """Its vectors would mean something else here."""
    other = DeterministicFakeEmbedding(size=8)
    with CrabPath.open(tmp_path / "there", embeddings=other) as there:
        there.add_documents(corpus(), split=False)
        with pytest.raises(EmbeddingMismatchError):
            there.transfer.import_archive(taught.mind)
        assert there.info()["namespaces"] == {}
