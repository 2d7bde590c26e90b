"""The level of a node follows from its id alone, and a sixteenth of each level is on the next."""

import pytest

from crabpath_retrievers.core.records import HUB_FANOUT, compute_hub_level


def test_levels():
    """They are the same in every process, unlike hashes of Python."""
    levels = [compute_hub_level(f"Übung-{i}-検索-🦀") for i in range(20_000)]
    assert (levels.index(1), levels.index(2), min(levels)) == (12, 312, 0)
    for level, error in ((1, 0.1), (2, 0.4)):
        above = sum(found >= level for found in levels) / len(levels)
        assert above == pytest.approx(HUB_FANOUT**-level, rel=error)
