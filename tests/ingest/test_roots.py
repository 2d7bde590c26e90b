"""A directory is one root, from wherever and however it is written."""

from zipfile import ZipFile

import pytest

from crabpath_retrievers.errors import InvalidInputError

PAGES = {"apples.md": "Something about apples.", "pears.md": "Something about pears."}


@pytest.fixture
def docs(tmp_path, monkeypatch):
    """A folder with two pages in ``app``, the working directory; ``cron`` lies beside it."""
    (tmp_path / "cron").mkdir()
    folder = write_pages(tmp_path / "app" / "docs")
    monkeypatch.chdir(folder.parent)
    return folder


def write_pages(folder):
    folder.mkdir(parents=True)
    for name, text in PAGES.items():
        (folder / name).write_text(text)
    return folder


def list_sources(memory):
    return list(memory.sources())


@pytest.mark.both_databases
def test_a_folder_is_known_from_another_working_directory(
    open_memory, location, docs, monkeypatch, tmp_path
):
    """Nothing doubles, what is deleted retires, also by a link, a folder above and another run."""
    memory = open_memory(location)
    (tmp_path / "link").symlink_to(docs, target_is_directory=True)
    memory.sync("docs")
    monkeypatch.chdir(tmp_path / "cron")
    (docs / "pears.md").unlink()
    ways = (docs, "../app/docs", tmp_path / "link", docs / "apples.md", tmp_path / "link/apples.md")
    removed = [memory.sync(way).counts()["removed"] for way in ways]
    assert removed == [1, 0, 0, 0, 0]
    assert memory.ingest([docs]).chunks.unchanged == 1
    assert list_sources(memory) == ["docs/apples.md"]
    assert not memory.sync(docs.parent)
    assert not memory.sync(docs)
    for folder, ways in ((docs.parent, (".", "docs")), (docs, (".", "../docs"))):
        monkeypatch.chdir(folder)
        for way in ways:
            assert not memory.sync(way)
            assert memory.ingest([way]).chunks.unchanged == 1
    assert list_sources(memory) == ["docs/apples.md"]
    (docs / "apples.md").write_text("Something else about apples.")
    assert memory.sync(".")
    assert list_sources(memory) == ["docs/apples.md"]
    (docs / "apples.md").unlink()
    assert memory.sync(docs.parent, allow_empty=True).counts()["removed"] == 1


def test_what_was_added_from_its_own_folder(open_memory, docs, monkeypatch, tmp_path):
    """``add .`` and single files are known, too; ``sync`` names them by the folder, keeps ids."""
    memory = open_memory()
    monkeypatch.chdir(docs)
    memory.ingest(["apples.md"])
    memory.ingest(["."])
    monkeypatch.chdir(tmp_path)
    memory.ingest([docs])
    memory.sync(docs / "apples.md")
    assert list_sources(memory) == ["apples.md", "pears.md"]
    assert memory.sync("app/docs").counts()["moved"] == 2
    monkeypatch.chdir(docs)
    memory.ingest([".", "apples.md"])
    assert not memory.sync("apples.md")
    assert list_sources(memory) == [f"app/docs/{name}" for name in PAGES]


def test_a_folder_above_keeps_names_and_learning(open_memory, docs, monkeypatch, tmp_path):
    """``add`` of it doubles nothing, and ``sync`` loses nothing that was learned."""
    memory = open_memory()
    monkeypatch.chdir(docs)
    memory.ingest(["."])
    memory.record(memory.retrieve("apples", k=1).turn, 1.0)
    known = memory.retrieve("apples", k=1).documents[0].score
    monkeypatch.chdir(tmp_path)
    write_pages(tmp_path / "app" / "more")
    memory.ingest(["app"])
    assert len(list_sources(memory)) == 4
    assert memory.sync("app").counts()["removed"] == 0
    assert list_sources(memory) == [f"app/{f}/{n}" for f in ("docs", "more") for n in PAGES]
    assert memory.retrieve("apples", k=1).documents[0].score == pytest.approx(known, abs=0.02)


@pytest.mark.parametrize("way", ["{0}", "../{1}/docs"])
def test_a_moved_project_and_an_imported_memory_are_recognised(
    open_memory, docs, monkeypatch, tmp_path, way
):
    """The first sync may name the folder in full: names stay, and what is deleted retires."""
    memory, copy = open_memory(), open_memory()
    memory.sync("docs")
    memory.transfer.export(tmp_path / "all.crabpath")
    copy.transfer.import_archive(tmp_path / "all.crabpath")
    moved = docs.parent.rename(tmp_path / "moved") / "docs"
    monkeypatch.chdir(tmp_path / "cron")
    for each in (memory, copy):
        assert not each.sync(way.format(moved, "moved"))
    (moved / "pears.md").unlink()
    for each in (memory, copy):
        monkeypatch.chdir(tmp_path / "cron")
        assert each.sync(way.format(moved, "moved")).counts()["removed"] == 1
        monkeypatch.chdir(moved.parent)
        assert not each.sync("docs")
        assert list_sources(each) == ["docs/apples.md"]


def test_a_page_of_another_folder_is_replaced_with_a_warning(
    open_memory, docs, monkeypatch, tmp_path, caplog
):
    caplog.set_level("WARNING")
    memory = open_memory()
    monkeypatch.chdir(docs)
    memory.ingest(["."])
    monkeypatch.chdir(write_pages(tmp_path / "other"))
    memory.ingest(["."])
    assert [message.partition(" ")[0] for message in caplog.messages] == ["'.'"]


def test_a_dry_run_and_a_refusal_remember_nothing(open_memory, docs, snapshot):
    memory = open_memory()
    before = snapshot(memory)
    assert memory.sync("docs", dry_run=True).counts()["added"] == 2
    for file in docs.iterdir():
        file.unlink()
    with pytest.raises(InvalidInputError, match="contains no documents"):
        memory.sync("docs")
    assert snapshot(memory) == before


def test_another_directory_of_the_same_name(open_memory, docs, monkeypatch, tmp_path, caplog):
    """A fresh checkout is the same root; one sentence says so while the former one exists."""
    caplog.set_level("WARNING")
    memory = open_memory()
    memory.sync("docs")
    checkout = write_pages(tmp_path / "ci" / "docs")
    (checkout / "pears.md").unlink()
    monkeypatch.chdir(checkout.parent)
    assert memory.sync("docs").counts()["removed"] == 1
    (warning,) = caplog.messages
    assert warning.startswith("'docs' of this memory now stands for another place")
    assert str(tmp_path) not in warning
    monkeypatch.chdir(tmp_path)
    assert not memory.sync("ci/docs")
    for file in docs.iterdir():
        file.unlink()
    docs.rmdir()
    again = write_pages(tmp_path / "next" / "docs")
    for file in checkout.iterdir():
        file.unlink()
    checkout.rmdir()
    monkeypatch.chdir(again.parent)
    assert memory.sync("docs").counts()["restored"] == 1
    assert len(caplog.messages) == 1


def test_a_full_path_is_not_taken_for_another_directory_of_its_name(
    open_memory, docs, monkeypatch, tmp_path
):
    memory = open_memory()
    memory.sync("docs")
    other = write_pages(tmp_path / "other" / "docs")
    monkeypatch.chdir(tmp_path / "cron")
    memory.sync(other)
    monkeypatch.chdir(other.parent)
    assert not memory.sync("docs")
    assert len(list_sources(memory)) == 4


def test_the_place_stays_in_its_store(open_memory, docs, tmp_path):
    """Neither an answer nor an archive nor a copy of the memory has the full path."""
    memory = open_memory()
    memory.sync("docs")
    place = str(docs.parent)
    assert place in memory.store.catalog.meta()["roots"]
    answer = memory.retrieve("apples", k=2)
    shown = [str(answer), repr(memory.info()), repr(list_sources(memory)), repr(memory.documents())]
    archive = tmp_path / "all.jsonl"
    memory.transfer.export(archive)
    with ZipFile(archive) as opened:
        shown += [opened.read(name).decode() for name in opened.namelist()]
    assert not any(place in text for text in shown)
    copy = open_memory()
    copy.transfer.import_archive(archive)
    assert list_sources(copy) == list_sources(memory)
    assert "roots" not in copy.store.catalog.meta()
