"""Adding again: what is the same costs nothing, a given id is replaced, the rest is added.

With a cleanup what changed is updated, and what a source no longer holds goes.
"""

import pytest
from langchain_text_splitters import CharacterTextSplitter

from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.errors import InvalidInputError

LINES = CharacterTextSplitter(separator="\n", chunk_size=1, chunk_overlap=0)
NAMES = [f"Alpha {letter}" for letter in "abcdefgh"]


def lines(document, *given, source="book.txt", **options):
    """One document whose lines are its chunks."""
    return [document("\n".join(given), source=source, **options)]


def snapshot(memory):
    """Every SQL row, journal included, and the vectors of the index."""
    with memory.store.open_reader() as connection:
        tables = [
            row[0]
            for row in connection.exec_driver_sql(
                "SELECT name FROM sqlite_master WHERE type='table'"
            )
        ]
        rows = {
            t: list(map(tuple, connection.exec_driver_sql(f"SELECT * FROM {t}"))) for t in tables
        }
    return rows, memory.index._collection.get(include=["metadatas"])


def test_adding_again_is_a_no_op(memory, embedder, document):
    """The same documents again are looked up and nothing else: no embedding, no write."""
    documents = [document(f"{n} text", id=n, title=n) for n in NAMES]
    first = memory.add_documents(documents)
    assert (first.added, first.unchanged) == (8, 0)
    assert len(embedder.embedded) == 8
    before = snapshot(memory)
    again = memory.add_documents(documents)
    assert (again.added, again.updated, again.removed, again.unchanged) == (0, 0, 0, 8)
    assert again.ids == first.ids == NAMES
    assert len(embedder.embedded) == 8
    assert snapshot(memory) == before


def test_only_changed_chunks_are_embedded(memory, embedder, document, held):
    """A document with one new line and one less costs one embedding."""
    memory.add_documents(lines(document, "one", "two", "three"), splitter=LINES)
    embedder.embedded.clear()
    edited = lines(document, "one", "2", "three")
    report = memory.add_documents(edited, splitter=LINES, cleanup="incremental")
    assert embedder.embedded == ["2"]
    assert (report.added, report.updated, report.removed, report.unchanged) == (1, 0, 1, 2)
    assert sorted(held(memory).values()) == ["2", "one", "three"]


def test_changed_metadata_is_an_update(memory, document):
    """A document with the same text and other metadata is written again, to both stores."""
    memory.add_documents([document("text", id="a", year=1)])
    report = memory.add_documents([document("text", id="a", year=2)])
    assert (report.added, report.updated) == (0, 1)
    assert memory.store.catalog.documents(["a"])["a"].metadata == {"year": 2}
    assert memory.index._collection.get(ids=["a"])["metadatas"] == [{"year": 2}]


def test_a_document_with_an_id_is_replaced_by_its_id(memory, document, held):
    """The id alone tells which document it is, also when source and text are new."""
    memory.add_documents([document("old", id="a", source="x"), document("other", id="b")])
    memory.add_documents([document("new", id="a", source="y")])
    assert held(memory) == {"a": "new", "b": "other"}


def test_with_incremental_cleanup_a_source_is_replaced(memory, document, held):
    """Without an id the source tells; without both, other text is another document."""
    memory.add_documents([document("old", source="x"), document("bare")])
    new = [document("new", source="x"), document("bare, changed")]
    memory.add_documents(new, cleanup="incremental")
    assert sorted(held(memory).values()) == ["bare", "bare, changed", "new"]


def test_a_document_may_grow_and_shrink(memory, document, held):
    """A document that was one chunk becomes several and one again, without leftovers."""
    memory.add_documents([document("one", id="a")], splitter=LINES)
    memory.add_documents([document("one\ntwo\nthree", id="a")], splitter=LINES)
    assert sorted(held(memory).values()) == ["one", "three", "two"]
    memory.add_documents([document("one", id="a")], splitter=LINES)
    assert held(memory) == {"a": "one"}


def test_when_the_head_goes_the_next_chunk_takes_its_name(memory, document, joined):
    """A document keeps being found by its title when its first chunk is deleted."""
    add = {"splitter": LINES, "cleanup": "incremental"}
    memory.add_documents(lines(document, "first", "second", title="Old Rome"), **add)
    memory.add_documents(lines(document, "second", title="Old Rome"), **add)
    memory.add_documents([document("All roads lead to Old Rome", id="r")])
    (second,) = memory.store.catalog.find_chunks(sources=["book.txt"])
    assert joined(memory, EdgeKind.MENTION) == {("r", second.id)}


def test_full_cleanup_removes_what_is_not_given(memory, document, held):
    """With "full" the memory holds the given documents and nothing else."""
    memory.add_documents([document("1", id="a"), document("2", id="b"), document("3", id="c")])
    report = memory.add_documents([document("2", id="b"), document("4", id="d")], cleanup="full")
    assert (report.added, report.removed, report.unchanged) == (1, 2, 1)
    assert held(memory) == {"b": "2", "d": "4"}
    assert memory.add_documents([], cleanup="full").removed == 2
    assert held(memory) == {}


def test_without_cleanup_nothing_is_removed(memory, document, held):
    """By default even chunks that a source no longer has stay."""
    memory.add_documents(lines(document, "one", "two"), splitter=LINES)
    memory.add_documents(lines(document, "one", "three"), splitter=LINES)
    assert sorted(held(memory).values()) == ["one", "three", "two"]


def test_an_unknown_cleanup_is_refused(memory, document):
    """A misspelt mode is no reason to remove anything."""
    with pytest.raises(InvalidInputError, match="cleanup must be"):
        memory.add_documents([document("1")], cleanup="ful")


def test_one_bad_document_changes_nothing(memory, document, held):
    """An input error is found before anything is written."""
    memory.add_documents([document("old", id="a")])
    with pytest.raises(InvalidInputError, match="at most 600"):
        memory.add_documents([document("new", id="a"), document("text", id="b" * 700)])
    assert held(memory) == {"a": "old"}


def test_batches_hold_whole_documents(tmp_path, embedder, document, held):
    """More documents than a batch arrive completely, in the order in which they were given."""
    from crabpath_retrievers.config import IngestSettings, Settings
    from crabpath_retrievers.crabpath import CrabPath

    settings = Settings(ingest=IngestSettings(batch_size=5))
    documents = [document(f"{i} a\n{i} b\n{i} c", id=f"d{i}") for i in range(20)]
    done = []

    class Bar:
        def __init__(self, total):
            assert total == 60

        def __enter__(self):
            return done.append

        def __exit__(self, *_error):
            pass

    with CrabPath.open(tmp_path, embeddings=embedder, settings=settings) as memory:
        memory.add_documents(documents, splitter=LINES, progress=Bar)
        assert len(held(memory)) == 60
    assert done == [18, 6, 6, 6, 6, 6, 6, 6]  # 16, then 5, each filled to whole documents


async def test_documents_are_added_from_async_code(memory, document, held):
    """The async form does the same."""
    report = await memory.aio.add_documents([document("text", id="a")])
    assert report.ids == ["a"]
    assert held(memory) == {"a": "text"}
