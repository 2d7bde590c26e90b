"""The documents of a turn as attribution reads them, and over a store."""

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath
from crabpath_retrievers.learning.attribution.attribute import attribute_turn
from crabpath_retrievers.learning.attribution.citations import to_passages

TEXTS = {
    "Leland": "Leland is a town in Carolina. The film Maximum Overdrive was shot in Leland.",
    "Maximum Overdrive": "Maximum Overdrive is a film directed by Stephen King.",
    "Storms": "A storm hit the coast in 1986.",
    "Songs": "Stephen Foster wrote songs.",
}


def memory_of(texts):
    """A memory whose vectors mean nothing."""
    made = CrabPath.open(embeddings=DeterministicFakeEmbedding(size=8))
    made.add_documents(
        [Document(id=t, page_content=text, metadata={"title": t}) for t, text in texts.items()],
        split=False,
    )
    return made


def test_an_answer_is_attributed_over_a_store():
    """The film holds the answer, the town leads to it; the turn comes back from the store."""
    with memory_of(TEXTS) as memory:
        asked = memory.retrieve("Who directed the film that was shot in Leland?", k=4)
        turn = memory.store.turns.get(asked.turn.id)
        found = attribute_turn(memory.store, turn, "Stephen King")
        assert {node for node, value in found.items() if value > 0} == {
            "Leland",
            "Maximum Overdrive",
        }
        assert attribute_turn(memory.store, turn, "Agatha Christie") == {}


def test_forgotten_documents_keep_their_place():
    """Citations count places of the list that the chain saw."""
    with memory_of(TEXTS) as memory:
        turn = memory.retrieve("Who directed the film that was shot in Leland?", k=4).turn
        first, second = (item.node for item in turn.returned[:2])
        memory.forget([first])
        given = to_passages(turn, memory.store.catalog.documents([second]))
        assert [passage.id for passage in given] == [item.node for item in turn.returned]
        assert (given[0].text, given[1].title) == ("", second)
        assert attribute_turn(memory.store, turn, "[2]")[second] == 1.0


def test_pointers_tell_from_where_a_document_was_reached():
    """The town mentions the film, so a pointer leads from it."""
    with memory_of(TEXTS) as memory:
        answer = memory.retrieve("Who directed the film that was shot in Leland?", k=4)
        nodes = {item.node.id: item.node for item in answer.documents}
        linked = {passage.id: passage.linked for passage in to_passages(answer.turn, nodes)}
        assert "Leland" in linked["Maximum Overdrive"] or "Maximum Overdrive" in linked["Leland"]
        assert linked["Songs"] == ()
