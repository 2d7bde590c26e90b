"""Imports an archive, or one namespace of it, in one transaction that is planned before."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from crabpath_retrievers.core.changes import Change, ForgetNamespace, PutMeta
from crabpath_retrievers.core.changes.archive import Block, FillNamespace, FillStore, IdRenames, Row
from crabpath_retrievers.core.text import hash_question
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.registry import NAMESPACE_TABLES
from crabpath_retrievers.storage.write.archive import (
    IdConflicts,
    NodeNames,
    find_required_nodes,
    translate_rows,
)
from crabpath_retrievers.transfer.archive_reader import Archive
from crabpath_retrievers.vectors.embedder import parse_identity, require_same_embedder


def select_namespace(archive: Archive, namespace: str | None) -> str | None:
    """Return the namespace to import; None for the whole store.

    Raises:
        InvalidInputError: The archive does not contain the namespace.
    """
    own = archive.manifest.namespace
    if namespace is None or namespace == own:
        return own
    held = (
        {own} if own is not None else {row["name"] for row in _iterate_rows(archive, "namespaces")}
    )
    if namespace not in held:
        names = ", ".join(sorted(map(repr, held))) or "none"
        msg = f"the archive does not contain namespace {namespace!r}: it contains {names}"
        raise InvalidInputError(msg)
    return namespace


def make_block_reader(archive: Archive, namespace: str) -> Callable[[], Iterator[Block]]:
    """Make a function that yields the rows of a namespace, with nodes by id, on every call."""
    if archive.manifest.namespace is not None:
        return lambda: archive.blocks(list(NAMESPACE_TABLES))
    spaces, feedback = (_iterate_rows(archive, table) for table in ("namespaces", "feedback"))
    key = next(row["key"] for row in spaces if row["name"] == namespace)
    nodes = [(row["key"], row["id"], row["owner"]) for row in _iterate_rows(archive, "nodes")]
    naming = NodeNames({node: name for node, name, _ in nodes}, int)
    own_nodes = {node for node, _, owner in nodes if owner == key}
    feedback_ids = {row["id"] for row in feedback if row["namespace"] == namespace}
    # As ``registry.find_own_rows`` selects them in a store; other tables have the key.
    is_own: dict[str, Callable[[Row], bool]] = {
        "namespaces": lambda row: row["key"] == key,
        "nodes": lambda row: row["owner"] == key,
        "contents": lambda row: row["node"] in own_nodes,
        "feedback": lambda row: row["namespace"] == namespace,
        "consumed_turns": lambda row: row["feedback"] in feedback_ids,
    }

    def has_key(row: Row) -> bool:
        return bool(row["namespace"] == key)

    def read_blocks() -> Iterator[Block]:
        for table, rows in archive.blocks(list(NAMESPACE_TABLES)):
            own = [row for row in rows if is_own.get(table, has_key)(row)]
            if own:
                yield table, list(translate_rows((table, own), naming))

    return read_blocks


def _iterate_rows(archive: Archive, table: str) -> Iterator[Row]:
    for _, rows in archive.blocks([table]):
        yield from rows


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


class ImportResult(NamedTuple):
    """Result of an import.

    Attributes:
        namespace: Name of the namespace in this store; None for a whole store.
        rows: Number of rows written, by table.
        left_out: Number of rows not written, by table: they refer to documents that do not exist
            in this store.
        missing: Number of these documents.
        before: True if the archive had been imported before, so that only its vectors remained.
    """

    namespace: str | None
    rows: dict[str, int]
    left_out: Mapping[str, int] = {}
    missing: int = 0
    before: bool = False


def fill_store(store: GraphStore, fill: FillStore, rows: Mapping[str, int]) -> ImportResult:
    """Write a whole store into an empty one; its vectors are indexed afterwards.

    Raises:
        InvalidInputError: The store contains something else.
    """
    if store.catalog.meta().get("origin") == fill.origin:
        return ImportResult(None, dict(rows), before=True)
    store.apply([fill])
    return ImportResult(None, dict(rows))


def fill_namespace(
    store: GraphStore, archive: Archive, former: str, name: str, *, replace: bool
) -> ImportResult:
    """Write the learned data of a namespace into a store with the same documents.

    Args:
        store: The store to write.
        archive: Archive with the namespace.
        former: Name of the namespace in the archive.
        name: Name of the namespace in the store.
        replace: Whether to forget the namespace of this name in the store first.

    Raises:
        InvalidInputError: The namespace exists in the store, and ``replace`` is False.
        EmbeddingMismatchError: The store was built with another embedder.
    """
    blocks = make_block_reader(archive, former)
    first: list[Change] = [ForgetNamespace(name)] if replace else []
    first += _check_embedder(store, archive.manifest.embedder)
    if not replace and store.walk.get_clock(name).key:
        msg = (
            f"namespace {name!r} exists in this store already: replace it, or import it under "
            "another name"
        )
        raise InvalidInputError(msg)
    survey = plan_import(store, blocks(), former, name)
    store.apply([*first, FillNamespace(blocks(), survey.make_renames(former, name))])
    written = {table: n - survey.left_out[table] for table, n in survey.rows.items()}
    return ImportResult(name, written, dict(survey.left_out), len(survey.missing))


def _check_embedder(store: GraphStore, text: str | None) -> list[Change]:
    """Refuse vectors of another embedder; a store without one adopts that of the archive."""
    if text is None:
        return []
    known = store.catalog.meta().get("embedder")
    if known is None:
        return [PutMeta((("embedder", text),))]
    (here, probe), (there, other) = map(parse_identity, (known, text))
    require_same_embedder(probe, other, stored_model=here, model=there)
    return []
