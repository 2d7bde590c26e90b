"""Which chunks there are and how they are named: from content and source, not from position."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_text_splitters import CharacterTextSplitter

from crabpath_retrievers.config import IngestSettings
from crabpath_retrievers.errors import DuplicateIdError, InvalidInputError
from crabpath_retrievers.ingest.chunking import Chunking, make_embedding_text

CHUNKING = Chunking(IngestSettings(chunk_size=80, chunk_overlap=0))
SECTIONS = [
    "# Guide\nWhat it is.\n",
    "## Install\nRun it.\n",
    "## Use\nAsk it.\n",
    "## End\nBye.\n",
]


def guide(sections, **metadata):
    """A Markdown document made of sections."""
    metadata = {"source": "guide.md", "title": "Guide", **metadata}
    return Document(page_content="\n".join(sections), metadata=metadata)


def ids_by_text(*documents, chunking=CHUNKING):
    """Ids of the chunks by their text."""
    return {node.content.strip(): node.id for node in chunking.nodes(documents)}


@given(order=st.permutations(SECTIONS), extra=st.integers(0, 4))
def test_ids_survive_reordering_and_insertion(order, extra):
    """A section keeps its id wherever it stands and whatever is inserted around it."""
    before = ids_by_text(guide(SECTIONS))
    after = ids_by_text(guide([*order[:extra], "## New\nJust added.\n", *order[extra:]]))
    assert before.items() <= after.items()
    assert len(after) == len(before) + 1


@given(order=st.permutations(SECTIONS))
def test_sections_that_only_moved_are_not_new(order):
    """Reordering changes no fingerprint but that of the old and the new head of the document."""
    before, after = (CHUNKING.nodes([guide(s)]) for s in (SECTIONS, order))
    old = {node.id: node.digest for node in before}
    changed = {node.id for node in after if node.digest != old[node.id]}
    assert changed <= {before[0].id, after[0].id}
    assert changed == set() or before[0].id != after[0].id


def test_equal_text_of_different_sources_has_different_ids():
    """The source is part of the identity."""
    first, second = (CHUNKING.nodes([guide(SECTIONS, source=s)]) for s in ("a.md", "b.md"))
    assert not {n.id for n in first} & {n.id for n in second}


def test_the_order_of_metadata_keys_is_no_change():
    """A fingerprint depends on the values of metadata, not on how they are ordered."""
    one, two = ({"a": 1, "b": {2, 3}, "source": "s"}, {"source": "s", "b": {3, 2}, "a": 1})
    digests = {CHUNKING.nodes([Document("text", metadata=m)])[0].digest for m in (one, two)}
    assert len(digests) == 1


def test_a_document_of_one_chunk_keeps_the_id_it_was_given():
    """Given ids name whole documents; chunks of a longer one derive theirs from it."""
    short, long = Document("short", id="a"), Document("word " * 60, id="b")
    nodes = CHUNKING.nodes([short, long])
    assert nodes[0].id == nodes[0].document == "a"
    assert {n.document for n in nodes[1:]} == {"b"}
    assert len({n.id for n in nodes[1:]} - {"b"}) == len(nodes) - 1 > 1


@pytest.mark.parametrize("ids", [["0", "1"], [0, 1]])
def test_ids_may_be_given_apart_and_as_numbers(ids):
    """Ids given beside the documents win over their own, and 0 is an id."""
    documents = [Document("one", id="x"), Document("two", id="y")]
    assert [node.id for node in CHUNKING.nodes(documents, ids)] == ["0", "1"]


def test_a_wrong_number_of_ids_is_refused():
    """There must be one id per document."""
    with pytest.raises(InvalidInputError, match="1 ids for 2 documents"):
        CHUNKING.nodes([Document("one"), Document("two")], ["a"])


@pytest.mark.parametrize("second", ["other text", "other text " * 30])
def test_one_id_for_two_texts_is_refused(second):
    """Two documents cannot share an id, however they would be split."""
    with pytest.raises(DuplicateIdError, match="'a'"):
        CHUNKING.nodes([Document("text", id="a"), Document(second, id="a")])


def test_the_same_document_twice_is_one():
    """Repetition inside one call is no error and no second chunk, with ids and without."""
    documents = [Document("text", id="a"), Document("text", id="a"), Document("x"), Document("x")]
    assert [node.content for node in CHUNKING.nodes(documents)] == ["text", "x"]


def test_the_same_text_on_two_pages_is_two_chunks():
    """With other metadata; the first of them has the id that it would have alone."""
    pages = [Document("text", metadata={"source": "a.pdf", "page": n}) for n in (1, 2, 2, True)]
    nodes = CHUNKING.nodes(pages)
    assert [(n.metadata["page"], n.position) for n in nodes] == [(1, 0), (2, 1), (True, 2)]
    assert nodes[0].id == CHUNKING.nodes(pages[:1])[0].id
    assert len({n.id for n in nodes}) == 3


def test_what_is_no_document_is_refused():
    """A bare text is refused with what to do."""
    with pytest.raises(InvalidInputError, match="got str: wrap the text"):
        CHUNKING.nodes(["text"])


def test_a_splitter_that_leaves_nothing_is_refused():
    """A document must not vanish because its splitter returns no piece."""
    chunking = Chunking(IngestSettings(), CharacterTextSplitter(separator="x"))
    with pytest.raises(InvalidInputError, match="returned no text"):
        chunking.nodes([Document("xxx")])


def test_own_splitters_and_no_splitting():
    """The caller's splitter cuts, and ``split=False`` takes documents as they are."""
    text = "one|two|three" + " and more" * 20
    splitter = CharacterTextSplitter(separator="|", chunk_size=5, chunk_overlap=0)
    own = Chunking(IngestSettings(), splitter).nodes([Document("one|two|three")])
    assert [(n.content, n.position) for n in own] == [("one", 0), ("two", 1), ("three", 2)]
    whole = Chunking(IngestSettings(chunk_size=10, chunk_overlap=0), split=False).nodes(
        [Document(text)]
    )
    assert [n.content for n in whole] == [text]


@given(st.text(min_size=1, max_size=300).filter(lambda t: t.replace("\x00", "").strip()))
def test_long_texts_are_cut_to_size(text):
    """No chunk of a text without Markdown is longer than the chunk size."""
    nodes = CHUNKING.nodes([Document(text * 3)])
    assert nodes
    assert all(0 < len(n.content) <= 80 for n in nodes) or len(text) * 3 <= 80


def test_text_that_no_database_stores_is_cleaned():
    """NUL goes, and a lone surrogate becomes a question mark."""
    (node,) = CHUNKING.nodes([Document("a\x00b \ud800 c", id="i\x00d")])
    assert (node.content, node.id) == ("ab ? c", "id")


def test_the_title_is_embedded_unless_the_text_begins_with_it():
    """What the embedder reads has the title once."""
    with_title, without = CHUNKING.nodes(
        [Document("Rome is old.", id=t, metadata={"title": t}) for t in ("Rome", "Italy")]
    )
    assert make_embedding_text(with_title) == "Rome is old."
    assert make_embedding_text(without) == "Italy\nRome is old."
