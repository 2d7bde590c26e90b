"""Influence between sources, found in what turns used."""

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.errors import ConfigurationError

TURNS = 90


@pytest.fixture
def watched(location):
    """A memory whose source A is used at random, and B one turn after it; C on its own."""
    vectors = DeterministicFakeEmbedding(size=16)
    settings = Settings(learning=LearningSettings(influence=True))
    index = InMemoryVectorStore(vectors)
    rng = np.random.default_rng(0)
    a = rng.random(TURNS) < 0.4
    b, c = np.roll(a, 1), rng.random(TURNS) < 0.4
    with CrabPath.open(location, embeddings=vectors, vectors=index, settings=settings) as memory:
        documents = [Document(f"text of {n}", id=n, metadata={"source": n}) for n in "ABC"]
        memory.add_documents(documents, split=False)
        for turn in range(TURNS):
            asked = memory.retrieve("text", k=3).turn.id
            used = [n for n, series in zip("ABC", (a, b, c), strict=True) if series[turn]]
            memory.record(Feedback(asked, 1.0, used=used))
        yield memory


def edges(memory):
    return {
        (node, one.id): one.weight
        for node in "ABC"
        for one in memory.graph.neighbors(node, "granger_causal")
    }


@pytest.mark.slow
def test_influence_is_found_written_replaced_and_kept_in_its_namespace(watched):
    """A announces B. A dry run writes nothing; too few turns for so many lags take it back."""
    found = watched.graph.find_influence(dry_run=True)
    assert found[0][:2] == ("A", "B")
    assert found[0].weight > 0.5
    assert ("B", "A") not in {one[:2] for one in found}
    assert edges(watched) == {}
    watched.graph.find_influence()
    watched.graph.find_influence()
    assert edges(watched) == pytest.approx({one[:2]: one.weight for one in found}, abs=1e-3)
    watched.graph.find_influence(lags=50)
    assert edges(watched) == {}
    assert watched.graph.find_influence("ada") == []


def test_influence_is_off_by_default_and_its_numbers_are_checked(graph):
    assert graph.find_influence(dry_run=True) == []
    for options in ({"window": 0}, {"lags": 1.5}, {"level": float("nan")}):
        with pytest.raises(InvalidInputError):
            graph.find_influence(dry_run=True, **options)
    with pytest.raises(ConfigurationError, match="influence=True"):
        graph.find_influence()
