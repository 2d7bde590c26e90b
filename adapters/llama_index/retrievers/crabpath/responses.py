"""From what LlamaIndex returns to the turns behind it, and to feedback about them."""

from collections.abc import Iterable
from typing import Any

from llama_index.core.base.response.schema import (
    AsyncStreamingResponse,
    PydanticResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.chat_engine.types import StreamingAgentChatResponse
from llama_index.core.evaluation import EvaluationResult
from llama_index.core.schema import NodeWithScore
from typing_extensions import Unpack

from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.feedback.precedence import record_over
from crabpath_retrievers.feedback.receipt import FeedbackFields, Receipt
from crabpath_retrievers.metadata import block_of
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.outcome_policy import OutcomePolicy, Rule

Outcome = float | EvaluationResult

STREAMS = (StreamingResponse, AsyncStreamingResponse, StreamingAgentChatResponse)
"""Responses that are read after they are returned."""

_SCORE = OutcomePolicy().score
_PARTS = ("source_nodes", "sources", "tool_calls", "tool_output", "raw_output")


def turns_of(response: Any) -> list[str]:
    """Ids of the turns whose nodes a response rests on, each once.

    Args:
        response: A response of a query or chat engine, the output of an agent, nodes, or the id
            of a turn.
    """
    return list(dict.fromkeys(_turns(response)))


def record(
    memory: CrabPath, response: Any, outcome: Outcome, **fields: Unpack[FeedbackFields]
) -> list[Receipt]:
    """Learn from what became of a response: see ``CrabPathRetriever.record``.

    What an event handler learned by itself of the same turns is taken back first.

    Args:
        memory: The memory that was asked.
        response: As for :func:`turns_of`; the span of the retrieval will do for the turn id.
        outcome: How good it was, in [-1, 1], or LlamaIndex's ``EvaluationResult``.
        fields: Other fields of :class:`~crabpath_retrievers.outcome.Feedback`.

    Raises:
        InvalidInputError: The response carries no turn, or a field cannot be used.
        StoreError: It could not be kept.
    """
    return [
        record_over(memory, feedback) for feedback in feedback_about(response, outcome, **fields)
    ]


def feedback_about(
    response: Any, outcome: Outcome, rule: Rule = _SCORE, **fields: Unpack[FeedbackFields]
) -> list[Feedback]:
    """One feedback per turn of a response, as for :func:`record`; ``rule`` is that of scores.

    Raises:
        InvalidInputError: The response carries no turn, or a field cannot be used.
    """
    value = outcome_of(outcome, rule)
    if isinstance(outcome, EvaluationResult):
        fields.setdefault("source", rule.source)
    turns = turns_of(response)
    if not turns:
        msg = (
            f"this {type(response).__name__} carries no CrabPath turn: pass a response whose "
            "source nodes a CrabPathRetriever found, or the turn id"
        )
        raise InvalidInputError(msg)
    if "used" not in fields and "answer" not in fields:
        fields["answer"] = answer_of(response)
    return [Feedback(turn, value, **_named(fields, turn, turns)) for turn in turns]


def outcome_of(outcome: Outcome, rule: Rule) -> float:
    """An outcome in [-1, 1] for a number, or for the result of one of LlamaIndex's evaluators.

    Raises:
        InvalidInputError: The evaluator came to no result, or to a score outside [0, 1].
    """
    if not isinstance(outcome, EvaluationResult):
        return outcome
    if outcome.passing is not None:
        return rule.scored(outcome.passing)
    if outcome.invalid_result or outcome.score is None:
        msg = f"the evaluation has no result ({outcome.invalid_reason}): there is nothing to learn"
        raise InvalidInputError(msg)
    return rule.scored(outcome.score)


def answer_of(response: Any) -> str | None:
    """What a response says in words; None for nodes, and for a stream that was not read."""
    if isinstance(response, (Response, PydanticResponse)):
        return str(response) if response.response else None
    for name in ("response_txt", "response"):
        said = getattr(response, name, None)
        said = getattr(said, "content", said)
        if isinstance(said, str) and said:
            return said
    return None


def _named(fields: FeedbackFields, turn: str, turns: list[str]) -> FeedbackFields:
    """An id that the caller gave is one feedback; several turns make it several."""
    if "feedback_id" not in fields or len(turns) == 1:
        return fields
    return {**fields, "feedback_id": f"{fields['feedback_id']}-{turn}"}


def _turns(found: Any, *, part: bool = False) -> Iterable[str]:
    """Turns of what a caller gave, or of a ``part`` of it: texts in there are said by tools."""
    if isinstance(found, NodeWithScore):
        block = block_of(found.node.metadata)
        if block is not None and isinstance(block["turn_id"], str):
            yield block["turn_id"]
    elif isinstance(found, str):
        if not part:
            yield found
    elif isinstance(found, (list, tuple)):
        for item in found:
            yield from _turns(item, part=part)
    else:
        held = getattr(found, "__dict__", {})
        for name in _PARTS:
            if name in held:
                yield from _turns(held[name], part=True)
