"""Plans the import of a namespace before anything is written."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from crabpath_retrievers.changes.archive import Block, Renames, Row
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.portable import needed
from crabpath_retrievers.storage.taken import Whose
from crabpath_retrievers.text import question_id

_AUTO = "auto:"  # prefix of the ids of automatic notes


@dataclass(slots=True)
class Survey:
    """Counts and id conflicts of an import.

    Attributes:
        rows: Number of rows in the archive, by table.
        left_out: Number of rows that refer to missing documents, by table.
        missing: Ids of documents that do not exist in this store.
        taken: Ids, by table, that other namespaces of this store use.
        episodes: New ids of episodes by old id.
    """

    rows: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    missing: set[str] = field(default_factory=set)
    taken: dict[str, set[str]] = field(default_factory=dict)
    episodes: dict[str, str] = field(default_factory=dict)

    def make_renames(self, former: str, name: str) -> Renames:
        """Return the renames that the import needs."""
        turns, feedback, notes = (
            {node: _make_id(node, name) for node in sorted(self.taken.get(table, ()))}
            for table in ("turns", "feedback", "nodes")
        )
        return Renames(name, former, turns, feedback, notes, self.episodes)


def surveyed(store: GraphStore, blocks: Iterable[Block], former: str, name: str) -> Survey:
    """Plan the import of a namespace.

    Args:
        store: The store to import into.
        blocks: Rows of the namespace, with nodes by id.
        former: Name of the namespace in the archive.
        name: Name of the namespace in the store; its own rows there are no conflict.
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
    """Return new ids of episodes whose id is derived from namespace and query."""
    return {
        row["id"]: question_id(name, row["query"])
        for row in rows
        if row["id"] == question_id(former, row["query"])
    }


def _make_id(identity: str, namespace: str) -> str:
    digest = sha256(f"{namespace}\n{identity}".encode()).hexdigest()[:32]
    return f"{_AUTO}{digest}" if identity.startswith(_AUTO) else digest
