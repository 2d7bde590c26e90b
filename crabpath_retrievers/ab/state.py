"""State of a trial, as stored."""

import json
import math
import time
from dataclasses import asdict, dataclass, replace
from typing import Literal

from crabpath_retrievers.ab.arms import require_trial_name
from crabpath_retrievers.ab.fail_rule import TrialCheckpoint
from crabpath_retrievers.config.ab import TrialSettings
from crabpath_retrievers.errors import InvalidInputError

TrialStatus = Literal["running", "rolled_back", "promoted"]


@dataclass(frozen=True, slots=True)
class TrialState:
    """State of a trial.

    Attributes:
        name: Name, unique in its store.
        share: Share of the sessions that get the treatment, in [0, 1].
        fresh: Whether the control has its own namespaces, too.
        settings: Sizes, confidence and fail rule.
        started: Time of the start, in seconds since the epoch.
        status: ``running`` until the trial is rolled back or promoted.
        ended: Time of the end, in seconds since the epoch; None while it runs.
        reason: Why it ended.
        checkpoints: Checkpoints, oldest first.
    """

    name: str
    share: float
    fresh: bool
    settings: TrialSettings
    started: float
    status: TrialStatus = "running"
    ended: float | None = None
    reason: str | None = None
    checkpoints: tuple[TrialCheckpoint, ...] = ()

    @classmethod
    def new(cls, name: str, share: float, settings: TrialSettings, *, fresh: bool) -> "TrialState":
        """Make the state of a trial that starts now.

        Raises:
            InvalidInputError: The name is not valid, or the share is out of [0, 1].
        """
        number = math.nan
        if isinstance(share, (int, float)) and not isinstance(share, bool):
            number = float(share)
        if not 0.0 <= number <= 1.0:
            msg = f"share must be a number from 0 to 1, not {share!r}"
            raise InvalidInputError(msg)
        return cls(require_trial_name(name), number, bool(fresh), settings, time.time())

    def end(self, status: TrialStatus, reason: str) -> "TrialState":
        """Return the state of the trial, ended now."""
        return replace(self, status=status, ended=time.time(), reason=reason)

    def to_json(self) -> str:
        """Serialise the state."""
        return json.dumps({**asdict(self), "settings": self.settings.to_dict()})

    @classmethod
    def from_json(cls, text: str) -> "TrialState":
        """The inverse of :meth:`to_json`."""
        data = json.loads(text)
        data["settings"] = TrialSettings(**data["settings"])
        data["checkpoints"] = tuple(TrialCheckpoint(**one) for one in data["checkpoints"])
        return cls(**data)
