"""``add_documents`` adds: batches of one source, repeated texts and repeated calls lose nothing.

A given id is replaced; with a cleanup what changed is updated, and what a source no longer holds
goes.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_text_splitters import CharacterTextSplitter
from passages import read_passages

from crabpath_retrievers import CrabPathRetriever, EdgeKind
from crabpath_retrievers.config import IngestSettings
from crabpath_retrievers.errors import EmbeddingMismatchError, InvalidInputError
from tests.seams import get_engine

LINES = CharacterTextSplitter(separator="\n", chunk_size=1, chunk_overlap=0)
PAGES = [
    Document(f"Page {i} is about topic{i}.", metadata={"source": "manual.pdf", "page": i})
    for i in range(12)
]


def count_chunks(report):
    """Chunks that were added, updated, removed, and left as they are."""
    return report.added, report.updated, report.removed, report.unchanged


def read_texts(contents, memory):
    return sorted(contents(memory).values())


def test_pages_of_one_source_in_batches_all_stay(open_memory, location, chained, contents):
    """In the order in which they came, with equal texts among them; again is a no-op."""
    pages = [*PAGES[:6], *(Document("(empty page)", metadata=page.metadata) for page in PAGES[:3])]
    memory = open_memory(location)
    for start in (0, 1, 2, 5):
        memory.add_documents(pages[start : start + 4])
    assert chained(memory, [page.page_content for page in pages])
    for start in range(0, 9, 4):
        some = pages[start : start + 4]
        assert count_chunks(memory.add_documents(some)) == (0, 0, 0, len(some))
    assert chained(memory, [page.page_content for page in pages])
    assert count_chunks(memory.add_documents(pages[2:7], cleanup="incremental")) == (0, 0, 4, 5)
    assert len(contents(memory)) == 5


def test_others_add_while_one_embeds(open_memory, location, embedder, contents, monkeypatch):
    """A slow embedder holds up nobody else; what was added meanwhile is kept, or replaced."""
    slow = Document("slow", id="a", metadata={"source": "a"})
    memory, begun, go_on = open_memory(location), Event(), Event()
    embed = embedder.embed_documents

    def wait_and_embed(texts):
        if texts == ["slow"]:
            begun.set()
            assert go_on.wait(30)
        return embed(texts)

    monkeypatch.setattr(embedder, "embed_documents", wait_and_embed)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(memory.add_documents, [slow])
        assert begun.wait(30)
        quick = [Document("quick", id="a"), Document("other", id="b")]
        second = threads.submit(memory.add_documents, quick)
        try:
            assert count_chunks(second.result(timeout=30)) == (2, 0, 0, 0)
        finally:
            go_on.set()
        assert count_chunks(first.result(timeout=30)) == (0, 1, 0, 0)
    assert contents(memory) == {"a": "slow", "b": "other"}


async def test_every_way_of_adding_only_adds(embedder, tmp_path):
    """Awaited, and by a second program on the same path, unless a cleanup is asked for."""
    options = {"embeddings": embedder, "path": tmp_path / "m"}
    with CrabPathRetriever.from_documents(PAGES[:2], **options).memory as memory:
        report = await memory.aio.add_documents([PAGES[6], Document("text", id="a")])
        assert report.ids[1] == "a"
    for pages, cleanup, count in ((PAGES[7:9], None, 6), (PAGES[5:8], "incremental", 4)):
        with CrabPathRetriever.from_documents(pages, cleanup=cleanup, **options).memory as memory:
            assert memory.info()["nodes"] == count


def test_with_incremental_cleanup_a_call_holds_all_of_its_sources(memory, document, contents):
    """Whatever the ids of their documents, as in LangChain's ``index``; other sources stay."""
    named = [document(f"page {n}", id=f"p{n}", source="book") for n in range(4)]
    others = [document("elsewhere", id="o", source="b"), document("bare")]
    memory.add_documents([*PAGES[:5], *named, *others])
    given = [*PAGES[3:10], *named[:2], document("bare, changed")]
    assert count_chunks(memory.add_documents(given, cleanup="incremental")) == (6, 0, 5, 4)
    kept = [d.page_content for d in (*PAGES[3:10], *named[:2], *others)]
    assert read_texts(contents, memory) == sorted([*kept, "bare, changed"])


def test_full_cleanup_removes_what_is_not_given(memory, document, contents):
    memory.add_documents([document("1", id="a"), document("2", id="b"), document("3", id="c")])
    report = memory.add_documents([document("2", id="b"), document("4", id="d")], cleanup="full")
    assert count_chunks(report) == (1, 0, 2, 1)
    assert contents(memory) == {"b": "2", "d": "4"}
    with pytest.raises(InvalidInputError, match="cleanup must be"):
        memory.add_documents([document("new", id="b")], cleanup="ful")
    assert contents(memory) == {"b": "2", "d": "4"}
    assert memory.add_documents([], cleanup="full").removed == 2
    assert contents(memory) == {}


def test_the_first_of_equal_texts_keeps_the_id_that_it_always_had(memory):
    """Metadata only tells further ones apart, so ids of what is indexed already stay.

    The report counts the texts that a call repeats.
    """
    pages = [Document("text", metadata={"page": n}) for n in (1, 2, 3)]
    (alone,) = memory.add_documents(pages[:1]).ids
    report = memory.add_documents(pages)
    first, *others = report.ids
    assert (report.repeated, "1 repeat the text of others" in str(report)) == (1, True)
    assert first == alone
    assert len({first, *others}) == 3
    assert memory.add_documents(pages[::-1]).ids == [*others[::-1], first]
    assert count_chunks(memory.add_documents(pages, cleanup="incremental")) == (0, 0, 0, 3)


def test_changed_metadata_is_an_update_of_what_is_replaced(memory, document):
    """By id or cleanup, in both stores; otherwise the new one comes beside the old."""
    old = memory.add_documents([document("1", id="a", v=1), document("2", source="s", v=1)]).ids
    changed = [document("1", id="a", v=2), document("2", source="s", v=2)]
    report = memory.add_documents(changed, cleanup="incremental")
    assert (count_chunks(report), report.ids) == ((0, 2, 0, 0), old)
    found = memory.store.catalog.documents(old)
    assert [found[i].metadata["v"] for i in old] == [2, 2]
    assert [memory.index.rows[i][1]["v"] for i in old] == [2, 2]
    again = [document("1", id="a", v=3), document("2", source="s", v=3)]
    assert count_chunks(memory.add_documents(again)) == (1, 1, 0, 0)


def test_a_given_id_is_replaced_whole(memory, document, contents):
    """The id alone tells which document it is; it may grow and shrink, its source stays."""
    memory.add_documents([document("of the source", source="book"), document("other", id="b")])
    rest = ["of the source", "other"]
    for text, source in ("old", "x"), ("one\ntwo\nthree", "book"), ("two\nfour", "book"):
        memory.add_documents([document(text, id="a", source=source)], splitter=LINES)
        assert read_texts(contents, memory) == sorted([*text.split("\n"), *rest])
    memory.add_documents([document("new", id="a")], splitter=LINES)
    assert contents(memory)["a"] == "new"


def test_adding_again_is_a_no_op(memory, embedder, document, snapshot):
    """The same documents again are looked up and nothing else: no embedding, no write."""
    documents = [document(f"{n} text", id=n, title=f"Alpha {n}") for n in "abcdefgh"]
    first = memory.add_documents(documents)
    before = snapshot(memory)
    again = memory.add_documents(documents)
    assert (count_chunks(first), count_chunks(again)) == ((8, 0, 0, 0), (0, 0, 0, 8))
    assert again.ids == first.ids == list("abcdefgh")
    assert len(embedder.embedded) == 8
    assert snapshot(memory) == before


def test_only_changed_chunks_are_embedded(memory, embedder, document, joined):
    """When the head goes, the next chunk takes its name: the document is found by its title."""
    for text in "one\ntwo\nthree", "two\n3":
        embedder.embedded.clear()
        rome = [document(text, source="book.txt", title="Old Rome")]
        report = memory.add_documents(rome, splitter=LINES, cleanup="incremental")
    assert embedder.embedded == ["Old Rome\ntwo", "Old Rome\n3"]
    assert count_chunks(report) == (1, 1, 2, 0)
    memory.add_documents([document("All roads lead to Old Rome", id="r")])
    assert joined(memory, EdgeKind.MENTION) == {("r", report.ids[0])}


WHOLE = [Document(f"{i} a\n{i} b\n{i} c", id=f"d{i}") for i in range(9)]
LOG = [Document(f"message {n}", metadata={"source": "slack"}) for n in range(23)]


# 16, then 5, each filled to whole documents; but a source of many texts is no single batch.
@pytest.mark.parametrize(("documents", "batches"), [(WHOLE, [18, 6, 3]), (LOG, [20, 3])])
def test_chunks_are_written_in_batches(open_memory, contents, documents, batches):
    done = []

    @contextmanager
    def show(total):
        assert total == sum(batches)
        yield done.append

    memory = open_memory(ingest=IngestSettings(batch_size=5))
    memory.add_documents(documents, splitter=LINES, progress=show)
    assert len(contents(memory)) == sum(batches)
    assert done == batches


def test_statements_per_document_do_not_grow_with_the_corpus(memory):
    """Adding one document takes no more SQL statements among 100 others than among 20."""
    documents = read_passages(100)
    text = "Ed Wood was a film by Tim Burton, and so was the one about Scott Derrickson."
    new = Document(text, id="new", metadata={"title": "Scott Derrickson"})
    statements = []
    for engine in (get_engine(memory.store), get_engine(memory.store, reads=True)):
        sa.event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    counts = []
    for part in documents[:20], documents[20:]:
        memory.add_documents(part)
        statements.clear()
        memory.add_documents([new])
        counts.append(len(statements))
        memory.forget("new")
    assert counts[1] <= counts[0] < 100


DOCUMENT = st.builds(
    lambda text, source, page: Document(
        text,
        metadata={**({"source": source} if source else {}), **({"page": page} if page else {})},
    ),
    st.sampled_from(["a", "b", "a\nb", "b\na\nc", "c"]),
    st.sampled_from(["s", "t", None]),
    st.sampled_from([1, 2, None]),
)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(calls=[[Document("a\nb", metadata={"source": "s"})], [Document("b\na\nc")]])
@given(calls=st.lists(st.lists(DOCUMENT, max_size=4), max_size=4))
def test_no_order_of_calls_loses_or_doubles_anything(memory, calls):
    """Every chunk of every call is there once, under its reported id; again is a no-op."""
    memory.add_documents([], cleanup="full")
    for documents in calls:
        report = memory.add_documents(documents, splitter=LINES)
        assert (report.updated, report.removed) == (0, 0)
    for documents in calls:
        again = memory.add_documents(documents, splitter=LINES)
        assert count_chunks(again)[:3] == (0, 0, 0)
        found = memory.store.catalog.documents(again.ids)
        wanted = {
            (line, str(document.metadata))
            for document in documents
            for line in document.page_content.split("\n")
        }
        assert {(n.content, str(n.metadata)) for n in found.values()} == wanted


TWO = [Document("Apples are red.", id="a"), Document("The sky is blue.", id="b")]


def test_a_vector_that_is_given_is_not_computed(memory, embedder):
    """It is scaled to length 1; a document of several chunks is embedded all the same."""
    vector = [0.0, 5.0] + [0.0] * 62
    memory.add_documents(TWO, split=False, vectors={"a": vector, "nobody": vector})
    assert embedder.embedded == ["The sky is blue."]
    (head,) = memory.store.walk.get_nodes(["a"])
    assert head.vector.tolist() == [0.0, 1.0] + [0.0] * 62
    embedder.embedded.clear()
    report = memory.add_documents([Document("Pears. " * 300, id="c")], vectors={"c": vector})
    assert len(embedder.embedded) == report.added > 1


def test_a_vector_of_another_size_is_refused(memory):
    with pytest.raises(EmbeddingMismatchError, match="has 3 dimensions, the memory 64"):
        memory.add_documents(TWO, split=False, vectors={"a": [1.0, 2.0, 3.0]})
    assert memory.info()["nodes"] == 0
    memory.add_documents(TWO)
    with pytest.raises(EmbeddingMismatchError, match="has 3 dimensions, the memory 64"):
        memory.retrieve("x", vector=[1.0, 2.0, 3.0])


def test_forgetting_by_id_and_by_source(memory, document, contents):
    """Chunks or whole documents, whatever ids the documents of a source have."""
    memory.add_documents([document("1\n2", id="a"), document("3", id="b")], splitter=LINES)
    memory.add_documents([document("4", id="c", source="s"), document("5", source="s")])
    memory.add_documents([document("6", id="d")])
    given = ({"ids": "a"}, {"ids": ["b", "never there"]}, {"ids": ["b"]}, {"source": "s"})
    assert [memory.forget(**one) for one in given] == [2, 1, 0, 2]
    assert contents(memory) == {"d": "6"}


def test_nothing_of_a_forgotten_text_is_left(memory, document):
    """The text and its names are in no table any more, but as bytes of the full-text index."""
    memory.add_documents([document("keep this", id="a")])
    memory.add_documents([document("the codeword is xylophone", id="b", title="Xylophone")])
    memory.retrieve("what is the codeword?", k=2)
    memory.forget("b")
    with memory.store.connect() as connection:
        for line in connection.connection.driver_connection.iterdump():
            assert "xylophone" not in line.lower() or line.startswith('INSERT INTO "crabpath_full')
    assert memory.store.fulltext.find_phrases([["xylophone"]], 5)[0] == []
    assert [d.node.id for d in memory.retrieve("xylophone", k=2).documents] == ["a"]


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
    texts = ["1", "", " \n\t", "\x00", "\u00a0", "3"]
    pages = [Document(text, metadata={"source": "x", "page": n}) for n, text in enumerate(texts)]
    for added in (2, 0):
        report = memory.add_documents(pages, ids=list("abcdef"), cleanup="incremental")
        assert (report.added, report.blank, report.ids) == (added, 4, ["a", "f"])
        (line,) = read_warnings()
        assert line.startswith("4 of 6 documents have no text, left out: 'x' page 1, ")
    assert sorted(contents(memory).values()) == ["1", "3", "old", "old"]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"id": "a"}, "'a'"),
        ({}, "number 1"),
        ({"metadata": {"source": "x.pdf", "page": 3, "page_label": "iv"}}, "'x.pdf' page iv"),
        ({"metadata": {"source": "x\x1b]0;y"}}, r"'x\x1b]0;y'"),
        ({"metadata": {"file_path": "/x.md", "page": "\x1b[2J"}}, r"'/x.md' page '\x1b[2J'"),
    ],
)
def test_what_names_a_blank_document(embedder, read_warnings, given, named):
    """Its source and page, else its id, else its place in the list; no terminal is written to."""
    blank = [Document(" ", **given), *(Document("", id=f"d{n}") for n in range(39))]
    retriever = CrabPathRetriever.from_documents(blank, embedder)
    assert retriever.invoke("anything") == []  # nothing else was given
    retriever.memory.close()
    (line,) = read_warnings()
    assert line.startswith(f"40 of 40 documents have no text, left out: {named}, 'd0', ")
    assert line.endswith("'d3' and 35 more")
