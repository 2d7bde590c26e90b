"""The tables of a store by the names that tests use: renaming a table touches this file alone."""

from crabpath_retrievers.storage.schema import *  # noqa: F403
