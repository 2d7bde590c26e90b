"""Stores that cannot be used: changed embedder, no rights, locked, gone in the middle."""

import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

from crabpath_retrievers import (
    ConfigurationError,
    CrabPath,
    CrabPathRetriever,
    EmbeddingMismatchError,
    Settings,
    StoreError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from crabpath_retrievers.config import IngestSettings

DOCUMENTS = [Document(f"Passage number {n} of forty.", id=f"d{n}") for n in range(40)]
PLAIN = DeterministicFakeEmbedding(size=16)


class Other(DeterministicFakeEmbedding):
    """Another model of the same dimension."""

    def embed_documents(self, texts):
        """Other vectors for the same texts."""
        return super().embed_documents([f"other {text}" for text in texts])


class Proxy:
    """A TCP proxy in front of a database, to take the database away."""

    def __init__(self, host: str, port: int) -> None:
        """Listen on a port of its own."""
        self._target = (host, port)
        self._sockets: list[socket.socket] = []
        self._listen(0)
        self.port: int = self._listener.getsockname()[1]

    def _listen(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._target)
                self._sockets += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)

    def down(self) -> None:
        """Cut every connection and accept no more."""
        for open_socket in (self._listener, *self._sockets):
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()
        self._sockets.clear()

    def up(self) -> None:
        """Accept again."""
        self._listen(self.port)


class Cutting(DeterministicFakeEmbedding):
    """Takes the database away when a text that says so is embedded."""

    proxy: object = None

    def embed_documents(self, texts):
        """Cut before the batch that holds passage 30, then embed."""
        if self.proxy is not None and any("number 30" in text for text in texts):
            self.proxy.down()
        return super().embed_documents(texts)


@pytest.fixture
def proxy(postgres_url) -> Iterator[Proxy]:
    """A proxy in front of PostgreSQL."""
    url = sa.make_url(postgres_url)
    made = Proxy(url.host or "127.0.0.1", url.port or 5432)
    yield made
    made.down()


@pytest.fixture
def far(proxy, postgres_url) -> str:
    """The database's URL through the proxy."""
    url = sa.make_url(postgres_url).set(host="127.0.0.1", port=proxy.port)
    return url.render_as_string(hide_password=False)


def opened(far, tmp_path, embeddings: Embeddings = PLAIN):
    """A memory in PostgreSQL with its vectors in a directory, sixteen chunks a batch."""
    settings = Settings(ingest=IngestSettings(batch_size=16))
    return CrabPath.open(far, vectors=tmp_path / "v", embeddings=embeddings, settings=settings)


@pytest.mark.parametrize("embeddings", [DeterministicFakeEmbedding(size=8), Other(size=16)])
def test_changed_embedder(tmp_path, embeddings):
    """An embedder of another dimension or model may neither ask nor add; all stays as it was."""
    CrabPathRetriever.from_documents(DOCUMENTS, PLAIN, path=tmp_path).memory.close()
    with CrabPath.open(tmp_path, embeddings=embeddings) as memory:
        with pytest.raises(EmbeddingMismatchError, match="open it with the embedder it was built"):
            memory.retrieve("passage")
        with pytest.raises(EmbeddingMismatchError, match="open it with the embedder it was built"):
            memory.add_documents([Document("new")])
        assert memory.info()["nodes"] == memory.index.count() == 40
    with CrabPath.open(tmp_path, embeddings=PLAIN) as memory:
        assert len(memory.retrieve("passage", k=40).documents) == 40


def test_embedder_of_an_empty_memory_may_change(tmp_path):
    """A question to an empty memory does not bind it to the embedder that was used."""
    with CrabPath.open(tmp_path, embeddings=PLAIN) as memory:
        memory.retrieve("passage")
    with CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=8)) as memory:
        memory.add_documents(DOCUMENTS)
        assert len(memory.retrieve("passage", k=40).documents) == 40


AS_ORDINARY_USER = """
import os, sys
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers import StoreReadOnlyError
if os.geteuid() == 0:
    os.setuid(65534)  # root may write everywhere
try:
    CrabPath.open(sys.argv[1])
except StoreReadOnlyError as error:
    print(error)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can enter; pytest's own belong to one user alone."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def test_read_only_directory(place):
    """A directory that may not be written is refused with what to do, and stays empty."""
    place.chmod(0o555)
    command = [sys.executable, "-c", AS_ORDINARY_USER, str(place)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == (
        f"the store directory {place} cannot be written: change its permissions or choose another\n"
    )
    assert list(place.iterdir()) == []


def test_read_only_parent(place):
    """A directory that may not be created is refused with what to do."""
    place.chmod(0o555)
    command = [sys.executable, "-c", AS_ORDINARY_USER, str(place / "memory")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "cannot be written: change its permissions or choose another" in printed


def test_path_of_a_file(tmp_path):
    """A file in place of a directory is refused and keeps its contents."""
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(StoreReadOnlyError, match="is not a directory: choose another path"):
        CrabPath.open(file)
    assert file.read_text() == "mine"


HOLD = """
import sys
from langchain_core.embeddings import DeterministicFakeEmbedding
from crabpath_retrievers import CrabPath
with CrabPath.open(sys.argv[1], embeddings=DeterministicFakeEmbedding(size=16)) as memory:
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_locked_by_another_process(tmp_path):
    """A directory that another process has open is refused, and free when that process ends."""
    CrabPathRetriever.from_documents(DOCUMENTS, PLAIN, path=tmp_path).memory.close()
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StoreLockedError, match="in use by another process: close it there, or"):
            CrabPath.open(tmp_path, embeddings=PLAIN)
        other.communicate("")
    with CrabPath.open(tmp_path, embeddings=PLAIN) as memory:
        assert len(memory.retrieve("passage", k=40).documents) == 40


def test_url_without_vectors(postgres_url):
    """A database URL needs a place for the vectors."""
    with pytest.raises(
        ConfigurationError, match="needs vectors=: a directory, the URL of a Chroma server"
    ):
        CrabPath.open(postgres_url)


def test_url_of_another_database(tmp_path):
    """A database that is not supported is refused by name."""
    with pytest.raises(ConfigurationError, match="mysql is not supported: use a directory"):
        CrabPath.open("mysql://localhost/x", vectors=tmp_path)


def test_vectors_of_unknown_kind(tmp_path):
    """Something that is no vector store is refused, and the directory is not locked."""
    with pytest.raises(ConfigurationError, match="vectors cannot be a int: pass a directory"):
        CrabPath.open(tmp_path, vectors=5)
    CrabPath.open(tmp_path, embeddings=PLAIN).close()


def test_database_that_is_down_at_the_start(far, proxy, tmp_path):
    """A database that does not answer is told without its password, and may be opened later."""
    proxy.down()
    with pytest.raises(StoreUnavailableError, match="is the database running"):
        opened(far, tmp_path)
    proxy.up()
    opened(far, tmp_path).close()


async def test_database_down_in_the_middle_of_questions(far, proxy, tmp_path):
    """Questions fail clearly while the database is away and are answered when it is back."""
    with opened(far, tmp_path) as memory:
        memory.add_documents(DOCUMENTS)
        memory.retrieve("passage")
        proxy.down()
        with pytest.raises(StoreUnavailableError, match="is the database running"):
            memory.retrieve("passage")
        with pytest.raises(StoreUnavailableError, match="is the database running"):
            await memory.aio.retrieve("passage")
        proxy.up()
        assert len(memory.retrieve("passage", k=40).documents) == 40
        assert memory.info()["turns"] == 2


def test_database_down_in_the_middle_of_an_ingest(far, proxy, tmp_path):
    """What was acknowledged before the database went is kept; the same call later adds the rest."""
    with opened(far, tmp_path, Cutting(size=16, proxy=proxy)) as memory:
        with pytest.raises(StoreUnavailableError, match="is the database running"):
            memory.add_documents(DOCUMENTS)
        proxy.up()
        # Batches of 16 hold d0…d15 and d16…d31; the second was cut.
        assert memory.info()["nodes"] == memory.index.count() == 16
        memory.embedder.embeddings.proxy = None
        assert memory.add_documents(DOCUMENTS).added == 24
        assert memory.info()["nodes"] == memory.index.count() == 40
        assert not memory.store.catalog.has_unfinished_ingest()


def test_vectors_lost_in_the_middle_of_an_ingest(tmp_path):
    """When the vector store fails, the memory still answers, and the next ingest finishes."""
    with CrabPath.open(tmp_path, embeddings=PLAIN) as memory:
        memory.add_documents(DOCUMENTS[:20])
        upsert = memory.index.upsert
        memory.index.upsert = failing
        with pytest.raises(StoreError, match="disk full"):
            memory.add_documents(DOCUMENTS)
        assert len(memory.retrieve("passage", k=40).documents) == 20
        memory.index.upsert = upsert
        memory.add_documents(DOCUMENTS)
        assert memory.info()["nodes"] == memory.index.count() == 40


def failing(*_arguments):
    """A vector store whose disk is full."""
    msg = "disk full"
    raise StoreError(msg)
