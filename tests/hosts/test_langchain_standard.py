"""The standard tests that LangChain gives to every retriever integration."""

from typing import Any

import pytest
from langchain_core.retrievers import BaseRetriever
from langchain_tests.integration_tests import RetrieversIntegrationTests

from crabpath_retrievers import CrabPath, CrabPathRetriever


class TestCrabPathRetriever(RetrieversIntegrationTests):
    """LangChain's own tests, over embedded Chroma with a real embedder."""

    memory: CrabPath

    @pytest.fixture(autouse=True)
    def _filled(self, embeddings, passages, tmp_path):
        path = tmp_path / "memory"
        with CrabPathRetriever.from_documents(passages[:10], embeddings, path=path).memory as made:
            self.memory = made
            yield

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        """The retriever under test."""
        return CrabPathRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        """It is constructed over a memory."""
        return {"memory": self.memory}

    @property
    def retriever_query_example(self) -> str:
        """A question that the passages answer."""
        return "Were Scott Derrickson and Ed Wood of the same nationality?"
