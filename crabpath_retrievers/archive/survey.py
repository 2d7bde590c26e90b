"""Plans the import of a namespace before anything is written."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from crabpath_retrievers.changes.archive import Block, IdRenames, Row
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.portable import find_required_nodes
from crabpath_retrievers.storage.taken import IdConflicts
from crabpath_retrievers.text import hash_question

_AUTO = "auto:"  # prefix of the ids of automatic notes


@dataclass(slots=True)
class ImportPlan:
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

    def make_renames(self, former: str, name: str) -> IdRenames:
        """Return the renames that the import needs."""
        turns, feedback, notes = (
            {node: _make_id(node, name) for node in sorted(self.taken.get(table, ()))}
            for table in ("turns", "feedback", "nodes")
        )
        return IdRenames(name, former, turns, feedback, notes, self.episodes)


def plan_import(store: GraphStore, blocks: Iterable[Block], former: str, name: str) -> ImportPlan:
    """Plan the import of a namespace.

    Args:
        store: The store to import into.
        blocks: Rows of the namespace, with nodes by id.
        former: Name of the namespace in the archive.
        name: Name of the namespace in the store; its own rows there are no conflict.
    """
    survey, notes = ImportPlan(), set[str]()
    with store.open_reader() as connection:
        conflicts = IdConflicts(connection, name)
        for table, rows in blocks:
            survey.rows[table] += len(rows)
            if table == "nodes":
                notes |= {row["id"] for row in rows}
            if table in {"nodes", "turns", "feedback"}:
                taken = conflicts.find_conflicts(table, [row["id"] for row in rows])
                survey.taken.setdefault(table, set()).update(taken)
            if table == "episodes" and former != name:
                survey.episodes |= _rename_episodes(rows, former, name)
            _count_left_out(survey, table, rows, notes, conflicts)
    return survey


def _count_left_out(
    survey: ImportPlan, table: str, rows: Iterable[Row], notes: set[str], conflicts: IdConflicts
) -> None:
    of_rows = [find_required_nodes(table, row) - notes for row in rows]
    asked = set().union(*of_rows)
    missing = asked - conflicts.documents(asked)
    survey.missing |= missing
    if out := sum(not missing.isdisjoint(nodes) for nodes in of_rows):
        survey.left_out[table] += out


def _rename_episodes(rows: Iterable[Row], former: str, name: str) -> Mapping[str, str]:
    """Return new ids of episodes whose id is derived from namespace and query."""
    return {
        row["id"]: hash_question(name, row["query"])
        for row in rows
        if row["id"] == hash_question(former, row["query"])
    }


def _make_id(identity: str, namespace: str) -> str:
    digest = sha256(f"{namespace}\n{identity}".encode()).hexdigest()[:32]
    return f"{_AUTO}{digest}" if identity.startswith(_AUTO) else digest
