"""What is no text is not indexed: front matter, pictures, hyphens; HTML in its code is named."""

from datetime import date

import pytest
from langchain_core.documents import Document
from pdf_files import make_pdf

from crabpath_retrievers import CrabPath
from crabpath_retrievers.errors import InvalidInputError

PICTURE = "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAA" * 40
DRAWING = "data:image/svg+xml;utf8,<svg transform='rotate(45)'><path d='M0 0'/></svg>"
YAML = """---
title: "Night shifts: who"
aliases: [Duty, 2024, {deep: value}]
tags: staff night
date: 2024-01-02
draft: no
---

Two nurses are on duty.
"""
TOML = """+++
title = "Keys"
date = 2024-01-02
tags = ["room", 4]
+++
They hang in room 4.
"""


def read(memory):
    """Title, text and metadata of every chunk by source."""
    return {d.metadata["source"]: d for d in memory.documents(limit=100)}


@pytest.mark.parametrize("door", ["sync", "add", "ingest"])
def test_front_matter_tells_title_names_tags_and_date(tmp_path, memory, joined, door):
    """It is no text, whichever way the page comes; a link by its alias finds the page."""
    folder = tmp_path / "docs"
    folder.mkdir()
    files = {"a.md": YAML, "b.mdx": TOML, "c.md": "# Staff\n\nSee [[Duty]] and [[Keys]].\n"}
    for name, text in files.items():
        (folder / name).write_text(text)
    if door == "sync":
        memory.sync(folder)
    elif door == "ingest":
        memory.ingest(folder)
    else:
        memory.add_documents(
            [Document(t, metadata={"source": str(folder / n)}) for n, t in files.items()]
        )
    first, second, third = (read(memory)[str(folder / name)] for name in files)
    assert first.page_content.strip() == "Two nurses are on duty."
    assert second.page_content.strip() == "They hang in room 4."
    assert [d.metadata["title"] for d in (first, second)] == ["Night shifts: who", "Keys"]
    assert (first.metadata["tags"], second.metadata["tags"]) == (["staff", "night"], ["room", "4"])
    assert {d.metadata["date"] for d in (first, second)} == {"2024-01-02"}
    assert first.metadata["aliases"] == ["Duty", "2024"]
    assert [d.id for d in memory.documents(filter={"date": "2024-01-02"})] == [first.id, second.id]
    catalog = memory.store.catalog
    assert {first.id, second.id} <= {node for pair in all_pairs(memory, joined) for node in pair}
    assert catalog.documents([first.id])[first.id].title == "Night shifts: who"
    assert third.page_content.startswith("# Staff")


def test_pages_are_filtered_by_the_day_of_their_front_matter(tmp_path, embedder):
    """As a number; a date itself is text, which no store orders, and that is said."""
    for name, day in (("old", "2023-12-31"), ("new", "2024-01-02T10:00"), ("odd", "in May")):
        (tmp_path / f"{name}.md").write_text(f"---\ndate: {day}\n---\nA page.")
    with CrabPath.open(tmp_path / "memory", embeddings=embedder) as memory:
        memory.sync(tmp_path)
        filter_ = {"day": {"$gte": 20240101, "$lt": 20250101}}
        (found,) = memory.as_retriever(filter=filter_).invoke("Which page?")
        assert found.metadata["date"] == "2024-01-02T10:00"
        for day in ("2024-01-01", date(2024, 1, 1)):
            with pytest.raises(InvalidInputError, match="for a date the one of its day, such as"):
                memory.retrieve("Which?", filter={"date": {"$gt": day}})
        with pytest.raises(InvalidInputError, match=r"'date' .* beside it as a number, {'day': 20"):
            memory.retrieve("Which?", filter={"date": {"$gt": 20240101}})


def all_pairs(memory, joined):
    from crabpath_retrievers import EdgeKind

    return joined(memory, EdgeKind.LINK) | joined(memory, EdgeKind.MENTION)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "---\n\nA rule above.\n\n---\n\nAnd one below.",
        "---\nJust words between rules\n---\nMore.",
        "---\n# A heading\n---\nMore.",
        "---\n- a list\n---\nMore.",
        "---\ntitle: [never closed\n---\nMore.",
        "---\ntitle: never ended\n",
        "---\nt: " + "[" * 9000 + "\n---\nMore.",
        "---\nt: " + "x" * 20_000 + "\n---\nMore.",
        "+++\ntitle = broken\n+++\nMore.",
    ],
)
def test_what_is_no_front_matter_stays_text(memory, text):
    memory.add_documents([Document(text, metadata={"source": "a.md"})])
    shown = " ".join(d.page_content for d in memory.documents(limit=100))
    assert {word for word in text.split() if len(word) < 100} <= set(shown.split())


def test_front_matter_that_multiplies_itself_is_read_at_once(memory):
    """Ten levels of ten aliases each stand for 10 billion values."""
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 11))
    block = f"---\nl0: &l0 [x]\n{levels}title: *l10\ntags: *l10\n---\nText.\n"
    memory.add_documents([Document(block, metadata={"source": "a.md"})])
    (found,) = memory.documents()
    assert (found.page_content, set(found.metadata)) == ("Text.", {"source"})


def test_what_the_caller_says_stands(memory):
    """Above what the front matter says; and chunks, YAML files and other texts are left alone."""
    own = {"source": "a.md", "title": "Mine"}
    kept = [
        Document(YAML, metadata={"source": "values.yaml"}),
        Document(YAML, metadata={"source": "chunk.md", "start_index": 0}),
        Document("---\nport: 1\n---\nA text without a source."),
    ]
    memory.add_documents([Document(YAML, metadata=own), Document(TOML, id="raw"), *kept])
    found = memory.documents(limit=100)
    titles = {d.metadata.get("title") for d in found if "nurses" in d.page_content}
    assert titles == {"Mine", None}
    assert sum("title:" in d.page_content for d in found) == 2
    assert [d.metadata["title"] for d in found if "room 4" in d.page_content] == ["Keys"]
    assert any("port: 1" in d.page_content for d in found)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"Look: ![the plan]({PICTURE}) here.", "Look: the plan here."),
        (f'Look: ![the plan]({PICTURE} "a title") here.', "Look: the plan here."),
        (f"Look: ![the plan][p] here.\n\n[p]: {PICTURE}\n", "Look: ![the plan][p] here."),
        (f'Look: <img src="{PICTURE}" alt="the plan"> here.', "Look: the plan here."),
        (f"Look: <IMG alt='the plan' SRC='{PICTURE.upper()}'/> here.", "Look: the plan here."),
        (f"Look: ![the plan]({DRAWING}) here.", "Look: the plan here."),
        (f'Look: <img alt="the plan" src="{DRAWING}"> here.', "Look: the plan here."),
        (f"Look: [the plan]({PICTURE}) here.", "Look: the plan here."),
        (f"Look: [![the plan]({PICTURE})](b.md) here.", "Look: [the plan](b.md) here."),
        (f"Look: {PICTURE} here.", "Look:  here."),
        (f"Look: {PICTURE}\n{'A' * 76}\n{'B' * 30}==\nhere.", "Look: \nhere."),
        ("Of metadata:text/plain, data: image/png and data:", None),
    ],
)
def test_pictures_in_text_are_not_indexed(memory, text, kept):
    """Their names stay, in Markdown, in other texts and in chunks."""
    for number, (source, split) in enumerate([("a.md", True), ("a.txt", True), ("b", False)]):
        memory.add_documents(
            [Document(text, id=f"d{number}", metadata={"source": source})], split=split
        )
        (found,) = memory.get_by_ids([f"d{number}"])
        assert found.page_content.strip() == (text if kept is None else kept)


def test_pictures_of_notebooks_and_pages_are_not_indexed(tmp_path, memory):
    cell = f'{{"cell_type": "markdown", "source": "![the plan]({PICTURE}) in a notebook"}}'
    (tmp_path / "n.ipynb").write_text(f'{{"metadata": {{}}, "cells": [{cell}]}}')
    page = f"<body><a href='{PICTURE}'>the plan</a> of a page <img src='{PICTURE}' alt='x'></body>"
    (tmp_path / "p.html").write_text(page)
    memory.sync([tmp_path / "n.ipynb", tmp_path / "p.html"])
    texts = sorted(d.page_content for d in memory.documents())
    assert texts == ["the plan in a notebook", "the plan of a page x"]


def test_headings_that_are_not_closed_end_where_a_block_begins(tmp_path, memory):
    """As browsers show them; pages of manuals have such (SQLite's among them)."""
    page = "<body><h2>Agreement<h2>\n<h3>Support <p>Help is given.<h1><div>Title</div></h1>"
    (tmp_path / "p.html").write_text(page)
    memory.sync(tmp_path / "p.html", split=False)
    (found,) = memory.documents()
    lines = [line.strip(" #") for line in found.page_content.splitlines()]
    assert [line for line in lines if line] == ["Agreement", "Support", "Help is given.", "Title"]


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_pictures_in_tables_are_not_indexed(tmp_path, memory, sign, quote):
    """Quoted or not, whichever sign parts the cells."""
    rows = [["name", "picture", "place"], ["plan", f"{quote}{PICTURE}==", "cellar"]]
    rows[1][1] += quote
    (tmp_path / "t.csv").write_text("\n".join(map(sign.join, rows)) + "\n")
    memory.sync(tmp_path / "t.csv")
    (found,) = memory.documents()
    table = "| name | picture | place |\n| --- | --- | --- |\n| plan |  | cellar |"
    assert found.page_content == table


def test_pictures_in_questions_and_notes_are_not_indexed(memory, embedder):
    """Their names stay there, too; a question that is only a picture is empty."""
    said, kept = f"Look: ![the plan]({PICTURE}) here.", "Look: the plan here."
    memory.add_documents([Document("In the cellar.")])
    turn = memory.retrieve(said).turn
    assert turn.query == kept
    memory.teach(said, query=f"Where? {PICTURE}")
    receipt = memory.record(turn.id, outcome=False, correction=f"No. {said}", answer=said)
    assert receipt.status == "applied"
    memory.graph.search(said)
    assert {note.text for note in memory.notes()} == {kept, f"No. {kept}"}
    assert kept in embedder.embedded
    assert not [text for text in embedder.embedded if "base64" in text]
    for empty in (PICTURE, f" {PICTURE}\n"):
        with pytest.raises(InvalidInputError, match="the query is empty"):
            memory.retrieve(empty)


def test_a_text_that_is_only_a_picture_is_blank(memory, caplog):
    caplog.set_level("WARNING")
    report = memory.add_documents(
        [
            Document(PICTURE, metadata={"source": "a.md"}),
            Document("\u200b \u00ad\ufeff"),
            Document("b"),
        ]
    )
    assert (report.added, report.blank) == (1, 2)
    assert "2 of 3 documents have no text" in caplog.text


def test_soft_hyphens_hide_no_word(memory):
    """Neither those of a text nor those of a question; a name is found without them, too."""
    text = "The in\u00adfra\u00adstructure of the data\u00ad\nbase is old."
    memory.add_documents([Document(text, metadata={"source": "a", "title": "Ser\u00advers"})])
    (found,) = memory.documents()
    assert found.page_content == "The infrastructure of the database is old."
    for words in ("infrastructure", "data\u00adbase", "servers"):
        assert memory.documents(words=words) == [found]
    whole, broken = (memory.retrieve(f"infra{mark}structure?").turn for mark in ("", "\u00ad"))
    assert broken.returned[0].features == whole.returned[0].features


def test_words_that_a_pdf_breaks_are_whole(tmp_path, memory):
    """A compound keeps its hyphen where the file shows that it is one."""
    lines = [
        "infra-",
        "structure with a well-",
        "known e-",
        "mail of the Anglo-",
        "Saxon COVID-",
        "19 team, manip-",
        "ulation of a set-",
        "up",
        "all well-known, a setup or a set-up",
    ]
    (tmp_path / "a.pdf").write_bytes(make_pdf(") Tj 0 -14 Td (".join(lines)))
    memory.sync(tmp_path / "a.pdf")
    (found,) = memory.documents()
    assert " ".join(found.page_content.split()) == (
        "infrastructure with a well-known e-mail of the Anglo-Saxon COVID-19 team, manipulation of "
        "a setup all well-known, a setup or a set-up"
    )


def test_html_in_its_code_is_named_once(memory, caplog):
    """Not where Markdown begins with a tag, nor XML, nor a page that was converted."""
    caplog.set_level("WARNING")
    pages = [
        Document(f"<html><body><p>Page {n}</p>", metadata={"source": f"{n}.html"}) for n in (1, 2)
    ]
    others = [
        Document("<p align=center>A readme</p>", metadata={"source": "readme.md"}),
        Document("<project><name>x</name></project>", metadata={"source": "pom.xml"}),
        Document("a < b and <b>c</b>"),
    ]
    memory.add_documents([*pages, *others])
    (said,) = [r.getMessage() for r in caplog.records]
    assert said == (
        "2 of 5 documents begin with tags of HTML, which are indexed as text: '1.html', '2.html'"
    )


def test_every_part_of_a_table_has_its_header(memory):
    """Of Markdown; what stands before and behind the table is there, and nothing twice."""
    rows = "".join(f"| gizmo{n} | {n * 3} |\n" for n in range(400))
    text = f"# Stock\n\nIn the cellar.\n\n| product | price |\n|---|---|\n{rows}\nThe end.\n"
    memory.add_documents([Document(text, metadata={"source": "a.md"})])
    parts = [d.page_content for d in memory.documents(limit=100)]
    with_rows = [part for part in parts if "gizmo" in part]
    assert all("| product | price |\n|---|---|\n| gizmo" in part for part in with_rows)
    assert all(len(part) <= 1200 for part in parts)
    found = [line for part in with_rows for line in part.splitlines() if "gizmo" in line]
    assert sorted(found) == sorted(rows.splitlines())
    assert with_rows[0].startswith("# Stock\n\nIn the cellar.")
    assert parts.count("The end.") == 1


def test_a_row_that_is_new_changes_the_part_that_it_is_in(memory):
    """Whichever row is inserted or deleted, nearly all other parts stay as they are."""

    def give(rows):
        table = "| product | price |\n|---|---|\n" + "".join(f"| {row} | 3 |\n" for row in rows)
        return memory.sync([Document(table, metadata={"source": "a.md"})]).counts()

    rows = [f"gizmo number {n}" for n in range(600)]
    total = give(rows)["added"]
    for place in (0, 7, 300, 599):
        changed = give([*rows[:place], "brand new", *rows[place:]])
        assert total - changed["unchanged"] <= 4
        give(rows)
