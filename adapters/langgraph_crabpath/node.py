"""A node of a graph that works in sync and async graphs alike."""

from abc import abstractmethod
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ensure_config

from crabpath_retrievers.integration import Steps, arun, run


class Node(Runnable[Any, dict[str, Any]]):
    """A part of a graph: takes the state, returns what changes in it."""

    def invoke(
        self,
        input: Any,  # noqa: A002  LangChain's name
        config: RunnableConfig | None = None,
        **_kwargs: Any,
    ) -> dict[str, Any]:
        """Work in the calling thread."""
        return run(self._steps(input, ensure_config(config)))

    async def ainvoke(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **_kwargs: Any,
    ) -> dict[str, Any]:
        """Work without blocking the event loop."""
        return await arun(self._steps(input, ensure_config(config)))

    @abstractmethod
    def _steps(self, state: Any, config: RunnableConfig) -> Steps[dict[str, Any]]:
        """What the node does, with every blocking operation yielded."""
