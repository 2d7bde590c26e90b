"""Figures of partitions, against cases that can be worked out by hand."""

import json
from zlib import crc32

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from typer.testing import CliRunner

from benchmarks.commands import app
from benchmarks.region_quality import cluster_kmeans, describe_partition, measure_quality
from crabpath_retrievers import CrabPath
from tests.seams import get_services

DIRECTIONS = 6


class Directions(Embeddings):
    """Texts that end in the same word point about the same way."""

    def embed_query(self, text):
        rng = np.random.default_rng(crc32(text.encode()))
        vector = 0.1 * rng.normal(size=16)
        vector[crc32(text.split()[-1].encode()) % 16] += 1.0
        return (vector / np.linalg.norm(vector)).tolist()

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]


def make_pages(number):
    return [Document(f"{n} {n % DIRECTIONS}", id=f"d{n}") for n in range(number)]


def test_two_regions_by_hand():
    """x, x and y together: the sum has length √5; z is alone."""
    x, y, z = np.eye(3, dtype=np.float32)
    found = describe_partition(np.stack([x, x, y, z]), np.array([7, 7, 7, 9]))
    assert (found["smallest"], found["median"], found["largest"]) == (1, 2.0, 3)
    assert found["largest_share"] == 0.75
    assert found["to_mean"] == pytest.approx((5**0.5 + 1) / 4, abs=1e-3)
    # Cosines among the three: x-x 1, x-y 0, x-y 0; two pairs each, over three nodes.
    assert found["to_others"] == pytest.approx(1 / 3, abs=1e-3)
    alone = describe_partition(np.eye(3, dtype=np.float32), np.arange(3))
    assert (alone["to_mean"], alone["to_others"]) == (1.0, None)


def test_k_means_in_batches_gives_as_many_regions(monkeypatch):
    monkeypatch.setattr("benchmarks.region_quality._BATCHED_ABOVE", 10)
    vectors = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    assert len(set(cluster_kmeans(vectors, 3).tolist())) == 3


def test_hubs_are_better_than_chance_and_k_means_than_hubs():
    """Six directions, more hubs than that: members of a region are alike."""
    with CrabPath.open(embeddings=Directions()) as memory:
        memory.add_documents(make_pages(300), split=False, progress=None)
        hubs = get_services(memory).regions.hubs(1)
        found = measure_quality(memory.store, hubs)
    own, best, chance = (found[name]["to_others"] for name in ("hash", "kmeans", "random"))
    assert chance < 0.5 * own
    assert own <= best + 0.05
    assert 0 < found["hash"]["to_hub"] <= 1
    sizes = ("regions", "smallest", "median", "largest")
    assert [found["random"][s] for s in sizes] == [found["hash"][s] for s in sizes]


def test_the_command_needs_no_experience(tmp_path):
    with CrabPath.open(str(tmp_path), embeddings=Directions()) as memory:
        memory.add_documents(make_pages(120), split=False, progress=None)
    result = CliRunner().invoke(app, ["region-quality", "--store", str(tmp_path)])
    assert result.exit_code == 0, result.stderr
    figures = json.loads(result.stdout)
    assert figures["nodes"] == 120
    assert figures["hash"]["regions"] == figures["kmeans"]["regions"]
