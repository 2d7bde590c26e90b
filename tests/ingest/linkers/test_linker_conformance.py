"""What every linker does, whatever the order in which documents come and go."""

import pytest
from langchain_core.documents import Document

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.core.graph import EdgeKind

BOTH_WAYS = {("a", "b"), ("b", "a")}
# Kind: two texts that it joins, their titles, and the settings that it needs.
CASES = {
    EdgeKind.LINK: (("See [the other](b.md).", "Nothing to see."), ("", ""), {}),
    EdgeKind.MENTION: (
        ("The harbour lies near Port Ellen.", "It has a lighthouse."),
        ("Harbour guide", "Port Ellen"),
        {},
    ),
    EdgeKind.SHARED_TERM: (("Bring Maria Lopez a coffee.", "Ask Maria Lopez first."), ("", ""), {}),
    EdgeKind.SIMILAR: (
        ("red apples grow on old trees", "red apples grow on young trees"),
        ("", ""),
        {"similar_neighbours": 2, "min_similarity": 0.6},
    ),
    EdgeKind.SIBLING: (("The first half of a page.", "And its other half."), ("", ""), {}),
}


def test_every_kind_of_edge_between_texts_has_a_case():
    """Edges back come with those there, and are tested below."""
    back = {EdgeKind.LINKED_BY, EdgeKind.MENTIONED_BY}
    assert {kind for kind, prior in LinkSettings().priors.items() if prior} == CASES.keys() | back


@pytest.mark.parametrize("kind", CASES)
def test_edges_come_once_in_any_order_and_go_with_their_ends(open_memory, joined, kind):
    """They have the prior of the settings; adding the same again changes nothing."""
    texts, titles, links = CASES[kind]
    sources = ("page.md", "page.md") if kind is EdgeKind.SIBLING else ("a.md", "b.md")
    one, two = (
        Document(text, id=node, metadata={"source": source, "title": title})
        for text, node, source, title in zip(texts, "ab", sources, titles, strict=True)
    )
    expected = {("a", "b")} if kind in (EdgeKind.LINK, EdgeKind.MENTION) else BOTH_WAYS
    for batches in ([one, two],), ([one], [two]), ([two], [one]), ([one, two], [one, two]):
        memory = open_memory(links=LinkSettings(**links))
        for batch in batches:
            memory.add_documents(batch)
        assert joined(memory, kind) == expected
    (head,) = memory.store.walk.get_nodes(["a"])
    clock = memory.store.walk.get_clock("default")
    pointers = memory.store.walk.get_outgoing_edges([head.key], clock).pointers
    weights = [pointer.weight for pointer in pointers if pointer.kind is kind]
    assert weights == [pytest.approx(LinkSettings().priors[kind])]
    memory.forget("b")
    assert joined(memory, kind) == set()


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
