"""Finds the turns behind responses of LlamaIndex, and makes feedback about them."""

from typing import Any, TypeAlias

from llama_index.core.base.response.schema import (
    AsyncStreamingResponse,
    PydanticResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.chat_engine.types import StreamingAgentChatResponse
from llama_index.core.evaluation import EvaluationResult
from typing_extensions import Unpack

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, OutcomePolicy, Rule
from crabpath_retrievers.integration import (
    FeedbackFields,
    Outcome,
    Receipt,
    find_turn_ids,
    make_outcome_feedback,
    parse_outcome,
    record_outcome,
)

Evaluated: TypeAlias = Outcome | EvaluationResult
"""An outcome, or the result of a LlamaIndex evaluator."""

STREAMS = (StreamingResponse, AsyncStreamingResponse, StreamingAgentChatResponse)
"""Responses that are read after they are returned."""

_SCORE = OutcomePolicy().score


def turns_of(response: object) -> list[str]:
    """Return the ids of the turns behind the nodes of a response, each once.

    Args:
        response: A response of a query or chat engine, the output of an agent, nodes, or the id
            of a turn.
    """
    return find_turn_ids(response)


def record(
    memory: CrabPath,
    response: object,
    outcome: Evaluated,
    *,
    strict: bool = True,
    **fields: Unpack[FeedbackFields],
) -> list[Receipt]:
    """Record feedback for a response: see ``CrabPathRetriever.record``.

    Feedback that an event handler recorded by itself for the same turns is undone first.

    Args:
        memory: The memory of the turns.
        response: As for :func:`turns_of`; the span id of the retrieval may replace the turn id.
        outcome: As for ``CrabPathRetriever.record``.
        strict: False returns the receipts also where all were refused.
        fields: Other fields of :class:`~crabpath_retrievers.core.feedback.Feedback`.

    Returns:
        One receipt per turn.

    Raises:
        InvalidInputError: The response has no turn, a field is not valid, or nothing can be
            learned from it.
        NotFoundError: There is no such turn.
        StoreError: The feedback could not be stored.
    """
    value, given = _complete(response, outcome, _SCORE, fields)
    return record_outcome(memory.record, response, value, strict=strict, **given)


def make_response_feedback(
    response: object, outcome: Evaluated, rule: Rule = _SCORE, **fields: Unpack[FeedbackFields]
) -> list[Feedback]:
    """Make one feedback per turn of a response, as :func:`record` does."""
    value, given = _complete(response, outcome, rule, fields)
    return make_outcome_feedback(response, value, **given)


def _complete(
    response: object, outcome: Evaluated, rule: Rule, fields: FeedbackFields
) -> tuple[float, FeedbackFields]:
    """Return the outcome as a number, and the fields completed by response and evaluation."""
    if isinstance(outcome, EvaluationResult):
        fields.setdefault("source", rule.source)
    if "used" not in fields and "answer" not in fields:
        fields["answer"] = get_answer_text(response)
    return to_outcome(outcome, rule), fields


def to_outcome(outcome: Evaluated, rule: Rule) -> float:
    """Convert an outcome or the result of a LlamaIndex evaluator to a number in [-1, 1]."""
    if not isinstance(outcome, EvaluationResult):
        return parse_outcome(outcome)
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
