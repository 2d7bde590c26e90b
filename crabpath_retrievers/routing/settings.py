"""How a chat model is asked for routes."""

from dataclasses import dataclass
from typing import Any, Literal

from crabpath_retrievers.config.kinds import require_kinds
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.text import shown

_MOST_RETRIES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    """Budgets of a chat-model router (documents 001 §2.9 and 002 §2.2, §2.5).

    Attributes:
        calls: One call per ``turn``, at the first hop where something is unclear, or per ``hop``.
        margin: Distance from STOP, in units of relevance plus weight, from which a pointer is
            clear. Where all are clear, nothing is asked.
        known: How strongly a success of the same question must speak for what it used, in [0, 1],
            for the route to be a reflex: then nothing is asked either.
        candidates: Most candidates that are shown.
        input_tokens: Most tokens of what is sent, the schema of the answer included.
        output_tokens: Most tokens of the answer; None leaves the model as it is.
        timeout: Seconds for one decision, retries included.
        retries: Further attempts after a failure that may pass, 2 at most.
        failures: Failures in a row after which the model is left alone.
        recovery: Seconds for which it is.
        prices: US dollars per million tokens of input and of output.
        method: Of ``with_structured_output``; None for what the model prefers.
    """

    calls: Literal["turn", "hop"] = "turn"
    margin: float = 0.35
    known: float = 0.8
    candidates: int = 20
    input_tokens: int = 900
    output_tokens: int | None = 180
    timeout: float = 10.0
    retries: int = 2
    failures: int = 3
    recovery: float = 60.0
    prices: tuple[float, float] = (0.0, 0.0)
    method: str | None = None

    def __post_init__(self) -> None:
        """Refuse settings that cannot be meant.

        Raises:
            InvalidInputError: A value is out of its range.
        """
        require_kinds(self)
        known = isinstance(self.calls, str) and self.calls in ("turn", "hop")
        _require(known, "calls must be 'turn' or 'hop'", self.calls)
        _require(0 <= self.retries <= _MOST_RETRIES, "retries must be 0, 1 or 2", self.retries)
        for name in ("margin", "timeout", "recovery"):
            value = getattr(self, name)
            _require(0 < value < float("inf"), f"{name} must be above 0", value)
        for name in ("candidates", "input_tokens", "failures"):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1", getattr(self, name))
        prices = self.prices
        _require(
            isinstance(prices, (tuple, list))
            and len(prices) == 2  # noqa: PLR2004
            and all(isinstance(price, (int, float)) and price >= 0 for price in prices),
            "prices must be two numbers of at least 0, for input and output",
            prices,
        )


def _require(held: bool, rule: str, value: Any) -> None:  # noqa: FBT001
    if not held:
        msg = f"{rule}, not {shown(value)}"
        raise InvalidInputError(msg)
