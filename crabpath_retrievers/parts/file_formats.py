"""Parses files into documents by the ending of their names: pages, tables, mail, JSON, and more.

HTML becomes Markdown, whose headings and links reach splitter and linkers. The records of one file
share its source; where each has a ``file_entry`` in its metadata, a link to the file leads to none
of them. The parsers of HTML, PDF, Word, Excel and RTF come with the extra ``files``.
"""

import csv
import json
import re
import warnings
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import EmailPolicy
from email.utils import parsedate_to_datetime
from functools import partial
from hashlib import sha256
from io import BytesIO, StringIO
from itertools import chain, starmap
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast
from zipfile import ZipFile

from langchain_core.documents import Document
from pydantic_core import from_json, to_json

from crabpath_retrievers.core.calls import quiet_foreign_loggers
from crabpath_retrievers.core.extras import require_extra
from crabpath_retrievers.core.processes import raise_interruption
from crabpath_retrievers.errors import CrabPathError, InvalidInputError
from crabpath_retrievers.ingest.chunking import find_day, is_markdown, make_title, name_first

if TYPE_CHECKING:
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
    """Parse a page to one document, with the title that it states; else one of its file name."""
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
    """Convert the main part of a page to Markdown."""
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
    """Counts of a part of a page: letters in links and outside, links, links to pages, labels."""

    linked: int = 0
    plain: int = 0
    links: int = 0
    away: int = 0
    labels: int = 0

    @property
    def letters(self) -> int:
        """Number of letters, inside and outside of links."""
        return self.linked + self.plain

    def is_list(self) -> bool:
        """Whether the part has at least three links, with most of its letters in them."""
        return self.links >= _LEAST_LINKS and self.linked >= _LINKED * self.letters

    def add(self, other: "_Held") -> None:
        """Add the counts of a part inside this one."""
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
    """Count the letters and links of each tag and text of a page, by Python's ``id`` of it."""
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
    """Yield the largest blocks of links that follow no text or heading, and have no heading.

    ``held`` has the counts of each part. The share of letters in links tells such a block, as in
    Kohlschütter et al. (2010).
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
    """Close headings that the page leaves open, where the next block begins."""
    for heading in main.find_all(_HEADING):
        block = heading.find(_BLOCK, recursive=False)
        if block is None:
            continue
        said = "".join(map(str, block.previous_siblings)).strip()
        if said or _HEADING.fullmatch(block.name):
            heading.insert_after(*[part.extract() for part in [block, *block.next_siblings]])


def make_markdown(source: str, text: str, **metadata: str) -> Document:
    """Make a document in Markdown from ``text``, with these metadata."""
    return Document(
        page_content=text, metadata={"source": source, "content_type": "text/markdown", **metadata}
    )


_WIDEST = 500  # characters of a header that is repeated; rows of wider tables name their columns


def format_table(rows: Iterable[Sequence[object]]) -> str:
    """Format a table as Markdown, without empty columns.

    The first row is the header, unless it has only numbers.
    """
    lines = [cells for row in rows if any(cells := [_to_cell(value) for value in row])]
    if not lines:
        return ""
    used = sorted({place for cells in lines for place, cell in enumerate(cells) if cell})
    width = len(used)
    filled = [[cells[place] if place < len(cells) else "" for place in used] for cells in lines]
    head = filled[0]
    if all(_is_number(cell) for cell in head if cell):
        head = [f"column {number}" for number in range(1, width + 1)]
        filled.insert(0, head)
    if sum(map(len, head)) > _WIDEST:
        named = (
            "\n".join(f"{name}: {cell}" for name, cell in zip(head, cells, strict=True) if cell)
            for cells in filled[1:]
        )
        return "\n\n".join(named)
    ruled = chain(filled[:1], [["---"] * width], filled[1:])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in ruled)


def _to_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    return " ".join(str(value).replace("|", "\\|").split())


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True


_Item = TypeVar("_Item")
_MARKS = (BOM_UTF16_LE, BOM_UTF16_BE)
_LONGEST_HEADER = 500  # characters
_MOST_ENTRIES = 100_000  # messages or objects of one file
_MOST_CELLS = 5_000_000  # of one workbook
_MOST_PARTS = 200  # of one message
_LARGEST_UNPACKED = 512 * 2**20  # bytes of all files of an archive
_TEXTS = (".txt", ".md", ".markdown", ".json", ".csv", ".tsv", ".html", ".htm")  # attachments
_ENDINGS = {"application/json": ".json", "text/csv": ".csv", "text/html": ".html"}
_TITLES, _IDS = ("title", "subject", "name"), ("id", "_id", "key", "uuid", "url")
# A line of a text may begin with "From ", too; the first line of a file is none of a text.
_DATED = rb"From (?:(?=.*\d:\d\d)(?=.*\b\d{4}\b).*|[- ]*\r?)"
_ENVELOPE = re.compile(rb"(?:\A\s*From .*|(?<=\n)\r?\n" + _DATED + rb")(?:\n|\Z)")
_QUOTED = re.compile(rb"^>(>*From )", re.MULTILINE)
_DELIMITER = re.compile(r'"?sep=(.)"?(?:\r?\n|\r|\Z)', re.IGNORECASE)  # a line for Excel
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[\]}])', re.DOTALL)
_NO_VALUE = re.compile(
    rb'<c r="([A-Z]+\d+)"[^>]*>\s*<f(?:\s[^>]*)?(?:/>|>[^<]*</f>)\s*(?:<v\s*/>|<v></v>)?\s*</c>'
)
_SAMPLE = 4096  # characters from which the delimiter is guessed: it takes quadratic time


class BadPart(NamedTuple):
    """A part of a file that cannot be read, while others can.

    Attributes:
        place: Which one, such as ``line 2``.
        reason: Why.
    """

    place: str
    reason: str


Parts: TypeAlias = Iterator[Document | BadPart]


def read_part(place: str, read: Callable[[], Iterable[Document | BadPart]]) -> Parts:
    """Yield the documents that ``read`` makes of one part of a file.

    If it fails in any way, a :class:`BadPart` with the ``place`` follows.
    """
    try:
        yield from read()
    except Exception as error:  # parsers of foreign formats raise anything
        raise_interruption(error)
        yield BadPart(place, describe_failure(error))


def describe_failure(error: Exception) -> str:
    """Message of a parser's error, on one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def decode_text(data: bytes) -> str:
    """Decode a text in UTF-8, or in UTF-16 with a byte order mark."""
    marked = data.startswith(_MARKS)
    if b"\x00" in data and not marked:
        msg = "not a text file"
        raise InvalidInputError(msg)
    try:
        return data.decode("utf-16" if marked else "utf-8-sig")
    except UnicodeDecodeError as error:
        msg = "not a text file in UTF-8"
        raise InvalidInputError(msg) from error


def require_unpacked_size(data: bytes) -> None:
    """Refuse an archive, as of Word and Excel, that unpacks to more than 512 MiB."""
    with ZipFile(BytesIO(data)) as archive:
        size = sum(file.file_size for file in archive.infolist())
    if size > _LARGEST_UNPACKED:
        msg = f"it unpacks to {size:,} bytes, above {_LARGEST_UNPACKED:,}"
        raise InvalidInputError(msg)


def parse_mail(source: str, data: bytes) -> list[Document]:
    """Make one document of a message: its text, and those of attachments that are text.

    Raises:
        ValueError: The data do not begin with headers.
    """
    message = _parse_message(data)
    if data.strip() and not message.keys():
        msg = "it does not begin with headers"
        raise ValueError(msg)
    return [_convert_message(source, message)]


def parse_mailbox(source: str, data: bytes) -> Parts:
    """Yield one document per message of a mailbox.

    Each message begins below a line with "From ", sender and date.
    """
    begins = [match.span() for match in _ENVELOPE.finditer(data)]
    ends = [*(start for start, _ in begins), len(data)][1:]
    spans = _require_few([(start, end) for (_, start), end in zip(begins, ends, strict=True)])

    def convert(start: int, end: int) -> list[Document]:
        message = _parse_message(_QUOTED.sub(rb"\1", data[start:end]))
        found = _convert_message(source, message)
        name = found.metadata.get("message_id")
        found.metadata["file_entry"] = name or _digest(found.page_content)
        return [found]

    for number, span in enumerate(spans, 1):
        yield from read_part(f"message {number}", partial(convert, *span))


class _Headers(EmailPolicy):
    """Reads headers also where they are written in bytes outside ASCII, against the rules."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        lines = [_decode_any(line.encode("utf-8", "surrogateescape")) for line in sourcelines]
        return super().header_source_parse(lines)


_MAIL = _Headers()


def _parse_message(data: bytes) -> EmailMessage:
    return cast("EmailMessage", BytesParser(policy=_MAIL).parsebytes(data))


def _decode_any(data: bytes, charset: str = "utf-8") -> str:
    """Decode a text: in ``charset`` if possible, else UTF-8 or marked UTF-16, else Windows-1252."""
    with suppress(LookupError, ValueError):
        return data.decode(charset)
    with suppress(InvalidInputError):
        return decode_text(data)
    return data.decode("cp1252", "replace")


def _convert_message(source: str, message: EmailMessage) -> Document:
    headers = {name: _read_header(message, name) for name in ("From", "To", "Date")}
    parts = _require_few(list(_list_texts(message)), _MOST_PARTS)
    texts = [f"{name}: {value}" for name, value in headers.items() if value]
    texts += [f"\n{_read_part(source, part)}" for part in parts]
    found = {
        "title": _read_header(message, "Subject") or make_title(source),
        "from": headers["From"],
        "to": headers["To"],
        "date": (date := _read_date(message)),
        "day": find_day(date),
        "message_id": _read_header(message, "Message-ID"),
    }
    metadata = {key: value for key, value in found.items() if value}
    return Document(page_content="\n".join(texts), metadata={"source": source, **metadata})


def _list_texts(message: EmailMessage) -> Iterator[EmailMessage]:
    """Yield the text parts of a message; of alternatives the plain one, else the last."""
    if not message.is_multipart():
        if message.get_content_maintype() == "text" or _get_ending(message) in _TEXTS:
            yield message
        return
    found = [list(_list_texts(cast("EmailMessage", part))) for part in message.iter_parts()]
    if message.get_content_subtype() == "alternative":
        plain = (texts for texts in found if any(t.get_content_subtype() == "plain" for t in texts))
        found = [next(plain, found[-1] if found else [])]
    for texts in found:
        yield from texts


def _read_header(message: EmailMessage, name: str) -> str:
    try:
        return " ".join(str(message.get(name) or "").split())[:_LONGEST_HEADER]
    except Exception:  # the parser of a damaged header raises anything
        return ""


def _read_date(message: EmailMessage) -> str:
    try:
        return parsedate_to_datetime(_read_header(message, "Date")).isoformat()
    except (TypeError, ValueError):
        return ""


def _read_part(source: str, part: EmailMessage) -> str:
    data = part.get_payload(decode=True)
    text = data if isinstance(data, bytes) else b""
    decoded, ending = _decode_any(text, part.get_content_charset("utf-8")), _get_ending(part)
    if ending in {".html", ".htm"}:
        require_extra("files", "reading messages in HTML", "markdownify")
        return parse_html(source, decoded)[0].page_content
    parse = {".json": parse_json, ".csv": parse_csv, ".tsv": parse_csv}.get(ending)
    if parse is None:
        return decoded
    try:
        found = parse(f"attachment{ending}", decoded.encode("utf-8", "replace"))
    except (InvalidInputError, ValueError, csv.Error):
        return decoded
    return "\n\n".join(document.page_content for document in found)


def _get_ending(part: EmailMessage) -> str:
    """Return the file ending for the content type of a part, else that of its file name."""
    if ending := _ENDINGS.get(part.get_content_type()):
        return ending
    try:
        return PurePosixPath(part.get_filename() or "").suffix.lower()
    except Exception:  # the parser of a damaged header raises anything
        return ""


def parse_json(source: str, data: bytes) -> list[Document]:
    """Make one document per object of a list in JSON; of other JSON, one with all values."""
    text = decode_text(data)
    try:
        found = from_json(text)
    except ValueError as error:
        if "\\u" in text:
            raise
        if "trailing characters" not in str(error):
            from_json(_strip_comments(text))
        found = text  # with comments, such as settings of editors, or objects in a row
    if isinstance(found, list) and found and all(isinstance(item, dict) for item in found):
        return _convert_objects(source, found)
    metadata = {"source": source, "title": make_title(source)}
    return [Document(page_content="\n".join(_list_lines(found)), metadata=metadata)]


def _strip_comments(text: str) -> str:
    """Remove comments and trailing commas, as editors write them, from JSON."""
    for pattern in (_COMMENT, _LAST_COMMA):
        text = pattern.sub(lambda found: found[1] or "", text)
    return text


def parse_json_lines(source: str, data: bytes) -> Parts:
    """Yield one document per line of a file of JSON lines."""
    if data.startswith(_MARKS):
        data = decode_text(data).encode()

    def convert(line: bytes) -> list[Document]:
        return _convert_objects(source, [from_json(line)])

    lines = enumerate(data.removeprefix(BOM_UTF8).split(b"\n"), 1)
    for number, line in _require_few([one for one in lines if one[1].strip()]):
        yield from read_part(f"line {number}", partial(convert, line))


def _convert_objects(source: str, found: list[Any]) -> list[Document]:
    documents = []
    for item in _require_few(found):
        text = "\n".join(_list_lines(item))
        facts = item if isinstance(item, dict) else {}
        names = (facts.get(key) for key in _IDS)
        entry = next((str(name) for name in names if isinstance(name, (str, int))), "")
        titles = (facts.get(key) for key in _TITLES)
        title = next((name for name in titles if isinstance(name, str) and name.strip()), "")
        title = title[:_LONGEST_HEADER] or (f"{make_title(source)} {entry}" if entry else "")
        metadata = {"source": source, "file_entry": entry[:_LONGEST_HEADER] or _digest(text)}
        metadata |= {"title": title} if title else {}
        documents.append(Document(page_content=text, metadata=metadata))
    return documents


def _list_lines(value: object, path: str = "") -> Iterator[str]:
    """Yield each scalar of a JSON value as a line, after the keys that lead to it."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _list_lines(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for number, item in enumerate(value, 1):
            yield from _list_lines(item, f"{path}[{number}]" if path else str(number))
    elif value not in (None, "", []):
        shown = ", ".join(map(_to_text, value)) if isinstance(value, list) else _to_text(value)
        yield f"{path}: {shown}" if path else shown


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else to_json(value).decode()


def parse_csv(source: str, data: bytes) -> list[Document]:
    """Parse the table of a CSV file to one document in Markdown."""
    try:
        text = decode_text(data if data.startswith(_MARKS) else data.replace(b"\x00", b""))
    except InvalidInputError:
        if b"\x00" in data:
            raise
        text = "\n".join(map(_decode_line, data.removeprefix(BOM_UTF8).split(b"\n")))
    text, options = remove_encoded(text.replace("\x00", "")), dict[str, Any]()
    form: Any = csv.excel_tab if source.endswith(".tsv") else csv.excel
    if stated := _DELIMITER.match(text):
        text, options = text[stated.end() :], {"delimiter": stated[1]}
    else:
        with suppress(csv.Error):
            form = csv.Sniffer().sniff(text[:_SAMPLE], ",;\t|")
            form.doublequote = True  # it guesses so from a sample that has none
    csv.field_size_limit(max(csv.field_size_limit(), _LARGEST_UNPACKED))  # one for all readers
    rows = format_table(csv.reader(StringIO(text, newline=""), form, **options))
    return [make_markdown(source, rows, title=make_title(source))]


def _decode_line(line: bytes) -> str:
    """Decode a line in UTF-8, or else in Windows-1252, as Excel writes it in Europe."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("cp1252", "replace")


def parse_workbook(source: str, data: bytes) -> Parts:
    """Parse the tables of an Excel workbook to Markdown, one document per sheet with a table.

    If no sheet has a table, there is one empty document.
    """
    import openpyxl

    require_unpacked_size(data)
    title, left = make_title(source), _MOST_CELLS
    with closing(openpyxl.load_workbook(BytesIO(data), read_only=True, data_only=True)) as book:

        def convert(sheet: Any) -> Parts:
            nonlocal left
            with sheet._get_source() as source_of_sheet:  # noqa: SLF001  values alone hide formulas
                cells = [cell.decode() for cell in _NO_VALUE.findall(source_of_sheet.read())]
            if cells:
                why = "formulas without a stored value: open it in Excel or LibreOffice and save it"
                yield BadPart(f"sheet {sheet.title}, {name_first(cells)}", why)
            sheet.reset_dimensions()  # what it states may be wrong
            rows = []
            for row in sheet.iter_rows(values_only=True):
                left -= len(row)
                if left < 0:
                    msg = f"the file has more than {_MOST_CELLS:,} cells"
                    raise InvalidInputError(msg)
                if any(value is not None for value in row):
                    rows.append(row)
            name = title if len(book.worksheets) == 1 else f"{title}: {sheet.title}"
            table = format_table(rows)
            yield make_markdown(source, table, title=name, sheet=sheet.title)

        named = {f"sheet {sheet.title}": partial(convert, sheet) for sheet in book.worksheets}
        found = list(chain.from_iterable(starmap(read_part, named.items())))
    yield from [one for one in found if isinstance(one, BadPart) or one.page_content] or found[:1]


def _require_few(found: list[_Item], most: int = _MOST_ENTRIES) -> list[_Item]:
    if len(found) > most:
        msg = f"it has {len(found):,} parts, above {most:,}: split it"
        raise InvalidInputError(msg)
    return found


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


_MOST_NAMED = 20  # parts of one file that cannot be read
# Mammoth knows headings, but not the paragraph style of a document's title.
_WORD_STYLES = "p[style-name='Title'] => h1:fresh"
_POINTER = b"version https://git-lfs.github.com/spec/"


def parse_file(source: str, data: bytes) -> tuple[list[Document], dict[str, str]]:
    """Parse the content of a file by the ending of its name; a file of any other ending is text.

    Args:
        source: Path or address of the file; relative links in it are resolved against this.

    Returns:
        The documents, with ``source`` and, except for Markdown, a title. A file makes one; a PDF
        file one per page, with ``page`` from 1; mail, JSON and Excel one per message, object and
        sheet. And why parts of the file could not be read, by source and place.

    Raises:
        InvalidInputError: The file is no text in UTF-8; or the parser of its format refuses all of
            it or finds nothing in it; or it is what Git LFS leaves in place of a file.
        MissingExtraError: The parser of its format is not installed.
    """
    suffix = PurePosixPath(source).suffix.lower()
    if data.startswith(_POINTER):
        msg = "a pointer of Git LFS in place of the file: run git lfs pull"
        raise InvalidInputError(msg)
    if suffix not in _PARSERS:
        return [_parse_text(source, data)], {}
    module, parse = _PARSERS[suffix]
    require_extra("files", f"reading {suffix} files", module)
    quiet_foreign_loggers()
    try:
        parts = list(parse(source, data))
    except CrabPathError:
        raise
    except Exception as error:  # parsers of foreign formats raise anything
        raise_interruption(error)
        msg = f"not a readable {suffix} file ({describe_failure(error)})"
        raise InvalidInputError(msg) from error
    documents = [part for part in parts if isinstance(part, Document)]
    bad = [part for part in parts if isinstance(part, BadPart)]
    if bad and not any(document.page_content for document in documents):
        msg = f"not a readable {suffix} file ({bad[0].place}: {bad[0].reason})"
        raise InvalidInputError(msg)
    if not documents and data.strip():  # what it held must not look deleted
        msg = f"not a readable {suffix} file (nothing begins in it)"
        raise InvalidInputError(msg)
    skipped = {f"{source}, {part.place}": part.reason for part in bad[:_MOST_NAMED]}
    if more := bad[_MOST_NAMED:]:
        skipped[f"{source}, {more[0].place} to {more[-1].place}"] = f"{len(more)} of them likewise"
    return documents, skipped


def _parse_text(source: str, data: bytes) -> Document:
    text, metadata = decode_text(data), {"source": source}
    # The title of a Markdown file is its first heading, that of another file its name.
    if not is_markdown(source, metadata):
        metadata["title"] = make_title(source)
    return Document(page_content=text, metadata=metadata)


def _parse_rich_text(source: str, data: bytes) -> list[Document]:
    from striprtf.striprtf import rtf_to_text

    if data.strip() and not data.lstrip().startswith(b"{\\rtf"):
        msg = "it does not begin as RTF does"
        raise ValueError(msg)
    # RTF escapes what is not in ASCII.
    text: str = rtf_to_text(data.decode("latin-1"), errors="ignore")  # type: ignore[no-untyped-call]
    return [Document(page_content=text, metadata={"source": source, "title": make_title(source)})]


def _parse_notebook(source: str, data: bytes) -> list[Document]:
    """Parse texts and code of a notebook to one document, without outputs."""
    notebook = json.loads(data)
    language = notebook.get("metadata", {}).get("kernelspec", {}).get("language", "python")
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(f"```{language}\n{text}\n```" if cell["cell_type"] == "code" else text)
    return [make_markdown(source, "\n\n".join(parts))]


def _parse_word(source: str, data: bytes) -> list[Document]:
    import mammoth

    require_unpacked_size(data)
    page = mammoth.convert_to_html(
        BytesIO(data), style_map=_WORD_STYLES, convert_image=lambda _image: []
    )
    return parse_html(source, page.value)


def _parse_pdf(source: str, data: bytes) -> Parts:
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(data))
    stated = reader.metadata.title if reader.metadata else None
    title = " ".join((stated or "").split()) or make_title(source)
    texts: dict[int, str] = {}
    for number in range(1, len(reader.pages) + 1):
        try:
            texts[number] = reader.pages[number - 1].extract_text()
        except Exception as error:
            raise_interruption(error)
            yield BadPart(f"page {number}", describe_failure(error))
    # A name leads to the first page alone.
    for number, text in zip(texts, _join_broken_words([*texts.values()]), strict=True):
        name = title if number == 1 else f"{title}, page {number}"
        metadata = {"source": source, "title": name, "page": number}
        yield Document(page_content=text, metadata=metadata)


_BROKEN = re.compile(r"(\w+)[-\u2010][ \t]*\n[ \t]*(\w+)")
_COMPOUND = re.compile(r"\w+(?:[-\u2010]\w+)+")


def _join_broken_words(pages: list[str]) -> list[str]:
    """Join the words of pages that a hyphen breaks at the end of a line.

    The hyphen stays in three cases: the file has the word within a line with the hyphen, and not
    without; it follows a single letter, which no typesetter leaves alone (e-mail); or a capital or
    a digit follows, where no word is broken (Anglo-Saxon). Otherwise it goes: most hyphens at the
    end of a line are those of broken words.
    """
    words, compounds = Counter[str](), set[str]()
    for page in pages:
        words.update(re.findall(r"\w+", page.lower()))
        compounds.update(_COMPOUND.findall(page.lower().replace("\u2010", "-")))

    def join(found: re.Match[str]) -> str:
        first, rest = found[1], found[2]
        is_compound = f"{first}-{rest}".lower() in compounds and not words[f"{first}{rest}".lower()]
        kept = len(first) == 1 or not (first[-1].isalpha() and rest[0].islower()) or is_compound
        return f"{first}-{rest}" if kept else f"{first}{rest}"

    return [_BROKEN.sub(join, page) for page in pages]


_PARSERS: dict[str, tuple[str, Callable[[str, bytes], Iterable[Document | BadPart]]]] = {
    ".ipynb": ("json", _parse_notebook),
    ".html": ("markdownify", parse_html),
    ".htm": ("markdownify", parse_html),
    ".xhtml": ("markdownify", parse_html),
    ".pdf": ("pypdf", _parse_pdf),
    ".docx": ("mammoth", _parse_word),
    ".rtf": ("striprtf", _parse_rich_text),
    ".xlsx": ("openpyxl", parse_workbook),
    ".csv": ("csv", parse_csv),
    ".tsv": ("csv", parse_csv),
    ".json": ("json", parse_json),
    ".jsonl": ("json", parse_json_lines),
    ".ndjson": ("json", parse_json_lines),
    ".eml": ("email", parse_mail),
    ".mbox": ("email", parse_mailbox),
}
"""Parsers by ending of the name, with the module that they need."""


_ENCODED = re.compile(
    r"(?<!\w)data:[a-z]+/[\w.+-]{1,100}(?:;[^,;\s\"'<>]{1,100}){0,8};base64,[A-Za-z0-9+/=]*",
    re.IGNORECASE,
)


def remove_encoded(text: str) -> str:
    """Remove ``data:`` URIs in base64 from a text; each ends before a table's delimiter."""
    return _ENCODED.sub("", text) if "base64," in text.lower() else text
