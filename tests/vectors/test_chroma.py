"""What is special about Chroma: its space, its directory, its server, its metadata."""

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import chromadb
import numpy as np
import pytest
from chromadb.config import Settings
from chromadb.errors import InternalError
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPathRetriever
from crabpath_retrievers.errors import (
    EmbeddingMismatchError,
    InvalidInputError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from crabpath_retrievers.vectors.chroma import ChromaIndex, keep_filterable

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


def run_elsewhere(code, path):
    """What Python lines print in another process; ``path`` is a name there."""
    program = f"from pathlib import Path\npath = Path({str(path)!r})\n{textwrap.dedent(code)}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.strip() + done.stderr.strip()[-500:]


OPEN = """
    from crabpath_retrievers.errors import StoreLockedError
    from crabpath_retrievers.vectors.chroma import ChromaIndex
    try:
        print(ChromaIndex.open_directory(path).count())
    except StoreLockedError as error:
        print("locked", error)
"""


def test_a_collection_is_created_for_cosine_with_careful_search(index):
    """Space and HNSW parameters are set when the collection is made; they cannot be later."""
    hnsw = index._collection.configuration_json["hnsw"]
    assert {
        key: hnsw[key] for key in ("space", "ef_construction", "max_neighbors", "ef_search")
    } == {"space": "cosine", "ef_construction": 128, "max_neighbors": 16, "ef_search": 100}


def test_a_vector_of_another_dimension_is_refused(index):
    """Both writing and searching say which dimensions do not fit, and the index stays usable."""
    put(index)
    short = np.array([1, 0], dtype=np.float32)
    with pytest.raises(EmbeddingMismatchError, match=r"dimension of 3, got 2.*same embedder"):
        put(index, "b", short)
    with pytest.raises(EmbeddingMismatchError, match="dimension of 3, got 2"):
        index.search(short, 1)
    assert index.search(X, 1) == ["a"]


def test_a_filter_that_chroma_cannot_read_is_an_input_error(index):
    """Malformed conditions are the caller's mistake, whatever words they contain."""
    put(index)
    for condition in (
        {"lang": "en", "year": 2024},
        {"lang": None},
        {"year": {"$gt": "many"}},
        {"dimension": {"$near": 1}},
        {"connection": {"$near": 1}},
    ):
        with pytest.raises(InvalidInputError, match="not a Chroma condition"):
            index.search(X, 1, condition)
        with pytest.raises(InvalidInputError, match="not a Chroma condition"):
            index.filter_ids(["a"], X, condition)


@pytest.mark.parametrize("failures", [1, 9])
def test_an_index_that_is_not_ready_is_asked_again(index, monkeypatch, failures):
    """A moment later Chroma has it; a few times, then the error is told."""
    put(index)
    query, left = index._records.query, iter(range(failures))

    def fail_at_first(**asked):
        if next(left, None) is not None:
            msg = "Error creating hnsw segment reader: Nothing found on disk"
            raise InternalError(msg)
        return query(**asked)

    monkeypatch.setattr(index._records, "query", fail_at_first)
    if failures == 1:
        assert index.search(X, 1) == ["a"]
    else:
        with pytest.raises(StoreError, match="Nothing found on disk"):
            index.search(X, 1)


def test_another_process_is_told_that_the_directory_is_in_use(index, tmp_path):
    said = run_elsewhere(OPEN, tmp_path / "vectors")
    assert said.startswith("locked")
    assert "HttpClient" in said


@pytest.mark.slow
def test_the_last_close_in_a_process_releases_the_directory(tmp_path):
    """Another process gets in then; nothing of the old segments is kept in memory."""
    first, second = ChromaIndex.open_directory(tmp_path), ChromaIndex.open_directory(tmp_path)
    put(first)
    assert second.search(Y, 1) == ["a"]
    first.close()
    first.close()
    assert second.search(X, 1) == ["a"]
    assert run_elsewhere(OPEN, tmp_path).startswith("locked")
    second.close()
    write = """
        import numpy as np
        from crabpath_retrievers.vectors.chroma import ChromaIndex
        index = ChromaIndex.open_directory(path)
        index.upsert(["b"], [np.array([0, 1, 0], dtype=np.float32)], [""], [{}])
        index.close()
    """
    assert run_elsewhere(write, tmp_path) == ""
    again = ChromaIndex.open_directory(tmp_path)
    assert again.search(Y, 1) == ["b"]
    again.close()


def test_an_existing_collection_in_another_space_is_refused(tmp_path):
    """Chroma would keep Euclidean distance; the way on is named, and the lock is released."""
    client = chromadb.PersistentClient(str(tmp_path), Settings(anonymized_telemetry=False))
    client.create_collection("crabpath", embedding_function=None)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=r"'l2'.*'cosine'.*another collection name"):
            ChromaIndex.open_directory(tmp_path)
    ChromaIndex.open_directory(tmp_path, "other").close()


def test_another_spelling_of_the_directory_is_the_same_one(tmp_path, monkeypatch):
    """A relative and an absolute path in one process see each other's writes at once."""
    monkeypatch.chdir(tmp_path)
    indexes = [ChromaIndex.open_directory(path) for path in (tmp_path / "v", Path("v"))]
    for node_id, vector in (("a", X), ("b", Y)):
        put(indexes[0], node_id, vector)
        assert indexes[1].search(Y, 1) == [node_id]
    for opened in indexes:
        opened.close()


def test_closing_leaves_other_chroma_clients_alone(index, tmp_path):
    """A program's own client over another directory still shares one system after our close."""
    put(index)
    own = chromadb.PersistentClient(path=str(tmp_path / "own"))
    mine = own.create_collection("mine", embedding_function=None)
    mine.add(ids=["1"], embeddings=X[None])
    index.close()
    again = chromadb.PersistentClient(path=str(tmp_path / "own")).get_collection("mine")
    assert again.query(query_embeddings=Y[None])["ids"] == [["1"]]
    mine.add(ids=["2"], embeddings=Y[None])
    assert again.query(query_embeddings=Y[None], n_results=1)["ids"] == [["2"]]
    with pytest.raises(StoreError, match="is closed: open"):
        index.search(X, 1)


@pytest.mark.slow
def test_a_server_that_is_down_is_reported_as_unavailable(tmp_path, server):
    own = type(server)(tmp_path)
    client = own.client()
    index = ChromaIndex.from_client(client)
    put(index)
    own.stop()
    for call in (
        lambda: index.search(X, 1),
        lambda: put(index, "b"),
        lambda: index.delete(["a"]),
        lambda: ChromaIndex.from_client(client, "other"),
    ):
        with pytest.raises(StoreUnavailableError, match="is the Chroma server running"):
            call()
    own.disconnect()


def test_what_one_client_of_a_server_writes_another_sees(server, monkeypatch):
    """And a connection that breaks asks whether the server runs."""
    indexes = [ChromaIndex.from_client(server.client(), "shared") for _ in range(2)]
    for node_id, vector in (("a", X), ("b", Y)):
        put(indexes[0], node_id, vector)
        assert indexes[1].search(Y, 1) == [node_id]

    def fail(**_asked):
        raise ConnectionError

    monkeypatch.setattr(indexes[0]._records, "query", fail)
    with pytest.raises(StoreUnavailableError, match="is the Chroma server running"):
        indexes[0].search(X, 1)


def test_metadata_for_filters_is_what_chroma_takes(awkward):
    """Text, numbers, flags and lists of one type stay; all else would make Chroma fail."""
    good = {"text": "a", "number": 1.5, "flag": True, "list": ["a", "b"], "edge": -(2**63)}
    assert keep_filterable({**good, **awkward}) == good


def test_metadata_that_chroma_rejects_is_kept_in_the_store(tmp_path):
    """A document comes back with all its metadata, though only a part can be filtered by."""
    metadata = {"nested": {"deep": [1, None]}, "none": None, "mixed": [1, "a"], "lang": "en"}
    with CrabPathRetriever.from_documents(
        [Document("Crabs walk sideways.", id="crabs", metadata={**metadata, "$": 1})],
        DeterministicFakeEmbedding(size=8),
        path=tmp_path,
    ).memory as memory:
        (found,) = memory.retrieve("crabs", filter={"lang": "en"}).documents
    assert found.node.metadata == {**metadata, "$": 1}


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
