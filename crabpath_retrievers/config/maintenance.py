"""Settings of maintenance, as frozen data; pass a changed copy."""

from dataclasses import dataclass

from crabpath_retrievers.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """What maintenance drops, connects and keeps (documents 001 §2.8 and 002 §4.4).

    Attributes:
        faded: A weight this near to its floor is as if nothing had been learned.
        weakest: An edge that stands on learning alone goes below this weight.
        inhibition: The same for one that inhibits, which is to be kept longer.
        age: Turns since its last move before a weight may go.
        degree, activity, success, ageing: α, β, γ, δ of the death score of a note on probation:
            per edge, per use, for its share of uses, per ``age`` turns since it was last seen.
        neighbours, near: A node without any edge is connected with so many nodes, whose cosine is
            at least ``near``.
        turns: Records of turns that a namespace keeps.
        journal: Rows of the journal that are kept.
        batch: Rows that are read, and changed, at once.
    """

    faded: float = 0.01
    weakest: float = 0.05
    inhibition: float = 0.01
    age: int = 14
    degree: float = 0.1
    activity: float = 0.5
    success: float = 1.0
    ageing: float = 0.5
    neighbours: int = 3
    near: float = 0.5
    turns: int = 5_000
    journal: int = 10_000
    batch: int = 5_000

    def __post_init__(self) -> None:
        """Refuse what would drop everything, or never end.

        Raises:
            InvalidInputError: A number is out of its range.
        """
        for name in ("faded", "weakest", "inhibition", "near"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                msg = f"{name} must be between 0 and 1, not {getattr(self, name)!r}"
                raise InvalidInputError(msg)
        for name in ("age", "neighbours", "turns", "journal", "batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                msg = f"{name} must be a whole number of at least 1, not {value!r}"
                raise InvalidInputError(msg)
