"""Change record of the autotuner: knobs of a namespace, and what it knows of turning them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SetKnobs:
    """Give a namespace knobs of its own; journaled where they are others than before.

    Raises ``ConflictError`` when its knobs, or what is known of turning them, are not any more
    what was read. One that was never used is made by it.

    Attributes:
        run: By which it is taken back, as a maintenance is.
        knobs: Those that differ from the settings, by name, as JSON; None for none.
        tuning: What is known of turning them, as JSON; None for nothing.
        before: Both as they were read.
        why: What turned them, JSON-safe; kept in the journal.
    """

    run: str
    namespace: str
    knobs: str | None
    tuning: str | None
    before: tuple[str | None, str | None]
    why: tuple[Mapping[str, Any], ...] = ()
