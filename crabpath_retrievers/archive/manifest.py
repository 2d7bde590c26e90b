"""What an archive says of itself: its version, where it comes from, what its members hold."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from crabpath_retrievers.errors import InvalidInputError, SchemaVersionError
from crabpath_retrievers.storage.migrations import VERSION as SCHEMA

FORMAT = "crabpath-archive"
VERSION = 1
NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive.

    Attributes:
        rows: Lines, or vectors.
        size: Bytes, before they are compressed.
        sha256: Of these bytes.
        columns: Names of the values in each line; none of vectors.
    """

    rows: int
    size: int
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
    last: Mapping[str, int]
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
            found = json.loads(data)
            foreign = found["format"] != FORMAT
            versions = int(found["version"]), int(found["schema"])
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInputError(_FOREIGN.format(name)) from error
        if foreign:
            raise InvalidInputError(_FOREIGN.format(name))
        if versions[0] > VERSION or versions[1] > SCHEMA:
            msg = (
                f"{name} has archive version {versions[0]} and schema {versions[1]}, this release "
                f"knows {VERSION} and {SCHEMA}: upgrade crabpath-retrievers"
            )
            raise SchemaVersionError(msg)
        try:
            return cls(**{**found, "members": _members(found["members"])})
        except (TypeError, KeyError, AttributeError) as error:
            raise InvalidInputError(_FOREIGN.format(name)) from error


_FOREIGN = "{} is no archive of CrabPath: give a file that crabpath export has written"


def _members(data: Mapping[str, Any]) -> dict[str, Member]:
    return {
        name: Member(**{**member, "columns": tuple(member["columns"])})
        for name, member in data.items()
    }
