"""What the tests of the host frameworks read from answers and memories."""

from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document

from crabpath_retrievers import CrabPathRetriever, Feedback

QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"
CORRECTION = "Both Scott Derrickson and Ed Wood were American."


def ids(found: Sequence[Any]) -> list[str | None]:
    """Ids of LangChain documents or LlamaIndex nodes, in order."""
    return [item.id if isinstance(item, Document) else item.node_id for item in found]


def texts(found: Sequence[Any]) -> list[str]:
    """Texts of LangChain documents or LlamaIndex nodes, in order; of corrections what they say."""
    shown = [item.page_content if isinstance(item, Document) else item.text for item in found]
    return [text.split(":\n")[-1] if text.startswith("Correction") else text for text in shown]


def block_of(found: Sequence[Any]) -> dict[str, Any]:
    """The ``crabpath`` metadata of the best one."""
    block: dict[str, Any] = found[0].metadata["crabpath"]
    return block


def turn_of(found: Sequence[Any]) -> str:
    """Id of the turn that returned them."""
    return str(block_of(found)["turn_id"])


def count_feedback(retriever: Any) -> dict[str, int]:
    """All feedback that the memory holds, by status."""
    return dict(retriever.memory.store.learned.count_feedback())


def read_feedback(retriever: CrabPathRetriever, feedback_id: str) -> Feedback:
    """A feedback as the memory holds it."""
    return retriever.memory.store.learned.get_feedback(feedback_id).feedback
