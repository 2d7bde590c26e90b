"""Helpers of the linker tests: the edges of a kind, for every order of ingest."""

from collections.abc import Callable, Sequence
from itertools import permutations

import pytest
from langchain_core.documents import Document

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.core.graph import EdgeKind

Pairs = set[tuple[str, str]]


@pytest.fixture
def linked(open_memory, joined) -> Callable[..., Pairs]:
    """Edges of a kind when the batches are added one after the other."""

    def add(kind: EdgeKind, *batches: Sequence[Document], **links: object) -> Pairs:
        memory = open_memory(links=LinkSettings(**links))
        for batch in batches:
            memory.add_documents(batch)
        return joined(memory, kind)

    return add


@pytest.fixture
def in_any_order(linked) -> Callable[..., Pairs]:
    """Edges of a kind, after checking that they are the same for every order of the documents."""

    def add(kind: EdgeKind, *documents: Document, **links: object) -> Pairs:
        together = linked(kind, documents, **links)
        for order in permutations(documents):
            assert linked(kind, *([document] for document in order), **links) == together
        return together

    return add
