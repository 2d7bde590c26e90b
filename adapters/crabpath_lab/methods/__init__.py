"""Methods to compare, one file each: a context manager that yields a ranking function."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from crabpath_lab.loading import import_named
from crabpath_lab.methods.base import (
    CHUNKS_PER_DOCUMENT,
    EvaluationCorpus,
    Method,
    RankFunction,
    RetrievedChunk,
)
from crabpath_lab.methods.cold import open_cold
from crabpath_lab.methods.dense import open_dense
from crabpath_lab.methods.hybrid import open_hybrid
from crabpath_lab.methods.lexical import open_lexical
from crabpath_retrievers.errors import InvalidInputError

__all__ = [
    "CHUNKS_PER_DOCUMENT",
    "METHODS",
    "EvaluationCorpus",
    "Method",
    "RankFunction",
    "RetrievedChunk",
    "select_methods",
]

METHODS: Mapping[str, Method] = MappingProxyType(
    {"dense": open_dense, "lexical": open_lexical, "hybrid": open_hybrid, "cold": open_cold}
)


def select_methods(names: Sequence[str]) -> dict[str, Method]:
    """Select methods by name or ``module:attribute``, in the given order."""
    if not names:
        msg = f"no method is named: choose among {', '.join(METHODS)}, with commas between"
        raise InvalidInputError(msg)
    return {name: import_named(name, METHODS, "method") for name in names}
