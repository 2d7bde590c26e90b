"""Ids belong to their namespace: none is taken by another one, and no answer tells that it is."""

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import Feedback, NotFoundError, Receipt

pytestmark = pytest.mark.both_databases
QUESTION = "How are hotfixes deployed?"


def try_everything(memory, host, name: str, ids: dict[str, str]) -> list[object]:
    """All that namespace ``name`` is told about ids; turn ids and times are left out."""
    told: list[object] = []

    def tell(call, *given, **options) -> None:
        try:
            said = call(*given, **options)
            told.append(said._replace(turn_id=None) if isinstance(said, Receipt) else said)
        except Exception as error:
            told.append((type(error), str(error)))

    turn = host.answer(QUESTION, name).turn.id
    tell(memory.record, Feedback(turn, 1.0, feedback_id=ids["feedback"], namespace=name))
    tell(memory.record, Feedback(turn, -1.0, feedback_id=ids["feedback"]))
    tell(memory.graph.add_edge, "a", "b", "taught", 0.5, namespace=name, edge_id=ids["edge"])
    tell(memory.graph.add_edge, "a", "b", "taught", 0.5, namespace=name, edge_id=ids["feedback"])
    tell(memory.undo, ids["unseen"], namespace=name)
    tell(memory.teach, "Bananas are berries.", related=ids["unseen note"], namespace=name)
    tell(memory.teach, "Bananas are berries.", id=ids["note"], namespace=name)
    tell(lambda: [(n.id, n.text, n.uses) for n in memory.notes(namespace=name)])
    tell(lambda: [d.node.content for d in memory.retrieve("Bananas", namespace=name).documents])
    tell(lambda: [(f.feedback_id, f.status) for f in memory.learning.feedback(namespace=name)])
    tell(memory.undo, ids["feedback"], namespace=name)
    tell(memory.undo, ids["edge"], namespace=name)
    return told


def test_no_answer_tells_of_ids_elsewhere(memory, host):
    """One who uses the ids of another is told just what one is told who uses new ones."""
    for what in ("feedback", "unseen"):
        memory.record(Feedback(host.answer(QUESTION, "ann").turn.id, 1.0, feedback_id=what))
    memory.graph.add_edge("a", "c", "taught", 0.5, namespace="ann", edge_id="edge")
    for note in ("note", "unseen note"):
        memory.teach(f"Ann's {note}.", id=note, namespace="ann")
    names = ("feedback", "unseen", "edge", "note", "unseen note")
    of_ann = {name: name for name in names}
    new = {name: f"new {name}" for name in names}
    told = try_everything(memory, host, "bob", of_ann)
    expected = try_everything(memory, host, "eve", new)
    assert repr(told) == repr(expected).replace("new ", "").replace("'eve'", "'bob'")
    assert [note.text for note in memory.notes(namespace="ann")] == [
        "Ann's unseen note.",
        "Ann's note.",
    ]
    with pytest.raises(NotFoundError):
        memory.undo("note", namespace="eve")
    assert memory.undo("note", namespace="ann").status == "undone"
    assert memory.undo("feedback", namespace="ann").status == "undone"


def test_a_document_may_have_the_id_of_anybodys_note(memory):
    """It is added, changed and deleted as any other; the note is as it was then."""
    memory.teach("Ann's own words.", id="words", namespace="ann")
    memory.add_documents([Document("Words of the document.", id="words")])
    memory.add_documents([Document("Other words of the document.", id="words")])
    assert memory.get_by_ids(["words"])[0].page_content == "Other words of the document."
    assert memory.forget("words", notes_of="bob") == 1
    found = memory.retrieve("Ann's own words.", namespace="ann", k=1).documents
    assert [d.node.content for d in found] == ["Ann's own words."]
    assert memory.forget("words", notes_of="bob") == 0
    assert memory.forget("words", notes_of="ann") == 1
