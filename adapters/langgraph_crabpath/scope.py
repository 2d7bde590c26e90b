"""For whom a graph runs, and where it streams to."""

from collections.abc import Callable
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from crabpath_retrievers import CrabPathRetriever, InvalidInputError
from crabpath_retrievers.integration import is_blank
from langgraph_crabpath.state import held

Namespace: TypeAlias = str | Callable[[Runtime[Any], RunnableConfig], str]
"""Whose memory is used: a text, or a function of what LangGraph knows about the run."""
TaskType: TypeAlias = str | Callable[[Runtime[Any], RunnableConfig], str | None]
"""Type of the task that a run is for: a text, or a function as for the namespace."""

# get_runtime() reads the same key, but refuses coroutines on Python 3.10.
_RUNTIME = "__pregel_runtime"
_USER = "langgraph_auth_user"  # a server writes it over whatever a client sent
_NAMES = ("namespace", "user_id")
_TASK = "task_type"


def runtime_of(config: RunnableConfig) -> Runtime[Any]:
    """The runtime of the graph; one without context and stream outside of a graph."""
    found = config.get("configurable", {}).get(_RUNTIME)
    return found if isinstance(found, Runtime) else Runtime()


def namespace_of(
    retriever: CrabPathRetriever, given: Namespace | None, config: RunnableConfig
) -> str:
    """Whose learned weights apply: the first of these that is there.

    1. ``namespace=`` of the node, middleware or tool;
    2. the user whom a LangGraph server has authenticated;
    3. ``namespace``, then ``user_id``, of the runtime's context;
    4. ``namespace``, then ``user_id``, of ``config["configurable"]``;
    5. the retriever's.

    A blank text in 2 to 4 is nobody: a LangGraph server without authentication writes one.

    Raises:
        InvalidInputError: ``namespace=`` gives no text: nobody's turns would be told apart.
    """
    runtime, configurable = runtime_of(config), config.get("configurable", {})
    if given is not None:
        return _require_text(given(runtime, config) if callable(given) else given)
    told = [held(configurable.get(_USER), "identity")]
    told += [held(runtime.context, name) for name in _NAMES]
    told += [held(configurable, name) for name in _NAMES]
    found = next((value for value in told if not is_blank(value)), retriever.namespace)
    return str(found)


def user_of(config: RunnableConfig) -> str | None:
    """Who a run is for, so that feedback says who gave it: the first of these that is there.

    1. The user whom a LangGraph server has authenticated;
    2. ``user_id`` of the runtime's context;
    3. ``user_id`` of ``config["configurable"]``.
    """
    configurable = config.get("configurable", {})
    told = held(configurable.get(_USER), "identity"), held(runtime_of(config).context, "user_id")
    given = (str(v) for v in (*told, held(configurable, "user_id")) if v is not None)
    return next((user for user in given if user.strip()), None)


def task_of(given: TaskType | None, config: RunnableConfig) -> str | None:
    """Type of the task of a run: the first of these that is there; None leaves it to the retriever.

    1. ``task_type=`` of the node, middleware or tool;
    2. ``task_type`` of the runtime's context;
    3. ``task_type`` of ``config["configurable"]``.
    """
    runtime, configurable = runtime_of(config), config.get("configurable", {})
    if given is not None:
        return given(runtime, config) if callable(given) else given
    found = held(runtime.context, _TASK)
    told: str | None = held(configurable, _TASK) if found is None else found
    return told


def _require_text(namespace: object) -> str:
    if not isinstance(namespace, str) or not namespace.strip():
        msg = (
            f"namespace= gave {namespace!r} for this run: it must be a non-empty text, or a "
            "function that returns one for every run"
        )
        raise InvalidInputError(msg)
    return namespace


def require_retriever(value: object) -> CrabPathRetriever:
    """Refuse anything else early, with a sentence.

    Raises:
        InvalidInputError: It is no ``CrabPathRetriever``.
    """
    if not isinstance(value, CrabPathRetriever):
        msg = f"pass a CrabPathRetriever, not a {type(value).__name__}"
        raise InvalidInputError(msg)
    return value
