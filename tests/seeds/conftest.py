"""Every vector index over real storage, and an embedder whose texts are vectors."""

import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from langchain_chroma import Chroma
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers.seeds.chroma import ChromaIndex
from crabpath_retrievers.seeds.embedder import unit
from crabpath_retrievers.seeds.index import VectorIndex
from crabpath_retrievers.seeds.vectorstore import VectorStoreIndex


class Numbers(Embeddings):
    """Reads a vector off a text such as ``"1 0 0.5"``, so that every index sees the same ones."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector per text."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """The numbers of the text, scaled to length 1."""
        return unit([float(number) for number in text.split()]).tolist()


@dataclass(frozen=True)
class Backend:
    """An index, and how a condition on one metadata value is written for it."""

    index: VectorIndex
    where: Callable[[str, str], Any]

    def put(self, records: dict[str, str], **metadata: object) -> None:
        """Upsert texts of numbers under ids, all with the same metadata."""
        self.index.upsert(
            list(records),
            [vector(text) for text in records.values()],
            list(records.values()),
            [metadata for _ in records],
        )

    def ids(self, text: str, k: int, condition: Any = None) -> list[str]:
        """Ids that a search from a text of numbers finds."""
        return self.index.search(vector(text), k, condition)


def vector(text: str) -> np.ndarray:
    """The unit vector that a text of numbers stands for."""
    return unit(Numbers().embed_query(text))


class Server:
    """A Chroma server of its own process on a free port."""

    def __init__(self, path: Path) -> None:
        """Start it and wait until it answers."""
        self._clients: list[chromadb.ClientAPI] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        program = Path(sys.executable).with_name("chroma")
        options = ["--path", str(path), "--host", "127.0.0.1", "--port", str(self.port)]
        self._process = subprocess.Popen(
            [program, "run", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait()

    def client(self) -> chromadb.ClientAPI:
        """A new client, which :meth:`disconnect` closes."""
        opened = chromadb.HttpClient(host="127.0.0.1", port=self.port)
        self._clients.append(opened)
        return opened

    def disconnect(self) -> None:
        """Close the sockets of all clients."""
        for opened in self._clients:
            opened._server._session.close()  # chromadb 1.5 leaves them open in its own close

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait(timeout=30)

    def _wait(self) -> None:
        for _ in range(300):
            try:
                self.client()
            except ValueError:
                time.sleep(0.1)
            else:
                return
        pytest.fail("the Chroma server did not start")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Chroma server for all tests; each uses a collection of its own."""
    started = Server(tmp_path_factory.mktemp("chroma-server"))
    yield started
    started.disconnect()
    started.stop()


def _equals(key: str, value: str) -> dict[str, str]:
    return {key: value}


def _predicate(key: str, value: str) -> Callable[[Any], bool]:
    return lambda document: document.metadata.get(key) == value


@pytest.fixture(params=["chroma", "chroma-server", "langchain-chroma", "langchain-memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """An empty index of each kind."""
    name = f"test-{uuid.uuid4().hex}"
    index: VectorIndex
    where: Callable[[str, str], Any] = _equals
    if request.param == "chroma":
        index = ChromaIndex.embedded(tmp_path)
    elif request.param == "chroma-server":
        index = ChromaIndex.from_client(request.getfixturevalue("server").client(), name)
    elif request.param == "langchain-chroma":
        client = chromadb.PersistentClient(path=str(tmp_path))
        index = VectorStoreIndex(Chroma(name, Numbers(), client=client))
    else:
        index, where = VectorStoreIndex(InMemoryVectorStore(Numbers())), _predicate
    yield Backend(index, where)
    index.close()
