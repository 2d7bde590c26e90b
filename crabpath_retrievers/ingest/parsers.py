"""Parses files into documents by the ending of their names; see :mod:`.records` for some.

The parsers of HTML, PDF, Word, Excel and RTF come with the extra ``files``.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import PurePosixPath

from langchain_core.documents import Document

from crabpath_retrievers.core.calls import quiet_foreign_loggers
from crabpath_retrievers.core.extras import require_extra
from crabpath_retrievers.core.processes import raise_interruption
from crabpath_retrievers.errors import CrabPathError, InvalidInputError
from crabpath_retrievers.ingest.chunking import is_markdown, make_title
from crabpath_retrievers.ingest.pages import make_markdown, parse_html
from crabpath_retrievers.ingest.records import (
    BadPart,
    Parts,
    decode_text,
    describe_failure,
    parse_csv,
    parse_json,
    parse_json_lines,
    parse_mail,
    parse_mailbox,
    parse_workbook,
    require_unpacked_size,
)

_MOST_NAMED = 20  # parts of one file that cannot be read
# Mammoth knows headings, but not the paragraph style of a document's title.
_WORD_STYLES = "p[style-name='Title'] => h1:fresh"
_POINTER = b"version https://git-lfs.github.com/spec/"


def parse_file(source: str, data: bytes) -> tuple[list[Document], dict[str, str]]:
    """Parse the content of a file by the ending of its name; any other ending is text.

    Args:
        source: Path or address of the file; relative links in it are resolved against it.
        data: Its content.

    Returns:
        Documents with ``source`` and, but for Markdown, a title: one; of a PDF file one per page,
        with ``page`` from 1; of mail, JSON and Excel one per message, object and sheet. And why
        parts of it could not be read, by source and place.

    Raises:
        InvalidInputError: It is no text in UTF-8, the parser of its format refuses all of it or
            finds nothing in it, or it is what Git LFS leaves in place of a file.
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
    """Texts and code of a notebook, without outputs."""
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
    """The pages with the words whole that end a line with a hyphen.

    The hyphen stays where the file has the compound within a line, and not the word without it;
    behind a single letter, which no typesetter leaves alone (e-mail); and before a capital or a
    digit, where no word is broken (Anglo-Saxon). Elsewhere it goes: most hyphens at the end of a
    line are those of broken words.
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
