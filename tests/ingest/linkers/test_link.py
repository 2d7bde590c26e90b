"""``link``: Markdown, wiki and HTML links, URLs, and metadata that documents share."""

import pytest

from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.ingest.references import collect_addresses, find_references

LINK, BACK = EdgeKind.LINK, EdgeKind.LINKED_BY


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("see [b](b.md)", "docs/b.md"),
        ('see [b](./b.md "Title")', "docs/b.md"),
        ("see [b](<../b.md>)", "b.md"),
        ("see [b](sub/b.md#part)", "docs/sub/b.md"),
        ("see [b](my%20file.md)", "docs/my file.md"),
        ("![picture](b.png)", "docs/b.png"),
        ("see [[Some Page]]", "wiki:some page"),
        ("see [[some page#Part|this]]", "wiki:some page"),
        ('<a class="x" href="b.html">b</a>', "docs/b.html"),
        ("<A HREF=b.html>b</A>", "docs/b.html"),
        ("at https://www.Example.org/a/.", "example.org/a"),
        ("at http://example.org/a?x=1", "example.org/a?x=1"),
        ("[b](https://x.org/B_(c))", "x.org/B_(c)"),
        ("(see https://x.org/B_(c))", "x.org/B_(c)"),
    ],
)
def test_links_are_read_in_every_notation(text, target):
    """One spelling per place, relative links resolved against the document's own path."""
    assert find_references(text, "docs/a.md") == (target,)


@pytest.mark.parametrize(
    "text",
    ["[top](#top)", "[mail](mailto:a@b.org)", "[x](javascript:go())", "[[]]", "[a]()", "a [b] c"],
)
def test_what_leads_nowhere_is_no_link(text):
    """Anchors, mail addresses, scripts and empty links are left out."""
    assert find_references(text, "docs/a.md") == ()


def test_relative_links_of_web_pages_stay_on_their_site():
    """The base of a relative link is the URL of its page."""
    found = find_references("[b](../b) [c](/c)", "https://www.x.org/docs/a/")
    assert found == ("x.org/docs/b", "x.org/c")


def test_links_without_end_are_read_quickly():
    """Unclosed brackets of a long text cost no more than reading it."""
    assert find_references("[" * 50_000 + "](" * 5_000 + "<a " * 5_000, "a.md") == ()


def test_a_document_is_found_by_path_url_and_title():
    """Addresses and links have the same spelling."""
    metadata = {"url": "https://www.x.org/a/", "source": "./docs/a.md"}
    assert collect_addresses("./docs/a.md", "Page: A", metadata) == (
        "docs/a.md",
        "x.org/a",
        "wiki:page a",
    )


@pytest.mark.parametrize("text", ["[to b](b.md)", "[[Bee]]", "https://x.org/b", '<a href="b.md">'])
def test_links_are_followed_in_any_order_of_ingest(in_any_order, document, text):
    """A link makes an edge to its target, whichever of the two came first."""
    a = document(f"see {text}", id="a", source="d/a.txt")
    b = document("target", id="b", source="d/b.md", title="Bee", url="https://x.org/b")
    assert in_any_order(LINK, a, b) == {("a", "b")}
    assert in_any_order(BACK, a, b) == {("b", "a")}


def test_an_address_that_many_share_leads_nowhere(in_any_order, linked, document):
    """When more documents than ``max_owners`` carry an address it means none of them."""
    readmes = [document(f"text {i}", id=f"r{i}", title="Readme") for i in range(2)]
    a = document("see [[Readme]]", id="a")
    assert in_any_order(LINK, a, *readmes) == {("a", "r0"), ("a", "r1")}
    assert linked(LINK, [*readmes, a], max_owners=1) == set()
    assert linked(LINK, [a], readmes, max_owners=1) == set()


def test_edges_back_from_a_hub_are_bounded(linked, document):
    """A page that everybody links to gets all links and only ``max_back_links`` edges back."""
    hub = [document("hub", id="hub", source="hub.md")]
    pages = [document(f"page {i}: [hub](hub.md)", id=f"p{i}") for i in range(6)]
    for batches in ((hub, pages), (pages, hub), ([*hub, *pages],), (hub, *([p] for p in pages))):
        assert len(linked(LINK, *batches, max_back_links=2)) == 6
        assert len(linked(BACK, *batches, max_back_links=2)) == 2


def test_updating_a_hub_keeps_the_links_to_it(fresh, joined, document):
    """A changed target is linked again by all who point at it."""
    memory = fresh(max_back_links=2)
    memory.add_documents([document("hub", id="hub", source="hub.md")])
    memory.add_documents([document(f"{i} [hub](hub.md)", id=f"p{i}") for i in range(6)])
    memory.add_documents([document("hub, changed", id="hub", source="hub.md")])
    assert joined(memory, LINK) == {(f"p{i}", "hub") for i in range(6)}


def test_equal_metadata_joins_documents(in_any_order, document):
    """Documents with the same value under one of ``metadata_keys`` are linked both ways."""
    a, b = (document(f"text {i}", id=i, ticket=7, other="x") for i in "ab")
    c = document("text c", id="c", ticket=8, other="x")
    assert in_any_order(LINK, a, b, c, metadata_keys=("ticket",)) == {("a", "b"), ("b", "a")}
    assert in_any_order(LINK, a, b, c) == set()


def test_metadata_that_many_share_joins_nobody(linked, document):
    """A value that more than ``max_chunks_per_term`` documents share links none."""
    documents = [document(f"text {i}", id=f"d{i}", language="en") for i in range(7)]
    assert linked(LINK, documents, metadata_keys=("language",)) == set()
    assert len(linked(LINK, documents[:6], metadata_keys=("language",))) == 30
