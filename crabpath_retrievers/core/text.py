"""Tokens and names, split in one way for full text, term statistics and mentions.

Quoting untrusted text in a prompt.

Words as 16-bit codes, so that one table look-up finds the words of a query in a document.

Two words share a code with probability 1/65,536; a document may then seem to contain a word that
it does not contain.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256
from numbers import Integral, Real
from struct import pack
from textwrap import shorten
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

_SOFT_HYPHEN = "\u00ad"  # says where a word may be broken; it is no part of the word
# Combining accents (NFD) and vowel signs of Indic scripts belong to a word, but Python's regular
# expressions do not count them as word characters.
_MARKS = _SOFT_HYPHEN + "".join(
    chr(code)
    for block in (range(0x300, 0x3000), range(0xA600, 0xAC00), range(0xFE20, 0xFE30))
    for code in block
    if unicodedata.category(chr(code)).startswith("M")
)
# Scripts without spaces become one token per character; phrases still match.
# Escaped, since editors normalise U+F900 to U+8C48, which would extend the range to Hangul.
# In Korean particles hang on nouns, so each syllable is one, composed or as a run of its letters.
_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
_SYLLABLE = "[\u1100-\u115f][\u1160-\u11a7]*[\u11a8-\u11ff]*"
_LETTER = rf"[^\W{_SINGLE}\u1100-\u115f]"
# Endings by which Korean verbs of any meaning end a sentence ("does", "is done", "is"): no words.
_ENDINGS = frozenset(
    unicodedata.normalize(form, ending)
    for ending in (
        *("합니다", "합니까", "하나요", "한다", "해요", "됩니다", "됩니까", "되나요", "된다"),
        *("돼요", "입니다", "입니까", "이다"),
    )
    for form in ("NFC", "NFD")
)
_WORD = re.compile(
    rf"(?:{'|'.join(sorted(_ENDINGS))})(?!\w)|[{_SINGLE}]|{_SYLLABLE}"
    rf"|{_LETTER}(?:{_LETTER}|[{_MARKS}])*"
)
_ASCII_WORD = re.compile(r"\w+", re.ASCII)  # what _WORD finds in ASCII, in a third of the time
_ASCII_MARKED = re.compile(r"\b[a-z]*[A-Z0-9_]\w*", re.ASCII)
_QUALIFIER = re.compile(r"\s*[(（][^()（）]*[)）]\s*$")
LONGEST_WORD = 64
"""Characters of a word; the rest is cut off."""

_MAX_CACHED = 8192  # characters of a text whose tokens are cached: an ingest needs them four times
# Characters that control a terminal: C0 except tab and newline, DEL, C1, bidirectional overrides;
# lone surrogates, which cannot be encoded; and U+FFFE and U+FFFF, which XML refuses as well.
_UNPRINTABLE = re.compile(
    r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_INVISIBLE = ("Cc", "Cf")  # among them NUL, soft hyphens and zero-width spaces
_MAX_SHOWN = 200


class Word(NamedTuple):
    """A token, whether it is capitalised in the text, and its place there in characters."""

    token: str
    capitalised: bool
    start: int
    end: int


def to_storable(text: str) -> str:
    """The text without NUL and lone surrogates, which databases refuse."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


def to_name(text: str) -> str:
    """The text of a name as databases compare it: storable, and composed (NFC)."""
    return unicodedata.normalize("NFC", to_storable(text))


def remove_soft_hyphens(text: str) -> str:
    """The text with its words whole, also where a soft hyphen ends a line."""
    return _SOFT_BREAK.sub("", text) if _SOFT_HYPHEN in text else text


_SOFT_BREAK = re.compile(r"\u00ad+(?:[ \t]*\r?\n[ \t]*)?")


def to_plain(value: Any) -> Any:
    """A number of any library as Python's own, an array as a list; other values as they are.

    Args:
        value: Any; numpy's numbers, booleans and arrays, for example, fractions and decimals.
    """
    if value is None or isinstance(value, (str, Mapping)) or type(value) in (bool, int, float):
        return value
    try:
        if hasattr(value, "dtype") and getattr(value.dtype, "kind", "f") in "biufUO":
            return to_plain(value.tolist())
        if isinstance(value, Integral):
            return int(value)
        return float(value) if isinstance(value, (Real, Decimal)) else value
    except Exception:  # whatever an object of a caller raises
        return value


def is_number(value: object) -> bool:
    """Whether a value is a number of Python; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def to_printable(text: str) -> str:
    """The text with \ufffd in place of each character that could control a terminal."""
    return _UNPRINTABLE.sub("\ufffd", text)


def format_time(seconds: float) -> str:
    """A moment since 1970, to the minute in the time zone of this computer."""
    return f"{datetime.fromtimestamp(seconds, tz=timezone.utc).astimezone():%Y-%m-%d %H:%M}"


def find_first_line(text: str, longest: int = 100) -> str:
    """The first line that is no heading of Markdown, else the first; cut, with single spaces."""
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    first = next((line for line in lines if not line.lstrip().startswith("#")), lines[0])
    return shorten(first, longest, placeholder=" …")


def is_blank(text: object) -> bool:
    """Whether a text or a name is None, or nothing but white space and invisible characters."""
    if not isinstance(text, str):
        return text is None
    return all(c.isspace() or unicodedata.category(c) in _INVISIBLE for c in text)


def format_value(value: object) -> str:
    """Any value for a message, at most 200 characters; its ``repr`` may fail."""
    try:
        return repr(value)[:_MAX_SHOWN]
    except Exception:
        return f"a {type(value).__name__}"


def normalise(text: str) -> str:
    """Compatibility decomposition (NFKD), case folded, without accents and soft hyphens."""
    decomposed = unicodedata.normalize("NFKD", text.replace(_SOFT_HYPHEN, ""))
    return "".join(c for c in decomposed if not unicodedata.combining(c)).casefold()


def split_words(text: str, *, marked: bool = False) -> Iterator[Word]:
    """The words of a text in order; each is cut at 64 characters.

    Args:
        text: Any text.
        marked: Leave out words that consist of lower-case letters.
    """
    in_ascii = _ASCII_MARKED if marked else _ASCII_WORD
    for segment, offset in _split_segments(text):
        for match in (in_ascii if segment.isascii() else _WORD).finditer(segment):
            surface = match.group()[:LONGEST_WORD]
            if marked and surface.islower() and surface.isalpha():
                continue
            capitalised = surface[0].isupper() or surface[0].isdigit()
            start, end = match.span()
            if surface.isascii():
                yield Word(surface.lower(), capitalised, offset + start, offset + end)
                continue
            for token in _split_surface(surface):
                yield Word(token, capitalised, offset + start, offset + end)


def _split_segments(text: str) -> Iterator[tuple[str, int]]:
    """Cut a text at spaces, and yield each part with its place: most of it is ASCII, which is fast.

    No word goes on after a space.
    """
    if text.isascii():
        yield text, 0
        return
    begin = end = 0  # of a run in ASCII
    for part in text.split(" "):
        if not part.isascii():
            if begin < end:
                yield text[begin:end], begin
            yield part, end
            begin = end + len(part) + 1
        end += len(part) + 1
    if begin < end:
        yield text[begin:end], begin


def tokenise(text: str) -> list[str]:
    """The normalised tokens of a text in order."""
    return list(_tokenise_cached(text) if len(text) <= _MAX_CACHED else _tokenise(text))


def _tokenise(text: str) -> tuple[str, ...]:
    tokens: list[str] = []
    for segment, _ in _split_segments(text):
        if segment.isascii():
            found = _ASCII_WORD.findall(segment.lower())
            tokens += [word[:LONGEST_WORD] for word in found]
            continue
        for surface in _WORD.findall(segment):
            if surface.isascii():
                tokens.append(surface[:LONGEST_WORD].lower())
            else:
                tokens += _split_surface(surface[:LONGEST_WORD])
    return tuple(tokens)


@lru_cache(maxsize=16_384)
def _split_surface(surface: str) -> tuple[str, ...]:
    """The tokens of a word with accents; one character can make several words (½, ㍿, ﷺ)."""
    if surface in _ENDINGS:
        return ()
    return tuple(token[:LONGEST_WORD] for token in _WORD.findall(normalise(surface)))


_tokenise_cached = lru_cache(maxsize=512)(_tokenise)


def hash_question(namespace: str, question: str) -> str:
    """Id of a query in a namespace: a hash of its tokens in order, or of a text without any."""
    words = " ".join(tokenise(question)) or question.strip()
    return sha256(f"{namespace}\n{words}".encode(errors="surrogatepass")).hexdigest()[:32]


def prepend_title(title: str, content: str) -> str:
    """The title and the text; the text alone if it begins with the title."""
    return content if content.startswith(title) else f"{title}\n{content}"


def normalise_name(name: str) -> str:
    """The stored form of a name: its tokens, joined by single spaces."""
    return " ".join(tokenise(name))


def list_mention_names(title: str, aliases: Sequence[str] = ()) -> tuple[str, ...]:
    """Names by which a text may mention a document, with and without qualifiers in brackets."""
    keys: dict[str, None] = {}
    for name in (title, *aliases):
        short = " ".join(name.split())  # in long white space a match would take quadratic time
        for variant in (name, _QUALIFIER.sub("", short)):
            key = normalise_name(variant)
            if is_specific_name(key):
                keys[key] = None
    return tuple(keys)


def is_specific_name(key: str) -> bool:
    """Whether a name can identify a document: 3 to 200 characters, not a number."""
    return len(key) > 2 and not key.replace(" ", "").isdigit() and len(key) <= 200  # noqa: PLR2004


_ESCAPED = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>\x85\u2028\u2029"}


def quote_as_json(value: Any) -> str:
    """The value as JSON on one line without angle brackets, so that it contains no tag."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPED)


Floats = NDArray[np.float64]

_CODE = np.dtype("<u2")
_CODES = 1 << 16
_ABSENT = 255


def encode_terms(words: Iterable[str]) -> bytes:
    """The distinct words of a text as sorted codes of two bytes each."""
    codes = sorted(set(map(_code, set(words))))
    return pack(f"<{len(codes)}H", *codes)


@lru_cache(maxsize=65_536)
def _code(word: str) -> int:
    return crc32(word.encode()) % _CODES


class IndexedWords(NamedTuple):
    """What full text, statistics of words and ranking keep of a text: it is tokenised once.

    Attributes:
        tokens: Its tokens in order, with a space between.
        terms: Its distinct words as from :func:`encode_terms`.
    """

    tokens: str
    terms: bytes

    @classmethod
    def from_text(cls, title: str, content: str) -> "IndexedWords":
        """The words of a title and a text."""
        tokens = tokenise(prepend_title(title, content))
        return cls(" ".join(tokens), encode_terms(tokens))


class QueryInformation(NamedTuple):
    """Words of a query and their information, i.e. inverse document frequency (BM25 idf).

    Attributes:
        words: Distinct words of the query that occur in the corpus, at most 255.
        nats: Inverse document frequency of each word, shape ``[Q]``, in nats.
    """

    words: tuple[str, ...]
    nats: Floats

    @classmethod
    def from_idf(cls, idf: Mapping[str, float]) -> "QueryInformation":
        """From inverse document frequencies by word, the first 255 of them."""
        first = dict(list(idf.items())[:_ABSENT])
        return cls(tuple(first), np.array(list(first.values()), dtype=np.float64))

    @property
    def total(self) -> float:
        """Total information of the query, in nats."""
        return float(self.nats.sum())

    def find_words(self, packed: Sequence[bytes]) -> Floats:
        """Which texts contain which words of the query, 1 or 0, shape ``[n, Q]``.

        Args:
            packed: Words of ``n`` texts as from :func:`encode_terms`.
        """
        column = np.full(_CODES, _ABSENT, dtype=np.uint8)
        column[[_code(word) for word in self.words]] = np.arange(len(self.words))
        columns = column.take(np.frombuffer(b"".join(packed), dtype=_CODE))
        known = np.flatnonzero(columns != _ABSENT)
        ends = np.cumsum([len(codes) // _CODE.itemsize for codes in packed])
        present = np.zeros((len(packed), len(self.words)))
        present[np.searchsorted(ends, known, side="right"), columns[known]] = 1.0
        return present
