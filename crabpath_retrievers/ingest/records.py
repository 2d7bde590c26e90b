"""Parses files of many records: mail, JSON, and tables.

The records of one file share its source. Where each has a ``file_entry`` in its metadata, a link to
the file leads to none of them.
"""

import csv
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import EmailPolicy
from email.utils import parsedate_to_datetime
from functools import partial
from hashlib import sha256
from io import BytesIO, StringIO
from itertools import chain, starmap
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast
from zipfile import ZipFile

from langchain_core.documents import Document
from pydantic_core import from_json, to_json

from crabpath_retrievers.core.extras import require_extra
from crabpath_retrievers.core.processes import raise_interruption
from crabpath_retrievers.core.text import remove_encoded
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.chunking import make_title, name_first
from crabpath_retrievers.ingest.cleaning import find_day
from crabpath_retrievers.ingest.pages import make_markdown, parse_html
from crabpath_retrievers.ingest.tables import format_table

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
    """The documents of one part of a file; or the part, where its parser fails in any way."""
    try:
        yield from read()
    except Exception as error:  # parsers of foreign formats raise anything
        raise_interruption(error)
        yield BadPart(place, describe_failure(error))


def describe_failure(error: Exception) -> str:
    """Message of a parser's error, on one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def decode_text(data: bytes) -> str:
    """Decode a text in UTF-8, or with a mark of UTF-16.

    Raises:
        InvalidInputError: It is no such text.
    """
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
    """Refuse an archive, as of Word and Excel, that unpacks to more than 512 MiB.

    Raises:
        InvalidInputError: It does.
    """
    with ZipFile(BytesIO(data)) as archive:
        size = sum(file.file_size for file in archive.infolist())
    if size > _LARGEST_UNPACKED:
        msg = f"it unpacks to {size:,} bytes, above {_LARGEST_UNPACKED:,}"
        raise InvalidInputError(msg)


def parse_mail(source: str, data: bytes) -> list[Document]:
    """One document of a message: its text, and those of its attachments that are text."""
    message = _parse_message(data)
    if data.strip() and not message.keys():
        msg = "it does not begin with headers"
        raise ValueError(msg)
    return [_convert_message(source, message)]


def parse_mailbox(source: str, data: bytes) -> Parts:
    """One document per message of a mailbox; each begins below a line From, sender and date."""
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
    """Decode a text in what it states, else UTF-8 or marked UTF-16, else Windows-1252."""
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
    """The parts that are text; of a text in several forms the plain one, else the last."""
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
    """The ending of a file with what a part of a message holds."""
    if ending := _ENDINGS.get(part.get_content_type()):
        return ending
    try:
        return PurePosixPath(part.get_filename() or "").suffix.lower()
    except Exception:  # the parser of a damaged header raises anything
        return ""


def parse_json(source: str, data: bytes) -> list[Document]:
    """One document per object of a list; else one, in whose text nothing is escaped."""
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
    """JSON as editors write it, without its comments and the commas behind the last items."""
    for pattern in (_COMMENT, _LAST_COMMA):
        text = pattern.sub(lambda found: found[1] or "", text)
    return text


def parse_json_lines(source: str, data: bytes) -> Parts:
    """One document per line of a file of JSON lines."""
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
    """The scalars of a value of JSON, each behind the keys that lead to it."""
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
    """The table of a CSV file as Markdown."""
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
    """A line in UTF-8, or else in what Excel writes on Windows in Europe."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("cp1252", "replace")


def parse_workbook(source: str, data: bytes) -> Parts:
    """The tables of a workbook of Excel as Markdown, one document per sheet with any."""
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
