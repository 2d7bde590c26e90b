"""Change record of the autotuner: settings of one namespace, and the state of its tuning."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SetKnobs:
    """Set the knobs of a namespace, which is created if it is new; changed knobs are journaled.

    Raises ``ConflictError`` when the knobs or the tuning state changed since they were read.

    Attributes:
        run: Id of the maintenance run, by which the change can be undone.
        knobs: Values that override the settings, as a JSON object by name; None for none.
        tuning: State of the autotuner, as JSON; None for none.
        before: Knobs and tuning state as they were read.
        why: Reasons, JSON-safe; kept in the journal.
    """

    run: str
    namespace: str
    knobs: str | None
    tuning: str | None
    before: tuple[str | None, str | None]
    why: tuple[Mapping[str, Any], ...] = ()
