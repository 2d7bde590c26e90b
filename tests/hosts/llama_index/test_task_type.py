"""The type of task that a LlamaIndex user gives, in the record of the turn."""

import pytest

from crabpath_retrievers.errors import InvalidInputError
from llama_index.retrievers.crabpath import CrabPathReranker, CrabPathRetriever


def task_of(retriever, nodes):
    """Type of the task of the turn that returned them."""
    turn = nodes[0].node.metadata["crabpath"]["turn_id"]
    return retriever.memory.explain(turn).turn.task_type


def test_a_retriever_has_one(retriever, question):
    """As an argument, and for a while."""
    assert task_of(retriever, retriever.retrieve(question)) is None
    refunds = CrabPathRetriever(retriever.memory, task_type="refund")
    assert task_of(retriever, refunds.retrieve(question)) == "refund"
    cancels = refunds.for_task("cancel")
    assert task_of(retriever, cancels.retrieve(question)) == "cancel"
    assert (refunds.task_type, cancels.for_namespace("ann").task_type) == ("refund", "cancel")


async def test_without_blocking(retriever, question):
    """As without waiting."""
    nodes = await retriever.for_task("cancel").aretrieve(question)
    assert task_of(retriever, nodes) == "cancel"


def test_a_reranker_has_one(retriever, question):
    """Reranking is a turn of its own."""
    nodes = retriever.retrieve(question)
    for item in nodes:
        item.node.metadata.pop("crabpath")
    reranker = CrabPathReranker(memory=retriever.memory, task_type="refund")
    assert task_of(retriever, reranker.postprocess_nodes(nodes, query_str=question)) == "refund"


def test_one_that_cannot_be_kept_is_refused(retriever, question):
    """With a sentence."""
    with pytest.raises(InvalidInputError, match="task_type must be a text"):
        retriever.for_task("").retrieve(question)
