"""Parses files into documents: text, notebooks, HTML, PDF and Word.

HTML and Word become Markdown, whose headings and links reach the splitter and the linkers. Their
parsers and that of PDF come with the extra ``files``.
"""

import json
import re
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from langchain_core.documents import Document

from crabpath_retrievers.core.interrupts import raise_interruption
from crabpath_retrievers.core.progress import quiet_foreign_loggers
from crabpath_retrievers.errors import CrabPathError, InvalidInputError, MissingExtraError
from crabpath_retrievers.ingest.chunking import is_markdown, make_title

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

INSTALL = "pip install 'crabpath-retrievers[files]'"
"""The command that installs the parsers."""

_ASIDE = "script, style, template, noscript, svg, nav, footer, form, [role=navigation]"
_HEADING = re.compile(r"h[1-6]")
# Mammoth knows headings, but not the paragraph style of a document's title.
_WORD_STYLES = "p[style-name='Title'] => h1:fresh"


def parse_file(source: str, data: bytes) -> list[Document]:
    """Parse the content of a file by the ending of its name; any other ending is text.

    Args:
        source: Path or address of the file; relative links in it are resolved against it.
        data: Its content.

    Returns:
        One document with ``source`` and a title; of a PDF file one per page, with ``page`` from 1.

    Raises:
        InvalidInputError: It is no text in UTF-8, or the parser of its format refuses it.
        MissingExtraError: The parser of its format is not installed.
    """
    suffix = PurePosixPath(source).suffix.lower()
    if suffix not in _PARSERS:
        return [_parse_text(source, data)]
    module, parse = _PARSERS[suffix]
    if find_spec(module) is None:
        msg = f"{suffix} files need a parser: {INSTALL}"
        raise MissingExtraError(msg)
    quiet_foreign_loggers()
    try:
        return parse(source, data)
    except CrabPathError:
        raise
    except Exception as error:  # parsers of foreign formats raise anything
        raise_interruption(error)
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        msg = f"not a readable {suffix} file ({reason})"
        raise InvalidInputError(msg) from error


def _parse_text(source: str, data: bytes) -> Document:
    if b"\x00" in data:
        msg = "not a text file"
        raise InvalidInputError(msg)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = "not a text file in UTF-8"
        raise InvalidInputError(msg) from error
    metadata = {"source": source}
    # The title of a Markdown file is its first heading, that of another file its name.
    if not is_markdown(source, metadata):
        metadata["title"] = make_title(source)
    return Document(page_content=text, metadata=metadata)


def _parse_notebook(source: str, data: bytes) -> list[Document]:
    """Texts and code of a notebook, without outputs."""
    notebook = json.loads(data)
    language = notebook.get("metadata", {}).get("kernelspec", {}).get("language", "python")
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(f"```{language}\n{text}\n```" if cell["cell_type"] == "code" else text)
    return [_make_markdown(source, "\n\n".join(parts))]


def _parse_html(source: str, data: bytes | str) -> list[Document]:
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
    return [_make_markdown(source, _convert_page(main), title=title)]


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
    for heading in main.find_all(_HEADING):
        links = heading.find_all("a", href=re.compile(r"^[^#]"))
        for mark in heading.find_all("a", href=re.compile(r"^#")):
            if not re.search(r"\w", mark.get_text()):
                mark.decompose()  # the sign that leads to the heading itself
        heading.string = " ".join(heading.get_text().split())
        heading.insert_after(*links)
    converter = MarkdownConverter(
        heading_style=ATX, autolinks=False, escape_asterisks=False, escape_underscores=False
    )
    return str(converter.convert_soup(main)).strip()


def _parse_word(source: str, data: bytes) -> list[Document]:
    import mammoth

    page = mammoth.convert_to_html(
        BytesIO(data), style_map=_WORD_STYLES, convert_image=lambda _image: []
    )
    return _parse_html(source, page.value)


def _parse_pdf(source: str, data: bytes) -> list[Document]:
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(data))
    stated = reader.metadata.title if reader.metadata else None
    title = " ".join((stated or "").split()) or make_title(source)
    # A name leads to the first page alone.
    return [
        Document(
            page_content=page.extract_text(),
            metadata={
                "source": source,
                "title": title if number == 1 else f"{title}, page {number}",
                "page": number,
            },
        )
        for number, page in enumerate(reader.pages, 1)
    ]


def _make_markdown(source: str, text: str, **metadata: str) -> Document:
    return Document(
        page_content=text, metadata={"source": source, "content_type": "text/markdown", **metadata}
    )


_PARSERS: dict[str, tuple[str, Callable[[str, bytes], list[Document]]]] = {
    ".ipynb": ("json", _parse_notebook),
    ".html": ("markdownify", _parse_html),
    ".htm": ("markdownify", _parse_html),
    ".xhtml": ("markdownify", _parse_html),
    ".pdf": ("pypdf", _parse_pdf),
    ".docx": ("mammoth", _parse_word),
}
"""Parsers by ending of the name, with the module that they need."""
