"""MultiHop-RAG's own measures, by hand."""

import pytest

from crabpath_retrievers.evaluation.scoring.chunk_level import score_chunks


def test_by_hand():
    """F1 first at rank 2, F2 first at rank 3: map (1/2 + 1/3) / 2, mrr 1/2, both hits."""
    run = {"q": ["nothing", "…F 1…", "F1 and F\n2", "F2 again"]}
    assert score_chunks({"q": ["F1", "F2"]}, run) == {
        "hits@4": [1.0],
        "hits@10": [1.0],
        "map@10": [pytest.approx(5 / 12)],
        "mrr@10": [0.5],
    }


def test_only_the_first_ten_count():
    """Rank 5 is no hit at 4, rank 11 none at all; no answer scores 0."""
    run = {"five": ["x"] * 4 + ["F"], "eleven": ["x"] * 10 + ["F"]}
    found = score_chunks({"five": ["F"], "eleven": ["F"], "none": ["F"]}, run)
    assert found["hits@4"] == [0.0, 0.0, 0.0]
    assert found["hits@10"] == [1.0, 0.0, 0.0]
    assert found["map@10"] == found["mrr@10"] == [0.2, 0.0, 0.0]
