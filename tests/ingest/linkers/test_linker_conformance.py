"""What every linker does, whatever the order in which documents come and go."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import EdgeKind
from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.ingest.linkers import (
    LinkLinker,
    MentionLinker,
    SharedTermLinker,
    SiblingLinker,
    SimilarLinker,
    make_linkers,
)
from crabpath_retrievers.testing import LinkerTests
from tests.seams import get_services


class Case(NamedTuple):
    """A linker, two texts that it joins, their edges, their titles, the settings that it needs."""

    linker: type
    texts: tuple[str, str]
    edges: tuple[str, str]
    titles: tuple[str, str] = ("", "")
    links: Mapping[str, object] = {}


CASES = {
    EdgeKind.LINK: Case(
        LinkLinker, ("See [the other](b.md).", "Nothing to see."), ("link", "linked_by")
    ),
    EdgeKind.MENTION: Case(
        MentionLinker,
        ("The harbour lies near Islay.", "It has a lighthouse."),
        ("mention", "mentioned_by"),
        ("Harbour guide", "Islay"),
    ),
    EdgeKind.SHARED_TERM: Case(
        SharedTermLinker,
        ("Bring Maria Lopez a coffee.", "Ask Maria Lopez first."),
        ("shared_term", "shared_term"),
    ),
    EdgeKind.SIMILAR: Case(
        SimilarLinker,
        ("red apples grow on old trees", "red apples grow on young trees"),
        ("similar", "similar"),
        links={"similar_neighbours": 2, "min_similarity": 0.6},
    ),
    EdgeKind.SIBLING: Case(
        SiblingLinker,
        ("The first half of a page.", "And its other half."),
        ("sibling", "sibling"),
    ),
}


def test_every_linker_has_a_case():
    """A linker that nobody lists here would not be tested."""
    made = make_linkers(LinkSettings(similar_neighbours=2), lambda *_: [])
    assert {type(linker) for linker in made} == {case.linker for case in CASES.values()}


def test_every_kind_of_edge_between_texts_has_a_case():
    """Edges back come with those there."""
    found = {label for case in CASES.values() for label in case.edges}
    assert {kind.label for kind, prior in LinkSettings().priors.items() if prior} == found


@pytest.mark.parametrize("kind", CASES)
class TestLinkers(LinkerTests):
    """Each linker that reads texts or vectors."""

    @pytest.fixture
    def open_memory(self, kind, open_memory):
        """Memories have all linkers that the settings enable."""
        return partial(open_memory, links=LinkSettings(**CASES[kind].links))

    @pytest.fixture
    def find_linker(self, kind):
        def find(memory):
            linkers = get_services(memory).ingest.linking.linkers
            return next(each for each in linkers if isinstance(each, CASES[kind].linker))

        return find

    @pytest.fixture
    def documents(self, kind):
        _, texts, _, titles, _ = CASES[kind]
        sources = ("page.md", "page.md") if kind is EdgeKind.SIBLING else ("a.md", "b.md")
        return [
            Document(text, id=node, metadata={"source": source, "title": title})
            for text, node, source, title in zip(texts, "ab", sources, titles, strict=True)
        ]

    @pytest.fixture
    def expected_edges(self, kind):
        there, back = CASES[kind].edges
        return {("a", "b", there), ("b", "a", back)}

    def test_a_prior_is_that_of_the_settings(self, kind, open_memory, documents):
        memory = open_memory()
        memory.add_documents(documents)
        clock = memory.store.walk.get_clock("default")
        (head,) = memory.store.walk.get_nodes(["a"])
        pointers = memory.store.walk.get_outgoing_edges([head.key], clock).pointers
        weights = [pointer.weight for pointer in pointers if pointer.kind is kind]
        assert weights == [pytest.approx(LinkSettings().priors[kind])]


def make_numbered(count, text, **metadata):
    return [Document(f"{n} {text}", id=f"d{n}", metadata=metadata) for n in range(count)]


README = [*make_numbered(2, "", title="Readme"), Document("see [[Readme]]", id="a")]
SMITHS = [*make_numbered(3, "", title="John Smith"), Document("by John Smith", id="a")]
TERMS = {"max_chunks_per_term": 2}
BY_LANGUAGE = {"metadata_keys": ("language",)}


@pytest.mark.parametrize(
    ("kind", "documents", "edges", "links", "bound"),
    [
        (EdgeKind.LINK, README, 2, {}, {"max_owners": 1}),
        (EdgeKind.MENTION, SMITHS, 3, {}, {"max_owners": 2}),
        (EdgeKind.LINK, make_numbered(3, "text", language="en"), 6, BY_LANGUAGE, TERMS),
        (EdgeKind.SHARED_TERM, make_numbered(3, "by Tim Burton"), 6, {}, TERMS),
    ],
    ids=["address", "name", "metadata", "term"],
)
def test_what_more_documents_share_than_the_bound_joins_nobody(
    linked, kind, documents, edges, links, bound
):
    """Up to the bound all of them are joined."""
    assert len(linked(documents, **links)(kind)) == edges
    for batches in (documents,), (documents[:-1], documents[-1:]), (documents[-1:], documents[:-1]):
        assert linked(*batches, **links, **bound)(kind) == set()


@pytest.mark.parametrize(
    ("kind", "back", "hub", "text", "bound", "edges"),
    [
        (EdgeKind.LINK, EdgeKind.LINKED_BY, {"source": "hub.md"}, "[hub](hub.md)", {}, 6),
        (EdgeKind.MENTION, EdgeKind.MENTIONED_BY, {"title": "Ulm"}, "Ulm", {"max_mentions": 4}, 4),
    ],
    ids=["link", "mention"],
)
def test_edges_of_a_hub_are_bounded(linked, kind, back, hub, text, bound, edges):
    """Names have ``max_mentions`` edges at most, and edges back are at most ``max_back_links``."""
    named, pages = [Document("A town.", id="hub", metadata=hub)], make_numbered(6, f"to {text}")
    for batches in ((named, pages), (pages, named), (named, *([page] for page in pages))):
        found = linked(*batches, max_back_links=2, **bound)
        assert (len(found(kind)), len(found(back))) == (edges, 2)


def test_a_document_is_not_joined_to_itself_by_its_names(memory, document, joined):
    """Neither its own title nor the names that its sections share count."""
    text = "# Red Barn\nThe Red Barn.\n## History\nOf the Red Barn.\n"
    memory.add_documents([document(text, source="barn.md")])
    assert joined(memory, EdgeKind.MENTION) == joined(memory, EdgeKind.SHARED_TERM) == set()
    heads = memory.store.walk.get_nodes(memory.store.catalog.all_ids())
    assert [head.mentions for head in heads] == [0, 0]
