"""Retrieves for a graph, in the right namespace, with plain, JSON-safe events in its stream."""

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from crabpath_retrievers import CrabPathRetriever
from crabpath_retrievers.integration import (
    METADATA_KEY,
    CallOptions,
    Hop,
    Operations,
    find_turn_ids,
    perform_sync_or_async,
    read_answer_block,
)
from langgraph_crabpath.scope import (
    Namespace,
    TaskType,
    find_runtime,
    resolve_namespace,
    resolve_task_type,
)

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
    """Find the ids of the turns that the last step returned: several of parallel branches."""
    steps: dict[str, Mapping[str, str]] = {}
    for document in reversed(documents or ()):
        block = read_answer_block(getattr(document, "metadata", {}))
        if block is not None:
            step = block.get(_STEP) or {}
            if all(_is_parallel(step, later) for later in steps.values()):
                steps.setdefault(str(block["turn_id"]), step)
    return [*reversed(steps)]


def _is_parallel(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two retrievals were made in one step of each graph that both ran in."""
    shared = one.keys() & other.keys()
    return bool(shared) and all(one[graph] == other[graph] for graph in shared)
