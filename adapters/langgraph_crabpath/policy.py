"""What a run of an agent says about its documents, where no person says anything."""

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage, ToolMessage

from crabpath_retrievers.outcome import learnable


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPolicy:
    """The outcome of a run by what happened in it.

    Attributes:
        success: Outcome in [-1, 1] of a run that ended without a failed tool. None, the default,
            learns nothing from silence: who was content and who gave up look the same.
        tool_error: Outcome in [-1, 1] of a run in which a tool failed; None learns nothing.
    """

    success: float | None = None
    tool_error: float | None = -0.3

    def __post_init__(self) -> None:
        """Refuse what cannot be learned from.

        Raises:
            InvalidInputError: A value that is no number in [-1, 1].
        """
        for name in ("success", "tool_error"):
            value = getattr(self, name)
            if value is not None:
                learnable(value, name=name)

    def __call__(self, messages: Sequence[BaseMessage]) -> float | None:
        """The outcome of a run, from the messages that it added; None when nothing is known."""
        failed = any(
            isinstance(message, ToolMessage) and message.status == "error" for message in messages
        )
        return self.tool_error if failed else self.success
