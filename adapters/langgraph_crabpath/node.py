"""Base class of graph nodes for sync and async graphs."""

from abc import abstractmethod
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ensure_config

from crabpath_retrievers.integration import Operations, arun, run


class GraphNode(Runnable[Any, dict[str, Any]]):
    """A node of a graph: takes the state and returns its update."""

    def invoke(
        self,
        input: Any,  # noqa: A002  LangChain's name
        config: RunnableConfig | None = None,
        **_kwargs: Any,
    ) -> dict[str, Any]:
        """Run in the calling thread."""
        return run(self._steps(input, ensure_config(config)))

    async def ainvoke(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **_kwargs: Any,
    ) -> dict[str, Any]:
        """Run without blocking the event loop."""
        return await arun(self._steps(input, ensure_config(config)))

    @abstractmethod
    def _steps(self, state: Any, config: RunnableConfig) -> Operations[dict[str, Any]]:
        """Do the work of the node, yielding every blocking operation."""
