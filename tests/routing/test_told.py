"""Which experience a memory hands to its router, and what that costs."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.routing.policy import SoftmaxRouter

QUESTION = "text 7"


class Noting(SoftmaxRouter):
    """Keeps what it is told."""

    def __init__(self, settings):
        """Start with nothing."""
        super().__init__(settings)
        self.told = []

    def route(self, request):
        """Note it, and decide as usual."""
        self.told.append(list(request.tried()))
        return super().route(request)


def made(settings=None):
    """A memory with hubs and pointers, and its router."""
    settings = settings or Settings()
    router = Noting(settings.policy)
    embeddings = DeterministicFakeEmbedding(size=16)
    memory = CrabPath.open(embeddings=embeddings, settings=settings, router=router)
    # Every text points at the next one, so that there is something to route.
    documents = [
        Document(f"text {n} see [next]({n + 1}.md)", id=f"d{n}", metadata={"source": f"{n}.md"})
        for n in range(120)
    ]
    memory.add_documents(documents, split=False, progress=None)
    return memory, router


@pytest.fixture
def memory():
    """A memory and its router."""
    opened, router = made()
    with opened:
        yield opened, router


def learn(memory, times, namespace="default"):
    """Episodes that pass where the question lies; every second one succeeds."""
    for number in range(times):
        reward = 1.0 if number % 2 else -1.0
        memory.regions.learn_episode(
            texts=[QUESTION, "text 9"], actions=["go"], reward=reward, namespace=namespace
        )


def test_a_namespace_that_never_learned_tells_nothing(memory):
    """Nor does one that learned too little."""
    opened, router = memory
    opened.retrieve(QUESTION)
    learn(opened, 7)
    opened.retrieve(QUESTION)
    assert router.told
    assert not any(router.told)


def test_what_was_tried_often_enough_is_told_with_its_success(memory):
    """Half of eight succeeded; nobody else is told."""
    opened, router = memory
    learn(opened, 8)
    opened.retrieve(QUESTION)
    assert [(one.action, one.trials) for one in router.told[-1]] == [("go", 8.0)]
    assert router.told[-1][0].success == pytest.approx(0.5, abs=0.05)
    opened.retrieve(QUESTION, namespace="other")
    assert router.told[-1] == []


def test_switched_off_it_tells_nothing():
    """As does learning without regions."""
    opened, router = made(Settings(learning=LearningSettings(regions=False)))
    with opened:
        learn(opened, 8)
        opened.retrieve(QUESTION)
    assert router.told
    assert not any(router.told)


def test_router_and_ranker_share_one_look(memory, monkeypatch):
    """The counts of a query are read once, and not at all before anything was learned."""
    opened, _ = memory
    reads, read = [], opened.store.regions.get_transitions
    monkeypatch.setattr(
        opened.store.regions,
        "get_transitions",
        lambda *given: (reads.append(given), read(*given))[1],
    )
    opened.retrieve(QUESTION)
    assert reads == []
    answer = opened.retrieve(QUESTION)
    opened.record(Feedback(answer.turn.id, 1.0))
    reads.clear()
    opened.retrieve(QUESTION)
    assert len(reads) == 1
