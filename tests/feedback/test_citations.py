"""Citations: places, ids and titles, in brackets or behind "Sources:"."""

import pytest

from crabpath_retrievers.learning.attribution.citations import Passage, find_citations

DOCUMENTS = [
    Passage("p1", "First.", "Maximum Overdrive"),
    Passage("docs/guide.md", "Second.", "Leland, North Carolina"),
    Passage("docs/guide.md#2 (a+b)*", "Third.", "東京"),
    Passage("4f0c-11", "Fourth."),
]
FIRST, GUIDE, ODD, LAST = (document.id for document in DOCUMENTS)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Stephen King [1].", {FIRST}),
        ("King[1][2] wrote it", {FIRST, GUIDE}),
        ("King [2, 3; 4]", {GUIDE, ODD, LAST}),
        ("King [2-4] or [2–3]", {GUIDE, ODD, LAST}),
        ("King [doc 2] and [Source: #3] and [^4]", {GUIDE, ODD, LAST}),
        ("King 【1†source】", {FIRST}),
        ("King [p1]", {FIRST}),
        ("King [Maximum Overdrive], [leland, north carolina]", {FIRST, GUIDE}),
        ("King [東京]", {ODD}),
        ("King.\nSources: 1, Maximum Overdrive, 4", {FIRST, LAST}),
        ("King (source: 4f0c-11)", {LAST}),
        ("See docs/guide.md.", {GUIDE}),
        ("See docs/guide.md#2 (a+b)*!", {ODD}),
        ("[1] and [9]", {FIRST}),
    ],
)
def test_what_is_cited(answer, expected):
    """Every form that chains write."""
    assert find_citations(answer, DOCUMENTS) == expected


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "in 1 of 2 cases (3)",
        "[0], [5], [99999999999999999999] and [2021]",
        "[3-1] [-1] [1.5e3] [] [ ] [[]]",
        "Maximum Overdrive was shot in Leland, North Carolina",
        "p1 is no citation, nor is p11",
        "docs/guide.mdx, my-4f0c-11",
        "docs/guide_md#2 aab",
        "[an aside] and [Maximum]",
    ],
)
def test_what_is_no_citation(answer):
    """Numbers out of range, titles and short ids in running text, parts of longer words."""
    assert find_citations(answer, DOCUMENTS) == frozenset()


def test_a_place_goes_before_an_id_that_looks_like_one():
    """[2] is the second document, though the first one has the id 2; ids out of range count."""
    documents = [Passage("2", ""), Passage("7", "")]
    assert find_citations("[2]", documents) == {"7"}
    assert find_citations("[7]", documents) == {"7"}


def test_without_documents_nothing_is_cited():
    """A turn may return nothing."""
    assert find_citations("[1]", []) == frozenset()
