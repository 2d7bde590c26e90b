"""Sources that cannot be read as they are: one sentence, and nothing is taken for deleted."""

import os
from pathlib import Path

import pytest
from langchain_core.documents import Document

from crabpath_retrievers.config import SyncSettings
from crabpath_retrievers.errors import InvalidInputError


@pytest.fixture
def memory(open_memory):
    """A memory that reads files of at most 1000 bytes."""
    return open_memory(sync=SyncSettings(max_file_bytes=1000))


@pytest.fixture
def docs(tmp_path, memory, contents):
    """A synced folder with a file in a folder below it; the memory holds it also afterwards."""
    folder = tmp_path / "docs"
    (folder / "below").mkdir(parents=True)
    (folder / "a.md").write_text("Something about apples.")
    (folder / "below" / "b.md").write_text("Something about bananas.")
    memory.sync(folder)
    before = contents(memory)
    assert len(before) == 2
    yield folder
    assert contents(memory) == before
    assert memory.info()["retired"] == 0


@pytest.mark.parametrize(
    ("module", "name", "place"),
    [(Path, "read_bytes", "b.md"), (Path, "stat", "b.md"), (os, "scandir", "below")],
)
def test_one_unreadable_place_refuses_the_whole_sync(
    memory, docs, monkeypatch, module, name, place
):
    real = getattr(module, name)

    def deny(path, *args, **options):
        if str(path).endswith(place):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **options)

    with monkeypatch.context() as broken:
        broken.setattr(module, name, deny)
        with pytest.raises(InvalidInputError, match=rf"{place} cannot be read \(Permission denied"):
            memory.sync(docs)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x00\x01", "not a text file"),
        (b"\xff\xfe\xfa", "not a text file in UTF-8"),
        (b"too long " * 200, "larger than 1,000 bytes"),
    ],
)
def test_a_file_that_is_no_text_any_more(memory, docs, content, why):
    """It is skipped and named, and what was known of it stays; alone it is refused."""
    file = docs / "below" / "b.md"
    file.write_bytes(content)
    plan = memory.sync(docs)
    assert (bool(plan), plan.skipped) == (False, {file.as_posix(): why})
    with pytest.raises(InvalidInputError, match=f"b.md was not read: {why}"):
        memory.sync(file)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@pytest.mark.parametrize(
    "ending", ["eml", "mbox", "rtf", "json", "jsonl", "csv", "xlsx", "docx", "pdf", "md", "py"]
)
@pytest.mark.parametrize("content", [POINTER, b"\x89PNG\r\n\x1a\n\x00\x00"])
def test_what_was_known_of_a_file_stays_where_it_is_replaced(memory, docs, ending, content):
    """A pointer of Git LFS is no file of any format; a picture is none that parses to nothing."""
    (docs / f"new.{ending}").write_bytes(content)
    plan = memory.sync(docs)
    (why,) = plan.skipped.values()
    assert (bool(plan), "run git lfs pull" in why) == (False, content == POINTER)


def test_a_mailbox_without_a_message_keeps_what_was_known(open_memory, tmp_path):
    memory, box = open_memory(), tmp_path / "mail.mbox"
    box.write_text("From a@b Mon Jan  1 00:00:00 2024\nSubject: x\n\nbody one\n")
    (tmp_path / "ok.txt").write_text("fine")
    assert memory.sync(tmp_path).counts()["added"] == 2
    box.write_text("garbage\n")
    plan = memory.sync(tmp_path)
    reason = "not a readable .mbox file (nothing begins in it)"
    assert (bool(plan), plan.skipped) == (False, {box.as_posix(): reason})


def test_names_that_are_not_in_utf_8(memory, docs, monkeypatch):
    """Their files are left out and named, however the folder is: no two files share a source."""
    names = [b"bad\xff.md", b"bad\xfe.md"]
    for name in names:
        (docs / os.fsdecode(name)).write_text("Something about cherries.")
    why = "its name is not in UTF-8: rename it"
    expected = {f"{docs}/bad\\x{code}.md": why for code in ("ff", "fe")}
    for place, given in ((docs, "."), (docs.parent, "docs"), (docs.parent, docs)):
        monkeypatch.chdir(place)
        plan = memory.sync(given)
        assert (bool(plan), plan.skipped) == (False, expected)
    assert memory.ingest([docs]).skipped == expected
    with pytest.raises(InvalidInputError, match=r"bad\\xff.md .*not in UTF-8"):
        memory.sync(docs / os.fsdecode(names[0]))


def test_a_file_that_changes_while_it_is_read(memory, docs, monkeypatch):
    """A file that never stands still is refused; one that does so in time is read whole."""
    real, file = Path.read_bytes, docs / "a.md"
    changes = [99]

    def read(self):
        data = real(self)
        if self == file and changes[0]:
            changes[0] -= 1
            os.utime(file, ns=(changes[0], changes[0]))
        return data

    with monkeypatch.context() as busy:
        busy.setattr(Path, "read_bytes", read)
        with pytest.raises(InvalidInputError, match="changed while it was read"):
            memory.sync(docs)
        changes[0] = 2
        assert not memory.sync(docs)


def test_odd_entries_of_a_folder_are_passed_over(memory, docs):
    """Loops of links, pipes, other memories and hidden files; by themselves some are refused."""
    (docs / "loop").symlink_to(docs, target_is_directory=True)
    (docs / "self.md").symlink_to(docs / "self.md")
    os.mkfifo(docs / "pipe")
    (docs / "memory").mkdir()
    (docs / "memory" / "graph.sqlite").write_bytes(b"\x00")
    for hidden in ("memory/notes.txt", ".hidden.md"):
        (docs / hidden).write_text("not a document")
    plan = memory.sync(docs)
    assert (bool(plan), plan.skipped) == (False, {})
    docs.rename(docs.with_name("renamed"))  # a path that vanished is no empty root
    for given, message in (
        (docs, "does not exist"),
        (docs.with_name("renamed") / "pipe", "neither"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            memory.sync(given, allow_empty=True)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (Path("docs"), {"roots": ["x"]}, "roots are for documents"),
        ([Path("docs"), Document("x")], {}, "not both"),
        ([Document("x")], {"roots": [""], "allow_empty": True}, "a root is empty"),
        ([], {"roots": ["a", " "], "allow_empty": True}, "a root is empty"),
        ([7], {}, "not both"),
    ],
)
@pytest.mark.usefixtures("docs")
def test_arguments_that_cannot_be_meant(memory, tmp_path, monkeypatch, given, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match=message):
        memory.sync(given, **options)
