"""Finds namespace, user, task type and stream of a run."""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from crabpath_retrievers import CrabPathRetriever, InvalidInputError
from crabpath_retrievers.integration import find_namespace
from langgraph_crabpath.state import get_value

Namespace: TypeAlias = str | Callable[[Runtime[Any], RunnableConfig], str]
"""Namespace: a text, or a function of the runtime and config of the run."""
TaskType: TypeAlias = str | Callable[[Runtime[Any], RunnableConfig], str | None]
"""Type of the task of a run: a text, or a function of its runtime and config."""

T = TypeVar("T")
# get_runtime() reads the same key, but refuses coroutines on Python 3.10.
_RUNTIME = "__pregel_runtime"
_USER = "langgraph_auth_user"  # a server overwrites what a client sent
_TASK = "task_type"


def find_runtime(config: RunnableConfig) -> Runtime[Any]:
    """Find the runtime of the graph; an empty one outside of a graph."""
    found = config.get("configurable", {}).get(_RUNTIME)
    return found if isinstance(found, Runtime) else Runtime()


def resolve_namespace(
    retriever: CrabPathRetriever, given: Namespace | None, config: RunnableConfig
) -> str:
    """Find the namespace of a run: the first of these that is given.

    1. ``namespace=`` of the node, middleware or tool;
    2. what the configuration of the run says, as for every ``CrabPathRetriever``: see
       :func:`~crabpath_retrievers.integration.find_namespace`;
    3. the retriever's.
    """
    if given is not None:
        return _require_text(_call(given, config))
    return find_namespace(config.get("configurable", {})) or retriever.namespace


def resolve_user(config: RunnableConfig) -> str | None:
    """Find the user of a run, for the ``user`` of feedback: the first of these that is given.

    1. The user authenticated by a LangGraph server;
    2. ``user_id`` of the runtime's context;
    3. ``user_id`` of ``config["configurable"]``.
    """
    users = _read_user(config), *_read_run(config, "user_id")
    return next((str(user) for user in users if user is not None and str(user).strip()), None)


def resolve_task_type(given: TaskType | None, config: RunnableConfig) -> str | None:
    """Find the task type of a run: the first of these that is given; None for the retriever's.

    1. ``task_type=`` of the node, middleware or tool;
    2. ``task_type`` of the runtime's context;
    3. ``task_type`` of ``config["configurable"]``.
    """
    if given is not None:
        return _call(given, config)
    return next((task for task in _read_run(config, _TASK) if task is not None), None)


def _call(
    given: str | Callable[[Runtime[Any], RunnableConfig], T], config: RunnableConfig
) -> str | T:
    """Resolve an option for a run: call it if it is a function."""
    return given(find_runtime(config), config) if callable(given) else given


def _read_user(config: RunnableConfig) -> Any:
    """The user authenticated by a LangGraph server; None without one."""
    return get_value(config.get("configurable", {}).get(_USER), "identity")


def _read_run(config: RunnableConfig, *names: str) -> list[Any]:
    """Values of the runtime's context, then of ``config["configurable"]``; None where missing."""
    places = find_runtime(config).context, config.get("configurable", {})
    return [get_value(place, name) for place in places for name in names]


def _require_text(namespace: object) -> str:
    if not isinstance(namespace, str) or not namespace.strip():
        msg = (
            f"namespace= is {namespace!r} for this run: it must be a non-empty text, or a "
            "function that returns one for every run"
        )
        raise InvalidInputError(msg)
    return namespace


def require_retriever(value: object) -> CrabPathRetriever:
    """Refuse values other than a ``CrabPathRetriever``."""
    if not isinstance(value, CrabPathRetriever):
        msg = f"pass a CrabPathRetriever, not a {type(value).__name__}"
        raise InvalidInputError(msg)
    return value
