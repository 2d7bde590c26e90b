"""Change records of history: undo of feedback, snapshots, and transition counts of regions."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from crabpath_retrievers.core.changes.corpus import Change

RegionKey = tuple[int, int]
"""A region: its level and the key of its hub; key 0 means all regions together."""

STATES = -1
"""The level of agents: each state of an episode in words is a region of its namespace."""


class TransitionCount(NamedTuple):
    """Counts of one transition, to be added; negative counts undo.

    Attributes:
        level: Level of the regions; 0 for the sum over all regions of documents, -1 for the states
            of agents.
        region: Key of the hub of the region in which the action was taken; 0 for all of them.
        task: Task type; empty for the sum over all types.
        action: Action type; empty for turns that passed through the region, whatever they did.
        next: Key of the hub of the region that it led to; 0 if unknown.
        trials: How often it was taken.
        wins: Sum of its successes, each in [0, 1].
        ends, end_wins: Both for transitions that ended their episode. Without an action, on
            level -1, ``ends`` is the number of episodes that were won.
    """

    level: int
    region: int
    task: str
    action: str
    next: int
    trials: float
    wins: float
    ends: float = 0.0
    end_wins: float = 0.0

    @property
    def place(self) -> tuple[int, int, str, str, int]:
        """The key of the row: level, region, task, action, next region."""
        return self[:5]

    @property
    def counts(self) -> tuple[float, float, float, float]:
        """The values of the row: trials, wins, ends, wins among the ends."""
        return self[5:]


@dataclass(frozen=True, slots=True)
class AddTransitions(Change):
    """Add to the transition counts of a namespace."""

    touches_corpus: ClassVar[bool] = False
    namespace: str
    steps: tuple[TransitionCount, ...]


@dataclass(frozen=True, slots=True)
class UndoFeedback(Change):
    """Subtract all effects of applied feedback, those on notes too, and release its turns.

    Raises ``ConflictError`` when the feedback is no longer applied, or when the namespace changed
    since ``version`` was read.

    Attributes:
        version: Version of the namespace when it was read.
        model: Ranking model of the namespace without the feedback, as JSON.
        note: Reason, stored with the feedback; None keeps the status of feedback that waits again.
    """

    touches_corpus: ClassVar[bool] = False
    namespace: str
    feedback_id: str
    version: int
    model: str
    note: str | None
