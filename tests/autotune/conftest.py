"""Reports on health as they are wanted, and a small memory whose vectors mean something."""

import zlib
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.config import HealthSettings
from crabpath_retrievers.maintenance.health.report import HealthReport, Metric

_SIZE = 128


class Words(Embeddings):
    """A text as the words that it has: what shares words is near."""

    def embed_query(self, text: str) -> list[float]:
        """Counts of words by their hash."""
        vector = np.full(_SIZE, 1e-3)
        for word in text.lower().replace(".", " ").replace("?", " ").split():
            vector[zlib.crc32(word.encode()) % _SIZE] += 1.0
        return [float(value) for value in vector / np.linalg.norm(vector)]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The same for each."""
        return [self.embed_query(text) for text in texts]


@pytest.fixture
def found() -> Callable[..., HealthReport]:
    """A report: every metric in the middle of its range, but those that are given."""

    def made(ranges=None, turn=100, **values) -> HealthReport:
        metrics = []
        for name, (low, high) in HealthSettings(ranges=ranges or {}).ranges.items():
            value = values.get(name, (low + high) / 2)
            within = None if value is None else low <= value <= high
            metrics.append(Metric(name, value, low, high, within, 50))
        return HealthReport("ann", turn, 0.0, tuple(metrics))

    return made


PAGES = [
    Document(text, id=f"{name}{n}")
    for n in range(14)
    for name, text in (
        ("a", f"topic{n} question{n} guide{n} steps."),
        ("b", f"appendix{n} table{n} figures{n} guide{n} numbers{n}."),
        ("c", f"topic{n} guide{n} gossip{n}."),
        ("d", f"guide{n} question{n} rumour{n}."),
    )
]
"""Four pages of each topic: ``a`` and ``b`` are needed, ``c`` and ``d`` look more like it."""
# In so small a graph few nodes are entered, and whoever asks again promotes all pairs.
HEALTH = HealthSettings(
    ranges={"avg_nodes_fired_per_query": (0.0, 24.0), "proto_promotion_rate": (0.0, 1.0)}
)


def opened_at(place: str, **settings) -> CrabPath:
    """A memory of these pages."""
    given = Settings(**{"health": HEALTH, **settings})
    words = Words()
    memory = CrabPath.open(
        place, embeddings=words, vectors=InMemoryVectorStore(words), settings=given
    )
    memory.add_documents(PAGES, split=False, progress=None)
    return memory


@pytest.fixture
def open_memory(tmp_path) -> Callable[..., CrabPath]:
    """Opens one with settings, on SQLite."""
    return partial(opened_at, str(tmp_path / "memory"))


@pytest.fixture
def open_memory_anywhere(location: str) -> Callable[..., CrabPath]:
    """The same, once on each database."""
    return partial(opened_at, location)
