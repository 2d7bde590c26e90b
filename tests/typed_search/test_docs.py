"""The page about typed edges."""

from pathlib import Path

from markdown_it import MarkdownIt

from crabpath_retrievers.typed_search.view import TYPED_KINDS_BY_NAME

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "typed-edges.md").read_text()


def test_the_page_names_every_type_and_runs_as_it_stands():
    assert all(f"| `{name}` |" in PAGE for name in TYPED_KINDS_BY_NAME)
    given = {}
    (code,) = [t.content for t in MarkdownIt().parse(PAGE) if t.info == "python"]
    exec(code, given)  # noqa: S102  the page of this very repository
    memory = given["memory"]
    reached = memory.graph.traverse("find", ["caused_success", "temporal"], max_hops=3)
    assert [(one.id, one.hops) for one in reached] == [("take", 1), ("clean", 2)]
    assert memory.graph.search("find the soap", 3)[0].node.id == "find"
    memory.close()
