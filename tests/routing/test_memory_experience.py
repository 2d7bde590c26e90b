"""Which experience a memory hands to its router, and what that costs."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.routing.policy import SoftmaxRouter

QUESTION = "Page 7"


class ListeningRouter(SoftmaxRouter):
    def __init__(self, settings):
        super().__init__(settings)
        self.experience = []

    def route(self, request):
        self.experience.append(list(request.tried()))
        return super().route(request)


@pytest.fixture
def listen(atlas):
    """Opens the stores of the atlas with other settings and a listening router."""
    opened = []

    def make(**learning):
        settings = Settings(learning=LearningSettings(**learning))
        router = ListeningRouter(settings.policy)
        shared = (atlas.store, atlas.index, atlas.embedder)
        opened.append(CrabPath(Services(*shared, settings=settings, router=router)))
        return opened[-1], router

    yield make
    for memory in opened:
        memory._services._release.detach()


def learn(memory, numbers, namespace):
    """Episodes that pass where the question lies; those of odd numbers succeed."""
    for number in numbers:
        reward = 1.0 if number % 2 else -1.0
        memory.regions.learn_episode(
            texts=[QUESTION, "Page 9"], actions=["go"], reward=reward, namespace=namespace
        )


def test_a_memory_asks_the_router_that_it_is_given(tmp_path):
    router = ListeningRouter(Settings().policy)
    pages = [
        Document(f"text {n} see [next]({n + 1}.md)", metadata={"source": f"{n}.md"})
        for n in range(20)
    ]
    with CrabPath.open(
        tmp_path, embeddings=DeterministicFakeEmbedding(size=16), router=router
    ) as m:
        m.add_documents(pages, split=False)
        m.retrieve("text 7")
    assert router.experience


def test_what_was_tried_often_enough_comes_with_its_success(listen, namespace):
    """Half of eight succeeded; fewer say nothing, and nobody else hears of it."""
    memory, router = listen()
    memory.retrieve(QUESTION, namespace=namespace)
    learn(memory, range(7), namespace)
    memory.retrieve(QUESTION, namespace=namespace)
    assert router.experience
    assert not any(router.experience)
    learn(memory, [7], namespace)
    memory.retrieve(QUESTION, namespace=namespace)
    ((one,),) = router.experience[-1:]
    assert (one.action, one.trials) == ("go", 8.0)
    assert one.success == pytest.approx(0.5, abs=0.05)
    memory.retrieve(QUESTION, namespace=f"{namespace} other")
    assert router.experience[-1] == []


def test_without_regions_there_is_no_experience(listen, namespace):
    memory, router = listen(regions=False)
    learn(memory, range(8), namespace)
    memory.retrieve(QUESTION, namespace=namespace)
    assert router.experience
    assert not any(router.experience)


def test_the_counts_are_read_for_a_router_that_asks(listen, namespace, monkeypatch):
    """Once per query, and not at all before anything was learned."""
    memory, _ = listen()
    regions, reads = memory.store.regions, []
    read = regions.get_transitions
    monkeypatch.setattr(
        regions, "get_transitions", lambda *given: reads.append(given) or read(*given)
    )
    answer = memory.retrieve(QUESTION, namespace=namespace)
    assert reads == []
    memory.record(Feedback(answer.turn.id, 1.0))
    reads.clear()
    memory.retrieve(QUESTION, namespace=namespace)
    assert len(reads) == 1
