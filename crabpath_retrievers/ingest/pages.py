"""Converts pages of HTML to Markdown, whose headings and links reach splitter and linkers."""

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_core.documents import Document

from crabpath_retrievers.ingest.chunking import make_title

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bs4 import BeautifulSoup, Tag

_ASIDE = "title, script, style, template, noscript, svg, nav, footer, form, [role=navigation]"
_HEADING = re.compile(r"h[1-6]")
_BLOCK = re.compile(r"h[1-6]|p|div|section|table|[uod]l|pre|blockquote")
_MENU = re.compile(r"div|section|table|[uod]l|menu|aside|header|center")
_AROUND = re.compile(rf"{_MENU.pattern}|tbody|t[rd]")  # what stands before a menu, unlike text
_LABEL = re.compile(r"h[1-6]|th|pre")  # with a text, none of a menu
_LINKED = 0.75  # least share of the letters of a menu that stand in links
_LEAST_LINKS = 3  # of a menu
_LEAST_LETTERS, _LEAST_SHARE = 250, 0.2  # of a page without its menus: either is enough


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
    _remove_menus(main)
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


@dataclass(slots=True)
class _Held:
    """Counts of a part of a page: letters in links and others, links, those elsewhere, labels."""

    linked: int = 0
    plain: int = 0
    links: int = 0
    away: int = 0
    labels: int = 0

    @property
    def letters(self) -> int:
        """All of them."""
        return self.linked + self.plain

    def is_list(self) -> bool:
        """Whether it consists of links, or almost."""
        return self.links >= _LEAST_LINKS and self.linked >= _LINKED * self.letters

    def add(self, other: "_Held") -> None:
        """Add what a part of the part holds."""
        self.linked += other.linked
        self.plain += other.plain
        self.links += other.links
        self.away += other.away
        self.labels += other.labels


def _remove_menus(main: "BeautifulSoup | Tag") -> None:
    """Remove blocks of links, as those in a nav tag, unless little else stands on the page."""
    held = _count_held(main)
    menus = [*_find_menus(main, held)]
    letters = held[id(main)].letters
    rest = letters - sum(held[id(menu)].letters for menu in menus)
    for menu in menus if rest >= min(_LEAST_LETTERS, _LEAST_SHARE * letters) else ():
        menu.decompose()


def _count_held(main: "BeautifulSoup | Tag") -> dict[int, _Held]:
    """Count the letters and links of each tag and text of a page, by its ``id``."""
    from bs4 import Tag
    from bs4.element import NavigableString

    parts = [main, *main.descendants]
    held = {id(part): _Held() for part in parts}
    targets: dict[int, str] = {}  # of the link around each part
    for part in parts:
        href = part.get("href") if isinstance(part, Tag) and part.name == "a" else None
        targets[id(part)] = str(href or targets.get(id(part.parent), ""))
    for part in reversed(parts):
        own, target = held[id(part)], targets[id(part)]
        if type(part) is NavigableString:  # no comment
            letters = len(re.findall(r"\w", part))
            own.linked, own.plain = (letters, 0) if target else (0, letters)
        elif isinstance(part, Tag) and part.name == "a" and own.linked:
            own.links, own.away = 1, not target.startswith("#")
        elif isinstance(part, Tag) and own.plain and _LABEL.fullmatch(part.name):
            own.labels += 1
        if own.letters and part is not main:
            held[id(part.parent)].add(own)
    return held


def _find_menus(main: "BeautifulSoup | Tag", held: dict[int, _Held]) -> "Iterator[Tag]":
    """Yield the largest blocks of links that stand below no text or heading, and have no heading.

    The share of letters in links tells them, as in Kohlschütter et al. (2010).
    """
    from bs4 import Tag

    inside = set[int]()
    # Whether text stands before each part, and before the next one in it; as far as known.
    before: dict[int, bool] = {}
    within: dict[int, bool] = {}
    for part in main.descendants:
        key, parent, own = id(part), id(part.parent), held[id(part)]
        name = part.name if isinstance(part, Tag) else ""
        before[key] = within.get(parent, before.get(parent, False))
        if name == "hr":
            within[parent] = False
        elif own.plain:
            within[parent] = within.get(parent, False) or not _AROUND.fullmatch(name)
        if parent in inside:
            inside.add(key)
        elif isinstance(part, Tag) and _MENU.fullmatch(name) and own.is_list():
            inside.add(key)
            if not (before[key] or (own.labels and own.away)):
                yield part


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
