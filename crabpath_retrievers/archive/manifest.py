"""The manifest of an archive: version, origin and members."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Annotated

from pydantic import Field, TypeAdapter
from pydantic_core import from_json

from crabpath_retrievers.archive.checking import (
    MALFORMED,
    MAX_INTEGER,
    parse_dimension,
    require_namespace,
)
from crabpath_retrievers.errors import InvalidInputError, SchemaVersionError
from crabpath_retrievers.storage.dump import list_tables
from crabpath_retrievers.storage.migrations import SCHEMA_VERSION as SCHEMA

FORMAT = "crabpath-archive"
VERSION = 1
MANIFEST_NAME = "manifest.json"

_Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an archive.

    Attributes:
        rows: Number of lines or vectors.
        size: Uncompressed size, in bytes.
        sha256: SHA-256 of the uncompressed bytes.
        columns: Columns of each line; empty for vectors.
    """

    rows: _Count
    size: _Count
    sha256: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of an archive.

    Attributes:
        namespace: The exported namespace; None for a whole store.
        embedder: Stored description of the embedder; None without one.
        last: Last autoincrement key of each table; only for a whole store.
        members: Members by name.
        schema_version: Schema version of the exported store.
        created: Time of the export, in seconds since the epoch.
        version: Version of the archive format.
        format: Name of the archive format.
    """

    namespace: str | None
    embedder: str | None
    last: Mapping[str, _Count]
    members: Mapping[str, Member] = field(default_factory=dict)
    schema_version: int = SCHEMA
    created: float = field(default_factory=time.time)
    version: int = VERSION
    format: str = FORMAT

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows by table."""
        lines = ((n, member.rows) for n, member in self.members.items() if n.endswith(".jsonl"))
        return {name.removesuffix(".jsonl"): rows for name, rows in lines}

    def to_bytes(self) -> bytes:
        """Serialise the manifest."""
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode()

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest, which identifies the archive."""
        return sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> "Manifest":
        """The inverse of :meth:`to_bytes`.

        Args:
            data: The serialised manifest.
            name: Name of the archive, for messages.

        Raises:
            InvalidInputError: It is not the manifest of an archive.
            SchemaVersionError: A newer release has written it, or one before the first.
        """
        try:
            found = from_json(data, allow_inf_nan=False)
            foreign = found["format"] != FORMAT
            unreleased = "schema" in found and "schema_version" not in found
            versions = found["version"], SCHEMA if unreleased else found["schema_version"]
            newer = versions[0] > VERSION or versions[1] > SCHEMA
        except MALFORMED as error:
            raise InvalidInputError(_NOT_AN_ARCHIVE.format(name)) from error
        if foreign:
            raise InvalidInputError(_NOT_AN_ARCHIVE.format(name))
        if unreleased:
            msg = (
                f"{name} was written before the first release and its schema is not supported: "
                "add the documents to a new store"
            )
            raise SchemaVersionError(msg)
        if newer:
            msg = (
                f"{name} has archive version {versions[0]} and schema version {versions[1]}, but "
                f"this release supports {VERSION} and {SCHEMA}: upgrade crabpath-retrievers"
            )
            raise SchemaVersionError(msg)
        try:
            manifest = _ADAPTER.validate_json(data, strict=True)
            manifest.require_sound()
        except MALFORMED as error:
            msg = f"{name} is damaged: its {MANIFEST_NAME} is invalid; copy the file again, or export again"
            raise InvalidInputError(msg) from error
        return manifest

    def require_sound(self) -> None:
        """Refuse values that no export writes.

        Raises:
            ValueError: A version, name, key or embedder is invalid.
        """
        if min(self.version, self.schema_version) < 1 or self.last.keys() - list_tables().keys():
            msg = "a version is below 1, or a table is unknown"
            raise ValueError(msg)
        if any(list_tables()[name].autoincrement_column is None for name in self.last):
            msg = "a table without autoincrement has a last key"
            raise ValueError(msg)
        if self.namespace is not None:
            require_namespace(self.namespace)
        if self.embedder is not None:
            parse_dimension(self.embedder)


_ADAPTER = TypeAdapter(Manifest)
_NOT_AN_ARCHIVE = (
    "{} is not a CrabPath archive: give a file that crabpath transfer export has written"
)
