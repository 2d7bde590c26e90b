"""Helpers of the linker tests: the edges of a memory, by the order in which documents came."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from langchain_core.documents import Document

from crabpath_retrievers.config import LinkSettings


@pytest.fixture
def linked(open_memory, joined) -> Callable[..., Callable]:
    """Adds batches one after the other; the result reads the edges of a kind."""

    def add(*batches: Sequence[Document], **links: object) -> Callable:
        memory = open_memory(links=LinkSettings(**links))
        for batch in batches:
            memory.add_documents(batch)
        return partial(joined, memory)

    return add
