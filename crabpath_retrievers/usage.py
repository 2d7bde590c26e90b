"""Usage of language models: calls, tokens and cost."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Usage of language models in a turn.

    Attributes:
        calls: Requests to a model, including failed ones.
        cached_calls: Further requests that a cache of the host answered.
        failures: Requests without a usable answer.
        input_tokens, output_tokens: As counted by the model; estimated if it does not count.
        cost_usd: Cost by the prices that the user set; 0 without prices.
    """

    calls: int = 0
    cached_calls: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "ModelUsage") -> "ModelUsage":
        """Return the sum of both."""
        return ModelUsage(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def __sub__(self, other: "ModelUsage") -> "ModelUsage":
        """Return the usage since ``other``."""
        return ModelUsage(*(getattr(self, name) - getattr(other, name) for name in self.__slots__))
