"""Whether LangGraph and LangChain's agents are installed."""

from importlib import import_module

from crabpath_retrievers import MissingExtraError

_NEEDED = ("langgraph.graph", "langchain.agents.middleware")


def require_langgraph_extra() -> None:
    """Say what to install, rather than which of their modules is missing.

    Raises:
        MissingExtraError: One of them is missing.
    """
    try:
        for name in _NEEDED:
            import_module(name)
    except ImportError as error:
        msg = f"langgraph_crabpath needs {error.name}: pip install 'crabpath-retrievers[langgraph]'"
        raise MissingExtraError(msg) from error
