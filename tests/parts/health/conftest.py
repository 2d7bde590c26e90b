"""A small memory to look at, made once and copied for every test that breaks it."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Feedback

PLAIN = DeterministicFakeEmbedding(size=16)


class Place:
    """The directory of a memory with forty pages, each of which mentions the next one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sql(self, *statements: str) -> list:
        """Do something to the graph store behind everybody's back; rows of the last statement."""
        with closing(sqlite3.connect(self.path / "graph.sqlite")) as connection, connection:
            rows = [connection.execute(statement).fetchall() for statement in statements]
        return rows[-1]

    def open(self) -> CrabPath:
        return CrabPath.open(self.path, embeddings=PLAIN)

    def files(self) -> dict[str, bytes]:
        return {
            str(file.relative_to(self.path)): file.read_bytes()
            for file in self.path.rglob("*")
            if file.is_file()
        }


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """A memory that learned from one turn of Ann's; the last page mentions the first one."""
    path: Path = tmp_path_factory.mktemp("built") / "memory"
    with CrabPath.open(path, embeddings=PLAIN) as memory:
        pages = [
            Document(
                f"Text {n} tells of Page {(n + 1) % 40}.",
                id=f"d{n}",
                metadata={"title": f"Page {n}"},
            )
            for n in range(40)
        ]
        memory.add_documents(pages, split=False, progress=None)
        turn = memory.retrieve("Page 3", namespace="ann").turn
        used = [turn.returned[0].node, turn.returned[1].node]
        memory.record(Feedback(turn.id, 1.0, used=used, namespace="ann"))
    return path


@pytest.fixture
def place(built, tmp_path) -> Place:
    shutil.copytree(built, tmp_path / "memory")
    return Place(tmp_path / "memory")
