"""Which experience a memory hands to the router that it is given."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.routing.policy import SoftmaxRouter

QUESTION = "Page 7"


class ListeningRouter(SoftmaxRouter):
    def __init__(self, settings):
        super().__init__(settings)
        self.experience = []

    def route(self, request):
        self.experience.append(list(request.tried()))
        return super().route(request)


@pytest.fixture(params=[True, False])
def regions(request):
    """Whether regions are learned."""
    return request.param


@pytest.fixture
def listening(regions):
    """A memory that is large enough for regions, with the router that it was given."""
    router = ListeningRouter(Settings().policy)
    vectors = DeterministicFakeEmbedding(size=16)
    settings = Settings(learning=LearningSettings(regions=regions))
    pages = [
        Document(f"Page {n}: see [next]({n + 1}.md)", metadata={"source": f"{n}.md"})
        for n in range(300)
    ]
    with CrabPath.open(embeddings=vectors, router=router, settings=settings) as memory:
        memory.add_documents(pages, split=False)
        yield memory, router


def learn(memory, numbers, namespace):
    """Episodes that pass where the question lies; those of odd numbers succeed."""
    for number in numbers:
        reward = 1.0 if number % 2 else -1.0
        memory.regions.learn_episode(
            texts=[QUESTION, "Page 9"], actions=["go"], reward=reward, namespace=namespace
        )


def test_what_was_tried_often_enough_comes_with_its_success(listening, regions):
    """Half of eight succeeded; fewer say nothing, and nobody else hears of it."""
    memory, router = listening
    learn(memory, range(7), "ann")
    memory.retrieve(QUESTION, namespace="ann")
    assert router.experience
    assert not any(router.experience)
    learn(memory, [7], "ann")
    memory.retrieve(QUESTION, namespace="bob")
    assert not any(router.experience)
    memory.retrieve(QUESTION, namespace="ann")
    assert len(router.experience[-1]) == regions
    for one in router.experience[-1]:
        assert (one.action, one.trials) == ("go", 8.0)
        assert one.success == pytest.approx(0.5, abs=0.05)
