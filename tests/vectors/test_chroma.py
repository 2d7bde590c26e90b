"""What is special about Chroma: its space, its directory, its server, its metadata."""

import os
import stat
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import chromadb
import numpy as np
import pytest
from chromadb.errors import InternalError
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from proxy import Proxy

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.errors import (
    EmbeddingMismatchError,
    InvalidInputError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from crabpath_retrievers.vectors.chroma import ChromaIndex
from tests.seams import get_collection

X = np.array([1, 0, 0], dtype=np.float32)
Y = np.array([0, 1, 0], dtype=np.float32)


@pytest.fixture
def index(tmp_path):
    """An embedded index in a fresh directory."""
    opened = ChromaIndex.open_directory(tmp_path / "vectors")
    yield opened
    opened.close()


def put(index, node_id="a", vector=X, **metadata):
    index.upsert([node_id], [vector], [""], [metadata])


def test_a_namespace_that_another_process_has_forgotten_has_no_vectors(index):
    one, other = index.open_sibling("notes-1"), index.open_sibling("notes-1")
    put(one)
    other.drop()
    one.delete(["a"])
    assert one.search(X, 1) == []


def test_what_the_collection_holds_already_is_not_written_again(index, monkeypatch):
    """Chroma replaces a vector slowly, and slowly again when it opens after a kill."""
    put(index, "a", X, n=1)
    put(index, "b", Y, n=1)
    written, upsert = [], get_collection(index).upsert
    monkeypatch.setattr(
        get_collection(index), "upsert", lambda **g: (written.append(g["ids"]), upsert(**g))
    )
    put(index, "a", X.astype(np.float16), n=1)
    index.upsert(["a", "b"], [X, X], ["", ""], [{"n": 1}, {"n": 1}])
    put(index, "a", X, m=2)
    assert written == [["b"], ["a"]]
    assert index.search(X, 2, {"m": 2}) == ["a"]


def test_a_collection_is_created_for_cosine_with_careful_search(index):
    """Space and HNSW parameters are set when the collection is made; they cannot be later."""
    careful = {"space": "cosine", "ef_construction": 128, "max_neighbors": 16, "ef_search": 100}
    assert careful.items() <= get_collection(index).configuration_json["hnsw"].items()


def test_under_a_filter_as_many_are_found_as_there_are(index):
    """Also among many others that are all as far from each other; nearest first."""
    vectors = np.eye(421, dtype=np.float32)
    vectors[:400, 420] = 1
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    owners = ["bob"] * 400 + ["ann"] * 20
    ids = [f"d{number}" for number in range(420)]
    texts, metadata = [""] * 420, [{"owner": owner} for owner in owners]
    index.upsert(ids, list(vectors[:420]), texts, metadata)
    for asked in (400, 413, 419):
        found = index.search(vectors[asked], 40, {"owner": "ann"})
        assert (found[0], set(found)) == (f"d{asked}", {*ids[400:]})
    assert len(index.search(vectors[0], 19, {"owner": "ann"})) == 19


def test_a_vector_of_another_dimension_is_refused(index):
    """Both writing and searching say which dimensions do not fit, and the index stays usable."""
    put(index)
    short = np.array([1, 0], dtype=np.float32)
    with pytest.raises(EmbeddingMismatchError, match=r"dimension of 3, got 2.*same embedder"):
        put(index, "b", short)
    with pytest.raises(EmbeddingMismatchError, match="dimension of 3, got 2"):
        index.search(short, 1)
    assert index.search(X, 1) == ["a"]


@pytest.mark.parametrize(
    "condition",
    [
        {"lang": None},
        {"year": {"$gt": "many"}},
        {"dimension": {"$near": 1}},
        {"connection": {"$near": 1}},
    ],
)
def test_a_filter_that_chroma_cannot_read_is_an_input_error(index, condition):
    """Malformed conditions are the caller's mistake, whatever words they contain."""
    put(index)
    with pytest.raises(InvalidInputError, match="filter"):
        index.search(X, 1, condition)
    with pytest.raises(InvalidInputError, match="filter"):
        index.filter_ids(["a"], X, condition)


@pytest.mark.parametrize("failures", [1, 9])
def test_an_index_that_is_not_ready_is_asked_again(index, monkeypatch, failures):
    """A moment later Chroma has it; a few times, then the error is told."""
    put(index)
    query, left = get_collection(index).query, iter(range(failures))

    def fail_at_first(**asked):
        if next(left, None) is not None:
            msg = "Error creating hnsw segment reader: Nothing found on disk"
            raise InternalError(msg)
        return query(**asked)

    monkeypatch.setattr(get_collection(index), "query", fail_at_first)
    if failures == 1:
        assert index.search(X, 1) == ["a"]
    else:
        with pytest.raises(StoreError, match="Nothing found on disk"):
            index.search(X, 1)


ELSEWHERE = """
    import sys
    from pathlib import Path
    import numpy as np
    from crabpath_retrievers.core.calls import limit_waiting
    from crabpath_retrievers.errors import StoreLockedError
    from crabpath_retrievers.vectors.chroma import ChromaIndex
    try:
        with limit_waiting(0.2):
            index = ChromaIndex.open_directory(Path(sys.argv[1]))
    except StoreLockedError:
        sys.exit(print("locked"))
    index.upsert(["b"], [np.array([0, 1, 0], dtype=np.float32)], [""], [{}])
    index.close()
"""


def write_elsewhere(path):
    """What another process says that adds a vector, if anything."""
    command = [sys.executable, "-c", textwrap.dedent(ELSEWHERE), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.slow
def test_the_last_close_in_a_process_releases_the_directory(tmp_path):
    """Another process gets in then; nothing of the old segments is kept in memory."""
    first, second = ChromaIndex.open_directory(tmp_path), ChromaIndex.open_directory(tmp_path)
    put(first)
    assert second.search(Y, 1) == ["a"]
    first.close()
    first.close()
    assert second.search(X, 1) == ["a"]
    assert write_elsewhere(tmp_path) == "locked"
    second.close()
    assert write_elsewhere(tmp_path) == ""
    again = ChromaIndex.open_directory(tmp_path)
    assert again.search(Y, 1) == ["b"]
    again.close()


def test_an_existing_collection_in_another_space_is_refused(tmp_path):
    """Chroma would keep Euclidean distance; the way on is named, and the lock is released."""
    client = chromadb.PersistentClient(str(tmp_path), chromadb.Settings(anonymized_telemetry=False))
    client.create_collection("crabpath", embedding_function=None)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=r"'l2'.*'cosine'.*another collection name"):
            ChromaIndex.open_directory(tmp_path)
    ChromaIndex.open_directory(tmp_path, "other").close()


def check_shared(first, second):
    """Whether two indexes of one collection see each other's writes at once."""
    for node_id, vector in (("a", X), ("b", Y)):
        put(first, node_id, vector)
        assert second.search(Y, 1) == [node_id]


def test_another_spelling_of_the_directory_is_the_same_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    indexes = [ChromaIndex.open_directory(path) for path in (tmp_path / "v", Path("v"))]
    check_shared(*indexes)
    for opened in indexes:
        opened.close()


def test_closing_leaves_other_chroma_clients_alone(index, tmp_path):
    """A program's own client over another directory still shares one system after our close."""
    own = chromadb.PersistentClient(path=str(tmp_path / "own"))
    mine = own.create_collection("mine", embedding_function=None)
    index.close()
    again = chromadb.PersistentClient(path=str(tmp_path / "own")).get_collection("mine")
    mine.add(ids=["1"], embeddings=Y[None])
    assert again.query(query_embeddings=Y[None], n_results=1)["ids"] == [["1"]]
    with pytest.raises(StoreError, match="is closed: open"):
        index.search(X, 1)


@pytest.mark.slow
def test_what_one_client_of_a_server_writes_another_sees(server, monkeypatch):
    """And a connection that breaks asks whether the server runs."""
    index, other = (ChromaIndex.from_client(server.client(), "shared") for _ in range(2))
    check_shared(index, other)

    def fail(**_asked):
        raise ConnectionError

    monkeypatch.setattr(get_collection(index), "query", fail)
    with pytest.raises(StoreUnavailableError, match="is the Chroma server running"):
        index.search(X, 1)


def test_metadata_for_filters_is_what_chroma_takes(index):
    """Text, numbers, flags and lists of one type stay; all else would make Chroma fail."""
    good = {"text": "a", "number": 1.5, "flag": True, "list": ["a", "b"], "edge": -(2**63)}
    values = {"nested": {"a": 1}, "none": None, "mixed": [1, "a"], "whole and real": [1, 1.0]}
    numbers = {"huge": 2**70, "beyond": 2**63, "endless": float("inf"), "nan": float("nan")}
    lists = {"empty": [], "huge list": [2**63], "nan list": [float("nan")]}
    keys = {"": 1, "#tag": 1, "$cost": 1, "chroma:document": "a"}
    put(index, "a", **good, **values, **numbers, **lists, **keys)
    put(index, "b", Y)
    assert get_collection(index).get(ids=["a"])["metadatas"] == [good]
    assert index.search(X, 2, {"flag": True}) == ["a"]


def test_the_directory_is_private_to_the_user_and_no_file(tmp_path):
    """Whatever the umask; the message about a file asks for another path."""
    before = os.umask(0)
    try:
        ChromaIndex.open_directory(tmp_path / "vectors").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "vectors").stat().st_mode) == 0o700
    (tmp_path / "taken").write_text("x")
    with pytest.raises(StoreReadOnlyError, match="not a directory"):
        ChromaIndex.open_directory(tmp_path / "taken")


@contextmanager
def expect_within(seconds: float) -> Iterator[None]:
    """What is inside takes no longer."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


@pytest.mark.slow
@pytest.mark.parametrize("by_client", [False, True])
def test_a_server_that_is_silent_or_away(server, tmp_path, by_client):
    """It is given up after the time limit, and used again when it answers."""
    proxy = Proxy(("127.0.0.1", server.port))
    embeddings, settings = DeterministicFakeEmbedding(size=16), Settings(time_limit=0.5)
    url = f"http://127.0.0.1:{proxy.port}/t{uuid.uuid4().hex}"
    client = server.client(proxy.port) if by_client else None
    given = {"vectors": client or url, "embeddings": embeddings, "settings": settings}
    unavailable = pytest.raises(StoreUnavailableError, match=r"is the (Chroma )?server running")
    with CrabPath.open(tmp_path, **given) as memory:
        memory.add_documents([Document("The sky is blue.", id="a")])
        turn = memory.retrieve("sky").turn.id
        proxy.silent.set()
        with expect_within(3.0), unavailable:
            memory.retrieve("sky")
        with expect_within(3.0):
            assert memory.record(Feedback(turn, 1.0)).status in {"applied", "waiting"}
        proxy.silent.clear()
        assert memory.retrieve("sky").documents
        proxy.silent.set()
        with expect_within(3.0):
            memory.close()
    with expect_within(4.0), unavailable:
        CrabPath.open(tmp_path / "new", **given)
    proxy.cut()
    with unavailable:
        CrabPath.open(tmp_path / "new", **given)
