"""Eighty documents with regions, shared: each test learns in a namespace of its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from databases import empty_schema
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.config import LearningSettings

VECTORS = DeterministicFakeEmbedding(size=16)


def fill(location: str) -> Callable[..., CrabPath]:
    """What opens a new memory of eighty documents with learning settings, as often as wanted."""
    given = {"embeddings": VECTORS, "vectors": InMemoryVectorStore(VECTORS)}

    def open_filled(**learning: Any) -> CrabPath:
        settings = Settings(learning=LearningSettings(**learning))
        return CrabPath.open(location, settings=settings, **given)

    with open_filled() as memory:
        documents = [Document(f"text {i} word{i}", id=f"d{i}") for i in range(80)]
        memory.add_documents(documents, split=False)
    return open_filled


@pytest.fixture
def open_memory(location: str) -> Callable[..., CrabPath]:
    """Opens a memory of the test alone."""
    return fill(location)


@pytest.fixture(scope="session", params=["sqlite", pytest.param("pg", marks=pytest.mark.slow)])
def memory(request, tmp_path_factory) -> Iterator[CrabPath]:
    """Learns at once, by default settings; nothing is added or forgotten."""
    with ExitStack() as stack:
        place = str(tmp_path_factory.mktemp("eighty"))
        if request.param == "pg":
            place = stack.enter_context(empty_schema())
        yield stack.enter_context(fill(place)())


class GraphOfNamespace:
    """The graph of a memory, asked in one namespace unless another is given."""

    def __init__(self, memory: CrabPath, namespace: str) -> None:
        self._graph, self._namespace = memory.graph, namespace

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(getattr(self._graph, name), namespace=self._namespace)


@pytest.fixture
def graph(memory, namespace) -> GraphOfNamespace:
    return GraphOfNamespace(memory, namespace)


@pytest.fixture
def join(graph) -> Callable[..., None]:
    """Sets edges, given as ``(source, target, weight)``, of one type."""

    def join(*edges, kind="caused_success", **options) -> None:
        for source, target, weight in edges:
            assert graph.add_edge(source, target, kind, weight, **options).status == "applied"

    return join
