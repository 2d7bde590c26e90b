"""Splits documents into chunks, with ids derived from content, titles and link targets.

Before it is split, a text loses what is none: front matter, pictures in its code. Links in a text,
and the targets under which a document can be reached, are references. Documents without text, such
as blank pages, are skipped, with one warning.
"""

import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from io import StringIO
from itertools import pairwise
from pathlib import PurePosixPath
from posixpath import dirname, join, normpath
from typing import Any
from urllib.parse import unquote, urlsplit
from zlib import crc32

from langchain_core.documents import Document
from langchain_text_splitters import RecursiveCharacterTextSplitter, TextSplitter
from markdown_it import MarkdownIt
from pydantic_core import from_json, to_json
from typing_extensions import Self

from crabpath_retrievers.config import IngestSettings
from crabpath_retrievers.core.processes import raise_interruption
from crabpath_retrievers.core.query import parse_text, remove_answer_metadata
from crabpath_retrievers.core.records import Node, Vector
from crabpath_retrievers.core.terms import list_terms
from crabpath_retrievers.core.text import (
    HEADING_JOINT,
    IndexedWords,
    clean_text,
    describe_type,
    drop_repeated_title,
    hash_texts,
    is_blank,
    list_mention_names,
    prepend_title,
    to_plain,
    to_storable,
    to_texts,
    tokenise,
)
from crabpath_retrievers.errors import CrabPathError, DuplicateIdError, InvalidInputError
from crabpath_retrievers.storage.read.catalog import StoredChunk

# URLs may contain one pair of parentheses, as those of Wikipedia do.
_MARKDOWN_LINK = re.compile(
    r"\[[^\]\n]{0,300}\]\(\s*<?((?:[^()<>\s]|\([^()<>\s]{0,200}\)){1,500})>?(?:\s+[^)\n]{0,200})?\)"
)
_WIKI_LINK = re.compile(r"\[\[([^\]|#\n]{1,200})(?:[#|][^\]\n]{0,200})?\]\]")
_HTML_LINK = re.compile(r"""<a\s[^>]{0,500}?href\s*=\s*["']?([^"'>\s]{1,500})""", re.IGNORECASE)
_BARE_URL = re.compile(r"https?://(?:[^\s<>()\[\]\"']|\([^\s<>()\[\]\"']{0,200}\)){3,500}")
_MAX_TARGETS = 64
MAX_TARGET_CHARS = 500  # characters; databases index texts of bounded length only


def find_references(text: str, source: str) -> tuple[str, ...]:
    """Return the normalised targets of Markdown, wiki and HTML links and bare URLs in a text.

    Relative links are resolved against ``source``, the path or URL of its document.
    """
    found = {_name_page(name): None for name in _WIKI_LINK.findall(text)}
    for pattern in (_MARKDOWN_LINK, _HTML_LINK, _BARE_URL):
        for target in pattern.findall(text):
            address = _normalise_target(target, source)
            if address:
                found[address] = None
    return tuple(target for target in found if len(target) <= MAX_TARGET_CHARS)[:_MAX_TARGETS]


def collect_addresses(source: str, title: str, metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the targets that lead to a document: path or URL, and title for wiki links.

    These are ``source``, ``url`` and ``source`` in its metadata, and its title if it has one.
    """
    places = [source, *(str(metadata[key]) for key in ("url", "source") if metadata.get(key))]
    found = {_normalise_target(place, ""): None for place in places}
    if title:
        found[_name_page(title)] = None
    return tuple(address for address in found if address and len(address) <= MAX_TARGET_CHARS)


def _name_page(title: str) -> str:
    return f"wiki:{' '.join(tokenise(title))}"


def _normalise_target(target: str, source: str) -> str:
    """Normalise a link target, relative to ``source``; empty for anchors and foreign schemes."""
    try:
        parts = urlsplit(unquote(target.rstrip(".,;")))
    except ValueError:
        return ""
    if parts.scheme in ("http", "https"):
        path = parts.path.rstrip("/")
        query = f"?{parts.query}" if parts.query else ""
        return f"{parts.netloc.removeprefix('www.').lower()}{path}{query}"
    if parts.scheme not in ("", "file") or not parts.path:
        return ""
    base = urlsplit(source)
    if base.scheme in ("http", "https"):
        host = base.netloc.lower().removeprefix("www.")
        return host + normpath(join(dirname(base.path) or "/", parts.path)).rstrip("/")
    return normpath(join(dirname(source), parts.path))


_MOST_VALUES, _LONGEST_VALUE = 100, 300  # of a list in front matter; characters
# As in Pandoc, a block begins right below its first line; else that line is a horizontal rule.
_FRONT = re.compile(
    r"\A\ufeff?(?:---[ \t]*\r?\n(?=\S)(?P<yaml>.{0,16384}?)^(?:---|\.\.\.)"
    r"|\+\+\+[ \t]*\r?\n(?P<toml>.{0,16384}?)^\+\+\+)[ \t]*(?:\r?\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
_PAGE = r"!doctype\s+html|html|head|body"
_PART = r"div|p|table|tr|ul|ol|span|section|article|main|nav|header|h[1-6]"
_TAGS = {  # a text in Markdown may begin with the tag of a part of a page
    is_markdown: re.compile(rf"\s*(?:<\?xml[^>]*>\s*)?<(?:{names})\b[^>]*>", re.IGNORECASE)
    for is_markdown, names in ((True, _PAGE), (False, f"{_PAGE}|{_PART}"))
}


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Split a text into facts of its front matter (title, aliases, tags, date, day) and the rest.

    There are no facts if the block is above 16 KiB, or neither YAML nor TOML with keys: it then
    stays in the text.
    """
    block = _FRONT.match(text)
    if block is None:
        return {}, text
    found = _parse_yaml(block["yaml"]) if block["toml"] is None else _parse_toml(block["toml"])
    if not isinstance(found, Mapping):
        return {}, text
    values = {str(key).lower(): value for key, value in found.items()}
    facts: dict[str, Any] = {key: _to_line(values.get(key)) for key in ("title", "date")}
    facts["aliases"] = _to_list(values.get("aliases") or values.get("alias"))
    facts["tags"] = _to_list(values.get("tags") or values.get("keywords"))
    facts["day"] = find_day(facts["date"])
    return {key: value for key, value in facts.items() if value}, text[block.end() :]


def find_day(date: str) -> int | None:
    """Return the day of a date in ISO 8601 as a number that filters compare, such as 20240131.

    Any other date has none: the result is None.
    """
    try:
        return int(datetime.fromisoformat(date[:10]).strftime("%Y%m%d"))
    except ValueError:
        return None


def _parse_yaml(block: str) -> object:
    import yaml

    try:
        # All scalars stay text: "no" is a tag, and a date is no object.
        return yaml.load(block, yaml.BaseLoader) if block.strip() else {}  # noqa: S506
    except Exception:  # of a broken or too deep block
        return None


def _parse_toml(block: str) -> object:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(block.replace("\r\n", "\n"))
    except Exception:  # as above
        return None


def _to_line(value: object) -> str:
    """Format a scalar as text on one line; empty for any other value."""
    if value is None or isinstance(value, (Mapping, list)) or value in ("null", "~"):
        return ""
    return " ".join(str(value).split())[:_LONGEST_VALUE]


def _to_list(value: object) -> list[str]:
    """List the scalars of a list, or of a text with commas or, for tags of Jekyll, spaces."""
    if isinstance(value, str):
        value = value.split("," if "," in value else None)
    lines = map(_to_line, value[:_MOST_VALUES]) if isinstance(value, list) else ()
    return [line for line in lines if line]


def split_with_header(
    text: str, size: int, split_text: Callable[[str], Iterable[str]]
) -> Iterator[str]:
    """Split a Markdown text by size; every part of a table begins with the table's header.

    Where a table is cut depends on its rows, so that a new row only changes the part with this row.
    No piece has more than ``size`` characters, except a header above a longer row. ``split_text``
    splits text outside of tables, and rows that are too long.
    """
    if len(text) <= size or "|" not in text:
        yield from split_text(text)
        return
    lines, done = StringIO(text).readlines(), 0
    parsed = MarkdownIt().enable("table").disable("inline").parse(text)
    tables = [token.map for token in parsed if token.type == "table_open" and token.map]
    for start, end in tables:
        header, rows = "".join(lines[start : start + 2]), lines[start + 2 : end]
        # Within a list; without rows; or too wide to be repeated.
        if start < done or not rows or len(header) > size // 2:
            continue
        before = "".join(lines[done:start])
        if before.strip() and len(before) > size // 4:
            yield from split_text(before)
            before = ""
        for part in _group_rows(rows, size - len(header), split_text):
            yield f"{before}{header}{part}".strip()
            before = ""
        done = end
    if rest := "".join(lines[done:]).strip():
        yield from split_text(rest)


def _group_rows(
    rows: Sequence[str], size: int, split_text: Callable[[str], Iterable[str]]
) -> Iterator[str]:
    """Yield groups of rows of at most ``size`` characters, of more than half of it if possible.

    ``split_text`` splits a row that is longer.
    """
    begin = 0
    while begin < len(rows):
        used, end, cuts = 0, begin, list[int]()
        while end < len(rows) and used + len(rows[end]) <= size:
            used += len(rows[end])
            end += 1
            if used > size // 2:
                cuts.append(end)
        if end == begin:
            yield from split_text(rows[begin])
            end += 1
        elif end < len(rows):
            # The same rows are cut at the same place, wherever the group begins.
            end = min(cuts or [end], key=lambda cut: crc32(rows[cut - 1].encode()))
            yield "".join(rows[begin:end])
        else:
            yield "".join(rows[begin:])
        begin = end


_log = logging.getLogger(__name__)
_NOTE_ID = re.compile(r"(?:teaching|directive|correction|auto):[0-9a-f]{12,}")
_MAX_NAMED = 5  # documents named in the warning; the rest are counted
_MAX_LABEL_CHARS = 200  # the end of a path is kept: it tells more than its beginning


def describe_document(document: Document, node_id: str | None, number: int) -> str:
    """Describe a document to a person: its source and page, else its id, else its number."""
    metadata = document.metadata
    name = metadata.get("source") or metadata.get("file_path") or node_id
    label = repr(str(name)[-_MAX_LABEL_CHARS:]) if name else f"number {number}"
    if (page := metadata.get("page_label", metadata.get("page"))) is None:
        return label
    text = str(page)[:20]
    return f"{label} page {text if text.isprintable() else repr(text)}"


def name_first(labels: Sequence[str]) -> str:
    """Format the first five labels, and how many more there are."""
    more = len(labels) - _MAX_NAMED
    return ", ".join(labels[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


_MAX_KEY_CHARS = 600
_SPLIT_TAGS = ("h1", "h2", "h3", "h4")
_MARKDOWN_SUFFIXES = (".md", ".markdown", ".mdx")


@dataclass(frozen=True, slots=True)
class Chunking:
    """Chunking of documents: splitter, embedded text and metadata.

    Attributes:
        settings: Chunk size and overlap of the default splitters, in characters.
        splitter: The caller's own splitter; None chooses one by document type.
        split: False keeps every document as one chunk.
        metadata_keys: Metadata keys; documents with equal values are linked.
        vectors: Known unit vectors, shape ``[d]``, by id of a whole document.
    """

    settings: IngestSettings
    splitter: TextSplitter | None = None
    split: bool = True
    metadata_keys: tuple[str, ...] = ()
    vectors: Mapping[str, Vector] = field(default_factory=dict)

    def clean(self, documents: Iterable[Document]) -> list[Document]:
        """Remove what is not text from documents; warn once of those that begin with HTML tags.

        Front matter is added to the metadata of whole documents in Markdown or without a source;
        values that the metadata have already stay. ``data:`` URIs and soft hyphens are removed.
        """
        given, found, labels = list(documents), list[Document](), list[str]()
        for number, document in enumerate(given, 1):
            if not isinstance(document, Document):
                found.append(document)
                continue
            own, text = document.metadata, clean_text(document.page_content)
            source = str(own.get("source") or "")
            in_markdown = is_markdown(source, own)
            if _TAGS[in_markdown].match(text):
                labels.append(describe_document(document, document.id, number))
            facts: Mapping[str, Any] = {}
            if self.split and "start_index" not in own and (in_markdown or not source):
                facts, body = split_front_matter(text)
                text = body if in_markdown or facts else text
            if text != document.page_content:
                changes = {"page_content": text, "metadata": {**facts, **own}}
                document = document.model_copy(update=changes)  # noqa: PLW2901
            found.append(document)
        if labels:
            message = "%d of %d documents begin with tags of HTML, which are indexed as text: %s"
            _log.warning(message, len(labels), len(given), name_first(labels))
        return found

    def nodes(self, documents: Iterable[Document], ids: Sequence[str] | None = None) -> list[Node]:
        """As :meth:`make_nodes`, without the number of repetitions."""
        return self.make_nodes(documents, ids)[0]

    def make_nodes(
        self, documents: Iterable[Document], ids: Sequence[str] | None = None
    ) -> tuple[list[Node], int]:
        """Split documents into nodes; those without text are skipped with a warning.

        The same text with different metadata, as on two pages, makes two chunks.

        Args:
            documents: LangChain documents; ``id``, ``metadata["source"]``, ``["title"]`` and
                ``["aliases"]`` are used where present.
            ids: One id per document, instead of ``Document.id``. None keeps ``Document.id``.

        Returns:
            Nodes in document order, of which only those named in ``vectors`` have a vector; and
            how many texts are none, as they repeat another one of their document.

        Raises:
            InvalidInputError: An item is not a ``Document``, or the number of ids does not match.
            DuplicateIdError: One id is given to different texts.
        """
        given = list(documents)
        if ids is not None and len(ids) != len(given):
            msg = f"{len(ids)} ids for {len(given)} documents: pass one id per document"
            raise InvalidInputError(msg)
        found: dict[str, Node] = {}
        repeated = 0
        order: Counter[str] = Counter()
        named = list(_pair_with_ids(given, ids))
        blank = [
            describe_document(*pair, number)
            for number, pair in enumerate(named, 1)
            if is_blank(pair[0].page_content)
        ]
        if blank:
            message = "%d of %d documents have no text, left out: %s"
            _log.warning(message, len(blank), len(given), name_first(blank))
        with_text = (pair for pair in named if not is_blank(pair[0].page_content))
        for document, node_id in _drop_repeated_ids(with_text):
            for node in self._cut(document, node_id):
                chunk = node
                if node.id != node_id and node.id in found:  # another chunk has its text
                    own = make_metadata_id(node)
                    is_same = make_metadata_id(found[node.id]) == own
                    chunk = node if is_same else replace(node, id=own)
                if chunk.id not in found:
                    found[chunk.id] = replace(chunk, position=order[chunk.document])
                    order[chunk.document] += 1
                else:
                    repeated += 1
        return list(found.values()), repeated

    def _cut(self, document: Document, node_id: str | None) -> Iterator[Node]:
        text = to_storable(document.page_content)
        metadata = to_json_safe(remove_answer_metadata(document.metadata))
        source = str(metadata.get("source") or node_id or _digest(text))
        for what, value in (("id", node_id or ""), ("source", source)):
            if len(value) > _MAX_KEY_CHARS:  # of what databases index
                msg = (
                    f"the {what} {value[:40]!r}… has {len(value)} characters: "
                    f"give the document one of at most {_MAX_KEY_CHARS}"
                )
                raise InvalidInputError(msg)
        document_key = node_id or source
        pieces = list(self._split(text, source, metadata))
        if not pieces:
            msg = f"the splitter returned no text for document {node_id or source!r}"
            raise InvalidInputError(msg)
        title = str(metadata.get("title") or next((name for name, _ in pieces if name), ""))
        shared = (
            f"metadata:{key}={metadata[key]}" for key in self.metadata_keys if metadata.get(key)
        )
        described = json.dumps(metadata, sort_keys=True)
        joints = find_joints(text, [piece for _, piece in pieces])
        shared_targets = tuple(target for target in shared if len(target) <= MAX_TARGET_CHARS)
        for number, (heading, piece) in enumerate(pieces):
            name = heading
            aliases: tuple[str, ...] = ()
            addresses: tuple[str, ...] = ()
            full_title = heading if number and heading else title
            if title and full_title != title:
                full_title = f"{title}{HEADING_JOINT}{heading}"
            references = (*find_references(piece, source), *list_terms(full_title, piece))
            if number == 0:  # the document is mentioned and linked by its first chunk
                name, aliases = title, to_texts(metadata.get("aliases"))
                # Links to a file lead to its first page, which loaders count from 0 or from 1, and
                # to none of its entries, such as messages.
                page = metadata.get("page")
                is_later = "file_entry" in metadata or (isinstance(page, int) and page > 1)
                place, linked = ("", {**metadata, "source": ""}) if is_later else (source, metadata)
                addresses = (*collect_addresses(place, title, linked), *shared_targets)
                references = (*references, *shared_targets)
            names = list_mention_names(name, aliases)
            then, overlap = joints.get(piece, (None, 0))
            joint = () if then is None else (then, str(overlap))
            chunk_id = node_id if len(pieces) == 1 and node_id else _digest(document_key, piece)
            yield Node(
                id=chunk_id,
                document=document_key,
                source=source,
                content=piece,
                title=full_title,
                names=names,
                addresses=addresses,
                references=references,
                metadata=metadata,
                # Part of the digest: when the first chunk is removed, the next one inherits them.
                digest=_digest(piece, full_title, str((names, addresses)), described, *joint),
                then=then,
                overlap=overlap,
                vector=self.vectors.get(chunk_id),
            )

    def _split(
        self, text: str, source: str, metadata: Mapping[str, Any]
    ) -> Iterator[tuple[str, str]]:
        """Yield the pieces of a text as ``(heading, text)``; a heading may be empty."""
        if not self.split:
            yield "", text
        elif self.splitter is not None:
            yield from (("", piece) for piece in self.splitter.split_text(text))
        elif "start_index" in metadata:  # LangChain's splitters have cut it already
            yield "", text
        elif is_markdown(source, metadata):
            split_text, size = self._make_size_splitter().split_text, self.settings.chunk_size
            for heading, section in split_sections(text):
                for piece in split_with_header(section, size, split_text):
                    yield heading, piece
        elif len(text) <= self.settings.chunk_size:
            yield "", text
        else:
            yield from (("", piece) for piece in self._make_size_splitter().split_text(text))

    def _make_size_splitter(self) -> RecursiveCharacterTextSplitter:
        return RecursiveCharacterTextSplitter(
            chunk_size=self.settings.chunk_size, chunk_overlap=self.settings.chunk_overlap
        )


def collect_caller_ids(documents: Sequence[Document], ids: Sequence[str] | None) -> set[str]:
    """Return the cleaned ids that the caller gave to documents with text.

    ``ids`` come first, in the order of the documents; None takes those of the documents.
    """
    named = _pair_with_ids(documents, ids)
    return {
        name for document, name in named if name is not None and not is_blank(document.page_content)
    }


def has_caller_id(node: Node | StoredChunk) -> bool:
    """Whether the caller chose the id: then a whole document is one node with the document's id."""
    return node.id == node.document


def make_metadata_id(node: Node) -> str:
    """Derive a chunk id from text and metadata, for texts that repeat within a document."""
    return _digest(node.document, node.content, json.dumps(node.metadata, sort_keys=True))


def split_sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield the sections of a Markdown text, as ``(heading, text with its heading)``.

    A CommonMark parser finds headings of levels 1 to 4; the text itself is not changed. (The
    header splitter of langchain-text-splitters drops indentation, even inside code.)
    """
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = StringIO(plain).readlines()
    parsed = MarkdownIt().disable("inline").parse(plain)
    cuts = [
        (token.map[0], content.content)
        for token, content in pairwise(parsed)
        if token.type == "heading_open"
        and token.map
        and token.tag in _SPLIT_TAGS
        # A line underlined with dashes is more often front matter than a heading.
        and token.markup != "-"
    ]
    starts = [(0, ""), *cuts]
    ends = [*(line for line, _ in cuts), len(lines)]
    for (start, heading), end in zip(starts, ends, strict=True):
        yield heading, "".join(lines[start:end])


def is_markdown(source: str, metadata: Mapping[str, Any]) -> bool:
    """Whether a document is Markdown, by file name or declared content type."""
    declared = str(metadata.get("content_type") or metadata.get("mime_type") or "")
    return source.lower().endswith(_MARKDOWN_SUFFIXES) or "markdown" in declared


def to_json_safe(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Convert metadata to JSON values: dates, bytes and objects become text, NaN becomes None.

    Raises:
        InvalidInputError: The metadata contains itself, or a value cannot be converted to text.
    """
    try:
        return {to_storable(str(key)): _to_plain(value) for key, value in metadata.items()}
    except RecursionError as error:
        msg = "the metadata of a document contains itself: pass plain values"
        raise InvalidInputError(msg) from error
    except CrabPathError:
        raise
    except Exception as error:  # str() of a caller's object may raise anything
        raise_interruption(error)
        msg = f"the metadata of a document has no text ({error}): pass plain values"
        raise InvalidInputError(msg) from error


def _to_plain(given: Any) -> Any:
    value = to_plain(given)
    if isinstance(value, str):
        return to_storable(value)
    if isinstance(value, Mapping):
        return to_json_safe(value)
    if isinstance(value, (set, frozenset)):
        # The order of a set differs between runs; the digest must not.
        return sorted(map(_to_plain, value), key=str)
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int)):
        return value
    data = to_json(value, fallback=str, inf_nan_mode="null", bytes_mode="base64")
    found = from_json(data)
    return _to_plain(found) if isinstance(found, (str, dict, list)) else found


def make_embedding_text(node: Node) -> str:
    """Return the text to embed: title and content; content alone if the title begins it."""
    body = drop_repeated_title(node.title, node.content)
    begins = body == node.content and node.title in body[: len(node.title) + 80]
    return node.content if begins else prepend_title(node.title, node.content)


def make_title(path: str) -> str:
    """Make a title from a file name: no extension, dashes and underscores as spaces."""
    return re.sub(r"[-_]+", " ", PurePosixPath(path).stem).strip()


def _digest(*values: str) -> str:
    return hash_texts(*values)[:32]


def _pair_with_ids(
    documents: Sequence[Document], ids: Sequence[str] | None
) -> Iterator[tuple[Document, str | None]]:
    """Yield each document with the id that the caller gave it, cleaned; None without one.

    ``ids`` come first, in the order of the documents; None takes those of the documents.

    Raises:
        InvalidInputError: An item is not a ``Document``, or has the id of a note.
    """
    for index, document in enumerate(documents):
        if not isinstance(document, Document):
            kind = describe_type(document)
            msg = f"expected a LangChain Document, got {kind}: wrap the text in one"
            if kind.startswith("a llama_index."):
                msg += ", or use CrabPathRetriever of llama_index.retrievers.crabpath"
            raise InvalidInputError(msg)
        given = document.id if ids is None else ids[index]
        given = document.id if given is None else given
        node_id = None if given is None else parse_text("id", given) or None
        if node_id is not None and _NOTE_ID.fullmatch(node_id):
            # It would be answered in the place of the note, whose id its readers know.
            msg = f"{node_id!r} is an id that only notes have: give the document another one"
            raise InvalidInputError(msg)
        yield document, node_id


def _drop_repeated_ids(
    documents: Iterable[tuple[Document, str | None]],
) -> Iterator[tuple[Document, str | None]]:
    """Yield documents with their ids, each id once; documents without one are all kept.

    Raises:
        DuplicateIdError: One id is given to different texts.
    """
    texts: dict[str, str] = {}
    for document, node_id in documents:
        if node_id is None:
            yield document, None
        elif node_id not in texts:
            texts[node_id] = document.page_content
            yield document, node_id
        elif texts[node_id] != document.page_content:
            msg = f"two documents have the id {node_id!r} but different text: give each its own id"
            raise DuplicateIdError(msg)


@dataclass(slots=True)
class Part:
    """Chunks and counts of some whole documents.

    Attributes:
        nodes: Their chunks in order; those that the store holds unchanged have no vector.
        words: Words of the other chunks by digest.
        named: Ids that the caller gave.
        documents: Number of documents with text.
        blank: Number of documents without text.
        repeated: Number of texts that are no chunk, as they repeat another one of their document.
        embedded: Characters that were embedded.
        files: Number of files that were read, or could not be read.
        skipped: Why files, and parts of files, were not read, by source and place.
        left_out: Chunks without a usable vector, described.
    """

    nodes: list[Node] = field(default_factory=list)
    words: dict[str, IndexedWords] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    documents: int = 0
    blank: int = 0
    repeated: int = 0
    embedded: int = 0
    files: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, chunking: Chunking, documents: Sequence[Document], ids: Sequence[str] | None = None
    ) -> Self:
        """Split documents into a part, without embedding anything.

        ``ids`` has one id per document; None takes those of the documents.
        """
        nodes, repeated = chunking.make_nodes(documents, ids)
        blank = sum(is_blank(document.page_content) for document in documents)
        return cls(
            nodes,
            named=collect_caller_ids(documents, ids),
            documents=len(documents) - blank,
            blank=blank,
            repeated=repeated,
        )

    def extend(self, other: "Part") -> None:
        """Add another part behind this one; a chunk that is in both stays once.

        Raises:
            DuplicateIdError: The parts give one id to different texts.
        """
        known = {node.id: node for node in self.nodes}
        for given in other.nodes:
            node = given
            held = known.get(node.id)
            if held is not None and held.digest != node.digest:
                if has_caller_id(node):
                    msg = (
                        f"two documents have the id {node.id!r} but different text: "
                        "give each its own id"
                    )
                    raise DuplicateIdError(msg)
                if make_metadata_id(held) != make_metadata_id(node):
                    node = replace(node, id=make_metadata_id(node))
                    held = known.get(node.id)
            if held is None:
                known[node.id] = node
                self.nodes.append(node)
            else:
                self.repeated += 1
        self.words |= other.words
        self.named |= other.named
        self.documents += other.documents
        self.blank += other.blank
        self.repeated += other.repeated
        self.embedded += other.embedded
        self.files += other.files
        self.skipped |= other.skipped
        self.left_out += other.left_out


# Joining

_PARAGRAPH = "\n\n"
_MISSING = "\n\n[…]\n\n"
_SHARED = range(100, 9, -1)  # characters; fewer may be equal by chance
_LEAST = 1000  # characters of two chunks: shorter texts would have been one
_LEFT_OUT = 100  # characters at most that a splitter leaves out between two chunks
_BACK = 10  # lengths of a piece to look back for it, where the text repeats
_VISIBLE = re.compile(r"\S|\Z")


def join_chunks(chunks: Sequence[Node]) -> str:
    """Join chunks of a document, in order, to its text; "[…]" stands for parts that are missing.

    The text has the words of the document in their order; where two chunks meet, and at the ends,
    white space may differ. Of documents that were added before the chunks kept how they follow each
    other, a text that repeats stands there once.
    """
    parts = [_MISSING.lstrip() * bool(chunk.position) + chunk.content for chunk in chunks[:1]]
    for before, after in pairwise(chunks):
        then, overlap = _find_joint(before, after)
        parts += [then, after.content[overlap:]]
    return "".join((*parts, *((chunk.then or "").rstrip() for chunk in chunks[-1:])))


def find_joints(text: str, pieces: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Find how pieces of a text follow each other, where they do not say it themselves.

    Args:
        pieces: Its pieces in order; one that repeats is no piece of its own.

    Returns:
        By piece, the text between it and the next one, and the number of characters at the
        beginning of the next one that are not new.
    """
    if not any("\r" in piece for piece in pieces):  # those of Markdown have none
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    joints: dict[str, tuple[str, int]] = {}
    seen: set[str] = set()
    last, then, done = "", "", 0
    for piece in pieces:
        if (place := _find_place(text, piece, done)) is None:
            return joints
        start, end, head = place
        between, end = text[done:start], max(done, end)
        if piece in seen:
            then += between + text[max(done, start) : end]
        else:
            joint = (then + between, head + max(0, done - start))
            if last and not _is_plain(joint, last, piece):
                joints[last] = joint
            last, then = piece, ""
            seen.add(piece)
        done = end
    if then:
        joints[last] = (then + _PARAGRAPH, 0)
    return joints


def _find_place(text: str, piece: str, done: int) -> tuple[int, int, int] | None:
    """Find where a piece begins in a text of which all before ``done`` is in earlier pieces.

    Returns:
        Where it begins and ends, the last place that leaves no text out if there is any; and how
        many characters of the piece come before it, which are the header of a table. None if the
        piece is not there.
    """
    found = _VISIBLE.search(text, done)
    begin = len(text) if found is None else found.start()
    head = piece.find("\n", piece.find("\n") + 1) + 1  # after two lines; 0 if there are fewer
    places: list[tuple[int, int, int]] = []
    for size in (0, head):
        rest = piece[size:]
        start = text.rfind(rest, max(0, done - _BACK * len(rest)), begin + len(rest))
        if start >= 0 and rest and text.find(piece[:size], 0, done) >= 0:
            places.append((start, start + len(rest), size))
    if not places:  # rows of a table lose the space around them
        lines = [re.escape(line.strip()) for line in piece.split("\n")]
        last = begin + _LEFT_OUT + 2 * len(piece)
        if near := re.compile(r"[ \t]*\n[ \t]*".join(lines)).search(text, begin, last):
            places.append((*near.span(), 0))
    return max(places, key=lambda place: place[0] - place[2], default=None)


def _find_joint(before: Node, after: Node) -> tuple[str, int]:
    """Return the text between two chunks, and how much of the second one the first one has."""
    if after.position != before.position + 1:
        return (before.then or "").rstrip() + _MISSING, 0
    if before.then is not None:
        return before.then, before.overlap
    own, other = dict(before.metadata), dict(after.metadata)
    start, following = own.pop("start_index", None), other.pop("start_index", None)
    if own != other:  # other pages
        return _PARAGRAPH, 0
    if isinstance(start, int) and isinstance(following, int):  # chunks of LangChain's splitters
        shared = start + len(before.content) - following
        is_next = shared >= 0 and before.content.endswith(after.content[:shared])
        return ("", shared) if following and is_next else (_PARAGRAPH, 0)
    shared = _count_shared(before.content, after.content)
    return ("" if shared else _PARAGRAPH, shared)


def _is_plain(joint: tuple[str, int], before: str, after: str) -> bool:
    """Whether the texts of two chunks say how one follows the other."""
    then, overlap = joint
    shared = _count_shared(before, after)
    return overlap == shared and (not then if shared else then.isspace())


def _count_shared(before: str, after: str) -> int:
    """Count the characters at the end of a text with which the next one begins."""
    if len(before) + len(after) < _LEAST:
        return 0
    return next((size for size in _SHARED if before.endswith(after[:size])), 0)
