"""The graph store: one schema on SQLite and PostgreSQL, changed only through ``apply``."""

from crabpath_retrievers.storage.store import GraphStore

__all__ = ["GraphStore"]
