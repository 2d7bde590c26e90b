"""Settings of maintenance, as frozen data; pass a changed copy."""

from dataclasses import dataclass

from crabpath_retrievers.config.kinds import require_kinds
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.text import shown

_PLACES = (
    *("source", "title", "path", "file_path", "file_name", "filename", "url", "page", "page_label"),
    *("start_index", "authority", "merged_from"),
)
_COUNTS = ("age", "broad", "part", "questions", "neighbours", "turns", "journal", "batch")


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
        merge: Whether near-duplicates are merged by every maintenance, or only when that is asked
            for alone.
        alike: Two texts that say the same word by word are merged from this cosine on.
        places: Metadata keys that tell where a text stands; they may differ, all others must not.
        split: Whether broad texts are split by every maintenance, or only when that is asked for
            alone: the ids of what is returned change with it.
        broad: Characters from which a text may be too broad.
        part: Characters of a part, at most where it can be cut.
        questions, together: A long text without headings is too broad when at least so many
            questions that it helped with have a mean cosine below ``together``.
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
    merge: bool = True
    alike: float = 0.97
    places: tuple[str, ...] = _PLACES
    split: bool = False
    broad: int = 6_000
    part: int = 1_500
    questions: int = 4
    together: float = 0.3
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
        require_kinds(self)
        for name in ("faded", "weakest", "inhibition", "alike", "together", "near"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                msg = f"{name} must be between 0 and 1, not {shown(getattr(self, name))}"
                raise InvalidInputError(msg)
        for name in _COUNTS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                msg = f"{name} must be a whole number of at least 1, not {shown(value)}"
                raise InvalidInputError(msg)
        if self.part >= self.broad:
            msg = f"part must be below broad ({self.broad}), not {shown(self.part)}"
            raise InvalidInputError(msg)
