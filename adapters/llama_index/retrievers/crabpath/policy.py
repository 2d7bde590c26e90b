"""What the end of a query says, when nobody says anything."""

import asyncio
from dataclasses import dataclass, fields
from typing import Any

from crabpath_retrievers.outcome import learnable
from llama_index.retrievers.crabpath.responses import STREAMS, answer_of
from llama_index.retrievers.crabpath.runs import Run

_STOPPED = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)


@dataclass(frozen=True, slots=True)
class OutcomePolicy:
    """Outcomes in [-1, 1] by what was seen; None learns nothing from it.

    All are off by default: a query that ended says little about whether its answer was right, and
    one that failed says little about retrieval. Use small values, such as 0.2 and -0.2.

    Attributes:
        root_end: An answer was given and nothing failed (silent success). Streams do not count:
            nobody knows whether they were read.
        error: The query, chat or agent run raised.
        tool_error: It gave an answer, but a part of it raised on the way.
    """

    root_end: float | None = None
    error: float | None = None
    tool_error: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be learned from.

        Raises:
            InvalidInputError: A value is no number in [-1, 1].
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                learnable(value, name=field.name)

    def outcome(self, run: Run, result: Any, error: BaseException | None) -> float | None:
        """What the end of a run says of its turns; its last words become its answer.

        Args:
            run: The run.
            result: What it returned.
            error: What it raised instead.
        """
        if isinstance(error, _STOPPED):
            return None
        result = getattr(result, "result", result)  # an agent's, as a workflow returns it
        said = result if isinstance(result, str) else answer_of(result)
        run.answer = said or run.answer
        # A workflow that raised ends without a result.
        if error is not None or (run.broken and result is None):
            return self.error
        if run.broken:
            return self.tool_error
        streamed = isinstance(result, STREAMS) or (run.streamed and not said)
        return None if streamed or run.answer is None else self.root_end
