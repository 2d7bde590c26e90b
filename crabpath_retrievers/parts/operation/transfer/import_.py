"""Imports one namespace of an archive in one transaction."""

from collections.abc import Iterator
from typing import cast

from crabpath_retrievers.core.changes import Change
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.operation.transfer.archive_reader import DOCUMENTS, Archive
from crabpath_retrievers.parts.operation.transfer.fill import Block, ImportResult, import_namespace
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.schema import OWNER_COLUMNS
from crabpath_retrievers.storage.write.history import forget_namespace
from crabpath_retrievers.storage.write.nodes import put_meta
from crabpath_retrievers.storage.write.transaction import Write
from crabpath_retrievers.vectors.embedder import parse_identity, require_same_embedder


def select_namespace(archive: Archive, namespace: str | None) -> str | None:
    """Return the namespace to import; None for the whole store.

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
    changes: list[Change] = [Write(forget_namespace, name)] if replace else []
    changes += _check_embedder(store, archive.manifest.embedder)
    named = DOCUMENTS if archive.manifest.namespace is not None else "nodes"
    documents = {row["key"]: row["id"] for row in archive.rows(named)}
    blocks = _read_namespace(archive, former)
    fill = Write(import_namespace, name, former, documents, blocks)
    *_, result = store.apply([*changes, fill])
    return cast("ImportResult", result)


def _check_embedder(store: GraphStore, text: str | None) -> list[Change]:
    """Refuse vectors of another embedder; a store without one adopts that of the archive."""
    if text is None:
        return []
    known = store.catalog.meta().get("embedder")
    if known is None:
        return [Write(put_meta, {"embedder": text})]
    require_same_embedder(parse_identity(known), parse_identity(text))
    return []
