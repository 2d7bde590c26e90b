"""Documents without text are left out, with one warning that names them, and counted."""

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import CrabPathRetriever

BLANK = ["", " \n\t", "\x00", "\u00a0"]


@pytest.fixture
def warned(caplog):
    """The warnings of this package since the last time it was asked."""
    caplog.set_level("WARNING")

    def read():
        found = [r.getMessage() for r in caplog.records if r.name.startswith("crabpath_retrievers")]
        caplog.clear()
        return found

    return read


@pytest.mark.parametrize("text", BLANK)
def test_a_blank_page_is_left_out(memory, held, warned, text):
    """The other pages come in; the warning names source and page, the report counts."""
    pages = [
        Document(words, metadata={"source": "b.pdf", "page": number})
        for number, words in enumerate(["first", text, "third"], 1)
    ]
    report = memory.add_documents(pages)
    assert (report.added, report.blank, len(report.ids)) == (2, 1, 2)
    assert sorted(held(memory).values()) == ["first", "third"]
    assert warned() == ["1 of 3 documents have no text, left out: 'b.pdf' page 2"]
    assert memory.add_documents(pages).blank == 1


def test_many_blank_pages_make_one_warning(memory, warned):
    """The first ones are named, the others counted."""
    pages = [Document("", metadata={"source": "b.pdf", "page": n}) for n in range(40)]
    assert memory.add_documents(pages).blank == 40
    (line,) = warned()
    assert line.startswith("40 of 40 documents have no text, left out: 'b.pdf' page 0, ")
    assert line.endswith("'b.pdf' page 4 and 35 more")


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (Document(" ", id="a"), "'a'"),
        (Document(" "), "number 2"),
        (
            Document(" ", metadata={"source": "x.pdf", "page": 3, "page_label": "iv"}),
            "'x.pdf' page iv",
        ),
        (Document(" ", metadata={"source": "x\x1b]0;y"}), r"'x\x1b]0;y'"),
        (
            Document(" ", metadata={"file_path": "/x.md", "page": "\x1b[2J"}),
            r"'/x.md' page '\x1b[2J'",
        ),
    ],
)
def test_what_names_a_blank_document(memory, warned, document, named):
    """Its source and page, else its id, else its place in the list; no terminal is written to."""
    memory.add_documents([Document("text"), document])
    (line,) = warned()
    assert line.endswith(named)


def test_blank_documents_keep_ids_and_cleanup_in_step(memory, held):
    """Ids go with their documents, and a blank one counts as not given."""
    memory.add_documents([Document("old", id="b"), Document("old", metadata={"source": "s"})])
    documents = [Document("1"), Document(""), Document("3")]
    report = memory.add_documents(documents, ids=["a", "b", "c"], cleanup="incremental")
    assert report.ids == ["a", "c"]
    assert sorted(held(memory).values()) == ["1", "3", "old", "old"]


def test_a_retriever_leaves_them_out_too(embedder, warned):
    """Also when nothing else is given: the memory is empty then."""
    retriever = CrabPathRetriever.from_documents([Document(" ")], embedder)
    assert (retriever.add_documents([Document("")]), retriever.invoke("anything")) == ([], [])
    assert len(warned()) == 2


def test_a_sync_names_files_without_text(memory, tmp_path, warned, held):
    """An emptied file holds no section any more, and that is said once."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("Apples.")
    (docs / "b.md").write_text("Bananas.")
    memory.sync(docs)
    assert warned() == []
    (docs / "b.md").write_text(" \n")
    assert memory.sync(docs).counts()["removed"] == 1
    (line,) = warned()
    assert line.startswith("1 of 2 documents have no text")
    assert "b.md" in line
    assert list(held(memory).values()) == ["Apples."]
