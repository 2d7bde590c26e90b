"""What every linker does, whatever the order in which documents come and go."""

import pytest
from langchain_core.documents import Document

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.core.graph import EdgeKind

BOTH_WAYS = {("a", "b"), ("b", "a")}


@pytest.fixture(params=["link", "mention", "shared_term", "similar", "sibling"])
def case(request, document):
    """A kind of edge, two documents that it joins, and the settings that it needs."""
    kind = EdgeKind[request.param.upper()]
    texts = {
        "link": ("See [the other](b.md).", "Nothing to see."),
        "mention": ("The harbour lies near Port Ellen.", "It has a lighthouse."),
        "shared_term": ("Bring Maria Lopez a coffee.", "Ask Maria Lopez first."),
        "similar": ("red apples grow on old trees", "red apples grow on young trees"),
        "sibling": ("The first half of a page.", "And its other half."),
    }[request.param]
    titles = {"mention": ("Harbour guide", "Port Ellen")}.get(request.param, ("", ""))
    sources = ("page.md", "page.md") if request.param == "sibling" else ("a.md", "b.md")
    documents = [
        document(text, id=node, source=source, **({"title": title} if title else {}))
        for node, text, source, title in zip("ab", texts, sources, titles, strict=True)
    ]
    links = {"similar_neighbours": 2, "min_similarity": 0.6} if request.param == "similar" else {}
    return kind, documents, links


def test_the_order_of_documents_does_not_matter(case, in_any_order):
    kind, documents, links = case
    expected = {("a", "b")} if kind in (EdgeKind.LINK, EdgeKind.MENTION) else BOTH_WAYS
    assert in_any_order(kind, *documents, **links) == expected


def test_edges_have_a_prior_come_once_and_go_with_their_ends(case, open_memory, joined):
    """The prior is that of the settings; adding the same again changes nothing."""
    kind, documents, links = case
    memory = open_memory(links=LinkSettings(**links))
    memory.add_documents(documents)
    found = joined(memory, kind)
    (head,) = memory.store.walk.get_nodes(["a"])
    clock = memory.store.walk.get_clock("default")
    pointers = memory.store.walk.get_outgoing_edges([head.key], clock).pointers
    weights = [pointer.weight for pointer in pointers if pointer.kind is kind]
    assert weights == [pytest.approx(LinkSettings().priors[kind])]
    memory.add_documents(documents)
    assert joined(memory, kind) == found
    memory.forget("b")
    assert joined(memory, kind) == set()


def make_numbered(count, text, **metadata):
    return [Document(f"{n} {text}", id=f"d{n}", metadata=metadata) for n in range(count)]


@pytest.mark.parametrize(
    ("kind", "documents", "edges", "links", "bound"),
    [
        pytest.param(
            EdgeKind.LINK,
            [*make_numbered(2, "", title="Readme"), Document("see [[Readme]]", id="a")],
            2,
            {},
            {"max_owners": 1},
            id="address",
        ),
        pytest.param(
            EdgeKind.MENTION,
            [*make_numbered(3, "", title="John Smith"), Document("by John Smith", id="a")],
            3,
            {},
            {"max_owners": 2},
            id="name",
        ),
        pytest.param(
            EdgeKind.LINK,
            make_numbered(3, "text", language="en"),
            6,
            {"metadata_keys": ("language",)},
            {"max_chunks_per_term": 2},
            id="metadata",
        ),
        pytest.param(
            EdgeKind.SHARED_TERM,
            make_numbered(3, "by Tim Burton"),
            6,
            {},
            {"max_chunks_per_term": 2},
            id="term",
        ),
    ],
)
def test_what_more_documents_share_than_the_bound_joins_nobody(
    linked, kind, documents, edges, links, bound
):
    """Up to the bound all of them are joined."""
    assert len(linked(kind, documents, **links)) == edges
    for batches in (documents,), (documents[:-1], documents[-1:]), (documents[-1:], documents[:-1]):
        if len(batches) == 1 or "max_owners" in bound:
            assert linked(kind, *batches, **links, **bound) == set()


@pytest.mark.parametrize(
    ("kind", "back", "hub", "text", "bound", "edges"),
    [
        (EdgeKind.LINK, EdgeKind.LINKED_BY, {"source": "hub.md"}, "[hub](hub.md)", {}, 6),
        (EdgeKind.MENTION, EdgeKind.MENTIONED_BY, {"title": "Ulm"}, "Ulm", {"max_mentions": 4}, 4),
    ],
    ids=["link", "mention"],
)
def test_edges_of_a_hub_are_bounded(open_memory, joined, kind, back, hub, text, bound, edges):
    """Names have ``max_mentions`` edges at most, and edges back are at most ``max_back_links``."""
    named, pages = [Document("A town.", id="hub", metadata=hub)], make_numbered(6, f"to {text}")
    for batches in ((named, pages), (pages, named), (named, *([page] for page in pages))):
        memory = open_memory(links=LinkSettings(max_back_links=2, **bound))
        for batch in batches:
            memory.add_documents(batch)
        assert (len(joined(memory, kind)), len(joined(memory, back))) == (edges, 2)


def test_a_document_is_not_joined_to_itself_by_its_names(memory, document, joined):
    """Neither its own title nor the names that its sections share count."""
    text = "# Red Barn\nThe Red Barn.\n## History\nOf the Red Barn.\n"
    memory.add_documents([document(text, source="barn.md")])
    assert joined(memory, EdgeKind.MENTION) == joined(memory, EdgeKind.SHARED_TERM) == set()
    heads = memory.store.walk.get_nodes(memory.store.catalog.all_ids())
    assert [head.mentions for head in heads] == [0, 0]
