"""A memory over real passages, a namespace for each test, and what handlers recorded there."""

from collections.abc import Iterator

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from passages import read_passages

from crabpath_retrievers import CrabPath, CrabPathRetriever, OutcomePolicy, Rule
from crabpath_retrievers.callbacks import CrabPathCallbackHandler


@pytest.fixture(scope="session")
def shared_memory() -> Iterator[CrabPath]:
    """The ten passages of the first HotpotQA question, under vectors that mean nothing."""
    vectors = DeterministicFakeEmbedding(size=32)
    with CrabPath.open(embeddings=vectors, vectors=InMemoryVectorStore(vectors)) as memory:
        memory.add_documents(read_passages(10))
        yield memory


@pytest.fixture
def retriever(shared_memory: CrabPath, namespace: str) -> CrabPathRetriever:
    return CrabPathRetriever(memory=shared_memory, k=3, namespace=namespace)


class Recorded(list):
    """Every feedback that a handler recorded, with its receipt."""

    def __call__(self, feedback, receipt):
        self.append((feedback, receipt))

    @property
    def kinds(self) -> list[str]:
        return [feedback.feedback_id.split(":")[1] for feedback, _ in self]

    @property
    def statuses(self) -> list[str]:
        return [receipt.status for _, receipt in self]

    @property
    def turns(self) -> list[str]:
        return [feedback.turn_id for feedback, _ in self]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@pytest.fixture
def handler(retriever: CrabPathRetriever, recorded: Recorded) -> CrabPathCallbackHandler:
    """A handler with the shipped policy."""
    return CrabPathCallbackHandler(retriever, on_receipt=recorded)


@pytest.fixture(scope="session")
def silence() -> OutcomePolicy:
    """The policy by which an answer that nobody judges counts a fifth."""
    return OutcomePolicy(silent_success=Rule(0.2, "harvested"))


@pytest.fixture
def silent(retriever, silence, recorded) -> CrabPathCallbackHandler:
    """A handler by that policy."""
    return CrabPathCallbackHandler(retriever, silence, on_receipt=recorded)
