"""Change records of what comes from another store: rows of an archive, vectors to be indexed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
"""A row by its columns; vectors and other binary values as bytes."""

Block = tuple[str, list[Row]]
"""Some rows of one table, with its name."""


@dataclass(frozen=True, slots=True)
class FillStore:
    """Write all rows of another store, under the keys that they have there.

    Raises ``InvalidInputError`` when this store is not empty. Vectors wait for the index.

    Attributes:
        blocks: Rows of all tables; read once, while the transaction lasts.
        last: The last key that each table with keys of its own has given, by name of the table.
        origin: Tells what was copied, to know it again.
    """

    blocks: Iterable[Block]
    last: Mapping[str, int]
    origin: str


@dataclass(frozen=True, slots=True)
class Renames:
    """What is called otherwise here than where it comes from.

    Attributes:
        namespace: Its name here.
        former: Its name there.
        turns, feedback, notes, episodes: New ids by former ones, of those that are others here.
    """

    namespace: str
    former: str
    turns: Mapping[str, str] = field(default_factory=dict)
    feedback: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    episodes: Mapping[str, str] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        """Whether anything has another name."""
        ids = (self.turns, self.feedback, self.notes, self.episodes)
        return self.namespace != self.former or any(ids)


@dataclass(frozen=True, slots=True)
class FillNamespace:
    """Write all that one namespace has learned elsewhere; nodes are named by their ids.

    What speaks of a node that does not exist here is left out. Raises ``InvalidInputError`` when
    the namespace has asked, learned or been taught here already.

    Attributes:
        blocks: Rows of the tables of a namespace; read once, while the transaction lasts.
        renames: What is called otherwise here.
    """

    blocks: Iterable[Block]
    renames: Renames


@dataclass(frozen=True, slots=True)
class IndexAgain:
    """Have vectors wait for the index, because it is another one now, or has lost them.

    Those of episodes and notes all do.

    Attributes:
        ids: Of document chunks; None for all.
    """

    ids: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class NodesIndexed:
    """The vectors of these nodes can be searched."""

    ids: tuple[str, ...]


ArchiveChange = FillStore | FillNamespace | IndexAgain | NodesIndexed
"""Changes that bring in what was learned elsewhere."""
