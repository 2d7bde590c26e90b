"""The graph store: one schema on SQLite and PostgreSQL, changed only through ``apply``."""

from crabpath_retrievers.storage.reader import Reader
from crabpath_retrievers.storage.store import GraphStore, Store

__all__ = ["GraphStore", "Reader", "Store"]
