"""Retrieves for a graph, in the right namespace, with events in its stream."""

import uuid
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from crabpath_retrievers import CrabPathRetriever
from crabpath_retrievers.integration import CallOptions, Steps, block_of, perform_either
from langgraph_crabpath.events import hop_event, retrieved_event
from langgraph_crabpath.scope import Namespace, TaskType, namespace_of, runtime_of, task_of


class Recalled(NamedTuple):
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

    def steps(self, question: Any, config: RunnableConfig) -> Steps[Recalled]:
        """Retrieve, and write every hop and the result to the graph's custom stream."""
        write = runtime_of(config).stream_writer
        namespace = namespace_of(self.retriever, self.namespace, config)
        run_id = uuid.uuid4()
        task = task_of(self.task_type, config)
        given: dict[str, Any] = {
            **self.options,
            **({} if task is None else {"task_type": task}),
            "namespace": namespace,
            "run_id": run_id,
            "on_hop": lambda hop: write(hop_event(hop)),
        }
        documents: list[Document] = yield from perform_either(
            lambda: self.retriever.invoke(question, config, **given),
            lambda: self.retriever.ainvoke(question, config, **given),
        )
        turn_id = turn_of(documents) or str(run_id)
        write(retrieved_event(turn_id, namespace, documents))
        return Recalled(turn_id, documents)


def turn_of(documents: Any) -> str | None:
    """Find the id of the turn that returned documents; None if they carry none."""
    for document in documents or ():
        block = block_of(getattr(document, "metadata", {}))
        if block is not None:
            return str(block["turn_id"])
    return None
