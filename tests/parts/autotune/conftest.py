"""Reports on health as they are wanted, and a small memory whose vectors mean something."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from maintained import Bag

from crabpath_retrievers import CrabPath, HealthReport, Settings
from crabpath_retrievers.config import HealthSettings


@pytest.fixture
def found() -> Callable[..., HealthReport]:
    """A report: every metric in the middle of its range, but those that are given."""

    def made(ranges=None, turn=100, **values) -> HealthReport:
        metrics = []
        for name, (low, high) in HealthSettings(ranges=ranges or {}).ranges.items():
            value = values.get(name, (low + high) / 2)
            within = None if value is None else low <= value <= high
            metric = {"name": name, "value": value, "low": low, "high": high}
            metrics.append({**metric, "in_range": within, "sampled": 50})
        made = {"namespace": "ann", "turn": turn, "created": 0.0, "metrics": metrics, "edges": {}}
        return HealthReport.from_dict(made)

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


def opened_at(place: Path, *, index: InMemoryVectorStore | None = None, **settings) -> CrabPath:
    """A memory of these pages, which an ``index`` that is not empty has already."""
    words, given = Bag(), Settings(**{"health": HEALTH, **settings})
    vectors = index or InMemoryVectorStore(words)
    memory = CrabPath.open(str(place), embeddings=words, vectors=vectors, settings=given)
    if not vectors.store:
        memory.add_documents(PAGES, split=False, progress=None)
    return memory


@pytest.fixture
def open_memory(tmp_path) -> Callable[..., CrabPath]:
    return partial(opened_at, tmp_path / "memory")


@pytest.fixture
def open_memory_anywhere(location: str) -> Callable[..., CrabPath]:
    return partial(opened_at, location)


@pytest.fixture(scope="session")
def grow(tmp_path_factory) -> Callable[..., Callable[..., CrabPath]]:
    """Lets a memory live once; what it returns opens copies of it with settings."""

    def grow(live: Callable[[CrabPath], None], **settings) -> Callable[..., CrabPath]:
        place: Path = tmp_path_factory.mktemp("grown")
        index = InMemoryVectorStore(Bag())
        with opened_at(place / "memory", index=index, **settings) as memory:
            live(memory)

        def open_copy(**changed) -> CrabPath:
            copy = tmp_path_factory.mktemp("copy") / "memory"
            shutil.copytree(place / "memory", copy)
            return opened_at(copy, index=index, **{**settings, **changed})

        return open_copy

    return grow
