"""Retrieves for a graph, in the right namespace, with plain, JSON-safe events in its stream.

Namespace, user, task type and stream are those of the run. The state of a graph is a dict, a
dataclass or a pydantic model.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

from langchain_core.documents import Document
from langchain_core.messages import HumanMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPathRetriever, InvalidInputError
from crabpath_retrievers.integration import (
    METADATA_KEY,
    CallOptions,
    Hop,
    Operations,
    Query,
    explain_unknown,
    find_namespace,
    find_turn_ids,
    perform_sync_or_async,
    read_answer_block,
)


class StateKeys(TypedDict, total=False):
    """Keys of the state that a node reads and writes; defaults in ``DEFAULT_KEYS``."""

    query_key: str
    messages_key: str
    documents_key: str
    turn_key: str | None
    outcome_key: str
    used_key: str
    unused_key: str
    relevant_key: str
    irrelevant_key: str
    answer_key: str
    correction_key: str
    feedback_key: str


DEFAULT_KEYS: StateKeys = {
    "query_key": "question",
    "messages_key": "messages",
    "documents_key": "documents",
    "turn_key": "turn_id",
    "outcome_key": "outcome",
    "used_key": "used",
    "unused_key": "unused",
    "relevant_key": "relevant",
    "irrelevant_key": "irrelevant",
    "answer_key": "answer",
    "correction_key": "correction",
    "feedback_key": "feedback",
}


def merge_keys(given: StateKeys) -> StateKeys:
    """Merge the given keys with the defaults."""
    unknown = sorted(set(given) - set(DEFAULT_KEYS))
    if unknown:
        msg = f"unknown options {unknown}: the keys of the state are {', '.join(DEFAULT_KEYS)}"
        raise InvalidInputError(msg)
    return {**DEFAULT_KEYS, **given}


def get_value(state: Any, key: str) -> Any:
    """Return the value of a key; None if there is none."""
    return state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)


def require_question(state: Any, keys: StateKeys) -> Any:
    """Return the question under its key, else the text of the last human message."""
    asked = get_value(state, keys["query_key"])
    if asked is None:
        asked = find_last_question(get_value(state, keys["messages_key"]))
    if asked is None:
        msg = (
            f"the state holds neither {keys['query_key']!r} nor a human message in "
            f"{keys['messages_key']!r}: give one of them, or name other keys with "
            "query_key= and messages_key="
        )
        raise InvalidInputError(msg)
    return asked


def find_last_question(messages: Any) -> str | None:
    """Return the text of the last human message; None without one."""
    for message in reversed(messages or ()):
        (known,) = convert_to_messages([message])
        if isinstance(known, HumanMessage):
            return str(known.text)
    return None


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
    """Read the user authenticated by a LangGraph server; None without one."""
    return get_value(config.get("configurable", {}).get(_USER), "identity")


def _read_run(config: RunnableConfig, *names: str) -> list[Any]:
    """Read values from the runtime's context, then ``config["configurable"]``; None if missing."""
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


# Ids of the checkpoints that a step follows: of the graph, and of each sub-graph around the node.
_CHECKPOINTS = "checkpoint_map"
_STEP = "step"


class RecallResult(NamedTuple):
    """The retrieved documents, and the id of their turn."""

    turn_id: str
    documents: list[Document]


@dataclass(frozen=True)
class Recall:
    """Retrieves in the namespace of the user of a run.

    Attributes:
        retriever: The retriever.
        namespace: Namespace; None to take it from the run.
        options: Options of every query, such as ``k`` and ``filter``.
        task_type: Type of the task; None to take it from the run.
    """

    retriever: CrabPathRetriever
    namespace: Namespace | None = None
    options: CallOptions = field(default_factory=CallOptions)
    task_type: TaskType | None = None

    def __post_init__(self) -> None:
        """Refuse options that would fail at every query."""
        if unknown := set(self.options) - set(CallOptions.__annotations__):
            raise InvalidInputError(explain_unknown(sorted(unknown), CallOptions.__annotations__))
        fixed = {"namespace": self.namespace, "task_type": self.task_type}
        known = {**self.options, **{n: v for n, v in fixed.items() if not callable(v)}}
        given: Any = {name: value for name, value in known.items() if value is not None}
        Query.from_options("?", **given)

    def steps(self, question: Any, config: RunnableConfig) -> Operations[RecallResult]:
        """Retrieve, and write every hop and the result to the graph's custom stream."""
        write = find_runtime(config).stream_writer
        namespace = resolve_namespace(self.retriever, self.namespace, config)
        run_id = uuid.uuid4()
        task = resolve_task_type(self.task_type, config)
        given: dict[str, Any] = {
            **self.options,
            **({} if task is None else {"task_type": task}),
            "namespace": namespace,
            "run_id": run_id,
            "on_hop": lambda hop: write({"type": "crabpath_hop", **_describe_hop(hop)}),
        }
        documents: list[Document] = yield from perform_sync_or_async(
            lambda: self.retriever.invoke(question, config, **given),
            lambda: self.retriever.ainvoke(question, config, **given),
        )
        step = dict(config.get("configurable", {}).get(_CHECKPOINTS) or {})
        for item in documents:
            item.metadata[METADATA_KEY][_STEP] = step
        turn_id = next(iter(find_turn_ids(documents)), str(run_id))
        found = [
            {"id": item.id, "score": item.metadata[METADATA_KEY]["score"]} for item in documents
        ]
        about = {"turn_id": turn_id, "namespace": namespace, "documents": found}
        write({"type": "crabpath_retrieved", **about})
        return RecallResult(turn_id, documents)


def _describe_hop(hop: Hop) -> dict[str, Any]:
    return {
        "hop": hop.number,
        "frontier": list(hop.frontier),
        "followed": [asdict(edge) for edge in hop.followed],
        "decided_by": hop.decided_by,
    }


def find_last_turns(documents: Any) -> list[str]:
    """Find ids of the turns of the last step, which are several with parallel branches."""
    steps: dict[str, Mapping[str, str]] = {}
    for document in reversed(documents or ()):
        block = read_answer_block(getattr(document, "metadata", {}))
        if block is not None:
            step = block.get(_STEP) or {}
            if all(_is_parallel(step, later) for later in steps.values()):
                steps.setdefault(str(block["turn_id"]), step)
    return [*reversed(steps)]


def _is_parallel(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two retrievals ran in the same step of every graph that both have in common."""
    shared = one.keys() & other.keys()
    return bool(shared) and all(one[graph] == other[graph] for graph in shared)
