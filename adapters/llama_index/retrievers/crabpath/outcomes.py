"""Detects events at the end of a query."""

from typing import Any

from crabpath_retrievers import OutcomePolicy
from crabpath_retrievers.integration import EventKind, collect_exception_names
from llama_index.retrievers.crabpath.responses import STREAMS, get_answer_text
from llama_index.retrievers.crabpath.runs import QueryRun


def detect_run_events(
    run: QueryRun, result: Any, error: BaseException | None, policy: OutcomePolicy
) -> set[EventKind]:
    """Detect the events of a run that ended, counted or not, and set its answer.

    Args:
        run: The run.
        result: Its result.
        error: The exception that it raised; None for none.
        policy: Defines which errors say something about documents.
    """
    result = getattr(result, "result", result)  # unwrap the result of an agent's workflow
    said = result if isinstance(result, str) else get_answer_text(result)
    run.answer = said or run.answer
    if error is not None:
        return (
            {"chain_error"}
            if policy.is_about_documents(collect_exception_names(type(error)))
            else set()
        )
    failed = any(
        policy.is_about_documents(collect_exception_names(raised)) for raised in run.raised
    )
    if run.raised and result is None:  # a workflow that raised ends without a result
        return {"chain_error"} if failed else set()
    seen: set[EventKind] = {"tool_error"} if failed else set()
    streamed = isinstance(result, STREAMS) or (run.streamed and not said)
    return seen if streamed or run.answer is None else {*seen, "silent_success"}
