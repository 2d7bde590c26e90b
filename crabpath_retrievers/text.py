"""Tokens and names, split in one way for full text, term statistics and mentions."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

# Combining accents (NFD) and vowel signs of Indic scripts belong to a word, but Python's regular
# expressions do not count them as word characters.
_MARKS = "".join(
    chr(code)
    for block in (range(0x300, 0x3000), range(0xA600, 0xAC00), range(0xFE20, 0xFE30))
    for code in block
    if unicodedata.category(chr(code)).startswith("M")
)
# Scripts without spaces become one token per character; phrases still match.
# Escaped, since editors normalise U+F900 to U+8C48, which would extend the range to Hangul.
_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_SINGLE}]|[^\W{_SINGLE}](?:[^\W{_SINGLE}]|[{_MARKS}])*")
_QUALIFIER = re.compile(r"\s*[(（][^()（）]*[)）]\s*$")
_LONGEST_WORD = 64
# Characters that control a terminal: C0 except tab and newline, DEL, C1, bidirectional overrides;
# and lone surrogates, which cannot be encoded.
_UNPRINTABLE = re.compile(
    r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
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


def to_printable(text: str) -> str:
    """The text with \ufffd in place of each character that could control a terminal."""
    return _UNPRINTABLE.sub("\ufffd", text)


def is_blank(text: object) -> bool:
    """Whether a text or a name is None, or white space only when stored."""
    return text is None or (isinstance(text, str) and not to_storable(text).strip())


def format_value(value: object) -> str:
    """Any value for a message, at most 200 characters; its ``repr`` may fail."""
    try:
        return repr(value)[:_MAX_SHOWN]
    except Exception:
        return f"a {type(value).__name__}"


def normalise(text: str) -> str:
    """Compatibility decomposition (NFKD), case folded, without accents."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).casefold()


def split_words(text: str) -> Iterator[Word]:
    """The words of a text in order; each is cut at 64 characters."""
    ascii_only = text.isascii()
    for match in _WORD.finditer(text):
        surface = match.group()[:_LONGEST_WORD]
        capitalised = surface[0].isupper() or surface[0].isdigit()
        # One character can decompose into several words (½, ㍿, ﷺ).
        for token in [surface.lower()] if ascii_only else _WORD.findall(normalise(surface)):
            yield Word(token[:_LONGEST_WORD], capitalised, match.start(), match.end())


def tokenise(text: str) -> list[str]:
    """The normalised tokens of a text in order."""
    if text.isascii():
        return [word[:_LONGEST_WORD] for word in _WORD.findall(text.lower())]
    return [word.token for word in split_words(text)]


def hash_question(namespace: str, question: str) -> str:
    """Id of a query in a namespace: a hash of its tokens in order."""
    return sha256(f"{namespace}\n{' '.join(tokenise(question))}".encode()).hexdigest()[:32]


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
        for variant in (name, _QUALIFIER.sub("", name)):
            key = normalise_name(variant)
            if is_specific_name(key):
                keys[key] = None
    return tuple(keys)


def is_specific_name(key: str) -> bool:
    """Whether a name can identify a document: 3 to 200 characters, not a number."""
    return len(key) > 2 and not key.replace(" ", "").isdigit() and len(key) <= 200  # noqa: PLR2004
