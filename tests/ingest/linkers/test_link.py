"""``link``: Markdown, wiki and HTML links, URLs, and metadata that documents share."""

import pytest

from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.ingest.references import find_references

LINK, BACK = EdgeKind.LINK, EdgeKind.LINKED_BY


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("see [b](b.md)", ["docs/b.md"]),
        ('see [b](./b.md "Title")', ["docs/b.md"]),
        ("see [b](<../b.md>)", ["b.md"]),
        ("see [b](sub/b.md#part)", ["docs/sub/b.md"]),
        ("see [b](my%20file.md)", ["docs/my file.md"]),
        ("![picture](b.png)", ["docs/b.png"]),
        ("see [[Some Page]]", ["wiki:some page"]),
        ("see [[some page#Part|this]]", ["wiki:some page"]),
        ('<a class="x" href="b.html">b</a>', ["docs/b.html"]),
        ("<A HREF=b.html>b</A>", ["docs/b.html"]),
        ("at https://www.Example.org/a/.", ["example.org/a"]),
        ("at http://example.org/a?x=1", ["example.org/a?x=1"]),
        ("[b](https://x.org/B_(c))", ["x.org/B_(c)"]),
        ("(see https://x.org/B_(c))", ["x.org/B_(c)"]),
        ("[top](#top)", []),
        ("[mail](mailto:a@b.org)", []),
        ("[x](javascript:go())", []),
        ("[[]]", []),
        ("[a]()", []),
        ("a [b] c", []),
        pytest.param("[" * 50_000 + "](" * 5_000 + "<a " * 5_000, [], id="unclosed"),
    ],
)
def test_links_are_read_in_every_notation(text, targets):
    """One spelling per place, relative links resolved against the document's own path."""
    assert find_references(text, "docs/a.md") == tuple(targets)


def test_relative_links_of_web_pages_stay_on_their_site():
    found = find_references("[b](../b) [c](/c)", "https://www.x.org/docs/a/")
    assert found == ("x.org/docs/b", "x.org/c")


def test_a_document_is_reached_by_path_url_and_title_whichever_came_first(
    open_memory, joined, document
):
    texts = ["[to b](b.md)", "[[bee: A]]", "https://x.org/b", '<a href="b.md">']
    sources = [document(f"see {t}", id=f"a{n}", source="d/a.txt") for n, t in enumerate(texts)]
    given = {"source": "./d/b.md", "title": "Bee: A", "url": "https://www.x.org/b/"}
    target = [document("target", id="b", **given)]
    for batches in ([*sources, *target],), (sources, target), (target, sources):
        memory = open_memory()
        for batch in batches:
            memory.add_documents(batch)
        assert joined(memory, LINK) == {(f"a{n}", "b") for n in range(4)}
        assert joined(memory, BACK) == {("b", f"a{n}") for n in range(4)}


def test_updating_a_hub_keeps_the_links_to_it(memory, joined, document):
    memory.add_documents([document("hub", id="hub", source="hub.md")])
    memory.add_documents([document(f"{i} [hub](hub.md)", id=f"p{i}") for i in range(3)])
    memory.add_documents([document("hub, changed", id="hub", source="hub.md")])
    assert joined(memory, LINK) == {(f"p{i}", "hub") for i in range(3)}


def test_equal_metadata_joins_documents(in_any_order, linked, document):
    """Documents with the same value under one of ``metadata_keys`` are linked both ways."""
    a, b = (document(f"text {i}", id=i, ticket=7, other="x") for i in "ab")
    c = document("text c", id="c", ticket=8, other="x")
    assert in_any_order(LINK, a, b, metadata_keys=("ticket",)) == {("a", "b"), ("b", "a")}
    assert linked(LINK, [a, b], [c], metadata_keys=("ticket",)) == {("a", "b"), ("b", "a")}
    assert linked(LINK, [a, b, c]) == set()
