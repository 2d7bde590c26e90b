"""Conformance suites for extensions: subclass one, make what it tests, and run pytest.

Each suite is a class whose methods say what a part of that kind must hold.
"""

from crabpath_retrievers.errors import MissingExtraError

try:
    import pytest
except ImportError as error:
    msg = "crabpath_retrievers.testing needs pytest: pip install 'crabpath-retrievers[test]'"
    raise MissingExtraError(msg) from error
else:
    _SUITES = ("linkers", "routers", "vector_indexes", "vector_stores")
    pytest.register_assert_rewrite(*(f"{__name__}.{suite}" for suite in _SUITES))

from crabpath_retrievers.testing.linkers import LinkerTests
from crabpath_retrievers.testing.routers import RouterTests
from crabpath_retrievers.testing.vector_indexes import WIDTH, NumberEmbeddings, VectorIndexTests
from crabpath_retrievers.testing.vector_stores import VectorStoreTests

__all__ = [
    "WIDTH",
    "LinkerTests",
    "NumberEmbeddings",
    "RouterTests",
    "VectorIndexTests",
    "VectorStoreTests",
]
