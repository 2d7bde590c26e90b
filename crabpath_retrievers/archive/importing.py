"""Imports an archive in one transaction."""

import base64
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from crabpath_retrievers.archive.choosing import make_block_reader
from crabpath_retrievers.archive.reading import Archive
from crabpath_retrievers.archive.survey import plan_import
from crabpath_retrievers.changes import Change, ForgetNamespace, PutMeta
from crabpath_retrievers.changes.archive import FillNamespace, FillStore
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.seeds.embedder import require_same_embedder
from crabpath_retrievers.storage import GraphStore


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
    (here, probe), (there, other) = map(_parse_identity, (known, text))
    require_same_embedder(probe, other, stored_model=here, model=there)
    return []


def _parse_identity(text: str) -> tuple[str, Vector]:
    data: dict[str, Any] = json.loads(text)
    return data["model"], np.frombuffer(base64.b64decode(data["probe"]), dtype="<f4")
