"""Helpers of the feedback tests: a small memory on both databases, and what it has learned."""

from collections.abc import Callable, Iterator

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.config import LearningSettings

TEXTS = {"a": "Apples are red fruit.", "b": "The sky is blue.", "c": "Grass is green."}


class Host:
    """A program that asks one memory and reads back what that memory has learned."""

    def __init__(self, memory: CrabPath) -> None:
        """Ask ``memory``."""
        self.memory = memory

    def ask(self, namespace: str = "default", **options) -> str:
        """Ask something that returns all three documents; gives the turn id."""
        answer = self.memory.retrieve("Which fruit is red?", namespace=namespace, **options)
        assert {item.node.id for item in answer.documents} == set(TEXTS)
        return answer.turn.id

    def learned(self, namespace: str = "default") -> int:
        """How often a namespace has learned."""
        return self.memory.store.walk.clock(namespace).learned

    def usage(self, namespace: str = "default") -> dict[str, tuple[float, float]]:
        """Wins and losses by document id, of those that have any."""
        store = self.memory.store
        keys = store.learned.keys(list(TEXTS))
        found = store.learned.usage(store.walk.clock(namespace).key, list(keys.values()))
        return {node: found[key] for node, key in keys.items() if key in found}

    def status(self, feedback_id: str) -> str:
        """Where a feedback stands."""
        return self.memory.store.learned.feedback(feedback_id).status


@pytest.fixture
def opens(location: str) -> Callable[..., CrabPath]:
    """Opens the memory of the test with learning settings, as often as wanted."""
    vectors = DeterministicFakeEmbedding(size=16)
    index = InMemoryVectorStore(vectors)

    def open_memory(**learning) -> CrabPath:
        settings = Settings(learning=LearningSettings(**learning))
        return CrabPath.open(location, embeddings=vectors, vectors=index, settings=settings)

    with open_memory() as memory:
        memory.add_documents([Document(text, id=node) for node, text in TEXTS.items()])
    return open_memory


@pytest.fixture
def memory(opens) -> Iterator[CrabPath]:
    """Three documents, once on each database; feedback is learned from at once."""
    with opens() as opened:
        yield opened


@pytest.fixture
def host(memory) -> Host:
    """Asks the memory of the test."""
    return Host(memory)


@pytest.fixture
def hosting() -> type[Host]:
    """Makes a host of another memory."""
    return Host
