"""What an archive says of itself: its version, where it comes from, what its members hold."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Annotated

from pydantic import Field, TypeAdapter
from pydantic_core import from_json

from crabpath_retrievers.archive.checking import MOST, ODD, dimension_of, require_namespace
from crabpath_retrievers.errors import InvalidInputError, SchemaVersionError
from crabpath_retrievers.storage.dump import tables
from crabpath_retrievers.storage.migrations import VERSION as SCHEMA

FORMAT = "crabpath-archive"
VERSION = 1
NAME = "manifest.json"

_Count = Annotated[int, Field(ge=0, le=MOST)]


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive.

    Attributes:
        rows: Lines, or vectors.
        size: Bytes, before they are compressed.
        sha256: Of these bytes.
        columns: Names of the values in each line; none of vectors.
    """

    rows: _Count
    size: _Count
    sha256: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an archive says of itself.

    Attributes:
        namespace: Whose it is; None for a whole store.
        embedder: The embedder of its vectors as the store knows it; None where it has none.
        last: The last key that each table has given; of a whole store.
        members: By name.
        schema: Schema version of the store that it comes from.
        created: Seconds since the epoch.
    """

    namespace: str | None
    embedder: str | None
    last: Mapping[str, _Count]
    members: Mapping[str, Member] = field(default_factory=dict)
    schema: int = SCHEMA
    created: float = field(default_factory=time.time)
    version: int = VERSION
    format: str = FORMAT

    @property
    def rows(self) -> dict[str, int]:
        """How many rows it holds of each table."""
        lines = ((n, member.rows) for n, member in self.members.items() if n.endswith(".jsonl"))
        return {name.removesuffix(".jsonl"): rows for name, rows in lines}

    def to_bytes(self) -> bytes:
        """As it stands in the archive."""
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode()

    @property
    def digest(self) -> str:
        """Tells one archive from another."""
        return sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> "Manifest":
        """The inverse of :meth:`to_bytes`.

        Args:
            data: What stands in the archive.
            name: Of the archive, for messages.

        Raises:
            InvalidInputError: It is the manifest of something else.
            SchemaVersionError: A newer release has written it.
        """
        try:
            found = from_json(data, allow_inf_nan=False)
            foreign = found["format"] != FORMAT
            versions = found["version"], found["schema"]
            newer = versions[0] > VERSION or versions[1] > SCHEMA
        except ODD as error:
            raise InvalidInputError(_FOREIGN.format(name)) from error
        if foreign:
            raise InvalidInputError(_FOREIGN.format(name))
        if newer:
            msg = (
                f"{name} has archive version {versions[0]} and schema {versions[1]}, this release "
                f"knows {VERSION} and {SCHEMA}: upgrade crabpath-retrievers"
            )
            raise SchemaVersionError(msg)
        try:
            manifest = _MANIFEST.validate_json(data, strict=True)
            manifest.require_sound()
        except ODD as error:
            msg = f"{name} is damaged: what {NAME} says cannot be; get it anew, or export again"
            raise InvalidInputError(msg) from error
        return manifest

    def require_sound(self) -> None:
        """Refuse what no export says.

        Raises:
            ValueError: A version, name, key or embedder that cannot be.
        """
        if min(self.version, self.schema) < 1 or self.last.keys() - tables().keys():
            msg = "a version below 1, or keys of no table"
            raise ValueError(msg)
        if any(tables()[name].autoincrement_column is None for name in self.last):
            msg = "last keys of a table that gives none"
            raise ValueError(msg)
        if self.namespace is not None:
            require_namespace(self.namespace)
        if self.embedder is not None:
            dimension_of(self.embedder)


_MANIFEST = TypeAdapter(Manifest)
_FOREIGN = "{} is no archive of CrabPath: give a file that crabpath transfer export has written"
