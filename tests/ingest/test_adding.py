"""``add_documents`` adds: batches of one source, repeated texts and repeated calls lose nothing."""

from itertools import pairwise

import pytest
import sqlalchemy as sa
import tables as s
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_text_splitters import CharacterTextSplitter

from crabpath_retrievers import CrabPath, CrabPathRetriever, Feedback
from crabpath_retrievers.config import IngestSettings, Settings
from crabpath_retrievers.core.graph import EdgeKind

LINES = CharacterTextSplitter(separator="\n", chunk_size=1, chunk_overlap=0)
PAGES = [
    Document(f"Page {i} is about topic{i}.", metadata={"source": "manual.pdf", "page": i})
    for i in range(20)
]


@pytest.fixture
def stored(held):
    """What a memory holds, as (text, metadata) in no order."""

    def read(memory):
        nodes = memory.store.catalog.documents(list(held(memory)))
        return sorted((n.content, sorted(n.metadata.items())) for n in nodes.values())

    return read


@pytest.fixture
def chained(joined):
    """The texts of a memory's siblings as pairs."""

    def read(memory):
        nodes = memory.store.catalog.documents(memory.store.catalog.all_ids())
        edges = joined(memory, EdgeKind.SIBLING)
        return {(nodes[a].content, nodes[b].content) for a, b in edges}

    return read


def neighbours(texts):
    """All pairs of texts that stand beside each other."""
    pairs = set(pairwise(texts))
    return pairs | {(b, a) for a, b in pairs}


def counts(report):
    """What an ingest did, in numbers."""
    return report.added, report.updated, report.removed, report.unchanged


@pytest.mark.parametrize("batch", [1, 5])
def test_pages_of_one_source_in_batches_all_stay(memory, chained, held, batch):
    """Batches of one PDF are all there, in the order in which they came; again is a no-op."""
    for start in range(0, 20, batch):
        report = memory.add_documents(PAGES[start : start + batch])
        assert counts(report) == (batch, 0, 0, 0)
    assert len(held(memory)) == 20
    assert chained(memory) == neighbours([page.page_content for page in PAGES])
    for start in range(0, 20, 7):
        some = PAGES[start : start + 7]
        assert counts(memory.add_documents(some)) == (0, 0, 0, len(some))
    assert chained(memory) == neighbours([page.page_content for page in PAGES])


def test_on_each_database(location, embedder, chained):
    """Pages in batches, the same text on several of them, and again."""
    pages = [*PAGES[:6], *(Document("(empty page)", metadata=page.metadata) for page in PAGES[:3])]
    with CrabPath.open(
        location, embeddings=embedder, vectors=InMemoryVectorStore(embedder)
    ) as memory:
        for start in (0, 3, 6, 0, 4):
            memory.add_documents(pages[start : start + 3])
        assert counts(memory.add_documents(pages)) == (0, 0, 0, 9)
        assert chained(memory) == neighbours([page.page_content for page in pages])
        assert counts(memory.add_documents(pages[2:7], cleanup="incremental")) == (0, 0, 4, 5)


async def test_every_way_of_adding_only_adds(embedder, tmp_path):
    """Retriever and memory, sync and async, and a second program on the same path."""
    options = {"embeddings": embedder, "path": tmp_path / "m"}
    retriever = CrabPathRetriever.from_documents(PAGES[:2], **options)
    assert len(retriever.add_documents(PAGES[2:4])) == 2
    assert len(await retriever.aadd_documents(PAGES[4:6])) == 2
    await retriever.memory.aio.add_documents(PAGES[6:8])
    retriever.memory.close()
    retriever = CrabPathRetriever.from_documents(PAGES[8:10], **options)
    retriever.memory.close()
    texts = [page.page_content for page in PAGES[10:12]]
    again = CrabPathRetriever.from_texts(texts, metadatas=[{"source": "manual.pdf"}] * 2, **options)
    assert again.memory.info()["nodes"] == 12
    again.memory.close()


def test_a_retriever_may_be_made_of_all_that_a_source_holds(embedder, tmp_path):
    """``from_documents`` on a memory that exists takes a cleanup, too."""
    options = {"embeddings": embedder, "path": tmp_path / "m"}
    CrabPathRetriever.from_documents(PAGES[:5], **options).memory.close()
    made = CrabPathRetriever.from_documents(PAGES[3:7], cleanup="incremental", **options)
    assert made.memory.info()["nodes"] == 4
    made.memory.close()


def test_with_incremental_cleanup_a_call_holds_all_of_a_source(memory, held):
    """Pages of one call stay together; those of an earlier call go, other sources stay."""
    memory.add_documents([*PAGES[:5], Document("elsewhere", metadata={"source": "b"})])
    report = memory.add_documents(PAGES[3:10], cleanup="incremental")
    assert counts(report) == (5, 0, 3, 2)
    assert len(held(memory)) == 8


def test_incremental_cleanup_goes_by_source_also_of_documents_with_ids(memory, document, held):
    """As in LangChain's ``index``: pages that the file no longer has go, whatever their ids."""
    pages = [document(f"page {n}", id=f"p{n}", source="book") for n in range(4)]
    memory.add_documents([*pages, document("other", id="o", source="leaflet")])
    report = memory.add_documents(pages[:2], cleanup="incremental")
    assert counts(report) == (0, 0, 2, 2)
    assert sorted(held(memory)) == ["o", "p0", "p1"]


def test_messages_of_one_source_come_in_any_number(memory, chained):
    """A consumer that adds one message at a time keeps them all, each beside the one before."""
    texts = [f"message {n}" for n in range(12)]
    for text in texts:
        memory.add_documents([Document(text, metadata={"source": "slack"})])
    assert chained(memory) == neighbours(texts)


def test_long_documents_of_one_source_stay_in_order(memory, document, chained):
    """The chunks of one document stay beside each other, whatever came of its source before."""
    memory.add_documents([document("a\nb\nc", source="s")], splitter=LINES)
    memory.add_documents([document("d\ne", source="s")], splitter=LINES)
    memory.add_documents([document("a\nb\nc", source="s"), document("f", source="s")])
    memory.add_documents([document("d\ne", source="s")], splitter=LINES)
    assert neighbours(list("abcde")) <= chained(memory)


def test_the_same_text_with_other_metadata_is_another_document(memory, stored):
    """In one call and in two, with a source and without; again changes nothing."""
    boiler = [
        Document("All rights reserved.", metadata={**source, "page": page})
        for source in ({"source": "a.pdf"}, {})
        for page in (1, 2, 3)
    ]
    assert memory.add_documents(boiler[:2]).added == 2
    assert memory.add_documents([boiler[2]]).added == 1
    assert memory.add_documents(boiler[3:5]).added == 2
    assert memory.add_documents([boiler[5]]).added == 1
    assert len(stored(memory)) == 6
    for given_again in (boiler, boiler[::-1], boiler[2:3], [*boiler, *boiler]):
        assert counts(memory.add_documents(given_again))[:3] == (0, 0, 0)
    everything = memory.add_documents(boiler[:3], cleanup="incremental")
    assert counts(everything) == (0, 0, 0, 3)


def test_the_first_of_equal_texts_keeps_the_id_that_it_always_had(memory):
    """Metadata only tells further ones apart, so ids of what is indexed already stay."""
    (alone,) = memory.add_documents([Document("text", metadata={"page": 1})]).ids
    first, second = memory.add_documents(
        [Document("text", metadata={"page": n}) for n in (1, 2)]
    ).ids
    assert first == alone != second
    reversed_ids = memory.add_documents(
        [Document("text", metadata={"page": n}) for n in (2, 1)]
    ).ids
    assert reversed_ids == [second, first]


def test_changed_metadata_is_an_update_where_replacing_is_asked_for(memory, stored):
    """With a cleanup the document keeps its id; without, the new one comes beside the old."""
    (old,) = memory.add_documents([Document("text", metadata={"source": "s", "v": 1})]).ids
    changed = memory.add_documents(
        [Document("text", metadata={"source": "s", "v": 2})], cleanup="incremental"
    )
    assert (counts(changed), changed.ids) == ((0, 1, 0, 0), [old])
    assert counts(memory.add_documents([Document("text", metadata={"source": "s", "v": 3})])) == (
        1,
        0,
        0,
        0,
    )
    assert [dict(metadata)["v"] for _, metadata in stored(memory)] == [2, 3]


def test_a_given_id_is_replaced_whole(memory, document, held):
    """All chunks of the former text go, whatever else its source holds stays."""
    memory.add_documents([document("of the source", source="book")])
    memory.add_documents([document("one\ntwo\nthree", id="a", source="book")], splitter=LINES)
    report = memory.add_documents([document("two\nfour", id="a", source="book")], splitter=LINES)
    assert counts(report)[0::2] == (1, 2)
    assert sorted(held(memory).values()) == ["four", "of the source", "two"]


def test_what_is_added_changes_nothing_that_is_there(memory, document, embedder):
    """A text that two documents of a source share stays as it came first: calls may alternate."""
    first, second = document("one\ntwo", source="s"), document("two\nthree", source="s")
    for _ in range(2):
        memory.add_documents([first], splitter=LINES)
        memory.add_documents([second], splitter=LINES)
    embedder.embedded.clear()
    assert counts(memory.add_documents([first], splitter=LINES)) == (0, 0, 0, 2)
    assert counts(memory.add_documents([second], splitter=LINES)) == (0, 0, 0, 2)
    assert embedder.embedded == []


def test_adding_keeps_what_a_sync_brought(memory, held):
    """A section that a sync edited keeps its id; its old text added again is another chunk."""
    old, new = (" ".join([*"abcdefghijklmnopqrstuvw", word]) for word in ("old", "new"))
    memory.sync([Document(old, metadata={"source": "s"})])
    (node,) = held(memory)
    memory.sync([Document(new, metadata={"source": "s"})])
    assert held(memory) == {node: new}
    report = memory.add_documents([Document(old, metadata={"source": "s"})])
    assert counts(report) == (1, 0, 0, 0)
    assert held(memory) == {node: new, report.ids[0]: old}
    assert memory.add_documents([Document(new, metadata={"source": "s"})]).ids == [node]


def test_what_was_learned_stays_when_more_of_a_source_comes(memory):
    """Learning is about chunks, and those stay the same."""

    def learned():
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
    before = learned()
    memory.add_documents(PAGES)
    assert learned() == before
    assert all(before)


@pytest.mark.slow
def test_a_log_of_many_messages_is_added_in_batches(tmp_path, embedder, held, chained):
    """A source of many texts is no single batch: progress shows, and a kill costs little."""
    done = []

    class Bar:
        def __init__(self, total):
            assert total == 50

        def __enter__(self):
            return done.append

        def __exit__(self, *_error):
            pass

    texts = [f"message {n}" for n in range(50)]
    documents = [Document(text, metadata={"source": "slack"}) for text in texts]
    few = Settings(ingest=IngestSettings(batch_size=20))
    with CrabPath.open(tmp_path, embeddings=embedder, settings=few) as memory:
        memory.add_documents(documents, progress=Bar)
        assert len(held(memory)) == 50
        assert chained(memory) == neighbours(texts)
    assert done == [20, 20, 10]


DOCUMENT = st.builds(
    lambda text, source, page: Document(
        text,
        metadata={**({"source": source} if source else {}), **({"page": page} if page else {})},
    ),
    st.sampled_from(["a", "b", "a\nb", "b\na\nc", "c"]),
    st.sampled_from(["s", "t", None]),
    st.sampled_from([1, 2, None]),
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(calls=[[Document("a\nb", metadata={"source": "s"})], [Document("b\na\nc")]])
@given(calls=st.lists(st.lists(DOCUMENT, max_size=4), max_size=4))
def test_no_order_of_calls_loses_or_doubles_anything(memory, calls):
    """Every chunk of every call is there once, under the id that was told; again is a no-op."""
    memory.add_documents([], cleanup="full")
    for documents in calls:
        report = memory.add_documents(documents, splitter=LINES)
        assert (report.updated, report.removed) == (0, 0)
    for documents in calls:
        again = memory.add_documents(documents, splitter=LINES)
        assert counts(again)[:3] == (0, 0, 0)
        texts = memory.store.catalog.documents(again.ids)
        wanted = {
            (line, str(document.metadata))
            for document in documents
            for line in document.page_content.split("\n")
        }
        assert {(n.content, str(n.metadata)) for n in texts.values()} == wanted
