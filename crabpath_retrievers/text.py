"""Words and names, cut the same way everywhere: full text, term statistics, mentions."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

# Accents that stand apart (NFD) and the vowel signs of Indic scripts belong to their word; to the
# regular expressions of Python they are no word characters.
_MARKS = "".join(
    chr(code)
    for block in (range(0x300, 0x3000), range(0xA600, 0xAC00), range(0xFE20, 0xFE30))
    for code in block
    if unicodedata.category(chr(code)).startswith("M")
)
# Scripts that are written without spaces become one token per character; phrases still match.
# Escaped: an editor that composes text would turn U+F900 into U+8C48, and Hangul would fall in.
_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_SINGLE}]|[^\W{_SINGLE}](?:[^\W{_SINGLE}]|[{_MARKS}])*")
_QUALIFIER = re.compile(r"\s*[(（][^()（）]*[)）]\s*$")
_LONGEST_WORD = 64
# What moves the cursor, writes elsewhere or turns text around: C0 without tab and newline, DEL, C1,
# directions that override; and lone surrogates, which no terminal takes.
_UNPRINTABLE = re.compile(
    r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_LONGEST_SHOWN = 200


class Word(NamedTuple):
    """A token with what its surface tells: whether it was capitalised and where it stood."""

    token: str
    capitalised: bool
    start: int
    end: int


def storable(text: str) -> str:
    """Text that every database stores: no NUL, no lone surrogates."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


def printable(text: str) -> str:
    """Text that a terminal shows and does not obey: \ufffd stands for each control character."""
    return _UNPRINTABLE.sub("\ufffd", text)


def is_blank(text: object) -> bool:
    """Whether a text or a name says nothing: None, or nothing but white space would be stored."""
    return text is None or (isinstance(text, str) and not storable(text).strip())


def shown(value: object) -> str:
    """Any value as messages show it: what somebody passed may have no text of its own."""
    try:
        return repr(value)[:_LONGEST_SHOWN]
    except Exception:
        return f"a {type(value).__name__}"


def normalise(text: str) -> str:
    """Compatibility form, case folded, without accents."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).casefold()


def words(text: str) -> Iterator[Word]:
    """The words of a text in order. Words above 64 characters are cut: they are no words."""
    plain = text.isascii()
    for match in _WORD.finditer(text):
        surface = match.group()[:_LONGEST_WORD]
        capitalised = surface[0].isupper() or surface[0].isdigit()
        # The compatibility form of one character can hold several words (½, ㍿, ﷺ).
        for token in [surface.lower()] if plain else _WORD.findall(normalise(surface)):
            yield Word(token[:_LONGEST_WORD], capitalised, match.start(), match.end())


def tokens(text: str) -> list[str]:
    """The normalised tokens of a text in order."""
    if text.isascii():
        return [word[:_LONGEST_WORD] for word in _WORD.findall(text.lower())]
    return [word.token for word in words(text)]


def question_id(namespace: str, question: str) -> str:
    """Identity of a question of a namespace: that of its words in their order."""
    return sha256(f"{namespace}\n{' '.join(tokens(question))}".encode()).hexdigest()[:32]


def titled(title: str, content: str) -> str:
    """A text with its title, which is not repeated where the text begins with it."""
    return content if content.startswith(title) else f"{title}\n{content}"


def name_key(name: str) -> str:
    """A name as it is stored and compared: its tokens, joined by single spaces."""
    return " ".join(tokens(name))


def names_of(title: str, aliases: Sequence[str] = ()) -> tuple[str, ...]:
    """Names under which a text may mention a document, without parenthesised qualifiers."""
    found: dict[str, None] = {}
    for name in (title, *aliases):
        for variant in (name, _QUALIFIER.sub("", name)):
            key = name_key(variant)
            if is_telling(key):
                found[key] = None
    return tuple(found)


def is_telling(key: str) -> bool:
    """Whether a name can point at one document: not empty, not a number, not a letter or two."""
    return len(key) > 2 and not key.replace(" ", "").isdigit() and len(key) <= 200  # noqa: PLR2004
