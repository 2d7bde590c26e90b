"""Sources that cannot be read as they are: one sentence, and nothing is taken for deleted."""

import os
from pathlib import Path

import pytest
from langchain_core.documents import Document

from crabpath_retrievers.config import Settings, SyncSettings
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import InvalidInputError


@pytest.fixture
def memory(tmp_path, embedder):
    """A memory that reads files of at most 1000 bytes."""
    settings = Settings(sync=SyncSettings(max_file_bytes=1000))
    with CrabPath.open(tmp_path / "memory", embeddings=embedder, settings=settings) as opened:
        yield opened


@pytest.fixture
def docs(tmp_path, memory):
    """A synced folder with a file in a folder below it."""
    folder = tmp_path / "docs"
    (folder / "below").mkdir(parents=True)
    (folder / "a.md").write_text("Something about apples.")
    (folder / "below" / "b.md").write_text("Something about bananas.")
    memory.sync(folder)
    return folder


@pytest.fixture
def unharmed(memory, docs, held):
    """Whatever happens, the memory holds afterwards what it held before."""
    before = held(memory)
    assert len(before) == 2
    yield
    assert held(memory) == before
    assert memory.info()["retired"] == 0


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_path_that_vanished(memory, docs, dry_run):
    """A root that is gone is no empty root."""
    docs.rename(docs.with_name("gone"))
    with pytest.raises(InvalidInputError, match="does not exist"):
        memory.sync(docs, dry_run=dry_run, allow_empty=True)


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("name", ["read_bytes", "stat"])
def test_a_file_that_cannot_be_read(memory, docs, monkeypatch, name):
    """One unreadable file refuses the whole sync."""
    real = getattr(Path, name)

    def fail(self, *args, **options):
        if self.name == "b.md":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *args, **options)

    with monkeypatch.context() as broken:
        broken.setattr(Path, name, fail)
        with pytest.raises(InvalidInputError, match=r"b\.md cannot be read \(Permission denied\)"):
            memory.sync(docs)


@pytest.mark.usefixtures("unharmed")
def test_a_folder_that_cannot_be_listed(memory, docs, monkeypatch):
    """What stands in a folder without permission is not deleted."""
    real = os.scandir

    def fail(path):
        if str(path).endswith("below"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    with monkeypatch.context() as broken:
        broken.setattr(os, "scandir", fail)
        with pytest.raises(InvalidInputError, match=r"below cannot be read"):
            memory.sync(docs)


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize(
    "content", [b"\x00\x01", b"\xff\xfe\xfa", b"too long " * 200], ids=["nul", "no utf-8", "huge"]
)
def test_a_file_that_is_no_text_any_more(memory, docs, content):
    """It is skipped and named, and what was known of it stays; alone it is refused."""
    file = docs / "below" / "b.md"
    file.write_bytes(content)
    plan = memory.sync(docs)
    assert plan.skipped == (file.as_posix(),)
    assert not plan
    with pytest.raises(InvalidInputError, match="not a text file of at most 1,000 bytes"):
        memory.sync(file)


@pytest.mark.usefixtures("unharmed")
def test_a_file_that_changes_while_it_is_read(memory, docs, monkeypatch):
    """A file that never stands still is refused; one that does so in time is read whole."""
    real, file = Path.read_bytes, docs / "a.md"

    def written(times):
        left = [times]

        def read(self):
            data = real(self)
            if self == file and left[0]:
                left[0] -= 1
                os.utime(file, ns=(left[0], left[0]))
            return data

        return read

    with monkeypatch.context() as busy:
        busy.setattr(Path, "read_bytes", written(99))
        with pytest.raises(InvalidInputError, match="changed while it was read"):
            memory.sync(docs)
        busy.setattr(Path, "read_bytes", written(2))
        assert not memory.sync(docs)


@pytest.mark.usefixtures("unharmed")
def test_links_that_lead_in_circles(memory, docs):
    """A loop of links is neither followed nor fatal; given itself it does not exist."""
    (docs / "loop").symlink_to(docs, target_is_directory=True)
    (docs / "self.md").symlink_to(docs / "self.md")
    assert not memory.sync(docs)
    with pytest.raises(InvalidInputError, match="does not exist"):
        memory.sync(docs / "self.md")


@pytest.mark.usefixtures("unharmed")
def test_something_that_is_neither_file_nor_folder(memory, docs):
    """A pipe in a folder is passed over, and refused by itself."""
    os.mkfifo(docs / "pipe")
    assert not memory.sync(docs)
    with pytest.raises(InvalidInputError, match="neither a file nor a directory"):
        memory.sync(docs / "pipe")


@pytest.mark.usefixtures("unharmed")
def test_arguments_that_cannot_be_meant(memory, docs):
    """Paths with roots, paths among documents, and anything else are refused."""
    with pytest.raises(InvalidInputError, match="roots are for documents"):
        memory.sync(docs, roots=["x"])
    with pytest.raises(InvalidInputError, match="not both"):
        memory.sync([docs, Document("x")])
    with pytest.raises(InvalidInputError, match="not both"):
        memory.sync([7])


@pytest.mark.usefixtures("unharmed")
def test_a_memory_inside_the_folder_is_not_read(memory, docs, tmp_path):
    """Neither its databases nor its locks are documents."""
    (docs / "memory").mkdir()
    (docs / "memory" / "graph.sqlite").write_bytes(b"\x00")
    (docs / "memory" / "notes.txt").write_text("not a document")
    (docs / ".hidden.md").write_text("not one either")
    plan = memory.sync(docs)
    assert not plan
    assert plan.skipped == ()


def test_the_id_of_a_note_is_refused(memory, docs, held):
    """A document may not take the place of a note."""
    memory.teach("Bananas are berries.", id="note")
    with pytest.raises(InvalidInputError, match="belongs to a note"):
        memory.sync([Document("x", id="note")])
