"""The standard tests that LangChain gives to every retriever integration."""

from typing import Any

import pytest
from host_answers import QUESTION
from langchain_core.retrievers import BaseRetriever
from langchain_tests.integration_tests import RetrieversIntegrationTests

from crabpath_retrievers import CrabPath, CrabPathRetriever


class TestCrabPathRetriever(RetrieversIntegrationTests):
    """Over embedded Chroma."""

    memory: CrabPath

    @pytest.fixture(autouse=True)
    def _filled(self, own_retriever):
        self.memory = own_retriever.memory

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return CrabPathRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"memory": self.memory}

    @property
    def retriever_query_example(self) -> str:
        return QUESTION
