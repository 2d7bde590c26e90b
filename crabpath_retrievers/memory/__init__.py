"""The memory itself, without any framework around it."""

from crabpath_retrievers.memory.crabpath import CrabPath

__all__ = ["CrabPath"]
