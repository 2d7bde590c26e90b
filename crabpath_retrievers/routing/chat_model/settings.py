"""Budgets and limits of routing by a chat model."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from crabpath_retrievers.config.base import ValidatedSettings, to_tuple

_Price = Annotated[float, Field(ge=0, le=1_000_000_000)]


class RouterSettings(ValidatedSettings):
    """When a chat model is asked for a route, and what that may cost."""

    ask_per: Literal["turn", "hop"] = Field(
        default="turn",
        description="One call per ``turn``, at the first hop with an unclear edge, or per ``hop``.",
    )
    clear_margin: float = Field(
        default=0.35,
        gt=0,
        le=1000,
        description="Distance from STOP, in units of relevance plus weight, from which an edge is "
        "clear. Where all edges are clear, the model is not asked.",
    )
    known_confidence: float = Field(
        default=0.8,
        ge=0,
        le=1000,
        description="Score of a successful episode of the same query from which its route is "
        "followed without asking the model.",
    )
    max_candidates: int = Field(
        default=20, ge=1, le=100_000, description="Candidates that the model is shown."
    )
    max_input_tokens: int = Field(
        default=900,
        ge=1,
        le=100_000_000,
        description="Tokens of the request, with the schema of the answer.",
    )
    max_output_tokens: int | None = Field(
        default=180,
        ge=1,
        le=100_000_000,
        description="Tokens of the answer; None leaves the model as it is.",
    )
    timeout: float = Field(
        default=10.0, gt=0, le=86_400, description="Seconds for one decision, retries included."
    )
    max_retries: int = Field(
        default=2, ge=0, le=2, description="Further attempts after a temporary failure."
    )
    max_failures: int = Field(
        default=3,
        ge=1,
        le=1_000_000_000,
        description="Failures in a row after which the model is not asked for a while.",
    )
    recovery_seconds: float = Field(
        default=60.0, gt=0, le=1_000_000_000, description="Seconds for which it is not asked then."
    )
    prices: Annotated[
        tuple[_Price, _Price],
        BeforeValidator(to_tuple),
    ] = Field(
        default=(0.0, 0.0), description="US dollars per million tokens of input and of output."
    )
    method: str | None = Field(
        default=None,
        description="``method`` of ``with_structured_output``; None for what the model prefers.",
    )
