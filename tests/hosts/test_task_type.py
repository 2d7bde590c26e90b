"""The type of task that a LangChain user gives, in the record of the turn."""

import json

import pytest
from langchain_core.documents import Document
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath, CrabPathRetriever, InvalidInputError
from crabpath_retrievers.cli import app


def task_of(retriever, documents):
    """Type of the task of the turn that returned them."""
    turn = documents[0].metadata["crabpath"]["turn_id"]
    return retriever.memory.explain(turn).turn.task_type


def test_a_retriever_has_one(retriever):
    """As a field; none by default."""
    assert task_of(retriever, retriever.invoke("fruit")) is None
    refunds = CrabPathRetriever(memory=retriever.memory, task_type="refund")
    assert task_of(retriever, refunds.invoke("fruit")) == "refund"


async def test_a_call_may_have_another(retriever):
    """In place of the field, sync and async."""
    refunds = CrabPathRetriever(memory=retriever.memory, task_type="refund")
    assert task_of(retriever, refunds.invoke("fruit", task_type="cancel")) == "cancel"
    assert task_of(retriever, await refunds.ainvoke("fruit", task_type="cancel")) == "cancel"


@pytest.mark.parametrize("task", ["", "  ", "x" * 201, 7])
def test_one_that_cannot_be_kept_is_refused(retriever, unchanged, task):
    """With a sentence."""
    with pytest.raises(InvalidInputError, match="task_type must be a text of 1 to 200"):
        retriever.invoke("fruit", task_type=task)


def test_the_command_line_takes_one(tmp_path):
    """``crabpath query --task``."""
    place = str(tmp_path / "m")
    with CrabPath.open(place) as memory:
        memory.add_documents([Document("Apples are red.")])
    result = CliRunner().invoke(
        app, ["query", "fruit", "--task", "refund", "--json", "--store", place]
    )
    assert result.exit_code == 0, result.stderr
    with CrabPath.open(place) as memory:
        turn = memory.explain(json.loads(result.stdout)["turn_id"]).turn
    assert turn.task_type == "refund"
