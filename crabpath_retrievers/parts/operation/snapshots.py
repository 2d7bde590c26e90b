"""Snapshots of what a namespace has learned: taken, listed, restored, deleted."""

import time
import uuid
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Container, Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic_core import from_json

from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE
from crabpath_retrievers.core.query import parse_namespace, parse_text
from crabpath_retrievers.errors import InvalidInputError, NotFoundError, StoreError
from crabpath_retrievers.learning.undo import LearningHistory, retry_on_conflict
from crabpath_retrievers.parts.operation.rows import (
    NodeCollector,
    encode_rows,
    insert_rows,
    translate_rows,
)
from crabpath_retrievers.storage import Store
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.schema import (
    KEYED_BY_NAMESPACE,
    NOTE_TABLES,
    REEMBEDDED_AT,
    SNAPSHOT_TABLES,
    TABLES,
    find_own_rows,
)
from crabpath_retrievers.storage.sql_tools import is_one_of, split_batches
from crabpath_retrievers.storage.write.history import find_last_effect, update_namespace
from crabpath_retrievers.storage.write.learned import require_unchanged
from crabpath_retrievers.storage.write.notes import delete_notes, recount_notes
from crabpath_retrievers.storage.write.transaction import Transaction
from crabpath_retrievers.storage.write.weights import insert_unattributed_changes

SnapshotRows = dict[str, list[dict[str, Any]]]
"""Rows by table."""

_MAX_NAME_CHARS = 200
_TICK = 1e-3  # seconds between snapshots
_COMPRESSION_LEVEL = 1  # of zlib: the highest level is six times slower and saves a tenth


class Snapshot(NamedTuple):
    """A snapshot of the learned state of a namespace.

    Attributes:
        id: Id within the store.
        name: Its name; None without one.
        created: Seconds since the epoch.
        learned: Version of the namespace.
        size: Size in bytes.
    """

    id: str
    namespace: str
    name: str | None
    created: float
    learned: int
    size: int


@retry_on_conflict
def take_snapshot(history: LearningHistory, namespace: str, name: str | None) -> str:
    """Store the learned state of a namespace; return the id of the snapshot.

    See :meth:`MemoryNamespaces.snapshot`. ``name`` None stores it without a name.
    """
    store = history.store
    space, label = parse_namespace(namespace), None if name is None else _validate_name(name)
    store.flush()  # so that a namespace with its first turn exists
    if not store.walk.get_clock(space).key:
        msg = f"namespace {space!r} has neither asked nor learned anything: check its name"
        raise NotFoundError(msg)
    if label is not None and any(one.name == label for one in list_snapshots(store, space)):
        msg = f"namespace {space!r} has a snapshot {label!r}: choose another name or delete it"
        raise InvalidInputError(msg)
    identity = uuid.uuid4().hex
    store.write(write_snapshot, space, identity, label)
    return identity


def restore_snapshot(history: LearningHistory, snapshot: str, namespace: str | None) -> Snapshot:
    """Restore the learned state of a namespace; see :meth:`MemoryNamespaces.restore`."""
    store = history.store
    stored = _find_snapshot(store, snapshot, namespace)
    key = store.walk.get_clock(stored.namespace).key
    episodes, notes = store.learned.episode_ids(key), store.notes.ids(key)
    store.write(apply_snapshot, stored.id)
    history.delete_vectors(store, key, episodes, notes)
    history.episodes.catch_up()
    return stored


def delete_snapshot(history: LearningHistory, snapshot: str, namespace: str | None) -> str:
    """Delete a snapshot and return its id; it is looked up as by :func:`restore_snapshot`."""
    stored = _find_snapshot(history.store, snapshot, namespace)
    history.store.write(drop_snapshot, stored.id)
    return stored.id


def _find_snapshot(store: Store, snapshot: str, namespace: str | None) -> Snapshot:
    """Find a snapshot by its id, or by its name within its namespace.

    ``namespace`` None finds an id anywhere, and a name in the default namespace.
    """
    scope = None if namespace is None else parse_namespace(namespace)
    snapshot = parse_text("snapshot", snapshot)
    known = list_snapshots(store, scope)
    default_scope = scope or DEFAULT_NAMESPACE
    for stored in known:
        if stored.id == snapshot or (stored.name == snapshot and stored.namespace == default_scope):
            return stored
    where = "here" if scope is None else f"of namespace {scope!r}"
    msg = f"no snapshot {snapshot!r} {where}: choose one that its list of snapshots has"
    raise NotFoundError(msg)


def _validate_name(name: object) -> str:
    text = parse_text("the name", name).strip()
    if not 1 <= len(text) <= _MAX_NAME_CHARS:
        msg = f"a snapshot's name must have 1 to {_MAX_NAME_CHARS} characters, not {len(text)}"
        raise InvalidInputError(msg)
    return text


def list_snapshots(store: Store, namespace: str | None = None) -> list[Snapshot]:
    """List the snapshots of a namespace, newest first; None lists those of all."""
    query = (
        sa.select(
            s.snapshots.c.id,
            s.namespaces.c.name.label("namespace"),
            s.snapshots.c.name,
            s.snapshots.c.created,
            s.snapshots.c.version,
            sa.func.length(s.snapshots.c.content),
        )
        .join(s.namespaces, s.namespaces.c.key == s.snapshots.c.namespace)
        .order_by(s.snapshots.c.created.desc())
    )
    if namespace is not None:
        query = query.where(s.namespaces.c.name == namespace)
    with store.connect() as connection:
        return [Snapshot(*row) for row in connection.execute(query)]


def write_snapshot(tx: Transaction, namespace: str, identity: str, name: str | None = None) -> None:
    """Copy the learned state of a namespace to a snapshot with the id ``identity``.

    Raises:
        ConflictError: There is no such namespace.
    """
    tx.touches_corpus = True
    query = sa.select(s.namespaces.c.key, s.namespaces.c.version)
    own = s.namespaces.c.name == namespace
    space = tx.run(query.where(own).with_for_update(key_share=True)).one_or_none()
    require_unchanged(space is not None, namespace)
    assert space is not None  # noqa: S101
    last_change = sa.select(sa.func.max(s.weight_changes.c.sequence))
    latest = sa.select(sa.func.max(s.snapshots.c.created))
    row = {
        "id": identity,
        "namespace": space.key,
        "name": name,
        # Later than all others, also after the clock was set back: lists are in this order.
        "created": max(time.time(), (tx.scalar(latest) or 0.0) + _TICK),
        "version": space.version,
        "last_weight_change": tx.scalar(
            last_change.where(s.weight_changes.c.namespace == space.key)
        )
        or 0,
        "last_feedback_effect": find_last_effect(tx, space.key),
        "content": _read_rows(tx, space.key, namespace),
    }
    tx.add(s.snapshots, [row])


def apply_snapshot(tx: Transaction, identity: str) -> None:
    """Replace the learned state of a namespace by that of the snapshot ``identity``.

    Nodes that were deleted in the meantime are skipped. Feedback stays applied, and its turns stay
    consumed.

    Raises:
        ConflictError: There is no such snapshot.
        InvalidInputError: The embedder was changed after the snapshot.
    """
    tx.touches_corpus = True
    query = sa.select(s.snapshots, s.namespaces.c.name.label("space"))
    query = query.join(s.namespaces, s.namespaces.c.key == s.snapshots.c.namespace)
    held = query.where(s.snapshots.c.id == identity).with_for_update(key_share=True)
    kept = tx.run(held).one_or_none()
    require_unchanged(kept, identity)
    assert kept is not None  # noqa: S101
    changed = tx.scalar(sa.select(s.meta.c.value).where(s.meta.c.name == REEMBEDDED_AT))
    if changed is not None and kept.created < float(changed):
        msg = (
            "the snapshot is older than the embedder of the memory, and its vectors are those of "
            "the former one: it cannot be restored"
        )
        raise InvalidInputError(msg)
    key, rows = kept.namespace, _decode_snapshot(kept.content)
    _restore_notes(tx, key, rows)  # before the learned state, which refers to notes
    (space,) = rows["namespaces"]
    update_namespace(tx, key, exponent=space["exponent"], model=space["model"])
    # The restored state lacks later changes, so nothing is left of them to undo.
    for table, known in (
        (s.weight_changes, kept.last_weight_change),
        (s.feedback_effects, kept.last_feedback_effect),
    ):
        tx.delete(table, table.c.namespace == key, table.c.sequence > known)
    _restore_learned(tx, key, kept.space, rows)
    insert_unattributed_changes(tx, key)


def _restore_learned(tx: Transaction, namespace: int, name: str, rows: SnapshotRows) -> None:
    """Restore the tables of learned state from ``rows``; rows of deleted nodes are skipped."""
    learned = [
        table
        for table in SNAPSHOT_TABLES
        if TABLES[table] in KEYED_BY_NAMESPACE and table not in NOTE_TABLES
    ]
    asked = NodeCollector()
    for table in learned:
        translate_rows(table, rows[table], asked)
    keys = {key: key for key in tx.hold_nodes(asked)}
    for table in learned:
        tx.delete(TABLES[table], TABLES[table].c.namespace == namespace)
        insert_rows(tx, table, translate_rows(table, rows[table], keys), namespace, name)


def drop_snapshot(tx: Transaction, identity: str) -> None:
    """Delete the snapshot ``identity``; the learned state of the namespace does not change."""
    tx.delete(s.snapshots, s.snapshots.c.id == identity)


def _restore_notes(tx: Transaction, namespace: int, rows: SnapshotRows) -> None:
    """Restore the notes of a snapshot, given as ``rows``, and delete all others."""
    back = {node["key"] for node in rows["nodes"]}
    present = tx.run(sa.select(s.notes.c.node).where(s.notes.c.namespace == namespace)).scalars()
    for part in split_batches(sorted(set(present) - back)):
        delete_notes(tx, is_one_of(tx.connection, s.notes.c.node, part))
    here = {"owner": namespace, "namespace": namespace, "indexed": 0}
    for name, column in NOTE_TABLES.items():
        table = TABLES[name]
        own = {local: value for local, value in here.items() if local in table.c}
        tx.delete_in(table.c[column], sorted(back))
        tx.add(table, [{**row, **own} for row in rows[name]])
    recount_notes(tx, [namespace])


def _read_rows(tx: Transaction, namespace: int, name: str) -> bytes:
    """Read the learned state of a namespace, given by key and name, as compressed bytes."""
    own = find_own_rows(namespace, name)
    queries = {table: sa.select(TABLES[table]).where(own[table]) for table in SNAPSHOT_TABLES}
    return _compress({table: tx.dicts(query) for table, query in queries.items()})


def _compress(rows: SnapshotRows) -> bytes:
    return zlib.compress(encode_rows(rows), _COMPRESSION_LEVEL)


def _decode_snapshot(data: bytes) -> SnapshotRows:
    """The inverse of :func:`_read_rows`."""
    try:
        found = from_json(zlib.decompress(data), allow_inf_nan=False)
        return {table: _decode_rows(table, found[table]) for table in SNAPSHOT_TABLES}
    except (ValueError, TypeError, LookupError, AttributeError, zlib.error) as error:
        msg = f"the snapshot is damaged ({error}): delete it, and restore another one"
        raise StoreError(msg) from error


def _decode_rows(table: str, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    binary = [c.name for c in TABLES[table].c if isinstance(c.type, sa.LargeBinary)]
    return [{**row, **{name: urlsafe_b64decode(row[name]) for name in binary}} for row in rows]


def remove_notes_from_snapshot(data: bytes, keys: Container[int]) -> bytes:
    """Remove the notes with these keys from the compressed ``data`` of a snapshot."""
    rows = _decode_snapshot(data)
    for table, column in NOTE_TABLES.items():
        rows[table] = [row for row in rows[table] if row[column] not in keys]
    return _compress(rows)
