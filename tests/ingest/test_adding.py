"""``add_documents`` adds: batches of one source, repeated texts and repeated calls lose nothing.

A given id is replaced; with a cleanup what changed is updated, and what a source no longer holds
goes.
"""

import json
from pathlib import Path

import pytest
import sqlalchemy as sa
import tables as s
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_text_splitters import CharacterTextSplitter

from crabpath_retrievers import CrabPathRetriever, Feedback
from crabpath_retrievers.config import IngestSettings
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.errors import EmbeddingMismatchError, InvalidInputError

LINES = CharacterTextSplitter(separator="\n", chunk_size=1, chunk_overlap=0)
SAMPLE = Path(__file__).parents[2] / "examples" / "hotpotqa_sample" / "corpus.jsonl"
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


async def test_every_way_of_adding_only_adds(embedder, tmp_path):
    """Retriever and memory, sync and async, and a second program on the same path."""
    options = {"embeddings": embedder, "path": tmp_path / "m"}
    retriever = CrabPathRetriever.from_documents(PAGES[:2], **options)
    assert len(retriever.add_documents(PAGES[2:4])) == 2
    assert len(await retriever.aadd_documents(PAGES[4:6])) == 2
    report = await retriever.memory.aio.add_documents([PAGES[6], Document("text", id="a")])
    assert report.ids[1] == "a"
    retriever.memory.close()
    contents = [page.page_content for page in PAGES[7:9]]
    source = [{"source": "manual.pdf"}] * 2
    again = CrabPathRetriever.from_texts(contents, metadatas=source, **options)
    assert again.memory.info()["nodes"] == 10
    again.memory.close()
    replaced = CrabPathRetriever.from_documents(PAGES[5:8], cleanup="incremental", **options)
    assert replaced.memory.info()["nodes"] == 3 + 1
    replaced.memory.close()


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
    assert memory.add_documents([], cleanup="full").removed == 2
    assert contents(memory) == {}


def test_long_documents_of_one_source_stay_in_order(memory, document, joined):
    """The chunks of one document stay beside each other, whatever came of its source before."""
    for text in "a\nb\nc", "d\ne", "d\ne":
        memory.add_documents([document(text, source="s")], splitter=LINES)
    memory.add_documents([document("a\nb\nc", source="s"), document("f", source="s")])
    known = memory.store.catalog.documents(memory.store.catalog.all_ids())
    found = {(known[a].content, known[b].content) for a, b in joined(memory, EdgeKind.SIBLING)}
    assert {("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "d")} <= found


def test_the_same_text_with_other_metadata_is_another_document(memory, contents):
    """In one call and in two, with a source and without; again changes nothing."""
    boiler = [
        Document("All rights reserved.", metadata={**source, "page": page})
        for source in ({"source": "a.pdf"}, {})
        for page in (1, 2, 3)
    ]
    for start, end in (0, 2), (2, 3), (3, 5), (5, 6):
        assert memory.add_documents(boiler[start:end]).added == end - start
    assert len(contents(memory)) == 6
    for given_again in (boiler, boiler[::-1], boiler[2:3], [*boiler, *boiler]):
        assert count_chunks(memory.add_documents(given_again))[:3] == (0, 0, 0)
    assert count_chunks(memory.add_documents(boiler[:3], cleanup="incremental")) == (0, 0, 0, 3)


def test_the_first_of_equal_texts_keeps_the_id_that_it_always_had(memory):
    """Metadata only tells further ones apart, so ids of what is indexed already stay."""
    pages = [Document("text", metadata={"page": n}) for n in (1, 2)]
    (alone,) = memory.add_documents(pages[:1]).ids
    first, second = memory.add_documents(pages).ids
    assert first == alone != second
    assert memory.add_documents(pages[::-1]).ids == [second, first]


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


def test_what_is_added_changes_nothing_that_is_there(memory, document, embedder, contents):
    """A text that two documents of a source share stays as it came first: calls may alternate."""
    first, second = document("one\ntwo", source="s"), document("two\nthree", source="s")
    for _ in range(2):
        memory.add_documents([first], splitter=LINES)
        memory.add_documents([second], splitter=LINES)
    assert embedder.embedded == ["one", "two", "three"]
    assert count_chunks(memory.add_documents([first], splitter=LINES)) == (0, 0, 0, 2)
    assert read_texts(contents, memory) == ["one", "three", "two"]


def test_adding_keeps_what_a_sync_brought(memory, contents):
    """A section that a sync edited keeps its id; its old text added again is another chunk."""
    words = " ".join("abcdefghijklmnopqrstuvw")
    old, new = (Document(f"{words} {w}", metadata={"source": "s"}) for w in ("old", "new"))
    memory.sync([old])
    (node,) = contents(memory)
    memory.sync([new])
    assert contents(memory) == {node: new.page_content}
    report = memory.add_documents([old])
    assert count_chunks(report) == (1, 0, 0, 0)
    assert contents(memory) == {node: new.page_content, report.ids[0]: old.page_content}
    assert memory.add_documents([new]).ids == [node]


def test_what_was_learned_stays_when_more_of_a_source_comes(memory):
    def read_learned():
        memory.store.flush()
        with memory.store.open_reader() as connection:
            return [
                connection.execute(sa.select(t)).all()
                for t in (s.overlay, s.weight_changes, s.usage)
            ]

    memory.add_documents(PAGES[:4])
    for _ in range(3):
        answer = memory.retrieve("topic1 and topic2", k=4)
        used = [item.node.id for item in answer.documents[:2]]
        memory.record(Feedback(answer.turn.id, 1.0, used=used))
    before = read_learned()
    memory.add_documents(PAGES)
    assert read_learned() == before
    assert all(before)


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


def test_only_changed_chunks_are_embedded(memory, embedder, document, contents):
    memory.add_documents([document("one\ntwo\nthree", source="b")], splitter=LINES)
    embedder.embedded.clear()
    edited = [document("one\n2\nthree", source="b")]
    report = memory.add_documents(edited, splitter=LINES, cleanup="incremental")
    assert embedder.embedded == ["2"]
    assert count_chunks(report) == (1, 0, 1, 2)
    assert read_texts(contents, memory) == ["2", "one", "three"]


def test_when_the_head_goes_the_next_chunk_takes_its_name(memory, document, joined):
    """A document keeps being found by its title when its first chunk is deleted."""
    for text in "first\nsecond", "second":
        old_rome = [document(text, source="book.txt", title="Old Rome")]
        memory.add_documents(old_rome, splitter=LINES, cleanup="incremental")
    memory.add_documents([document("All roads lead to Old Rome", id="r")])
    (second,) = memory.store.catalog.find_chunks(sources=["book.txt"])
    assert joined(memory, EdgeKind.MENTION) == {("r", second.id)}


@pytest.mark.parametrize(
    ("wrong", "options", "message"),
    [({}, {"cleanup": "ful"}, "cleanup must be"), ({"id": "b" * 700}, {}, "at most 600")],
)
def test_an_input_error_changes_nothing(memory, document, contents, wrong, options, message):
    memory.add_documents([document("old", id="a")])
    with pytest.raises(InvalidInputError, match=message):
        memory.add_documents([document("new", id="a"), document("text", **wrong)], **options)
    assert contents(memory) == {"a": "old"}


@pytest.mark.parametrize(
    ("documents", "batches"),
    [
        pytest.param(
            [Document(f"{i} a\n{i} b\n{i} c", id=f"d{i}") for i in range(9)],
            [18, 6, 3],  # 16, then 5, each filled to whole documents
            id="whole documents",
        ),
        pytest.param(
            [Document(f"message {n}", metadata={"source": "slack"}) for n in range(23)],
            [20, 3],  # a source of many texts is no single batch
            id="messages of a log",
        ),
    ],
)
def test_chunks_are_written_in_batches(open_memory, contents, documents, batches):
    done = []

    class Bar:
        def __init__(self, total):
            assert total == sum(batches)

        def __enter__(self):
            return done.append

        def __exit__(self, *_error):
            pass

    memory = open_memory(ingest=IngestSettings(batch_size=5))
    memory.add_documents(documents, splitter=LINES, progress=Bar)
    assert len(contents(memory)) == sum(batches)
    assert done == batches


def test_statements_per_document_do_not_grow_with_the_corpus(memory):
    """Adding one document takes no more SQL statements among 100 others than among 20."""
    with SAMPLE.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(100), strict=False)]
    documents = [Document(r["text"], id=r["_id"], metadata={"title": r["title"]}) for r in rows]
    text = "Ed Wood was a film by Tim Burton, and so was the one about Scott Derrickson."
    statements = []
    for engine in (memory.store._engine, memory.store._reader):
        sa.event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))

    def count_statements():
        memory.forget("new")
        statements.clear()
        memory.add_documents([Document(text, id="new", metadata={"title": "Scott Derrickson"})])
        return len(statements)

    memory.add_documents(documents[:20])
    few = count_statements()
    memory.add_documents(documents[20:])
    assert count_statements() <= few < 100


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


def make_two():
    return [Document("Apples are red.", id="a"), Document("The sky is blue.", id="b")]


def test_a_vector_that_is_given_is_not_computed(memory, embedder):
    """It is scaled to length 1; a document of several chunks is embedded all the same."""
    vector = [0.0, 5.0] + [0.0] * 62
    memory.add_documents(make_two(), split=False, vectors={"a": vector, "nobody": vector})
    assert embedder.embedded == ["The sky is blue."]
    (head,) = memory.store.walk.get_nodes(["a"])
    assert head.vector.tolist() == [0.0, 1.0] + [0.0] * 62
    assert memory.retrieve("x", vector=vector).documents[0].node.id == "a"
    embedder.embedded.clear()
    report = memory.add_documents([Document("Pears. " * 300, id="c")], vectors={"c": vector})
    assert len(embedder.embedded) == report.added > 1


@pytest.mark.parametrize(
    ("vector", "error", "message"),
    [
        ([1.0, 2.0, 3.0], EmbeddingMismatchError, "has 3 dimensions, the memory 64"),
        ([float("nan")] * 64, InvalidInputError, "finite vector"),
        ([0.0] * 64, InvalidInputError, "not all zero"),
        ("ab", InvalidInputError, "finite vector"),
    ],
)
def test_an_unusable_vector_is_refused(memory, vector, error, message):
    with pytest.raises(error, match=message):
        memory.add_documents(make_two(), split=False, vectors={"a": vector})
    assert memory.info()["nodes"] == 0


def test_forgetting_by_id_and_by_source(memory, document, contents):
    """Chunks or whole documents, whatever ids the documents of a source have."""
    memory.add_documents([document("1\n2", id="a"), document("3", id="b")], splitter=LINES)
    memory.add_documents([document("4", id="c", source="s"), document("5", source="s")])
    memory.add_documents([document("6", id="d")])
    assert memory.forget("a") == 2
    assert memory.forget(["b", "never there"]) == 1
    assert memory.forget(["b"]) == 0
    assert memory.forget(source="s") == 2
    assert memory.forget(source="s") == 0
    assert contents(memory) == {"d": "6"}


def test_nothing_of_a_forgotten_text_is_left(memory, document):
    """The text and its names are in no table any more, but as bytes of the full-text index."""
    memory.add_documents([document("keep this", id="a")])
    memory.add_documents([document("the codeword is xylophone", id="b", title="Xylophone")])
    memory.retrieve("what is the codeword?", k=2)
    memory.forget("b")
    with memory.store.open_reader() as connection:
        for line in connection.connection.driver_connection.iterdump():
            assert "xylophone" not in line.lower() or line.startswith('INSERT INTO "crabpath_full')
    assert memory.store.fulltext.find_phrases([["xylophone"]], 5)[0] == []
    assert [d.node.id for d in memory.retrieve("xylophone", k=2).documents] == ["a"]


def test_the_gap_of_a_forgotten_chunk_is_closed(memory, document, chained):
    memory.add_documents([document(f"{i}", id=f"p{i}", source="book") for i in range(4)])
    memory.forget("p1")
    assert chained(memory, "023")
    assert not memory.store.catalog.has_unfinished_ingest()
