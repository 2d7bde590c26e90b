"""A path is a name: a memory is found by its own alone, whatever signs are in it."""

import os
import random
import shlex
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from benchmarks.soak.figures import Row
from benchmarks.soak.paths import NAMES, try_names
from crabpath_retrievers import (
    ConfigurationError,
    CrabPath,
    InvalidInputError,
    examine,
)

PLAIN = DeterministicFakeEmbedding(size=16)
TOLD = [Document("It was told here.", id="d")]


def tell(path, **given):
    with CrabPath.open(path, embeddings=PLAIN, **given) as memory:
        memory.add_documents(TOLD, progress=None)


def was_told(path, **given) -> bool:
    with CrabPath.open(path, embeddings=PLAIN, create=False, **given) as memory:
        return [one.id for one in memory.documents()] == ["d"] and memory.index.count() == 1


@pytest.mark.slow
def test_names_beside_each_other_are_memories_of_their_own(tmp_path):
    """``make soak ONLY=paths RUNS=2000`` makes up more names, and look-alikes of each."""
    row = Row("names")
    opened = try_names(tmp_path, list(NAMES), row, random.Random(1))  # noqa: S311
    assert not row.broken, row
    assert opened == len(NAMES) - 4  # three are not UTF-8, and one is longer than names may be


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a://b", "a:/b"),  # one letter is a drive on Windows
        ("./sqlite://b", "sqlite:/b"),
        ("sqlite:b", "sqlite:b"),
        ("x y://b", "x y:/b"),
        ("-x", "-x"),
        ("./~", "~"),
        ("a/../b", "b"),
    ],
)
def test_a_text_is_a_url_only_by_a_scheme_at_its_beginning(tmp_path, monkeypatch, text, place):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/nonexistent")
    Path("a").mkdir()  # of a path with ".."
    tell(text)
    assert was_told(tmp_path / place)
    assert was_told(text)


@pytest.mark.parametrize("url", ["ab://c", "file:///x", "mysql://h/d", " sqlite:///m/x.db"])
def test_other_urls_are_refused(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"not supported|cannot be read"):
        CrabPath.open(url, embeddings=PLAIN, vectors="v")
    assert list(tmp_path.iterdir()) == []


def test_a_path_goes_where_links_and_dots_lead(tmp_path):
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "deep")
    tell(tmp_path / "link" / ".." / "m")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "link"]
    assert was_told(tmp_path / "elsewhere" / "m")


def test_a_relative_path_stays_where_it_was_opened(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    with CrabPath.open("m", embeddings=PLAIN) as memory:
        monkeypatch.chdir(tmp_path / "two")
        memory.add_documents(TOLD, progress=None)
        memory.retrieve("told?")
    assert list((tmp_path / "two").iterdir()) == []
    assert was_told(tmp_path / "one" / "m")


def deep(path: Path, size: int) -> Path:
    """A path below another of so many bytes, none of whose names is too long."""
    while (left := size - len(os.fsencode(path))) > 1:
        path /= "x" * (left - 1 if left < 200 else 100)
    return path


@pytest.mark.parametrize("argument", ["path", "vectors"])
def test_what_the_stores_could_not_use_is_refused_before_a_file_is_written(tmp_path, argument):
    for bad in (tmp_path / os.fsdecode(b"a\xff"), tmp_path / "\ud800", deep(tmp_path, 471)):
        given = {"path": tmp_path / "m", argument: bad}
        with pytest.raises(InvalidInputError, match=rf"^{argument} must be "):
            CrabPath.open(**given, embeddings=PLAIN)
        assert list(tmp_path.iterdir()) == []
    longest = deep(tmp_path, 470)
    tell(**{"path": tmp_path / "m", argument: longest})
    assert was_told(**{"path": tmp_path / "m", argument: longest})


def test_archives_and_vectors_have_any_name(tmp_path):
    archive, vectors = tmp_path / "a%20b?#\n.zip", tmp_path / "v%41?mode=memory"
    with CrabPath.open(tmp_path / "m?", embeddings=PLAIN, vectors=vectors) as memory:
        memory.add_documents(TOLD, progress=None)
        memory.transfer.export(archive)
    with CrabPath.open(tmp_path / "m%3F", embeddings=PLAIN) as memory:
        memory.transfer.import_archive(archive)
        assert len(memory.documents()) == 1
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {archive.name, vectors.name, "m?", "m%3F"}


def test_a_command_that_is_advised_can_be_copied(tmp_path):
    place = tmp_path / "it's 50%; a b"
    tell(place)
    for file in (place / "vectors").glob("*"):
        if file.is_file():
            file.unlink()
    (said,) = [one.fix for one in examine(place, embeddings=PLAIN).findings if "reindex" in one.fix]
    command = shlex.split(said.split("`")[1])
    assert command[:2] == ["crabpath", "reindex"]
    assert command[2] == str(place)


@pytest.mark.parametrize(
    "name", ["a?b", "a#b", "a/b", "a%20b", "..", "ab", "crabpath-notes-1", "x-episodes-12"]
)
def test_a_collection_has_one_name_of_its_own(tmp_path, name):
    """Refused before a server is asked: a part would be dropped, or it would be another's."""
    with pytest.raises(InvalidInputError, match="names no collection"):
        CrabPath.open(tmp_path / "m", embeddings=PLAIN, vectors=f"http://127.0.0.1:1/{name}")
