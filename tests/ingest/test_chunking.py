"""Which chunks there are and how they are named; what becomes of Markdown and of metadata."""

import datetime as dt
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_text_splitters import CharacterTextSplitter

from crabpath_retrievers.config import IngestSettings
from crabpath_retrievers.core.text import prepend_title
from crabpath_retrievers.errors import DuplicateIdError, InvalidInputError
from crabpath_retrievers.ingest.chunking import (
    Chunking,
    make_embedding_text,
    make_title,
    to_json_safe,
)
from crabpath_retrievers.integration import is_blank

CHUNKING = Chunking(IngestSettings(chunk_size=80, chunk_overlap=0))
SECTIONS = [
    "# Guide\nWhat it is.\n",
    "## Install\nRun it.\n",
    "## Use\nAsk it.\n",
    "## End\nBye.\n",
]


def make_guide(sections, **metadata):
    """A Markdown document made of sections."""
    metadata = {"source": "guide.md", "title": "Guide", **metadata}
    return Document(page_content="\n".join(sections), metadata=metadata)


@settings(max_examples=25)
@given(order=st.permutations(SECTIONS), extra=st.integers(0, 4))
def test_sections_keep_their_ids_wherever_they_stand(order, extra):
    """Only the fingerprints of the old and the new head of a document change."""
    before = {node.id: node for node in CHUNKING.nodes([make_guide(SECTIONS)])}
    moved = {node.id: node for node in CHUNKING.nodes([make_guide(order)])}
    assert {i: n.content.strip() for i, n in moved.items()} == {
        i: n.content.strip() for i, n in before.items()
    }
    changed = {i for i in moved if moved[i].digest != before[i].digest}
    assert changed in (set(), {next(iter(before)), next(iter(moved))})
    added = make_guide([*order[:extra], "## New\nJust added.\n", *order[extra:]])
    after = {node.id for node in CHUNKING.nodes([added])}
    assert before.keys() <= after
    assert len(after) == len(before) + 1


def test_what_belongs_to_the_identity_of_a_chunk():
    """The source does; the order of metadata keys does not."""
    first, second = (CHUNKING.nodes([make_guide(SECTIONS, source=s)]) for s in ("a.md", "b.md"))
    assert not {n.id for n in first} & {n.id for n in second}
    one, two = ({"a": 1, "b": {2, 3}, "source": "s"}, {"source": "s", "b": {3, 2}, "a": 1})
    assert CHUNKING.nodes([Document("x", metadata=one)]) == CHUNKING.nodes(
        [Document("x", metadata=two)]
    )


def test_a_document_of_one_chunk_keeps_the_id_it_was_given():
    """Given ids name whole documents; chunks of a longer one derive theirs from it."""
    short, long = Document("short", id="a"), Document("word " * 60, id="b")
    nodes = CHUNKING.nodes([short, long])
    assert nodes[0].id == nodes[0].document == "a"
    assert {n.document for n in nodes[1:]} == {"b"}
    assert len({n.id for n in nodes[1:]} - {"b"}) == len(nodes) - 1 > 1
    # Ids given beside the documents win over their own, and 0 is an id.
    for ids in (["0", "1"], [0, 1]):
        assert [n.id for n in CHUNKING.nodes([short, Document("two", id="y")], ids)] == ["0", "1"]


@pytest.mark.parametrize(
    ("documents", "ids", "error", "message"),
    [
        ([Document("1"), Document("2")], ["a"], InvalidInputError, "1 ids for 2 documents"),
        ([Document("1", id="a"), Document("2 " * 99, id="a")], None, DuplicateIdError, "'a'"),
        (["text"], None, InvalidInputError, "got a str: wrap the text"),
    ],
)
def test_unusable_documents_are_refused(documents, ids, error, message):
    with pytest.raises(error, match=message):
        CHUNKING.nodes(documents, ids)


def test_equal_texts_are_told_apart_by_metadata():
    """The same twice is one; on two pages it is two, and the first has the id it has alone."""
    pages = [Document("text", metadata={"source": "a.pdf", "page": n}) for n in (1, 2, 2, True)]
    nodes = CHUNKING.nodes(pages)
    assert [(n.metadata["page"], n.position) for n in nodes] == [(1, 0), (2, 1), (True, 2)]
    assert nodes[0].id == CHUNKING.nodes(pages[:1])[0].id
    assert len({n.id for n in nodes}) == 3
    twice = [Document("text", id="a"), Document("text", id="a"), Document("x"), Document("x")]
    assert [node.content for node in CHUNKING.nodes(twice)] == ["text", "x"]


def test_own_splitters_and_no_splitting():
    """The caller's splitter cuts, if into something; ``split=False`` takes documents whole."""
    splitter = CharacterTextSplitter(separator="|", chunk_size=5, chunk_overlap=0)
    own = Chunking(IngestSettings(), splitter).nodes([Document("one|two|three")])
    assert [(n.content, n.position) for n in own] == [("one", 0), ("two", 1), ("three", 2)]
    text = "one|two|three" + " and more" * 20
    small = IngestSettings(chunk_size=10, chunk_overlap=0)
    assert [n.content for n in Chunking(small, split=False).nodes([Document(text)])] == [text]
    cut = Document(text, metadata={"source": "a.md", "start_index": 0})  # as LangChain's splitters
    assert [n.content for n in Chunking(small).nodes([cut])] == [text]
    with pytest.raises(InvalidInputError, match="returned no text"):
        Chunking(IngestSettings(), splitter).nodes([Document("|||")])


@settings(max_examples=25)
@given(st.text(min_size=1, max_size=300).filter(lambda t: not is_blank(t)))
def test_long_texts_are_cut_to_size(text):
    """No chunk of a text without Markdown is longer than the chunk size."""
    nodes = CHUNKING.nodes([Document(text * 3)])
    assert nodes
    assert all(0 < len(n.content) <= 80 for n in nodes)


def test_text_that_no_database_stores_is_cleaned():
    """NUL goes, and a lone surrogate becomes a question mark."""
    (node,) = CHUNKING.nodes([Document("a\x00b \ud800 c", id="i\x00d")])
    assert (node.content, node.id) == ("ab ? c", "id")


def test_the_title_is_embedded_unless_the_text_begins_with_it():
    for title, text in (("Rome", "Rome is old."), ("Italy", "Italy\nRome is old.")):
        (node,) = CHUNKING.nodes([Document("Rome is old.", metadata={"title": title})])
        assert make_embedding_text(node) == text


def test_title_and_heading_are_read_once():
    """By the embedder and by the search for words, however the text repeats them."""
    page = "git-am(1)\n\n# git-am(1)\n\nApplies patches.\n\n## Options\n\nSee there.\n"
    nodes = CHUNKING.nodes([make_guide([page], title="git-am(1)")])
    texts = ["git-am(1)\nApplies patches.", "git-am(1) › Options\nSee there."]
    assert [make_embedding_text(node).strip() for node in nodes[1:]] == texts
    assert [prepend_title(node.title, node.content).strip() for node in nodes[1:]] == texts
    named = Document("Rome\nRome is old.", metadata={"title": "Rome"})
    (node,) = CHUNKING.nodes([named])
    assert make_embedding_text(node) == named.page_content


CODE = """# Guide

Intro.

```python
# not a heading
if ready:
    go()
```

## Install ##

- one
    - nested, [see](other.md)

~~~
## not one either
```
~~~
##### too deep to cut
"""


def cut_markdown(text, **metadata):
    metadata = {"source": "docs/guide.md", **metadata}
    return Chunking(IngestSettings()).nodes([Document(text, metadata=metadata)])


def test_markdown_is_cut_at_headings_outside_of_code():
    """Nothing is lost, indentation is kept; sections are titled by document and heading."""
    intro, install = cut_markdown(CODE)
    assert f"{intro.content}\n\n{install.content}" == CODE.strip()
    assert (intro.title, install.title) == ("Guide", "Guide › Install")
    assert (intro.names, install.names) == (("guide",), ("install",))
    assert cut_markdown(CODE, title="Handbook")[0].title == "Handbook"
    assert cut_markdown("---\nlang: en\n---\n# Guide\ntext")[0].title == "Guide"
    # Addresses lead to the head of a document; links may stand in any chunk.
    assert (intro.addresses, install.addresses) == (("docs/guide.md", "wiki:guide"), ())
    assert install.references == ("docs/other.md",)


@pytest.mark.parametrize(
    ("source", "metadata", "cut"),
    [
        ("a.md", {}, 2),
        ("a.MARKDOWN", {}, 2),
        ("a.txt", {}, 1),
        ("https://x.org/a", {"content_type": "text/markdown"}, 2),
    ],
)
def test_markdown_is_known_by_name_or_type(source, metadata, cut):
    assert len(cut_markdown("# A\ntext\n# B\ntext", source=source, **metadata)) == cut


def test_file_names_become_titles():
    assert make_title("docs/getting-started_now.md") == "getting started now"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (dt.datetime(2024, 1, 2, 3, 4, tzinfo=dt.timezone.utc), "2024-01-02T03:04:00Z"),
        (dt.date(2024, 1, 2), "2024-01-02"),
        (math.nan, None),
        (math.inf, None),
        (b"\xff\x00", "_wA="),
        (10**30, 10**30),
        pytest.param((1, {"b", "a"}), [1, ["a", "b"]], id="set"),
        ({"deep": {1: math.nan}}, {"deep": {"1": None}}),
        (np.float32(1.5), 1.5),
        ("nul \x00 here", "nul  here"),
        ("\ud800", "?"),
        (r"backslash \u0000 stays", r"backslash \u0000 stays"),
    ],
    ids=str,
)
def test_other_metadata_becomes_plain(value, kept):
    """Dates, bytes, enumerations and numbers out of range become text, numbers or None."""
    assert to_json_safe({"x": value}) == {"x": kept} == json.loads(json.dumps({"x": kept}))


def test_metadata_that_contains_itself_is_refused():
    metadata = {}
    metadata["self"] = [metadata]
    with pytest.raises(InvalidInputError, match="contains itself"):
        to_json_safe(metadata)
