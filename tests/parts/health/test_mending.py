"""What is broken is found, and each fix that is named mends it."""

import re
import shlex
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import chromadb
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from typer.testing import CliRunner

from benchmarks.soak.chroma_process import ChromaServer
from crabpath_retrievers import CrabPath, Feedback, Finding, examine
from crabpath_retrievers.cli import app

pytestmark = pytest.mark.slow

PLAIN = DeterministicFakeEmbedding(size=16)
MANY = 1100  # enough for Chroma to write HNSW files


def fill(memory: CrabPath, count: int) -> None:
    pages = [Document(f"Passage {n}", id=f"d{n}") for n in range(count)]
    memory.add_documents(pages, split=False, progress=None)
    turn = memory.retrieve("Passage 3", namespace="ann").turn
    memory.record(Feedback(turn.id, 1.0, used=["d3"], namespace="ann"))
    memory.teach("Bees keep Ann.", namespace="ann")
    memory.maintenance.reindex()  # episodes and notes are indexed, too


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """A memory with so many documents that their vectors are searched in files."""
    path: Path = tmp_path_factory.mktemp("filled") / "memory"
    with CrabPath.open(path, embeddings=PLAIN) as memory:
        fill(memory, MANY)
    assert list(path.glob("vectors/*/header.bin"))
    return path


@pytest.fixture
def place(filled, tmp_path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "memory"))


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[ChromaServer]:
    started = ChromaServer(tmp_path_factory.mktemp("chroma"))
    yield started
    started.disconnect()
    started.stop()


def found(place, **given) -> list[Finding]:
    diagnosis = examine(place, embeddings=PLAIN, **given)
    other = ("disk",)  # of the machine that tests run on
    found = diagnosis.findings
    return [one for one in found if one.severity != "info" and one.check not in other]


def follow(finding: Finding) -> None:
    (command,) = re.findall(r"`crabpath ([^`]+)`", finding.fix)
    done = CliRunner().invoke(app, shlex.split(command))
    assert done.exit_code == 0, done.output


def of_segment(place: Path, name: str) -> Path:
    """A file in which the vectors of documents are searched; those of notes are smaller."""
    largest = max(place.glob("vectors/*/data_level0.bin"), key=lambda file: file.stat().st_size)
    return largest.with_name(name)


def overwrite(file: Path, start: int = 0, size: int = 4096) -> None:
    with file.open("r+b") as opened:
        opened.seek(start)
        opened.write(b"\xa5" * min(size, file.stat().st_size - start))


def catalogue(place: Path) -> Path:
    return place / "vectors" / "chroma.sqlite3"


def page_in_use(place: Path) -> int:
    with closing(sqlite3.connect(catalogue(place))) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'embeddings'"
        ((page,),) = connection.execute(query).fetchall()
    return 4096 * (page - 1)


def lose(place: Path, collection: str, ids: list[str] | None) -> None:
    client = chromadb.PersistentClient(str(place / "vectors"))
    if ids is None:
        client.delete_collection(collection)
    else:
        client.get_collection(collection).delete(ids=ids)
    client.close()


def beside(place: Path, kind: str) -> str:
    with closing(sqlite3.connect(catalogue(place))) as chroma:
        names = [name for (name,) in chroma.execute("SELECT name FROM collections")]
    (name,) = [name for name in names if kind in name]
    return name


def add_strangers(place: Path, collection: str = "crabpath") -> None:
    client = chromadb.PersistentClient(str(place / "vectors"))
    vectors = PLAIN.embed_documents([f"stranger {n}" for n in range(20)])
    client.get_collection(collection).upsert([f"x{n}" for n in range(20)], vectors)
    client.close()


DAMAGES = {
    "folder deleted": lambda place: shutil.rmtree(of_segment(place, "header.bin").parent),
    "header overwritten": lambda place: overwrite(of_segment(place, "header.bin")),
    "header emptied": lambda place: of_segment(place, "header.bin").write_bytes(b""),
    "level 0 overwritten": lambda place: overwrite(of_segment(place, "data_level0.bin"), 8192),
    "level 0 cut off": lambda place: of_segment(place, "data_level0.bin").write_bytes(b"x" * 99),
    "links overwritten": lambda place: overwrite(of_segment(place, "link_lists.bin")),
    "links deleted": lambda place: of_segment(place, "link_lists.bin").unlink(),
    "names emptied": lambda place: of_segment(place, "index_metadata.pickle").write_bytes(b""),
    "names overwritten": lambda place: overwrite(of_segment(place, "index_metadata.pickle"), 9000),
    "catalogue deleted": lambda place: catalogue(place).unlink(),
    "catalogue emptied": lambda place: catalogue(place).write_bytes(b""),
    "catalogue overwritten": lambda place: overwrite(catalogue(place)),
    "catalogue cut off": lambda place: catalogue(place).write_bytes(
        catalogue(place).read_bytes()[: 4096 * 40]
    ),
    "a page overwritten": lambda place: overwrite(catalogue(place), page_in_use(place)),
    "directory deleted": lambda place: shutil.rmtree(place / "vectors"),
    "documents lost": lambda place: lose(place, "crabpath", ["d3", "d4"]),
    "collection lost": lambda place: lose(place, "crabpath", None),
    "episodes lost": lambda place: lose(place, beside(place, "episodes"), None),
    "notes lost": lambda place: lose(place, beside(place, "notes"), None),
    "strangers": add_strangers,
    "strangers among episodes": lambda place: add_strangers(place, beside(place, "episodes")),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_an_embedded_index(place, name):
    """It is found, and nothing is changed by looking; what the doctor says mends it."""
    assert found(place) == []
    DAMAGES[name](place)
    files = {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}
    (finding,) = found(place)
    assert {file: file.read_bytes() for file in place.rglob("*") if file.is_file()} == files
    follow(finding)
    assert found(place) == []
    with CrabPath.open(place, embeddings=PLAIN) as memory:
        assert memory.index.count() == MANY
        assert memory.retrieve("Passage 77", k=1).documents[0].node.id == "d77"
        assert memory.index.open_sibling("notes-1").count() == 1
        assert memory.index.open_sibling("episodes-1").count() == 1


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        *(("", lost) for lost in ("some", "all", "strangers", "episodes", "nothing of it")),
        ("/team", "all"),
        ("/team", "episodes"),
    ],
)
def test_a_server(server, location, name, lost):
    """By its URL, also in a collection of another name, on both databases."""
    url = f"http://127.0.0.1:{server.port}{name}"
    collection = name.strip("/") or "crabpath"
    client = server.client()
    for one in client.list_collections():
        client.delete_collection(one.name)
    with CrabPath.open(location, embeddings=PLAIN, vectors=url) as memory:
        fill(memory, 30)
    assert found(location, vectors=url) == []
    records = client.get_collection(collection)
    if lost == "some":
        records.delete(ids=["d3", "d4"])
    elif lost == "episodes":
        client.delete_collection(f"{collection}-episodes-1")
    elif lost == "all":
        client.delete_collection(collection)
    else:
        records.upsert(["x1", "x2"], PLAIN.embed_documents(["stranger", "another"]))
    if lost == "nothing of it":
        records.delete(ids=[f"d{n}" for n in range(30)])
    (finding,) = found(location, vectors=url)
    if lost == "nothing of it":
        assert "DIRECTORY_OR_URL" in finding.fix
        url = f"http://127.0.0.1:{server.port}/elsewhere"
        done = CliRunner().invoke(app, ["reindex", location, "--vectors", url])
        assert done.exit_code == 0, done.output
    else:
        follow(finding)
    assert found(location, vectors=url) == []
    with CrabPath.open(location, embeddings=PLAIN, vectors=url) as memory:
        assert memory.index.count() == 30
