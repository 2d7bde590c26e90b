"""Routers over a memory that learns: which experience it hands them, and that they may err."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_lab import load_chat_model
from crabpath_retrievers import ChatModelRouter, CrabPath, Feedback, Settings, SoftmaxRouter
from crabpath_retrievers.config import LearningSettings

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
        seen = [memory.embedder.embeddings.embed_query(text) for text in (QUESTION, "Page 9")]
        memory.regions.learn_episode(seen, ["go"], reward, namespace=namespace)


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


STEPS = ("checking the pipeline", "reading the manifest", "approving", "shipping", "verifying")
KINDS = {"current": "in use", "former": "in use until last year", "urgent": "for emergencies"}
QUESTIONS = (
    "How is a release deployed, from checking the pipeline to verifying?",
    "Which steps does deploying a release take?",
    "What do I do to ship a release: pipeline, manifest, approving, verifying?",
    "Walk me through deploying a release.",
    "What is the procedure for deploying and verifying a release?",
)
ROUNDS = 4


@pytest.fixture(scope="module")
def pages():
    """One page that links to fifteen."""
    made = [
        Document(
            id=f"{kind} {number}",
            page_content=f"Deploying a release, {step}: the procedure {when}.",
            metadata={"title": f"Deploying: {step} ({kind})"},
        )
        for kind, when in KINDS.items()
        for number, step in enumerate(STEPS)
    ]
    links = " ".join(f"[[{page.metadata['title']}]]" for page in made)
    return [Document(f"All about releases. {links}", metadata={"title": "Releases"}), *made]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["simulated:0.3", "simulated:1", None])
def test_wrong_steps_disappear(pages, embeddings, model):
    """Learning converges although the router errs (the CrabPath paper §6).

    Five steps that are right, five that are out of date and five for emergencies, in nearly the
    same words, behind one page that links to all. The router compares words, and tosses a coin for
    three candidates in ten. Measured: the share of right steps among the first five documents.
    """
    router = None if model is None else ChatModelRouter(load_chat_model(model))
    shares = []
    with CrabPath.open(embeddings=embeddings, router=router) as memory:
        memory.add_documents(pages)
        for _ in range(ROUNDS):
            right = 0
            for question in QUESTIONS:
                answer = memory.retrieve(question, k=5)
                used = [d.node.id for d in answer.documents if d.node.id.startswith("current")]
                right += len(used)
                memory.record(Feedback(answer.turn.id, 1.0 if used else -1.0, used=used))
            shares.append(right / (5 * len(QUESTIONS)))
    assert shares[0] < 0.8
    assert shares[-1] > 0.9
