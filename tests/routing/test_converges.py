"""Learning converges although the router errs (the CrabPath paper §6).

Five steps that are right, five that are out of date and five for emergencies, in nearly the same
words, behind one page that links to all. The router compares words, and tosses a coin for three
candidates in ten.
"""

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import ChatModelRouter, CrabPath, Feedback
from crabpath_retrievers.evaluation.chat_models import load_chat_model

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("model", ["simulated:0.3", "simulated:1", None])
def test_wrong_steps_disappear(pages, embeddings, model):
    """Share of right steps among the first five documents, by round; told which were right."""
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
