"""Seeing what a memory holds: documents, sources, notes, turns, its repr, an explained turn."""

import re
from datetime import date
from html.parser import HTMLParser

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import (
    CrabPath,
    CrabPathRetriever,
    Feedback,
    InvalidInputError,
    NotFoundError,
)
from crabpath_retrievers.errors import StoreUnavailableError
from tests.seams import get_engine

PLAIN = DeterministicFakeEmbedding(size=16)
PAGES = [
    Document(
        f"Page {n}.", metadata={"source": f"{'ab'[n % 2]}.pdf", "page": n, "day": date(2026, 1, 1)}
    )
    for n in range(8)
]


@pytest.fixture
def memory(location, tmp_path):
    with CrabPath.open(location, embeddings=PLAIN, vectors=tmp_path / "v") as opened:
        opened.add_documents(PAGES)
        yield opened


def pages(documents):
    return sorted(document.metadata["page"] for document in documents)


@pytest.mark.both_databases
def test_documents_by_source_by_metadata_and_a_few(memory):
    assert pages(memory.documents()) == list(range(8))
    (first,) = memory.documents(limit=1)
    assert (first.page_content, first.metadata["source"]) == ("Page 0.", "a.pdf")
    assert memory.get_by_ids([first.id]) == [first]
    for options, found in (
        ({"source": "b.pdf"}, [1, 3, 5, 7]),
        ({"source": "c.pdf"}, []),
        ({"filter": {"page": 3}}, [3]),
        ({"filter": {"page": 3, "source": "a.pdf"}}, []),
        ({"filter": {"day": date(2026, 1, 1)}, "limit": 2}, [0, 2]),
        ({"filter": {}}, list(range(8))),
        ({"filter": {"source": "a.pdf"}, "source": "a.pdf", "limit": 3}, [0, 2, 4]),
    ):
        assert pages(memory.documents(**options)) == found, options
    for wrong in (
        {"limit": 0},
        {"filter": "x"},
        {"filter": {"$and": []}},
        {"filter": {"title": None}},
        {"filter": {"page": {"$gt": 3}}},
    ):
        with pytest.raises(InvalidInputError, match="must"):
            memory.documents(**wrong)
    assert memory.sources() == {"a.pdf": 4, "b.pdf": 4}
    assert memory.sources(limit=1) == {"a.pdf": 4}


@pytest.mark.both_databases
def test_what_a_sync_retired_is_not_listed_and_new_text_is_in_its_place(memory):
    def sync(*texts):
        parts = [Document(text, metadata={"source": "c.md"}) for text in texts]
        memory.sync(parts)
        return [document.page_content for document in memory.documents(source="c.md")]

    assert sync("One.", "Three.") == ["One.", "Three."]
    assert sync("One.", "Two.", "Three.") == ["One.", "Two.", "Three."]
    assert sync("Two.") == ["Two."]
    assert memory.sources()["c.md"] == 1


@pytest.mark.both_databases
async def test_notes_and_turns_belong_to_a_namespace(memory):
    turns = [memory.retrieve(f"Which page is {n}?", k=2, namespace="ann") for n in range(3)]
    other = memory.retrieve("Other?", namespace="bob").turn.id
    memory.record(Feedback(turns[1].turn.id, 1.0, feedback_id="thumb"))
    listed = memory.turns(namespace="ann")
    assert [turn.id for turn in listed] == [answer.turn.id for answer in reversed(turns)]
    assert [turn.feedback_id for turn in listed] == [None, "thumb", None]
    assert listed[0].query == "Which page is 2?"
    assert listed[0].documents == tuple(found.node.id for found in turns[2].documents)
    assert memory.turns(namespace="ann", limit=1) == listed[:1]
    assert [turn.id for turn in await memory.aio.turns(namespace="bob")] == [other]
    first = memory.teach("Ask Ann.", title="Ann", query="Whom?", namespace="ann")
    second = memory.correct("Page 9.", turn_id=turns[0].turn.id)
    late, early = await memory.aio.notes(namespace="ann")
    assert (late.id, late.kind, late.turn_id) == (second, "correction", turns[0].turn.id)
    assert (early.id, early.title, early.text, early.query) == (first, "Ann", "Ask Ann.", "Whom?")
    assert memory.notes(namespace="ann", limit=1) == [late]
    assert memory.notes() == memory.notes(namespace="bob") == memory.turns() == []
    assert pages(memory.documents()) == list(range(8))
    with CrabPathRetriever(memory=memory, namespace="ann").memory:
        ann, bob = (CrabPathRetriever(memory=memory, namespace=name) for name in ("ann", "bob"))
        assert [note.page_content for note in ann.get_by_ids([first])] == ["Ask Ann."]
        assert await bob.aget_by_ids([first]) == []


@pytest.mark.sqlite
def test_listing_reads_as_much_as_it_returns(memory, monkeypatch):
    """Whatever the corpus holds: every statement has a limit, or ids, and an index to go by."""
    memory.retrieve("Page?")
    store, plans = memory.store, []
    engine = get_engine(store, reads=True)

    @sa.event.listens_for(engine, "before_cursor_execute")
    def explain(_connection, cursor, statement, parameters, *_):
        cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
        plans.extend(row[-1] for row in cursor.fetchall())

    memory.documents()
    memory.documents(source="a.pdf")
    memory.documents(under="a")
    memory.sources(under="a")
    memory.turns()
    memory.notes()
    sa.event.remove(engine, "before_cursor_execute", explain)
    assert plans
    assert [plan for plan in plans if plan.startswith("SCAN") or "TEMP B-TREE" in plan] == []


def test_repr_says_where_and_how_much(memory, monkeypatch):
    assert repr(memory) == f"<CrabPath {memory.store.name}, 8 chunks>"
    assert repr(memory) in repr(memory.as_retriever())

    def fail(_):
        msg = "away"
        raise StoreUnavailableError(msg)

    with monkeypatch.context() as patched:
        patched.setattr(type(memory.store.catalog), "meta", fail)
        assert repr(memory) == f"<CrabPath {memory.store.name}>"
    memory.close()
    assert repr(memory) == f"<CrabPath {memory.store.name}, closed>"


class Cells(HTMLParser):
    """Collects the texts and the tags of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts = set(), []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.texts.append(data)


def test_an_explanation_is_short_as_text_and_data_as_html():
    """Texts of documents are shown, but no tag and no control character of theirs."""
    hostile = "<script>alert('x')</script>\x1b[2J & Page 2"
    documents = [
        Document("Deploy with make ship, see Page 2.", id="a", metadata={"title": "Page 1"}),
        Document("It is red.", id="b", metadata={"title": hostile}),
    ]
    with CrabPath.open(embeddings=PLAIN) as memory:
        memory.add_documents(documents)
        explanation = memory.explain(memory.retrieve("<b>Page 1</b>?").turn.id)
        shown, html = str(explanation), explanation._repr_html_()
    assert shown.splitlines()[0] == "Query: <b>Page 1</b>?"
    assert "Page 1: search hit" in shown
    assert len(shown) < 1000
    assert "\x1b" not in shown + html
    cells = Cells(html)
    assert cells.tags == {"table", "caption", "tr", "th", "td"}
    assert "<script>alert('x')</script>\ufffd[2J & Page 2" in cells.texts
    assert "Query: <b>Page 1</b>?" in cells.texts


@pytest.mark.both_databases
def test_documents_without_a_title_are_explained_by_their_sources(location, tmp_path):
    """What was returned as well as what led there; what has neither, by its id."""
    documents = [
        Document("Deploys run at night, see [how](ship.md).", metadata={"source": "night.md"}),
        Document("Type make ship.", id="ship", metadata={"source": "ship.md"}),
        Document("Deploys are quiet.", id="plain"),
    ]
    with CrabPath.open(location, embeddings=PLAIN, vectors=tmp_path / "v") as memory:
        memory.add_documents(documents)
        shown = str(memory.explain(memory.retrieve("When do deploys run?").turn.id))
    lines = shown.splitlines()
    assert any(re.search(r"  ship\.md: ", line) for line in lines), shown
    assert any(re.search(r"link 0\.60 by night\.md$", line) for line in lines), shown
    assert any(re.search(r"  plain: search hit$", line) for line in lines), shown


@pytest.mark.both_databases
def test_documents_by_words_of_text_or_title(location, tmp_path):
    with CrabPath.open(location, embeddings=PLAIN, vectors=tmp_path / "v") as memory:
        memory.add_documents(
            [
                Document("Apples are red, and apples are round.", metadata={"source": "a"}),
                Document("An apple a day.", metadata={"source": "b", "title": "Doctors"}),
                Document("The sky is blue.", metadata={"source": "a", "title": "Apples"}),
                Document("Grass is green.", metadata={"source": "c"}),
            ]
        )
        memory.teach("Apples are a secret of this namespace.")
        texts = [document.page_content for document in memory.documents(words="APPLES")]
        assert sorted(texts) == ["Apples are red, and apples are round.", "The sky is blue."]
        assert [d.page_content for d in memory.documents(words="doctors")] == ["An apple a day."]
        found = memory.documents(words="apples sky", source="a", filter={"title": "Apples"})
        assert [document.page_content for document in found] == ["The sky is blue."]
        assert len(memory.documents(words="apples", limit=1)) == 1
        assert memory.documents(words="pears") == memory.documents(words="?!") == []


def test_plain_search_finds_what_the_vector_store_finds(memory):
    found = memory.similarity_search("Page 3.", k=3)
    (best, cosine), *rest = found
    assert best.page_content == "Page 3."
    assert cosine == pytest.approx(1.0, abs=1e-2)
    assert [score for _, score in found] == sorted((s for _, s in found), reverse=True)
    assert len(rest) == 2
    assert memory.turns() == []
    for wrong in ({"text": " "}, {"text": "x", "k": 0}):
        with pytest.raises(InvalidInputError):
            memory.similarity_search(**wrong)


@pytest.mark.both_databases
def test_turns_page_by_page(memory):
    for n in range(5):
        memory.retrieve(f"Page {n}.", namespace="ann")
    foreign = memory.retrieve("Page 1.", namespace="bob").turn.id
    first = memory.turns(namespace="ann", limit=3)
    rest = memory.turns(namespace="ann", before=first[-1].id, limit=3)
    assert [turn.query for turn in first + rest] == [f"Page {n}." for n in (4, 3, 2, 1, 0)]
    assert memory.turns(namespace="ann", before=rest[-1].id) == []
    with pytest.raises(NotFoundError):
        memory.turns(namespace="ann", before=foreign)


def test_sources_and_documents_are_listed_by_how_a_source_begins(memory):
    memory.add_documents(
        [
            Document(f"Text {n}", metadata={"source": source})
            for n, source in enumerate(
                ["docs/b", "docs/a", "docs/a/c", "docsx", "Docs/a", "docs/%"]
            )
        ]
    )
    under = ["docs/%", "docs/a", "docs/a/c", "docs/b"]
    assert list(memory.sources(under="docs/")) == under
    assert list(memory.sources(under="docs/", after="docs/a", limit=1)) == ["docs/a/c"]
    assert list(memory.sources(after="docs/b")) == ["docsx"]
    listed = [one.metadata["source"] for one in memory.documents(under="docs/")]
    assert listed == under
    assert len(memory.documents(under="docs/", limit=2)) == 2
    assert memory.sources(under="docs/z") == {}
    assert memory.documents(under="docs/a", source="docs/b") == []
