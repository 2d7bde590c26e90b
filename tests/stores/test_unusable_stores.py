"""Stores that cannot be used: of a wrong kind, or gone in the middle of questions and ingests."""

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from proxy import Proxy

from crabpath_retrievers import (
    ConfigurationError,
    CrabPath,
    Settings,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from crabpath_retrievers.config import IngestSettings

DOCUMENTS = [Document(f"Passage number {n} of forty.", id=f"d{n}") for n in range(40)]
PLAIN = DeterministicFakeEmbedding(size=16)


class Cutting(DeterministicFakeEmbedding):
    """Takes the database away before it embeds a batch that holds passage 30."""

    proxy: object = None

    def embed_documents(self, texts):
        if self.proxy is not None and any("number 30" in text for text in texts):
            self.proxy.cut()
        return super().embed_documents(texts)


async def test_a_database_that_goes_and_comes_back(postgres_url, tmp_path):
    """What was acknowledged is kept; the same call later adds the rest; questions fail clearly."""
    with pytest.raises(ConfigurationError, match="needs vectors=: a directory, the URL of"):
        CrabPath.open(postgres_url)
    url = sa.make_url(postgres_url)
    proxy = Proxy((url.host or "127.0.0.1", url.port or 5432))
    far = url.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
    settings = Settings(ingest=IngestSettings(batch_size=16))
    given = {"vectors": tmp_path / "v", "settings": settings}
    cutting = Cutting(size=16, proxy=proxy)
    proxy.cut()
    with pytest.raises(StoreUnavailableError, match="is the database running"):
        CrabPath.open(far, embeddings=cutting, **given)
    proxy.mend()
    with CrabPath.open(far, embeddings=cutting, **given) as memory:
        with pytest.raises(StoreUnavailableError, match="is the database running"):
            memory.add_documents(DOCUMENTS)
        with pytest.raises(StoreUnavailableError, match="is the database running"):
            memory.retrieve("passage")
        with pytest.raises(StoreUnavailableError, match="is the database running"):
            await memory.aio.retrieve("passage")
        proxy.mend()
        # Batches of 16 hold d0…d15 and d16…d31; the second was cut.
        assert memory.info()["nodes"] == memory.index.count() == 16
        cutting.proxy = None
        assert memory.add_documents(DOCUMENTS).added == 24
        assert memory.info()["nodes"] == memory.index.count() == 40
        assert not memory.store.catalog.has_unfinished_ingest()
        assert len(memory.retrieve("passage", k=40).documents) == 40
        assert memory.info()["turns"] == 1
    proxy.cut()


def test_vectors_lost_in_the_middle_of_an_ingest(tmp_path):
    """When the vector store fails, the memory still answers, and the next ingest finishes."""

    def fail(*_arguments):
        msg = "disk full"
        raise StoreError(msg)

    with CrabPath.open(tmp_path, embeddings=PLAIN) as memory:
        memory.add_documents(DOCUMENTS[:20])
        upsert, memory.index.upsert = memory.index.upsert, fail
        with pytest.raises(StoreError, match="disk full"):
            memory.add_documents(DOCUMENTS)
        assert len(memory.retrieve("passage", k=40).documents) == 20
        memory.index.upsert = upsert
        memory.add_documents(DOCUMENTS)
        assert memory.info()["nodes"] == memory.index.count() == 40


def test_the_embedder_of_an_empty_memory_may_change(tmp_path):
    """A question to an empty memory does not bind it to the embedder that was used."""
    with CrabPath.open(tmp_path, embeddings=PLAIN) as memory:
        memory.retrieve("passage")
    with CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=8)) as memory:
        memory.add_documents(DOCUMENTS)
        assert len(memory.retrieve("passage", k=40).documents) == 40


@pytest.mark.parametrize(
    ("path", "given", "error", "sentence"),
    [
        ("", {}, ConfigurationError, "the path is empty: pass a directory"),
        ("notes.txt", {}, StoreReadOnlyError, "is not a directory: choose another path"),
        ("m", {"vectors": 5}, ConfigurationError, "vectors cannot be a int: pass a directory"),
        ("mysql://localhost/x", {"vectors": "v"}, ConfigurationError, "mysql is not supported"),
        (None, {"vectors": 5}, ConfigurationError, "vectors cannot be"),
    ],
)
def test_what_cannot_be_opened(tmp_path, monkeypatch, path, given, error, sentence):
    """It is refused with what to do; files keep their contents, directories are not locked."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with pytest.raises(error, match=sentence):
        CrabPath.open(path, **given)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert list((tmp_path / "temporary").iterdir()) == []
    CrabPath.open(tmp_path / "m", embeddings=PLAIN).close()
