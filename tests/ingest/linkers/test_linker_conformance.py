"""What every linker does, whatever the order in which documents come and go."""

import pytest

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
    """Two documents together or one after the other, in either order."""
    kind, documents, links = case
    if kind is EdgeKind.SIBLING:
        documents = documents[:1] * 2  # chunks of one source stand in the order of their coming
        assert in_any_order(kind, *documents, **links) == set()
    else:
        assert in_any_order(kind, *documents, **links) in (BOTH_WAYS, {("a", "b")})


def test_again_changes_nothing_and_no_edge_outlives_its_ends(case, fresh, joined):
    """Neither doubled by adding the same again, nor left when a document is forgotten."""
    kind, documents, links = case
    memory = fresh(**links)
    memory.add_documents(documents)
    found = joined(memory, kind)
    assert found
    memory.add_documents(documents)
    assert joined(memory, kind) == found
    memory.forget("b")
    assert joined(memory, kind) == set()


def test_edges_have_the_prior_of_their_kind(case, fresh):
    """As the settings say, and never above the bar of a reflex."""
    kind, documents, links = case
    memory = fresh(**links)
    memory.add_documents(documents)
    (head,) = memory.store.walk.get_nodes(["a"])
    pointers = memory.store.walk.get_outgoing_edges(
        [head.key], memory.store.walk.get_clock("default")
    ).pointers
    weights = [pointer.weight for pointer in pointers if pointer.kind is kind]
    assert weights == [pytest.approx(LinkSettings().priors[kind])]
