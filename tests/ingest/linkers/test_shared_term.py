"""``shared_term``: rare names and identifiers that two texts have in common."""

import pytest

from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.ingest.linkers.shared_term import find_candidate_terms

SHARED = EdgeKind.SHARED_TERM
BOTH = {("a", "b"), ("b", "a")}


def test_candidates_are_names_and_identifiers():
    """Runs of capitalised words, also inside longer runs, and words that look like code."""
    found = find_candidate_terms(
        "When Tim Burton met Ann-Marie, HTTP2 and max_size broke parseJson."
    )
    assert found == {
        ("when", "tim"),
        ("tim", "burton"),
        ("when", "tim", "burton"),
        ("ann", "marie"),
        ("http2",),
        ("max_size",),
        ("parsejson",),
    }


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("it was Tim Burton", "then Tim Burton left", True),
        ("When Tim Burton came", "then Tim Burton left", True),
        ("it was Tim Burton", "a tim burton", False),  # not as a name
        ("it was Tim Burton", "Tim, not Burton", False),
        ("it was Tim", "then Tim left", False),  # one word is too common
        ("error E1234 seen", "what is e1234", True),
        ("call max_batch_size", "set max_batch_size=5", True),
        ("call maxBatchSize", "set maxBatchSize", True),
        ("a plain word", "a plain word", False),
        ("it was “José Díaz”", "then Jose Diaz left", True),
    ],
)
def test_shared_names_join_two_texts(in_any_order, document, first, second, shared):
    """Both texts must hold the term as a name; the order of ingest does not matter."""
    found = in_any_order(SHARED, document(first, id="a"), document(second, id="b"))
    assert found == (BOTH if shared else set())


def test_titles_count_as_text(in_any_order, document):
    """A name in the headline of one and the text of the other is shared."""
    a = document("it was wet", id="a", title="Rain over Lake Como")
    b = document("we saw Lake Como", id="b")
    assert in_any_order(SHARED, a, b) == BOTH


def test_chunks_of_one_document_are_not_joined(memory, document, joined):
    """A document repeats its own names; that tells nothing."""
    memory.add_documents([document("# X\nby Tim Burton\n# Y\nby Tim Burton", source="a.md")])
    assert joined(memory, SHARED) == set()


def test_documents_of_one_source_may_be_joined(in_any_order, document):
    """Rows of one file that have their own ids are documents of their own."""
    rows = [document(f"{i} by Tim Burton", id=i, source="rows.csv") for i in "ab"]
    assert in_any_order(SHARED, *rows) == BOTH


def test_common_terms_join_nobody(linked, document):
    """A term that more than ``max_chunks_per_term`` texts have is common."""
    documents = [document(f"{i} by Tim Burton", id=i) for i in ("a", "b", "c")]
    assert len(linked(SHARED, documents, max_chunks_per_term=3)) == 6
    assert linked(SHARED, documents, max_chunks_per_term=2) == set()


def test_the_number_of_terms_is_bounded(linked, document):
    """Only ``max_terms`` terms of a chunk are searched, of equally rare ones the first in order."""
    first = [document("Tim Burton", id="b"), document("Ann Blyth", id="c")]
    last = [document("Tim Burton and Ann Blyth", id="a")]
    assert linked(SHARED, first, last, max_terms_per_chunk=1) == {("a", "c"), ("c", "a")}
    assert linked(SHARED, first, last, max_terms_per_chunk=2) == {
        *(("a", "b"), ("b", "a")),
        *(("a", "c"), ("c", "a")),
    }
