"""Every vector index and every LangChain store holds the claims of its suite."""

import re
from pathlib import Path

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath
from crabpath_retrievers.testing import WIDTH, VectorIndexTests, VectorStoreTests
from crabpath_retrievers.vectors.chroma import ChromaIndex
from tests.seams import get_collection, set_bounds


class TestIndexes(VectorIndexTests):
    """Chroma embedded and served, and pgvector."""

    @pytest.fixture
    def index(self, backend):
        return backend

    @pytest.fixture
    def batched_index(self, index):
        is_chroma = isinstance(index, ChromaIndex)
        return ChromaIndex(get_collection(index), batch=7) if is_chroma else index

    @pytest.fixture
    def memory(self, index, tmp_path, request):
        """The vectors of pgvector are where the graph is."""
        place, vectors = tmp_path / "m", index
        if index.description.startswith("pgvector"):
            place, vectors = request.getfixturevalue("pgvector_url"), "pgvector"
        embedder = DeterministicFakeEmbedding(size=WIDTH)
        with CrabPath.open(place, vectors=vectors, embeddings=embedder) as memory:
            yield memory

    def test_its_description_begins_with_its_kind(self, index):
        assert index.description.startswith(("Chroma", "pgvector"))


ROW = re.compile(r"^\| `(\w+)` (?:\|[^|]+){5}\| (yes|no) \|")


class TestLangChainStores(VectorStoreTests):
    """Stores with real engines, and one that refuses what others permit."""

    @pytest.fixture
    def vectorstore(self, vectorstore):
        return vectorstore

    @pytest.fixture
    def batched_index(self, index, monkeypatch):
        set_bounds(monkeypatch, sent=7)
        return index

    @pytest.fixture
    def mixes_kinds(self, index):
        return "PGVectorStore" not in index.description

    def test_its_description_begins_with_its_kind(self, index):
        assert index.description.startswith("LangChain ")

    def test_the_table_says_what_the_kinds_can_do(self, vectorstore, index, request):
        """Each store has its row; all of them translate filters."""
        page = Path(__file__).parents[2] / "docs" / "how-to" / "wrap-your-store.md"
        lines = page.read_text("utf-8").splitlines()
        rows = {m[1]: m[2] for m in map(ROW.match, lines) if m}
        (name,) = [each.__name__ for each in type(vectorstore).__mro__ if each.__name__ in rows]
        assert rows[name] == ("yes" if index.lists else "no")
        try:
            request.getfixturevalue("filterable")
        except pytest.skip.Exception:
            pytest.fail("its filters are not translated")
