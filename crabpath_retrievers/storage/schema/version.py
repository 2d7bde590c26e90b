"""The schema version of a store: written when its tables are created, checked when it is opened."""

import sqlalchemy as sa

from crabpath_retrievers.errors import SchemaVersionError
from crabpath_retrievers.storage.fulltext import FullText
from crabpath_retrievers.storage.schema import meta, metadata

SCHEMA_VERSION = 1
"""Version of the tables in ``storage.schema``."""

UNRELEASED = 0
"""Version of stores that were written before the first release; they cannot be read."""

_NAME = "schema_version"
# Stores from before the first release counted their own versions, from 1, under this name.
_UNRELEASED_NAME = "schema"


def ensure_schema(connection: sa.Connection, fulltext: FullText) -> None:
    """Create the tables of a new store, or check the version of an existing one.

    Args:
        connection: An open transaction that may write.
        fulltext: The full-text index of the database.

    Raises:
        SchemaVersionError: The store has another version than
            ``SCHEMA_VERSION``; nothing is changed.
    """
    found = read_schema_version(connection)
    if found is None:
        metadata.create_all(connection)
        fulltext.create(connection)
        connection.execute(meta.insert().values(name=_NAME, value=str(SCHEMA_VERSION)))
    elif found > SCHEMA_VERSION:
        msg = (
            f"the store has schema version {found}, but this release supports {SCHEMA_VERSION}: "
            "upgrade crabpath-retrievers"
        )
        raise SchemaVersionError(msg)
    elif found < SCHEMA_VERSION:
        msg = (
            "the store was written before the first release and its schema is not supported: "
            "add the documents to a new store"
        )
        raise SchemaVersionError(msg)


def read_schema_version(connection: sa.Connection) -> int | None:
    """The schema version of a store: ``UNRELEASED`` for an outdated one, None without tables."""
    if not sa.inspect(connection).has_table(meta.name):
        return None
    query = sa.select(meta.c.name, meta.c.value).where(meta.c.name.in_((_NAME, _UNRELEASED_NAME)))
    versions = {name: value for name, value in connection.execute(query)}
    if _NAME in versions:
        return int(versions[_NAME])
    return UNRELEASED if _UNRELEASED_NAME in versions else None
