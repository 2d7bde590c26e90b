"""``sibling``: neighbouring chunks of one source; ``similar``: nearest by embedding, if asked."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_text_splitters import CharacterTextSplitter

from crabpath_retrievers.core.graph import EdgeKind

LINES = CharacterTextSplitter(separator="\n", chunk_size=1, chunk_overlap=0)
VERSION = st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True)


def test_chunks_that_come_with_ids_are_joined_by_source(memory, document, chained):
    """Chunks that the caller split and numbered are neighbours in the order in which they came."""
    pages = [document(text, id=f"id{text}", source="book.pdf") for text in "abcd"]
    memory.add_documents(pages[:2])
    memory.add_documents(pages[2:])
    assert chained(memory, "abcd")
    memory.add_documents([document("c2", id="idc", source="book.pdf")])
    assert chained(memory, ["a", "b", "c2", "d"])


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(versions=(["a", "b"], ["a", "c", "d", "b"]))
@given(versions=st.tuples(VERSION, VERSION))
def test_the_chain_follows_every_change(memory, document, chained, versions):
    """However chunks are inserted, moved and removed, the edges are those of the last version."""
    memory.add_documents([document("z", source="of its own")])
    for version in versions:
        whole = document("\n".join(version), source="s")
        memory.add_documents([whole], splitter=LINES, cleanup="incremental")
        assert chained(memory, version)


@pytest.mark.parametrize(
    ("count", "links"),
    [(3, {}), (1, {"similar_neighbours": 5, "min_similarity": -1.0})],
    ids=["off by default", "no neighbour of itself"],
)
def test_near_texts_are_not_always_joined(linked, document, count, links):
    texts = ["red apples grow on old trees", "red apples grow on young trees", "taxes were due"]
    documents = [document(text, id=f"d{n}") for n, text in enumerate(texts[:count])]
    assert linked(EdgeKind.SIMILAR, documents, **links) == set()


def test_far_texts_are_not_joined_and_near_ones_are_bounded(linked, document):
    """Each new node is joined to its ``similar_neighbours`` nearest; edges back come on top."""
    far = [document("red apples grow", id="a"), document("taxes were due by noon", id="b")]
    assert linked(EdgeKind.SIMILAR, far, similar_neighbours=5, min_similarity=0.6) == set()
    near = [document(f"red apples grow on old trees {i}", id=f"d{i}") for i in range(6)]
    links = {"similar_neighbours": 1, "min_similarity": 0.0}
    pairs = linked(EdgeKind.SIMILAR, near[:5], near[5:], **links)
    assert len({pair for pair in pairs if pair[0] == "d5"}) == 1
