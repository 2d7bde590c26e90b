"""One memory over real passages, which no test changes."""

from collections.abc import Iterator

import pytest
from langchain_core.embeddings import Embeddings
from passages import read_passages

from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.config import SeedSettings


@pytest.fixture(scope="session")
def memory(embeddings: Embeddings) -> Iterator[CrabPath]:
    """Forty passages; search finds two of them, the walk must reach the others."""
    settings = Settings(seeds=SeedSettings(hits_per_engine=2, max_entries=2))
    documents = read_passages(40)
    for number, document in enumerate(documents):
        document.metadata |= {"set": ("even", "odd")[number % 2], "number": number}
    with CrabPath.open(embeddings=embeddings, settings=settings) as opened:
        opened.add_documents(documents)
        yield opened
