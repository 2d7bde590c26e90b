"""Markdown is cut by heading and otherwise left as it is."""

import pytest
from langchain_core.documents import Document

from crabpath_retrievers.config import IngestSettings
from crabpath_retrievers.ingest.chunking import Chunking, make_title, split_sections

CODE = """# Guide

Intro.

```python
# not a heading
if ready:
    go()
```

## Install ##

- one
    - nested

~~~
## not one either
```
~~~
##### too deep to cut
"""


def nodes(text, **metadata):
    """Chunks of a Markdown document."""
    metadata = {"source": "docs/guide.md", **metadata}
    return Chunking(IngestSettings()).nodes([Document(text, metadata=metadata)])


def test_sections_are_cut_at_headings_outside_of_code():
    """A line that begins with # inside a code block is no heading, and nothing is lost."""
    found = list(split_sections(CODE))
    assert [name for name, _ in found] == ["", "Guide", "Install"]
    assert "".join(text for _, text in found) == CODE


def test_the_text_keeps_its_indentation():
    """Code and nested lists come back as they were written."""
    guide, install = nodes(CODE)
    assert "if ready:\n    go()\n" in guide.content
    assert "- one\n    - nested" in install.content


def test_chunks_are_titled_by_document_and_section():
    """The first heading names the document, later ones their section within it."""
    assert [n.title for n in nodes(CODE)] == ["Guide", "Guide › Install"]
    assert [n.names for n in nodes(CODE)] == [("guide",), ("install",)]
    assert nodes(CODE, title="Handbook")[0].title == "Handbook"


def test_text_before_the_first_heading_carries_the_title():
    """Front matter does not keep a document from having its first heading as title."""
    assert nodes("---\nlang: en\n---\n# Guide\ntext")[0].title == "Guide"


def test_only_the_first_chunk_is_reached_by_links():
    """Addresses lead to the head of a document; links may stand in any chunk."""
    head, other = nodes("# A\ntext\n## B\n[see](other.md)")
    assert head.addresses == ("docs/guide.md", "wiki:a")
    assert other.addresses == ()
    assert other.references == ("docs/other.md",)


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
    """Only what is declared to be Markdown is cut by heading."""
    document = Document("# A\ntext\n# B\ntext", metadata={"source": source, **metadata})
    assert len(Chunking(IngestSettings()).nodes([document])) == cut


def test_file_names_become_titles():
    """Dashes and underscores of a file name are spaces in its title."""
    assert make_title("docs/getting-started_now.md") == "getting started now"
