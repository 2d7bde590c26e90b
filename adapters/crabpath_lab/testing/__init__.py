"""A conformance suite for learners of streams, beside those of ``crabpath_retrievers.testing``."""

from crabpath_retrievers.errors import MissingExtraError

try:
    import pytest
except ImportError as error:
    msg = "crabpath_lab.testing needs pytest: pip install 'crabpath-lab[test]'"
    raise MissingExtraError(msg) from error
else:
    pytest.register_assert_rewrite(f"{__name__}.stream_learners")

from crabpath_lab.testing.stream_learners import LearnerTests

__all__ = ["LearnerTests"]
