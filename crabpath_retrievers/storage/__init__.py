"""The graph store: one schema on SQLite and PostgreSQL, changed only through ``apply``."""

from crabpath_retrievers.storage.store import (
    SCHEMA_VERSION,
    GraphStore,
    Reader,
    ReadOnlyStore,
    Store,
)

__all__ = ["SCHEMA_VERSION", "GraphStore", "ReadOnlyStore", "Reader", "Store"]
