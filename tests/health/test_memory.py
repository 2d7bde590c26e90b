"""``CrabPath.health`` on real memories."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, Settings
from crabpath_retrievers.config import HealthSettings, LearningSettings
from crabpath_retrievers.config.health import METRICS

pytestmark = pytest.mark.both_databases

PLAIN = DeterministicFakeEmbedding(size=16)


def values(report):
    """Value by metric."""
    return {metric.name: metric.value for metric in report.metrics}


def test_an_empty_memory(location, tmp_path):
    """It is measured without a failure, and nothing is kept of a namespace that is not there."""
    with CrabPath.open(location, embeddings=PLAIN, vectors=tmp_path / "v") as memory:
        report = memory.maintenance.health()
        assert set(values(report)) == set(METRICS)
        assert (report.namespace, report.turn, report.healthy, report.judged_count) == (
            "default",
            0,
            2,
            2,
        )
        assert memory.maintenance.health_history() == []
        assert memory.info()["namespaces"] == {}


def test_what_one_namespace_does_changes_no_other(atlas, namespace):
    """Ann asks and learns; Bob has the same text, no turns and no learned edges."""
    for number in range(12):
        turn = atlas.retrieve(f"Page {number}", k=2, namespace=namespace).turn
        used = [item.node for item in turn.returned]
        for _ in range(2):
            again = atlas.retrieve(f"Page {number}", k=2, namespace=namespace).turn
            atlas.record(Feedback(again.id, 1.0, used=used, namespace=namespace))
    ann, bob = atlas.maintenance.health(namespace), atlas.maintenance.health(f"{namespace}-b")
    assert (ann.turn, bob.turn) == (36, 0)
    assert ann["avg_nodes_fired_per_query"].sampled == 36
    assert bob["avg_nodes_fired_per_query"].value is None
    assert ann["proto_promotion_rate"].value > 0
    assert bob["proto_promotion_rate"].value is None
    assert sum(ann.edges["learned"].values()) > sum(bob.edges["learned"].values()) == 0
    assert ann["dormant_pct"].in_range is True
    assert bob["cross_file_edge_pct"].value == 1.0
    assert (
        len(atlas.maintenance.health_history(namespace)),
        atlas.maintenance.health_history(f"{namespace}-b"),
    ) == (1, [])


def test_a_memory_that_forgets_too_fast_is_ill(tmp_path):
    """With a half-life of one turn all learned edges are dormant (CrabPath paper)."""
    learning = LearningSettings(half_life=1.0)
    settings = Settings(learning=learning, health=HealthSettings(min_observations=2))
    documents = [Document(f"Text {n}.", id=f"d{n}") for n in range(12)]
    with CrabPath.open(tmp_path, embeddings=PLAIN, settings=settings) as memory:
        memory.add_documents(documents, split=False, progress=None)
        for _ in range(2):
            turn = memory.retrieve("Text 1.", k=3).turn
            used = [item.node for item in turn.returned]
            memory.record(Feedback(turn.id, 1.0, used=used))
        assert memory.maintenance.health()["dormant_pct"].in_range is True
        for _ in range(4):
            turn = memory.retrieve("Text 9.", k=1).turn
            memory.record(Feedback(turn.id, 1.0, used=[turn.returned[0].node]))
        ill = memory.maintenance.health()["dormant_pct"]
    assert (ill.value, ill.in_range) == (1.0, False)


def test_chunks_that_the_vector_index_lost_are_orphans(place):
    """As many as it lost, asked through Chroma."""
    with place.open() as memory:
        assert memory.maintenance.health()["orphan_nodes"].value == 0.0
        memory.index.delete(["d3", "d4"])
        lost = memory.maintenance.health()["orphan_nodes"]
        assert (lost.value, lost.in_range, lost.sampled) == (2.0, False, 40)


def test_an_index_that_cannot_tell():
    """A store without ``get_by_ids`` says nothing of orphans; one with it does."""

    class Silent(InMemoryVectorStore):
        def get_by_ids(self, ids):
            raise NotImplementedError

    for kind, value in ((InMemoryVectorStore, 0.0), (Silent, None)):
        with CrabPath.open(embeddings=PLAIN, vectors=kind(PLAIN)) as memory:
            memory.add_documents([Document("a", id="a")], progress=None)
            assert memory.maintenance.health()["orphan_nodes"].value == value


def test_reports_are_kept_and_go_with_the_namespace(place):
    """The latest ones, oldest first; not when they are not wanted."""
    with place.open() as memory:
        first, second = memory.maintenance.health("ann"), memory.maintenance.health("ann")
        memory.maintenance.health("ann", record=False)
        assert memory.maintenance.health_history("ann") == [first, second]
        assert memory.maintenance.health_history("ann", limit=1) == [second]
        memory.forget(namespace="ann")
        assert memory.maintenance.health_history("ann") == []


def test_as_many_reports_are_kept_as_is_set(place):
    """And no more."""
    settings = Settings(health=HealthSettings(max_reports=2))
    with CrabPath.open(place.path, embeddings=PLAIN, settings=settings) as memory:
        made = [memory.maintenance.health("ann") for _ in range(4)]
        assert memory.maintenance.health_history("ann") == made[2:]


async def test_off_the_event_loop(place):
    """The same as without."""
    with place.open() as memory:
        assert values(await memory.aio.maintenance.health("ann")) == values(
            memory.maintenance.health("ann")
        )


@pytest.mark.parametrize("limit", [0, True, "5"])
def test_a_limit_that_is_none(place, limit):
    """It is told what is wanted."""
    with place.open() as memory, pytest.raises(InvalidInputError, match="limit must be a whole"):
        memory.maintenance.health_history(limit=limit)


def test_one_document_has_nothing_to_cross(tmp_path):
    """All chunks are of one document: whether edges cross is not judged."""
    with CrabPath.open(tmp_path, embeddings=PLAIN) as memory:
        text = "\n\n".join(f"# Part {n}\n\nThis is part {n}." for n in range(8))
        memory.add_documents([Document(text, metadata={"source": "a.md"})], progress=None)
        found = memory.maintenance.health()["cross_file_edge_pct"]
    assert (found.value, found.in_range, found.note) == (None, None, "there is one document only")


def test_splits_that_come_together_again(tmp_path):
    """Of three split nodes one has one piece left, one two pieces that are used together."""
    settings = Settings(learning=LearningSettings(half_life=1.0))
    pages = [
        Document(f"Text {name}.", id=name, metadata={"split_from": name[0]})
        for name in ("a1", "a2", "b1", "b2", "c1")
    ]

    def share(memory):
        found = memory.maintenance.health()["reconvergence_rate"]
        assert (found.sampled, found.in_range) == (3, False)
        return found.value

    with CrabPath.open(tmp_path, embeddings=PLAIN, settings=settings) as memory:
        memory.add_documents(pages, split=False, progress=None)
        assert share(memory) == pytest.approx(1 / 3, abs=1e-6)
        for _ in range(2):
            turn = memory.retrieve("Text", k=5).turn
            memory.record(Feedback(turn.id, 1.0, used=["a1", "a2"]))
        assert share(memory) == pytest.approx(2 / 3, abs=1e-6)
        for _ in range(4):
            turn = memory.retrieve("Text", k=5).turn
            memory.record(Feedback(turn.id, 1.0, used=["b1"]))
        assert share(memory) == pytest.approx(1 / 3, abs=1e-6)
