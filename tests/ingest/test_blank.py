"""Documents without text are left out, with one warning that names them, and counted."""

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import CrabPathRetriever


@pytest.fixture
def read_warnings(caplog):
    """The warnings of this package since the last call."""
    caplog.set_level("WARNING")

    def read():
        found = [r.getMessage() for r in caplog.records if r.name.startswith("crabpath_retrievers")]
        caplog.clear()
        return found

    return read


def test_blank_documents_are_left_out(memory, contents, read_warnings):
    """The other pages come in, with their ids; blank ones count as not given."""
    memory.add_documents([Document("old", id="b"), Document("old", metadata={"source": "s"})])
    blank = ["", " \n\t", "\x00", "\u00a0"]
    pages = [
        Document(text, metadata={"source": "x", "page": n})
        for n, text in enumerate(["1", *blank, "3"])
    ]
    for added in (2, 0):
        report = memory.add_documents(pages, ids=list("abcdef"), cleanup="incremental")
        assert (report.added, report.blank, report.ids) == (added, 4, ["a", "f"])
        (line,) = read_warnings()
        assert line.startswith("4 of 6 documents have no text, left out: 'x' page 1, ")
    assert sorted(contents(memory).values()) == ["1", "3", "old", "old"]


def test_many_blank_pages_make_one_warning(memory, read_warnings):
    pages = [Document("", metadata={"source": "b.pdf", "page": n}) for n in range(40)]
    assert memory.add_documents(pages).blank == 40
    (line,) = read_warnings()
    assert line.startswith("40 of 40 documents have no text, left out: 'b.pdf' page 0, ")
    assert line.endswith("'b.pdf' page 4 and 35 more")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"id": "a"}, "'a'"),
        ({}, "number 2"),
        ({"metadata": {"source": "x.pdf", "page": 3, "page_label": "iv"}}, "'x.pdf' page iv"),
        ({"metadata": {"source": "x\x1b]0;y"}}, r"'x\x1b]0;y'"),
        ({"metadata": {"file_path": "/x.md", "page": "\x1b[2J"}}, r"'/x.md' page '\x1b[2J'"),
    ],
)
def test_what_names_a_blank_document(memory, read_warnings, given, named):
    """Its source and page, else its id, else its place in the list; no terminal is written to."""
    memory.add_documents([Document("text"), Document(" ", **given)])
    (line,) = read_warnings()
    assert line.endswith(named)


def test_a_retriever_leaves_them_out_too(embedder, read_warnings):
    """Also when nothing else is given: the memory is empty then."""
    retriever = CrabPathRetriever.from_documents([Document(" ")], embedder)
    assert (retriever.add_documents([Document("")]), retriever.invoke("anything")) == ([], [])
    assert len(read_warnings()) == 2
    retriever.memory.close()


def test_a_sync_names_files_without_text(memory, tmp_path, read_warnings, contents):
    """An emptied file holds no section any more, and that is said once."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("Apples.")
    (docs / "b.md").write_text("Bananas.")
    memory.sync(docs)
    assert read_warnings() == []
    (docs / "b.md").write_text(" \n")
    assert memory.sync(docs).counts()["removed"] == 1
    (line,) = read_warnings()
    assert line.startswith("1 of 2 documents have no text")
    assert "b.md" in line
    assert list(contents(memory).values()) == ["Apples."]
