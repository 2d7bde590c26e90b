"""Converts pages of HTML to Markdown, whose headings and links reach splitter and linkers."""

import re
import warnings
from typing import TYPE_CHECKING

from langchain_core.documents import Document

from crabpath_retrievers.ingest.chunking import make_title

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

_ASIDE = "script, style, template, noscript, svg, nav, footer, form, [role=navigation]"
_HEADING = re.compile(r"h[1-6]")
_BLOCK = re.compile(r"h[1-6]|p|div|section|table|[uod]l|pre|blockquote")


def parse_html(source: str, data: bytes | str) -> list[Document]:
    """The page as one document, with the title that it states."""
    from bs4 import BeautifulSoup
    from bs4.dammit import EncodingDetector

    encoding = None
    if isinstance(data, bytes):  # what is marked or declared comes first, a guess last
        _, marked = EncodingDetector.strip_byte_order_mark(data)
        encoding = marked or EncodingDetector.find_declared_encoding(data, is_html=True) or "utf-8"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # XHTML is HTML, too
        page = BeautifulSoup(data, "html.parser", from_encoding=encoding)
    main = page.find("main") or page.select_one("[role=main]") or page.body or page
    heading = main.find(_HEADING)
    named = (page.title, heading)
    titles = (" ".join(tag.get_text().split()) for tag in named if tag is not None)
    title = next(filter(None, titles), "") or make_title(source)
    return [make_markdown(source, _convert_page(main), title=title)]


def _convert_page(main: "BeautifulSoup | Tag") -> str:
    """The main part of a page as Markdown."""
    from markdownify import ATX, MarkdownConverter

    for aside in main.select(_ASIDE):
        aside.decompose()
    for image in main.find_all("img"):
        image.replace_with(str(image.get("alt") or ""))
    for link in main.find_all("a"):
        for text in link.find_all(string=re.compile(r"\n")):
            text.replace_with(re.sub(r"\s+", " ", text))  # a link of Markdown stands on one line
    _end_headings(main)
    for heading in main.find_all(_HEADING):
        links = heading.find_all("a", href=re.compile(r"^[^#]"))
        for mark in heading.find_all("a", href=re.compile(r"^#")):
            if not re.search(r"\w", mark.get_text()):
                mark.decompose()  # the sign that leads to the heading itself
        heading.string = " ".join(heading.get_text().split())
        heading.insert_after(*links)
    for text in main.find_all(string=re.compile(r"\|")):
        if text.find_parent(["td", "th"]):
            text.replace_with(type(text)(text.replace("|", "\\|")))
    converter = MarkdownConverter(
        heading_style=ATX,
        autolinks=False,
        escape_asterisks=False,
        escape_underscores=False,
        table_infer_header=True,
    )
    return str(converter.convert_soup(main)).strip()


def _end_headings(main: "BeautifulSoup | Tag") -> None:
    """End a heading that is not closed where the next block begins."""
    for heading in main.find_all(_HEADING):
        block = heading.find(_BLOCK, recursive=False)
        if block is None:
            continue
        said = "".join(map(str, block.previous_siblings)).strip()
        if said or _HEADING.fullmatch(block.name):
            heading.insert_after(*[part.extract() for part in [block, *block.next_siblings]])


def make_markdown(source: str, text: str, **metadata: str) -> Document:
    """A document in Markdown."""
    return Document(
        page_content=text, metadata={"source": source, "content_type": "text/markdown", **metadata}
    )
