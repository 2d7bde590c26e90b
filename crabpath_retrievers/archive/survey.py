"""What importing a namespace would do here, found out before anything is written."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from crabpath_retrievers.changes.archive import Block, Renames, Row
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.portable import needed
from crabpath_retrievers.storage.taken import Whose
from crabpath_retrievers.text import question_id

_AUTO = "auto:"  # how the ids of notes on probation begin


@dataclass(slots=True)
class Survey:
    """What comes, and what it finds.

    Attributes:
        rows: How many come, by table.
        left_out: How many of them speak of documents that do not exist here, by table.
        missing: Ids of these documents.
        taken: Ids by table that somebody else has here.
        episodes: New ids of episodes.
    """

    rows: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    missing: set[str] = field(default_factory=set)
    taken: dict[str, set[str]] = field(default_factory=dict)
    episodes: dict[str, str] = field(default_factory=dict)

    def make_renames(self, former: str, name: str) -> Renames:
        """What is to be called otherwise here."""
        turns, feedback, notes = (
            {node: _make_id(node, name) for node in sorted(self.taken.get(table, ()))}
            for table in ("turns", "feedback", "nodes")
        )
        return Renames(name, former, turns, feedback, notes, self.episodes)


def surveyed(store: GraphStore, blocks: Iterable[Block], former: str, name: str) -> Survey:
    """Look at the rows of a namespace as they would stand here.

    Args:
        store: Where they are to come.
        blocks: The rows, by ids of nodes.
        former: Name of the namespace in the archive.
        name: Its name here; what stands under it here does not count.
    """
    survey, notes = Survey(), set[str]()
    with store.reading() as connection:
        conflicts = Whose(connection, name)
        for table, rows in blocks:
            survey.rows[table] += len(rows)
            if table == "nodes":
                notes |= {row["id"] for row in rows}
            if table in {"nodes", "turns", "feedback"}:
                taken = conflicts.taken(table, [row["id"] for row in rows])
                survey.taken.setdefault(table, set()).update(taken)
            if table == "episodes" and former != name:
                survey.episodes |= _rename_episodes(rows, former, name)
            _count_left_out(survey, table, rows, notes, conflicts)
    return survey


def _count_left_out(
    survey: Survey, table: str, rows: Iterable[Row], notes: set[str], conflicts: Whose
) -> None:
    of_rows = [needed(table, row) - notes for row in rows]
    asked = set().union(*of_rows)
    missing = asked - conflicts.documents(asked)
    survey.missing |= missing
    if out := sum(not missing.isdisjoint(nodes) for nodes in of_rows):
        survey.left_out[table] += out


def _rename_episodes(rows: Iterable[Row], former: str, name: str) -> Mapping[str, str]:
    """New ids of episodes that are known by their question, and so by their namespace."""
    return {
        row["id"]: question_id(name, row["query"])
        for row in rows
        if row["id"] == question_id(former, row["query"])
    }


def _make_id(identity: str, namespace: str) -> str:
    digest = sha256(f"{namespace}\n{identity}".encode()).hexdigest()[:32]
    return f"{_AUTO}{digest}" if identity.startswith(_AUTO) else digest
