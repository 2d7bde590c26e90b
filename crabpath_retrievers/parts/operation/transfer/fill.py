"""Imports: all rows of another store, or what one of its namespaces has learned."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple, cast

import sqlalchemy as sa
from pydantic_core import from_json, to_json

from crabpath_retrievers.core.changes import Change
from crabpath_retrievers.core.feedback import DOCUMENT_FIELDS
from crabpath_retrievers.core.records import compute_hub_level
from crabpath_retrievers.core.terms import list_terms
from crabpath_retrievers.core.text import (
    has_signs,
    hash_question,
    list_searched_words,
    prepend_title,
)
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.operation.rows import Row, insert_rows, translate_row
from crabpath_retrievers.parts.operation.transfer.archive import DOCUMENTS, Archive, Block
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.schema import NODE_COLUMNS, OWNER_COLUMNS, TABLES
from crabpath_retrievers.storage.write.history import forget_namespace
from crabpath_retrievers.storage.write.nodes import put_meta, queue_reindex, renew_words
from crabpath_retrievers.storage.write.transaction import Transaction, Write, write_journal
from crabpath_retrievers.vectors.embedder import parse_identity, require_same_embedder

_AT_ONCE = 500  # texts that are tokenised at once
_AUTO = "auto:"  # prefix of the ids of automatic notes


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


def import_store(
    tx: Transaction, blocks: Iterable[Block], last: Mapping[str, int], origin: str
) -> ImportResult:
    """Write all rows of another store, with their keys; vectors are queued for the index.

    Args:
        tx: The transaction, of an empty store.
        blocks: The rows, which are read once, within the transaction.
        last: Highest key that each table with generated keys has assigned.
        origin: Identifies the copied store, so that a repeated import is recognised.
    """
    tx.touches_corpus = True
    for table in (s.nodes, s.namespaces, s.feedback, s.staging):
        if tx.scalar(sa.select(sa.exists(sa.select(table)))):
            msg = "this store holds a memory already: choose an empty place for another one"
            raise InvalidInputError(msg)
    written = Counter[str]()
    for name, rows in blocks:
        written[name] += len(rows)
        if name == "meta":
            put_meta(tx, {row["name"]: row["value"] for row in rows})
        else:
            tx.add(TABLES[name], list(map(_set_level, rows)) if name == "nodes" else rows)
    for name, highest in last.items():
        _set_last_key(tx, TABLES[name], highest)
    _index_all_texts(tx)
    queue_reindex(tx)
    renew_words(tx, has_signs)  # archives of older schemas have none of these words
    put_meta(tx, {"origin": origin})
    write_journal(tx, "import", {"origin": origin})
    return ImportResult(None, dict(written))


def _set_level(row: Row) -> Row:
    """Set the hub level of a node's row, which follows from its id; notes are no hubs."""
    return {**row, "level": 0 if row["owner"] > 0 else compute_hub_level(row["id"])}


def _set_last_key(tx: Transaction, table: sa.Table, last: int) -> None:
    """Continue the keys of a table after ``last``, so that those of deleted rows are not reused."""
    if last == 0:
        return
    if tx.connection.dialect.name == "postgresql":
        column = table.autoincrement_column
        assert column is not None  # noqa: S101  only tables with generated keys have a last key
        sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
        tx.run(sa.select(sa.func.setval(sequence, last)))
    elif table.dialect_options["sqlite"]["autoincrement"]:
        values = {"name": table.name, "last": last}
        tx.run(sa.text("DELETE FROM sqlite_sequence WHERE name = :name"), {"name": table.name})
        tx.run(sa.text("INSERT INTO sqlite_sequence(name, seq) VALUES (:name, :last)"), values)


def _index_all_texts(tx: Transaction) -> None:
    """Fill the full-text index with all visible documents, and add terms that old archives lack."""
    query = (
        sa.select(s.nodes.c.key, s.nodes.c.title, s.contents.c.content)
        .join(s.contents, s.contents.c.node == s.nodes.c.key)
        .where(s.nodes.c.owner == 0)
        .order_by(s.nodes.c.key)
        .limit(_AT_ONCE)
    )
    last, language = 0, tx.language
    while rows := tx.run(query.where(s.nodes.c.key > last)).all():
        texts = [
            (row.key, list_searched_words(prepend_title(row.title, row.content), language))
            for row in rows
        ]
        tx.fulltext.add(tx.connection, texts)
        terms = [(term, row.key) for row in rows for term in list_terms(row.title, row.content)]
        tx.add_missing(s.references, [{"address": term, "node": key} for term, key in terms])
        last = rows[-1].key


def import_namespace(
    tx: Transaction,
    namespace: str,
    former: str,
    documents: Mapping[int, str],
    blocks: Iterable[Block],
) -> ImportResult:
    """Write the learned state of one namespace of another store, whose keys the rows have.

    Rows that refer to a document which does not exist here are left out.

    Args:
        tx: The transaction.
        namespace: Name of the namespace here.
        former: Its name in the other store.
        documents: Ids of documents by key in the other store.
        blocks: The rows, which are read once; each table comes after those that it refers to.
    """
    tx.touches_corpus = True
    if tx.find_key(namespace) is not None:
        msg = (
            f"namespace {namespace!r} exists in this store already: replace it, or import "
            "it under another name"
        )
        raise InvalidInputError(msg)
    importing = _NamespaceImport(tx, namespace, former, documents)
    for table, rows in blocks:
        importing.add(table, rows)
    write_journal(tx, "import_namespace", {}, namespace)
    return importing.build_result()


class _NamespaceImport:
    """Writes rows of one namespace, and remembers which keys and ids they get here."""

    def __init__(
        self, tx: Transaction, name: str, former: str, documents: Mapping[int, str]
    ) -> None:
        self._tx, self._name, self._former = tx, name, former
        self._keys = {0: 0, **self._find_keys(documents)}
        self._namespace = 0  # until its row is written
        # New ids by former id, by table.
        self._ids: dict[str, dict[str, str]] = {
            table: {} for table in ("nodes", "turns", "episodes")
        }
        self._rows, self._left_out = Counter[str](), Counter[str]()
        self._missing = set[int]()

    def build_result(self) -> ImportResult:
        """Count the rows that were written, and those that were left out."""
        counts = dict(self._rows), dict(self._left_out)
        return ImportResult(self._name, *counts, len(self._missing))

    def _find_keys(self, documents: Mapping[int, str]) -> dict[int, int]:
        """Map former keys of documents, given with their ids, to keys here; others are left out."""
        query = sa.select(s.nodes.c.id, s.nodes.c.key).where(s.nodes.c.owner == 0)
        found = self._tx.select_in(query, s.nodes.c.id, documents.values())
        here = {node: key for node, key in found}
        return {key: here[node] for key, node in documents.items() if node in here}

    def add(self, table: str, rows: Iterable[Row]) -> None:
        """Write rows of one table; rows that refer to documents not in this store are left out."""
        known = [new for row in rows if (new := self._translate(table, row)) is not None]
        if table in {"nodes", "turns"}:
            self._rename_taken(table, [row["id"] for row in known])
        for row in known:
            self._rename(table, row)
        self._rows[table] += len(known)
        insert_rows(self._tx, table, known, self._namespace, self._name)
        if table == "namespaces":
            self._namespace = self._tx.get_key(self._name)
            if any(row["note_count"] for row in known):
                put_meta(self._tx, {"notes": "1"})
        if table == "nodes":
            keys = self._tx.get_node_keys((row["id"] for row in known), self._namespace)
            self._keys |= {row["key"]: keys[row["id"]] for row in known}

    def _translate(self, table: str, row: Row) -> dict[str, Any] | None:
        try:
            return translate_row(table, row, self._keys)
        except KeyError:
            self._left_out[table] += 1
            nodes = {row[column] for column in NODE_COLUMNS.get(table, ())}
            self._missing |= nodes - self._keys.keys()
            return None

    def _rename_taken(self, table: str, ids: Iterable[str]) -> None:
        """Choose new ids for those of the ``ids`` that this store uses for something else."""
        column = TABLES[table].c.id
        query = sa.select(column).where(*([s.nodes.c.owner <= 0] if table == "nodes" else []))
        for (taken,) in self._tx.select_in(query, column, ids):
            digest = sha256(f"{self._name}\n{taken}".encode()).hexdigest()[:32]
            self._ids[table][taken] = f"{_AUTO}{digest}" if taken.startswith(_AUTO) else digest

    def _rename(self, table: str, row: dict[str, Any]) -> None:
        """Replace name and ids in a row of ``table`` by those that were chosen in this store."""
        if table == "namespaces":
            row["name"] = self._name
        if table == "episodes" and row["id"] == hash_question(self._former, row["query"]):
            self._ids[table][row["id"]] = hash_question(self._name, row["query"])
        for column, tables in _ID_COLUMNS.get(table, {}).items():
            for one in tables:
                row[column] = self._ids[one].get(row[column], row[column])
        if self._name != self._former or any(self._ids.values()):
            self._rename_in_record(table, row)

    def _rename_in_record(self, table: str, row: dict[str, Any]) -> None:
        match table:
            case "episodes":
                self._rename_in_episode(row)
            case "turns":
                self._rename_in_turn(row)
            case "feedback":
                self._rename_in_feedback(row)
            case "feedback_effects":
                self._rename_in_effects(row)

    def _rename_in_episode(self, row: dict[str, Any]) -> None:
        row["documents"] = json.dumps(self._rename_credit(json.loads(row["documents"])))
        if row["credit_by_user"]:
            users = json.loads(row["credit_by_user"]).items()
            renamed = {user: self._rename_credit(credit) for user, credit in users}
            row["credit_by_user"] = json.dumps(renamed)

    def _rename_credit(self, documents: Mapping[str, float]) -> dict[str, float]:
        return {self._ids["nodes"].get(node, node): c for node, c in documents.items()}

    def _rename_nodes(self, ids: Iterable[str]) -> list[str]:
        return [self._ids["nodes"].get(node, node) for node in ids]

    def _rename_in_turn(self, row: dict[str, Any]) -> None:
        record = from_json(row["record"])
        # Only a turn that keeps its id keeps the run id of its host.
        row["run_id"] = row["run_id"] if row["id"] == record["id"] else None
        if self._ids["nodes"]:
            record = replace_node_ids(record, self._ids["nodes"])
        record |= {"id": row["id"], "namespace": self._name, "run_id": row["run_id"]}
        row["record"] = to_json(record).decode()

    def _rename_in_feedback(self, row: dict[str, Any]) -> None:
        payload = json.loads(row["payload"])
        for name in DOCUMENT_FIELDS:
            if payload.get(name) is not None:
                payload[name] = self._rename_nodes(payload[name])
        if "added" in payload and self._ids["nodes"]:
            payload["added"] = replace_node_ids(payload["added"], self._ids["nodes"])
        turn = self._ids["turns"].get(payload["turn_id"], payload["turn_id"])
        payload |= {"turn_id": turn, "namespace": self._name}
        row["payload"] = json.dumps(payload, ensure_ascii=False)

    def _rename_in_effects(self, row: dict[str, Any]) -> None:
        record = json.loads(row["record"])
        for note in record["notes"]:
            note["note"] = self._ids["nodes"].get(note["note"], note["note"])
            turn = note.get("turn")  # none in archives of older schemas
            note["turn"] = self._ids["turns"].get(turn, turn)
        for episode in record["episodes"]:
            episode[0] = self._ids["episodes"].get(episode[0], episode[0])
        record["used"] = self._rename_nodes(record["used"])
        row["record"] = to_json(record).decode()


# Columns with ids that an import may rename, by table, each with the tables that these come from.
_ID_COLUMNS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "nodes": {"id": ("nodes",)},
    "notes": {"turn": ("turns",)},
    "weight_changes": {"cause": ("nodes",)},
    "episodes": {"id": ("episodes",)},
    "turns": {"id": ("turns",)},
    "consumed_turns": {"turn": ("turns",)},
}


# Fields of a turn record with the id of a node, and with several.
_NODE_FIELDS = frozenset({"node", "source", "target"})
_NODE_LIST_FIELDS = frozenset({"chosen", "reflexes", "visited", "frozen", "learned"})


def replace_node_ids(value: Any, notes: Mapping[str, str]) -> Any:
    """Replace the ids of ``notes`` in a turn record, or in a part of it, by new ones."""
    if isinstance(value, list):
        return [replace_node_ids(item, notes) for item in value]
    if not isinstance(value, dict):
        return value
    new: dict[str, Any] = {}
    for name, item in value.items():
        if name in _NODE_FIELDS and isinstance(item, str):
            new[name] = notes.get(item, item)
        elif name in _NODE_LIST_FIELDS and item is not None:
            new[name] = [notes.get(node, node) for node in item]
        else:
            new[name] = replace_node_ids(item, notes)
    return new


def select_namespace(archive: Archive, namespace: str | None) -> str | None:
    """Return the name in the archive of the namespace to import; None for the whole store.

    ``namespace`` None takes what the archive is of.

    Raises:
        InvalidInputError: The archive does not contain the namespace.
    """
    wanted = archive.manifest.namespace if namespace is None else namespace
    if wanted is None:
        return None
    held = {row["name"] for row in archive.rows("namespaces")}
    if wanted not in held:
        names = ", ".join(sorted(map(repr, held))) or "none"
        msg = f"the archive does not contain namespace {wanted!r}: it contains {names}"
        raise InvalidInputError(msg)
    return wanted


def _read_namespace(archive: Archive, namespace: str) -> Iterator[Block]:
    """Yield the rows of one of the namespaces of an archive."""
    key = next(row["key"] for row in archive.rows("namespaces") if row["name"] == namespace)
    own = {
        "key": {key},
        "name": {namespace},
        "note": {row["key"] for row in archive.rows("nodes") if row["owner"] == key},
        "turn": {row["id"] for row in archive.rows("turns") if row["namespace"] == key},
    }
    for table, (column, what) in OWNER_COLUMNS.items():
        for _, rows in archive.blocks([table]):
            yield table, [row for row in rows if row[column] in own[what]]


def fill_namespace(
    store: GraphStore, archive: Archive, former: str, name: str, *, replace: bool
) -> ImportResult:
    """Write the learned data of a namespace into a store with the same documents.

    ``former`` is the name in the archive, ``name`` that in the store. If ``replace``, the namespace
    ``name`` is forgotten first.
    """
    changes: list[Change] = [Write(forget_namespace, name)] if replace else []
    changes += _check_embedder(store, archive.manifest.embedder)
    named = DOCUMENTS if archive.manifest.namespace is not None else "nodes"
    documents = {row["key"]: row["id"] for row in archive.rows(named)}
    blocks = _read_namespace(archive, former)
    fill = Write(import_namespace, name, former, documents, blocks)
    *_, result = store.apply([*changes, fill])
    return cast("ImportResult", result)


def _check_embedder(store: GraphStore, text: str | None) -> list[Change]:
    """Refuse vectors of another embedder; a store without one adopts that of the archive.

    ``text`` is the stored description of the archive's embedder; None if it has none. The changes
    are those that adopt it.
    """
    if text is None:
        return []
    known = store.catalog.meta().get("embedder")
    if known is None:
        return [Write(put_meta, {"embedder": text})]
    require_same_embedder(parse_identity(known), parse_identity(text))
    return []
