"""The retrieval node."""

from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from typing_extensions import Unpack

from crabpath_retrievers import CrabPathRetriever
from crabpath_retrievers.integration import CallOptions, Operations, is_blank
from langgraph_crabpath.node import GraphNode
from langgraph_crabpath.recall import Recall
from langgraph_crabpath.scope import Namespace, TaskType, require_retriever
from langgraph_crabpath.state import StateKeys, merge_keys, require_question


class RetrieveNode(GraphNode):
    """Puts documents and their turn id into the state; see :func:`crabpath_retrieve`."""

    name = "crabpath_retrieve"

    def __init__(self, recall: Recall, keys: StateKeys) -> None:
        """Use :func:`crabpath_retrieve`."""
        self._recall, self._keys = recall, keys

    def _steps(self, state: Any, config: RunnableConfig) -> Operations[dict[str, Any]]:
        question = require_question(state, self._keys)
        if is_blank(question):  # a message that is only a picture
            return self._write([], None)
        found = yield from self._recall.steps(question, config)
        return self._write(found.documents, found.turn_id)

    def _write(self, documents: list[Document], turn_id: str | None) -> dict[str, Any]:
        """The update of the state; without a turn where parallel branches name no key for it."""
        turn = self._keys["turn_key"]
        return {self._keys["documents_key"]: documents, **({turn: turn_id} if turn else {})}


def crabpath_retrieve(
    retriever: CrabPathRetriever,
    *,
    namespace: Namespace | None = None,
    options: CallOptions | None = None,
    task_type: TaskType | None = None,
    **keys: Unpack[StateKeys],
) -> RetrieveNode:
    """Make a node that retrieves for the question in the state.

    One object for sync and async graphs: ``builder.add_node("retrieve", crabpath_retrieve(r))``.
    It reads ``query_key``, else the last human message of ``messages_key``, and writes
    ``documents_key`` and ``turn_key``; both must be in the schema of the state, but where branches
    retrieve in parallel ``turn_key`` is None. A question without words, such as a picture, finds
    no documents and has no turn. With ``stream_mode="custom"`` every hop of the walk is streamed.

    Args:
        retriever: The retriever.
        namespace: The namespace, as a text or as a function of runtime and config. None
            takes the first of: the user authenticated by a LangGraph server;
            ``namespace`` or ``user_id`` in the runtime's context; the same in
            ``config["configurable"]``; the retriever's.
        options: Options of every query, such as ``k`` and ``filter``; see
            :class:`~crabpath_retrievers.core.query.CallOptions`.
        task_type: Type of the task, as a text or as a function of runtime and config. None takes
            ``task_type`` of the runtime's context, else of ``config["configurable"]``, else the
            retriever's.
        keys: Keys of the state, see :class:`~langgraph_crabpath.state.StateKeys`.

    Raises:
        InvalidInputError: An argument is not valid; or, when the node runs, the state holds no
            question.
    """
    recall = Recall(require_retriever(retriever), namespace, options or {}, task_type)
    return RetrieveNode(recall, merge_keys(keys))
