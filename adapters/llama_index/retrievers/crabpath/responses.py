"""Finds the turns behind responses of LlamaIndex, and makes feedback about them."""

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

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, OutcomePolicy, Rule
from crabpath_retrievers.integration import (
    FeedbackFields,
    Receipt,
    read_answer_block,
    record_superseding,
)

Outcome = float | EvaluationResult

STREAMS = (StreamingResponse, AsyncStreamingResponse, StreamingAgentChatResponse)
"""Responses that are read after they are returned."""

_SCORE = OutcomePolicy().score
_PARTS = ("source_nodes", "sources", "tool_calls", "tool_output", "raw_output")


def turns_of(response: Any) -> list[str]:
    """Return the ids of the turns behind the nodes of a response, each once.

    Args:
        response: A response of a query or chat engine, the output of an agent, nodes, or the id
            of a turn.
    """
    return list(dict.fromkeys(_iterate_turns(response)))


def record(
    memory: CrabPath, response: Any, outcome: Outcome, **fields: Unpack[FeedbackFields]
) -> list[Receipt]:
    """Record feedback for a response: see ``CrabPathRetriever.record``.

    Feedback that an event handler recorded by itself for the same turns is undone first.

    Args:
        memory: The memory of the turns.
        response: As for :func:`turns_of`; the span id of the retrieval may replace the turn id.
        outcome: The outcome, in [-1, 1], or LlamaIndex's ``EvaluationResult``.
        fields: Other fields of :class:`~crabpath_retrievers.core.feedback.Feedback`.

    Raises:
        InvalidInputError: The response has no turn, or a field is not valid.
        StoreError: The feedback could not be stored.
    """
    return [
        record_superseding(memory, feedback)
        for feedback in make_response_feedback(response, outcome, **fields)
    ]


def make_response_feedback(
    response: Any, outcome: Outcome, rule: Rule = _SCORE, **fields: Unpack[FeedbackFields]
) -> list[Feedback]:
    """Make one feedback per turn of a response, as :func:`record_feedback` does.

    Raises:
        InvalidInputError: The response has no turn, or a field is not valid.
    """
    value = to_outcome(outcome, rule)
    if isinstance(outcome, EvaluationResult):
        fields.setdefault("source", rule.source)
    turns = turns_of(response)
    if not turns:
        msg = (
            f"this {type(response).__name__} has no CrabPath turn: pass a response whose source "
            "nodes a CrabPathRetriever returned, or the turn id"
        )
        raise InvalidInputError(msg)
    if "used" not in fields and "answer" not in fields:
        fields["answer"] = get_answer_text(response)
    return [Feedback(turn, value, **_set_feedback_id(fields, turn, turns)) for turn in turns]


def to_outcome(outcome: Outcome, rule: Rule) -> float:
    """Convert a number or the result of a LlamaIndex evaluator to an outcome in [-1, 1].

    Raises:
        InvalidInputError: The evaluation has no result, or a score outside [0, 1].
    """
    if not isinstance(outcome, EvaluationResult):
        return outcome
    if outcome.passing is not None:
        return rule.convert_score(outcome.passing)
    if outcome.invalid_result or outcome.score is None:
        msg = f"the evaluation has no result ({outcome.invalid_reason}): there is nothing to learn"
        raise InvalidInputError(msg)
    return rule.convert_score(outcome.score)


def get_answer_text(response: Any) -> str | None:
    """Return the text of a response; None for nodes, and for a stream that was not read."""
    if isinstance(response, (Response, PydanticResponse)):
        return str(response) if response.response else None
    for name in ("response_txt", "response"):
        said = getattr(response, name, None)
        said = getattr(said, "content", said)
        if isinstance(said, str) and said:
            return said
    return None


def _set_feedback_id(fields: FeedbackFields, turn: str, turns: list[str]) -> FeedbackFields:
    """Make the caller's feedback id unique for each of several turns."""
    if "feedback_id" not in fields or len(turns) == 1:
        return fields
    return {**fields, "feedback_id": f"{fields['feedback_id']}-{turn}"}


def _iterate_turns(found: Any, *, part: bool = False) -> Iterable[str]:
    """Yield turns of a response, or of a ``part`` of it, where texts are not turn ids."""
    if isinstance(found, NodeWithScore):
        block = read_answer_block(found.node.metadata)
        if block is not None and isinstance(block["turn_id"], str):
            yield block["turn_id"]
    elif isinstance(found, str):
        if not part:
            yield found
    elif isinstance(found, (list, tuple)):
        for item in found:
            yield from _iterate_turns(item, part=part)
    else:
        held = getattr(found, "__dict__", {})
        for name in _PARTS:
            if name in held:
                yield from _iterate_turns(held[name], part=True)
