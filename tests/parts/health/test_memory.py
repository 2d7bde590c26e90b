"""``CrabPath.health`` on real memories."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, Settings
from crabpath_retrievers.config import HealthSettings, LearningSettings

PLAIN = DeterministicFakeEmbedding(size=16)


def open_plain(location=None, **settings):
    vectors = InMemoryVectorStore(PLAIN)
    given = Settings(**settings)
    return CrabPath.open(location, embeddings=PLAIN, vectors=vectors, settings=given)


def judge(memory, text, k, used=None, **options):
    turn = memory.retrieve(text, k=k, **options).turn
    used = used or [item.node for item in turn.returned]
    memory.record(Feedback(turn.id, 1.0, used=used, **options))


@pytest.mark.slow
@pytest.mark.both_databases
def test_what_one_namespace_does_changes_no_other(location):
    """Ann asks and learns; Bob has the same text, no turns and no learned edges."""
    pages = [
        Document(f"Text {n} tells of Page {n + 1}.", id=f"d{n}", metadata={"title": f"Page {n}"})
        for n in range(40)
    ]
    with open_plain(location) as memory:
        memory.add_documents(pages, split=False, progress=None)
        for number in (*range(6), *range(6)):
            judge(memory, f"Page {number}", 2, namespace="ann")
        ann, bob = (memory.maintenance.health(name) for name in ("ann", "bob"))
        kept = [len(memory.maintenance.health_history(name)) for name in ("ann", "bob")]
    assert (ann.turn, bob.turn) == (12, 0)
    assert ann["avg_nodes_fired_per_query"].sampled == 12
    assert bob["avg_nodes_fired_per_query"].value is None
    assert ann["proto_promotion_rate"].value > 0
    assert bob["proto_promotion_rate"].value is None
    assert sum(ann.edges["learned"].values()) > sum(bob.edges["learned"].values()) == 0
    assert ann["dormant_pct"].in_range is True
    assert bob["cross_file_edge_pct"].value == 1.0
    assert kept == [1, 0]


def test_an_index_that_cannot_tell():
    """A store without ``get_by_ids`` says nothing of orphans; one with it does."""

    class Silent(InMemoryVectorStore):
        def get_by_ids(self, ids):
            raise NotImplementedError

    for kind, value in ((InMemoryVectorStore, 0.0), (Silent, None)):
        with CrabPath.open(embeddings=PLAIN, vectors=kind(PLAIN)) as memory:
            memory.add_documents([Document("a", id="a")], progress=None)
            assert memory.maintenance.health()["orphan_nodes"].value == value


async def test_reports_are_kept_and_go_with_the_namespace(place):
    """The latest ones, as many as is set, oldest first; not when they are not wanted."""
    settings = Settings(health=HealthSettings(max_reports=2))
    with CrabPath.open(place.path, embeddings=PLAIN, settings=settings) as memory:
        _, first, second = (memory.maintenance.health("ann") for _ in range(3))
        unkept = await memory.aio.maintenance.health("ann", record=False)
        assert unkept.metrics == second.metrics
        assert memory.maintenance.health_history("ann") == [first, second]
        assert memory.maintenance.health_history("ann", limit=1) == [second]
        memory.forget(namespace="ann")
        assert memory.maintenance.health_history("ann") == []
        for limit in (0, True, "5"):
            with pytest.raises(InvalidInputError, match="limit must be a whole"):
                memory.maintenance.health_history(limit=limit)


def test_splits_that_come_together_again():
    """Of three split nodes one has one piece left, one two pieces that are used together."""
    pages = [
        Document(f"Text {name}.", id=name, metadata={"split_from": name[0]})
        for name in ("a1", "a2", "b1", "b2", "c1")
    ]

    def share(memory):
        found = memory.maintenance.health()["reconvergence_rate"]
        assert (found.sampled, found.in_range) == (3, False)
        return pytest.approx(found.value, abs=1e-6)

    with open_plain(learning=LearningSettings(half_life=1.0)) as memory:
        memory.add_documents(pages, split=False, progress=None)
        assert share(memory) == 1 / 3
        for _ in range(2):
            judge(memory, "Text", 5, used=["a1", "a2"])
        assert share(memory) == 2 / 3
        for _ in range(4):
            judge(memory, "Text", 5, used=["b1"])
        assert share(memory) == 1 / 3
