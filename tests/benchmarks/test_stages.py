"""The profile of a query, a feedback and an addition names where the time goes."""

import re

from langchain_core.embeddings import DeterministicFakeEmbedding

from benchmarks.speed.stages import STAGES, measure_profile, render_profile
from crabpath_lab import load_sample


def test_every_stage_is_measured_and_little_is_left_over(tmp_path):
    embeddings = DeterministicFakeEmbedding(size=16)
    tables = measure_profile(load_sample(), tmp_path, limit=6, embeddings=embeddings)
    assert list(tables) == ["cold query", "feedback", "learned query", "addition"]
    assert {stage for table in tables.values() for stage in table} >= set(STAGES)
    for name, table in tables.items():
        assert all(value > 0 for value in table.values()), name
        assert table["rest"] < sum(table.values()) / 2, name
    rows = render_profile(tables).splitlines()
    assert rows[0].count("|") == len(tables) + 2
    sums = [float(cell) for cell in re.findall(r"\d+\.\d+", rows[-1])]
    for value, table in zip(sums, tables.values(), strict=True):
        assert abs(value - sum(table.values())) < 0.01
