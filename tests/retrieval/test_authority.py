"""Documents that others only comment on, or that amend others, stand before them."""

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import CrabPath

QUESTION = "How long may a company keep invoices?"
PAGES = {
    "rule": "A company keeps invoices for ten years.",
    "comment": "Commentators ask how long a company may keep invoices, and doubt its use.",
    "other": "Lunch is served at noon.",
}


def add(memory, **metadata):
    pages = [
        Document(text, id=name, metadata={} if name == "comment" else metadata)
        for name, text in PAGES.items()
    ]
    memory.add_documents(pages, progress=None)


def score(memory):
    """The probability of each page, best first."""
    returned = memory.retrieve(QUESTION, k=3, record=False).turn.returned
    return {item.node: item.probability for item in returned}


def test_authority_of_metadata_raises_a_document():
    found = {}
    for authority in ("overlay", "canonical", "constitutional"):
        with CrabPath.open() as memory:
            add(memory, authority=authority)
            found[authority] = score(memory)
    assert list(found["overlay"]) == ["comment", "rule", "other"]
    assert list(found["constitutional"]) == ["rule", "comment", "other"]
    assert found["overlay"]["rule"] < found["canonical"]["rule"] < found["constitutional"]["rule"]


@pytest.mark.both_databases
def test_an_anchor_raises_at_once_and_takes_no_unrelated_document_along(location, tmp_path):
    with CrabPath.open(location, vectors=tmp_path / "vectors") as memory:
        add(memory)
        assert list(score(memory)) == ["comment", "rule", "other"]
        memory.learning.anchor(["rule", "other"])
        assert list(score(memory)) == ["rule", "comment", "other"]
        memory.learning.anchor(["rule", "other"], authority="overlay")
        assert list(score(memory)) == ["comment", "rule", "other"]


@pytest.mark.slow
def test_authority_makes_nothing_relevant():
    """``min_score`` is about what a text says."""
    with CrabPath.open() as memory:
        add(memory, authority=" Constitutional ")
        assert score(memory)["rule"] > 0.3
        assert not memory.retrieve("Thanks a lot!", min_score=0.02, record=False).documents
