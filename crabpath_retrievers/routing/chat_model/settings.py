"""Budgets and limits of routing by a chat model."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from crabpath_retrievers.config.base import Count, Positive, ValidatedSettings, to_tuple

_Price = Annotated[float, Field(ge=0, le=1_000_000_000)]


class RouterSettings(ValidatedSettings):
    """When a chat model is asked for a route, and what that may cost."""

    ask_per: Literal["turn", "hop"] = "turn"
    """One call per ``turn``, at the first hop with an unclear edge, or per ``hop``."""
    clear_margin: Annotated[float, Field(gt=0, le=1000)] = 0.35
    """Distance from STOP, in units of relevance plus weight, from which an edge is clear. Where all
    edges are clear, the model is not asked."""
    known_confidence: Annotated[float, Field(ge=0, le=1000)] = 0.8
    """Score of a successful episode of the same query from which its route is followed without
    asking the model."""
    max_candidates: Count = 20
    """Candidates that the model is shown."""
    max_input_tokens: Count = 900
    """Tokens of the request, with the schema of the answer."""
    max_output_tokens: Annotated[int | None, Field(ge=1, le=100_000_000)] = 180
    """Tokens of the answer; None leaves the model as it is."""
    timeout: Annotated[float, Field(gt=0, le=86_400)] = 10.0
    """Seconds for one decision, retries included."""
    max_retries: Annotated[int, Field(ge=0, le=2)] = 2
    """Further attempts after a temporary failure."""
    max_failures: Count = 3
    """Failures in a row after which the model is not asked for a while."""
    recovery_seconds: Positive = 60.0
    """Seconds for which it is not asked then."""
    prices: Annotated[
        tuple[_Price, _Price],
        BeforeValidator(to_tuple),
    ] = (0.0, 0.0)
    """US dollars per million tokens of input and of output."""
    method: str | None = None
    """``method`` of ``with_structured_output``; None for what the model prefers."""
