"""Which notes that nobody vouched for have had their time (document 001 §2.8)."""

from collections.abc import Iterable
from typing import NamedTuple

from crabpath_retrievers.config.maintenance import MaintenanceSettings


class Candidate(NamedTuple):
    """A note on probation.

    Attributes:
        id: Of its node.
        degree: Learned edges from and to it.
        uses: Successful turns in which it was used.
        passes: Turns that returned it without use.
        unseen: Turns since it was last used or returned.
        authority: Of its node.
        strongest: Largest absolute weight of its edges, in [0, 1].
    """

    id: str
    degree: int
    uses: float
    passes: float
    unseen: int
    authority: int
    strongest: float


def death_score(note: Candidate, settings: MaintenanceSettings) -> float:
    """``α degree + β uses + γ success − δ age``; below 0 it dies.

    Document 001 §2.8 subtracts the success rate too, by which what succeeds dies first; it is
    added here. Age is counted in units of ``settings.min_age_turns`` turns.
    """
    tried = note.uses + note.passes
    rate = note.uses / tried if tried else 0.0
    alive = (
        settings.edge_score * note.degree
        + settings.use_score * note.uses
        + settings.success_score * rate
    )
    return alive - settings.age_penalty * note.unseen / settings.min_age_turns


def dying(
    notes: Iterable[Candidate], probation: int, strong: float, settings: MaintenanceSettings
) -> list[str]:
    """Ids of those that go: their probation is long over, and nothing speaks for them.

    First they are only not found any more, for as long again as their probation was.

    Args:
        notes: Notes on probation.
        probation: Turns.
        strong: Weight of an edge that keeps a note alive.
        settings: Weights of the score.
    """
    return [
        note.id
        for note in notes
        if note.unseen > 2 * probation
        and not note.authority
        and note.strongest < strong
        and death_score(note, settings) < 0
    ]
