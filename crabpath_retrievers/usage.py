"""What language models were used, in calls, tokens and money."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """What language models were used for a turn.

    Attributes:
        calls: Requests to a model, those among them that failed.
        cached_calls: Further requests that a cache of the host answered.
        failures: Requests without a usable answer.
        input_tokens, output_tokens: As the model counted them; estimated where it does not.
        cost_usd: By the prices that the user gave; 0 without prices.
    """

    calls: int = 0
    cached_calls: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        """Both together."""
        return Usage(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def __sub__(self, other: "Usage") -> "Usage":
        """What came since ``other``."""
        return Usage(*(getattr(self, name) - getattr(other, name) for name in self.__slots__))
