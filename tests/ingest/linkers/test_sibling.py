"""``sibling``: neighbouring chunks of one source."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_text_splitters import CharacterTextSplitter

from crabpath_retrievers.core.graph import EdgeKind

LINES = CharacterTextSplitter(separator="\n", chunk_size=1, chunk_overlap=0)


def chain(*names):
    """The edges, both ways, of a chain."""
    pairs = set(pairwise(names))
    return pairs | {(b, a) for a, b in pairs}


@pytest.fixture
def siblings(joined):
    """Sibling edges by the text of their chunks."""

    def read(memory):
        known = memory.store.catalog.documents(memory.store.catalog.all_ids())
        text = {node_id: node.content for node_id, node in known.items()}
        return {(text[a], text[b]) for a, b in joined(memory, EdgeKind.SIBLING)}

    return read


def test_chunks_of_a_document_form_a_chain(memory, document, siblings):
    """Each chunk points at the one before and the one after it, and at no other document."""
    texts = [document("a\nb\nc", source="s"), document("d", source="t")]
    memory.add_documents(texts, splitter=LINES)
    assert siblings(memory) == chain("a", "b", "c")


def test_chunks_that_come_with_ids_are_joined_by_source(memory, document, siblings):
    """Chunks that the caller split and numbered are neighbours in the order in which they came."""
    pages = [document(text, id=f"id{text}", source="book.pdf") for text in "abcd"]
    memory.add_documents(pages[:2])
    memory.add_documents(pages[2:])
    assert siblings(memory) == chain("a", "b", "c", "d")
    memory.add_documents([document("c2", id="idc", source="book.pdf")])
    assert siblings(memory) == chain("a", "b", "c2", "d")


VERSION = st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(versions=(["a", "b"], ["a", "c", "d", "b"]))
@given(versions=st.tuples(VERSION, VERSION))
def test_the_chain_follows_every_change(memory, document, siblings, versions):
    """However chunks are inserted, moved and removed, the edges are those of the last version."""
    for version in versions:
        whole = document("\n".join(version), source="s")
        memory.add_documents([whole], splitter=LINES, cleanup="incremental")
        assert siblings(memory) == chain(*version)
