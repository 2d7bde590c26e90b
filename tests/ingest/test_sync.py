"""Following sources: what is edited and moved stays itself, what is gone retires and comes back."""

import pytest
from langchain_core.documents import Document
from langchain_text_splitters import CharacterTextSplitter

from crabpath_retrievers import EdgeKind
from crabpath_retrievers.config import SyncSettings
from crabpath_retrievers.errors import InvalidInputError

DEPLOY = (
    "Check that the build is green, then push the release button and wait for the pods to start."
)
PAUSE = DEPLOY.replace("wait", "pause")
ROLLBACK = "Undo a bad release with the rollback script, which restores the images of yesterday."
LEAVE = "Every employee has thirty days of holiday; tell your manager two weeks before you go."
REPORT = "Broken laptops are brought to the desk on the second floor, together with the charger."


def write_page(**sections):
    """A Markdown page."""
    return "\n".join(f"# {name}\n\n{text}\n" for name, text in sections.items())


@pytest.fixture
def docs(tmp_path):
    """A folder of two pages with two sections each."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "release.md").write_text(write_page(Deploy=DEPLOY, Rollback=ROLLBACK))
    (folder / "office.md").write_text(write_page(Leave=LEAVE, Report=REPORT))
    return folder


def read_ids(memory, folder):
    """Id of every section by its heading."""
    known = memory.store.catalog.find_under_source(folder.as_posix())
    found = memory.store.catalog.documents([node.id for node in known])
    return {node.title.split(" › ")[-1]: node.id for node in found.values()}


@pytest.fixture
def synced(memory, docs, embedder):
    """The memory after its first sync, and the ids of its sections."""
    memory.sync(docs)
    embedder.embedded.clear()
    return read_ids(memory, docs)


def test_nothing_changed_is_no_work(memory, docs, synced, embedder, snapshot):
    """A second sync writes nothing, embeds nothing, and says so."""
    before = snapshot(memory)
    plan = memory.sync(docs)
    assert not plan
    assert plan.counts()["unchanged"] == len(synced) == 4
    assert embedder.embedded == []
    assert snapshot(memory) == before


def test_an_edited_section_keeps_its_id(memory, docs, synced, contents, snapshot):
    """Light rewording is an edit: text, vector and full text follow under the same id.

    A dry run plans the same and writes nothing. ``add`` knows the section afterwards, and its old
    text does not take its place.
    """
    edited = write_page(Deploy=PAUSE, Rollback=ROLLBACK)
    (docs / "release.md").write_text(edited)
    before = snapshot(memory)
    planned = memory.sync(docs, dry_run=True).to_dict()
    assert snapshot(memory) == before
    plan = memory.sync(docs)
    assert plan.to_dict() == planned
    (section,) = plan.sections
    assert (section.fate, section.now.id) == ("edited", synced["Deploy"])
    assert 0.92 < section.similarity < 1
    assert read_ids(memory, docs) == synced
    assert "pause" in contents(memory)[synced["Deploy"]]
    assert memory.store.fulltext.find_phrases([["pause", "for"]], 5)[0]
    assert not memory.store.fulltext.find_phrases([["wait", "for"]], 5)[0]
    source = {"source": (docs / "release.md").as_posix()}
    both = Document(edited + write_page(Deploy=DEPLOY), metadata=source)
    report = memory.add_documents([both])
    assert (report.added, report.updated, report.removed, report.unchanged) == (1, 0, 0, 2)
    assert synced["Deploy"] in report.ids
    assert len(set(report.ids)) == 3
    assert not memory.sync([both])


def test_the_threshold_is_a_setting(open_memory, docs):
    """A caller who knows the embedder may carry over more, or less."""
    memory = open_memory(sync=SyncSettings(new_version_similarity=0.999))
    memory.sync(docs)
    (docs / "release.md").write_text(write_page(Deploy=PAUSE, Rollback=ROLLBACK))
    counts = memory.sync(docs).counts()
    assert (counts["edited"], counts["added"], counts["removed"]) == (0, 1, 1)


def test_a_section_may_move_and_a_file_be_renamed(memory, docs, synced, embedder, contents):
    """Embedded is what has another title; a file that comes later under the old name is new."""
    (docs / "release.md").write_text(write_page(Deploy=DEPLOY))
    (docs / "release.md").rename(docs / "shipping.md")
    (docs / "office.md").unlink()
    (docs / "handbook.md").write_text(write_page(Leave=LEAVE, Report=REPORT, Rollback=ROLLBACK))
    counts = memory.sync(docs).counts()
    assert (counts["moved"], counts["added"], counts["removed"]) == (4, 0, 0)
    assert [text.split("\n")[0] for text in embedder.embedded] == ["Leave › Rollback"]
    assert read_ids(memory, docs) == synced
    handbook = {"source": (docs / "handbook.md").as_posix()}
    assert memory.index.rows[synced["Leave"]][1] == handbook
    (docs / "release.md").write_text(write_page(Deploy=DEPLOY, Rollback=ROLLBACK))
    assert memory.sync(docs).counts()["added"] == 2
    assert len(contents(memory)) == 6
    known = {k.id: k.source for k in memory.store.catalog.find_chunks(ids=synced.values())}
    assert known[synced["Deploy"]].endswith("shipping.md")
    assert not memory.sync(docs)


def test_a_section_that_only_shifts_is_not_written_again(memory, docs, synced, joined):
    """New text above moves the others down: their neighbours are read again, nothing else."""
    (docs / "office.md").write_text(write_page(Leave=LEAVE, Lunch="Soup at noon.", Report=REPORT))
    plan = memory.sync(docs)
    assert [s.fate for s in plan.sections] == ["added"]
    assert plan.positions == ((synced["Report"], 2),)
    positions = {k.id: k.position for k in memory.store.catalog.find_under_source(docs.as_posix())}
    assert positions[synced["Report"]] == 2
    lunch, siblings = read_ids(memory, docs)["Lunch"], joined(memory, EdgeKind.SIBLING)
    assert {(lunch, synced["Report"]), (lunch, synced["Leave"])} <= siblings
    assert (synced["Leave"], synced["Report"]) not in siblings
    assert not memory.sync(docs)


def test_a_removed_section_retires_and_comes_back(memory, docs, synced, contents, caplog):
    """No query finds it; the same text brings it back under its id, in another file, too.

    What is forgotten is gone, retired or not.
    """
    question = "undo a bad release with the rollback script"
    (docs / "release.md").write_text(write_page(Deploy=DEPLOY))
    plan = memory.sync(docs)
    assert [s.was.id for s in plan.sections_with("removed")] == [synced["Rollback"]]
    assert synced["Rollback"] not in contents(memory)
    found = memory.retrieve(question, k=4).documents
    assert synced["Rollback"] not in {d.node.id for d in found}
    assert (memory.info()["nodes"], memory.info()["retired"]) == (3, 1)
    (docs / "emergency.md").write_text(write_page(Rollback=ROLLBACK))
    (back,) = memory.sync(docs).sections
    assert (back.fate, back.now.id) == ("restored", synced["Rollback"])
    assert memory.retrieve(question, k=1).documents[0].node.id == synced["Rollback"]
    caplog.set_level("WARNING")
    (docs / "emergency.md").write_text(" \n")
    memory.sync(docs)
    assert "1 of 3 documents have no text, left out: " in caplog.text
    assert memory.forget(source=(docs / "emergency.md").as_posix()) == 1
    (docs / "release.md").write_text(write_page(Deploy=DEPLOY, Rollback=ROLLBACK))
    assert memory.sync(docs).counts()["added"] == 1
    assert memory.info()["retired"] == 0


def test_documents_from_elsewhere_stay(memory, docs, synced):
    """Only what came from the source may retire."""
    beside = f"{docs.as_posix()}-old/a.md"  # begins alike, but is another folder
    memory.add_documents([Document("a note", id="note")])
    memory.add_documents([Document("x", metadata={"source": s}) for s in ("docs2", beside)])
    (docs / "office.md").unlink()
    memory.sync(docs)
    assert memory.info()["nodes"] == 2 + 3
    assert len(memory.store.catalog.find_chunks(ids=["note"], sources=["docs2", beside])) == 3


def test_documents_of_a_loader_are_synced_by_their_roots(memory, contents):
    """Web pages retire when the loader no longer finds them, others stay."""
    site, other = "https://docs.example.com/", "https://other.example.com/x"

    def pages(*names):
        return [Document(f"All about {n}.", metadata={"source": f"{site}{n}"}) for n in names]

    memory.add_documents([Document("Another site.", metadata={"source": other})])
    memory.sync(pages("a", "b", "c"), roots=[site])
    memory.sync(pages("a", "b"))  # without roots only sections of these very pages may go
    assert len(contents(memory)) == 4
    memory.sync(pages("a", "b"), roots=[site])
    kept = ["All about a.", "All about b.", "Another site."]
    assert sorted(contents(memory).values()) == kept


def test_a_document_with_an_id_stays_itself(memory, contents):
    """Its id decides, whatever becomes of its text; its lines are sections as those of files."""
    lines = CharacterTextSplitter(separator="\n", chunk_size=1, chunk_overlap=0)
    memory.sync([Document("one text", id="a")])
    plan = memory.sync([Document("and now for something different", id="a")])
    assert [(s.fate, s.now.id) for s in plan.sections] == [("edited", "a")]
    memory.sync([Document("first\nsecond", id="a")], splitter=lines)
    memory.sync([Document("second", id="a")], splitter=lines)
    assert contents(memory) == {"a": "second"}


def test_a_source_that_is_empty_all_at_once_is_doubted(memory, docs, synced, contents):
    """A folder without documents is refused; saying so lets everything retire."""
    for file in docs.iterdir():
        file.unlink()
    with pytest.raises(InvalidInputError, match="contains no documents"):
        memory.sync(docs)
    assert len(contents(memory)) == 4
    with pytest.raises(InvalidInputError, match="nothing was given"):
        memory.sync([])
    assert memory.sync(docs, allow_empty=True).counts()["removed"] == 4
    assert contents(memory) == {}


def test_a_folder_is_known_however_it_is_written(memory, docs, monkeypatch):
    """``sync .`` after ``add .`` carries everything over to full paths, and follows from there."""
    monkeypatch.chdir(docs)
    for name in ("release.md", "office.md"):
        memory.add_documents([Document((docs / name).read_text(), metadata={"source": name})])
    before = set(memory.store.catalog.all_ids())
    assert memory.sync(".").counts()["moved"] == 4
    assert set(memory.store.catalog.all_ids()) == before
    monkeypatch.chdir(docs.parent)
    for same in (docs, "docs", "./docs/"):
        assert not memory.sync(same)
