"""Texts: what is stored of them, and their tokens and names.

They are split in one way for full text, term statistics and mentions. Pictures and other ``data:``
URIs are taken out of documents, questions, notes and answers. Untrusted text is quoted in prompts.

Words have codes of 16 bits, so that one table look-up finds the words of a query in a document.
Two words share a code with probability 1/65,536; a document may then seem to contain a word that
it does not contain.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from numbers import Integral, Real
from struct import pack
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.core.language import (
    detect_language,
    find_script,
    find_stem,
    find_word_starts,
    has_compounds,
    has_stems,
    is_frequent,
)

_SOFT_HYPHEN = "\u00ad"  # says where a word may be broken; it is no part of the word
# Combining accents (NFD) and vowel signs of Indic scripts belong to a word, but Python's regular
# expressions do not count them as word characters.
_JOINER = "\u200d"  # shapes letters of Indic scripts; it is no letter
_MARKS = (
    _SOFT_HYPHEN
    + _JOINER
    + "".join(
        chr(code)
        for block in (range(0x300, 0x3000), range(0xA600, 0xAC00), range(0xFE20, 0xFE30))
        for code in block
        if unicodedata.category(chr(code)).startswith("M")
    )
)
# Scripts without spaces become one token per character with its marks; phrases still match.
# Escaped, since editors normalise U+F900 to U+8C48, which would extend the range to Hangul.
# In Korean particles hang on nouns, so each syllable is one, composed or as a run of its letters.
_SINGLE = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
_SINGLE += "\U00020000-\U0003ffff" + "".join(  # Thai and Lao, Burmese, Khmer
    chr(code)
    for block in (range(0xE00, 0xF00), range(0x1000, 0x10A0), range(0x1780, 0x17E0))
    for code in block
    if unicodedata.category(chr(code)) in ("Lo", "Lm")
)
_SYLLABLE = "[\u1100-\u115f][\u1160-\u11a7]*[\u11a8-\u11ff]*"
_CHARACTER = rf"[{_SINGLE}][{_MARKS}\u3099\u309a]*|{_SYLLABLE}"
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
    rf"(?:{'|'.join(sorted(_ENDINGS))})(?!\w)|{_CHARACTER}|{_LETTER}(?:{_LETTER}|[{_MARKS}])*"
)
_RUN = re.compile(rf"(?:{_CHARACTER})+")
# Accents of Latin, Greek and Cyrillic, and the points of Arabic and Hebrew, which are optional;
# marks of other scripts change the word.
_ACCENTS = dict.fromkeys(
    code
    for block in (
        *(range(0x300, 0x370), range(0x483, 0x488), range(0x591, 0x5C8), range(0x64B, 0x660)),
        *(range(0x670, 0x671), range(0x6D6, 0x6EE), range(0x1AB0, 0x1B00)),
        *(range(0x1DC0, 0x1E00), range(0x20D0, 0x2100), range(0xFE20, 0xFE30)),
    )
    for code in block
    if unicodedata.combining(chr(code))
)
# Letters of Latin with a stroke, and ligatures, which Unicode does not take apart.
_FOLDED: dict[int, str] = {
    **str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ı": "i"}),
    **str.maketrans({"æ": "ae", "œ": "oe", "þ": "th"}),
    **{
        code: str(unicodedata.digit(chr(code)))
        for code in range(0x660, 0x1000)
        if unicodedata.category(chr(code)) == "Nd"
    },
}
_FOLDED |= {0x643: "ک", 0x64A: "ی", 0x649: "ی"}  # keyboards of Arabic and Persian differ
_UNSEEN = str.maketrans("", "", _SOFT_HYPHEN + _JOINER)
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
    """Remove NUL and lone surrogates from a text, which databases refuse."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


def to_name(text: str) -> str:
    """Normalise a name as databases compare it: storable, and composed (NFC)."""
    return unicodedata.normalize("NFC", to_storable(text))


def clean_text(text: str) -> str:
    """Remove soft hyphens and ``data:`` URIs from a text; the name of a picture stays."""
    # Words are whole, also where a soft hyphen ends a line.
    return remove_pictures(_SOFT_BREAK.sub("", text) if _SOFT_HYPHEN in text else text)


_SOFT_BREAK = re.compile(r"\u00ad+(?:[ \t]*\r?\n[ \t]*)?")


def to_plain(value: Any) -> Any:
    """Convert numbers of any library to Python's own, arrays to lists; return other values.

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
    """Replace each character that could control a terminal by �."""
    return _UNPRINTABLE.sub("\ufffd", text)


def format_time(seconds: float) -> str:
    """Format seconds since 1970 to the minute, in the time zone of this computer."""
    return f"{datetime.fromtimestamp(seconds, tz=timezone.utc).astimezone():%Y-%m-%d %H:%M}"


def find_first_line(text: str, longest: int = 100) -> str:
    """Find the first line that is no Markdown heading; without one, the first line.

    The line is cut at ``longest`` characters, with single spaces.
    """
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    first = next((line for line in lines if not line.lstrip().startswith("#")), lines[0])
    return shorten_text(first, longest)


def shorten_text(text: str, longest: int) -> str:
    """Join a text by single spaces and cut it after at most ``longest`` characters.

    A text that is cut ends in "…". The cut is between words, or anywhere in a script that does not
    separate words.
    """
    line = " ".join(text[: 10 * longest].split())
    if len(line) <= longest and len(text) <= 10 * longest:
        return line
    kept = line[: longest - 1]
    return f"{kept[: kept.rfind(' ', longest // 2) + 1] or kept}…"


def is_blank(text: object) -> bool:
    """Whether a text or a name is None, or white space, invisible characters and pictures alone."""
    if not isinstance(text, str):
        return text is None
    return all(c.isspace() or unicodedata.category(c) in _INVISIBLE for c in remove_pictures(text))


def format_value(value: object) -> str:
    """Format any value for a message, in at most 200 characters; its ``repr`` may fail."""
    try:
        return repr(value)[:_MAX_SHOWN]
    except Exception:
        return f"a {type(value).__name__}"


def to_texts(value: object) -> tuple[str, ...]:
    """Return the texts that a metadata value is or lists; none of any other value."""
    if isinstance(value, str):
        return (value,)
    return tuple(map(str, value)) if isinstance(value, (list, tuple)) else ()


def describe_type(value: object) -> str:
    """Name the kind of a value, for a message that must not show its contents."""
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")


def normalise(text: str) -> str:
    """Normalise a text: NFKC, case folded, without accents, points and soft hyphens.

    Marks of other scripts than Latin, Greek, Cyrillic, Arabic and Hebrew stay.
    """
    decomposed = unicodedata.normalize("NFKD", text.translate(_UNSEEN))
    folded = decomposed.translate(_ACCENTS).casefold().translate(_FOLDED)
    return unicodedata.normalize("NFC", folded)


def split_words(text: str, *, marked: bool = False) -> Iterator[Word]:
    """Yield the words of a text in order; each is cut at 64 characters.

    With ``marked``, words of lower-case letters are left out.
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
    """Yield the parts of a text between spaces, each with its place: most are ASCII, and fast.

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
    """Split a text into its normalised tokens, in order."""
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
    """Split a word with accents into tokens; one character can make several words (½, ㍿, ﷺ)."""
    if surface in _ENDINGS:
        return ()
    return tuple(token[:LONGEST_WORD] for token in _WORD.findall(normalise(surface)))


_tokenise_cached = lru_cache(maxsize=512)(_tokenise)

# Signs that tell a word from another one: behind it, as in "C++", "F#", "Google+" and "A*"; before
# it, as in ".NET", "-O2", "$HOME" and "@Bean"; and a comparison with a number, as in "> 5". None
# are those of Markdown, HTML, prices, addresses and sums. The first sign finds the place fast.
_NOT_BEFORE = r"\w\-.)\]}>+@$<&#:;\\~!%^"
_AHEAD = rf"(?<![{_NOT_BEFORE}].)"
_NAME = r"[A-Za-z][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*(?!\w)"
_COMPARED = r"(?<![^\s(|].)=?(?:(?<!\n>) )?[0-9]+(?:[.,][0-9]+)*"
_SIGNED = re.compile(
    r"\+(?P<plus>(?<=[A-Za-z].)(?:\+(?![A-Za-z_+])|(?=[\"'`*_]*(?:[\s,.;:!?)\]/]|$))))"
    r"|#(?P<hash>(?<=[A-Za-z].)(?:(?![A-Za-z0-9_#])|(?<=\b[A-Za-z].)(?=\d)))"
    r"|\*(?<=\b[A-Za-z].)(?<!\*[A-Za-z].)(?![\w*])"
    rf"|\.(?=[A-Za-z]{{2}}){_AHEAD}(?<![\"'].){_NAME}|-(?=[A-Za-z-]){_AHEAD}-?{_NAME}"
    rf"|@{_AHEAD}{_NAME}|\${_AHEAD}\{{?[A-Z_][A-Z0-9_]+(?!\w)"
    rf"|<{_COMPARED}|>{_COMPARED}|≤{_COMPARED}|≥{_COMPARED}"
)
# Full text and databases take these signs for letters, and no token has them: it is in NFKC.
_WIDE = str.maketrans({sign: chr(ord(sign) + 0xFEE0) for sign in "-+#*.,$@<>="})
_WIDE |= {ord(" "): "", ord("{"): "", ord("≤"): "＜＝", ord("≥"): "＞＝"}
_NARROW = dict.fromkeys(map(ord, "－＋＃＊．，＄＠＜＞＝"), "")
_USUAL = {sign: sign - 0xFEE0 for sign in _NARROW}


def _split_signed(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a text into its tokens with signs, and further words that its signs make.

    Of "C++ -O2" the tokens are "c++" and "o2", the further words "c" and "-o2"; signs are wide.
    """
    words: list[str] = []
    more: list[str] = []
    end = 0
    for match in _SIGNED.finditer(text):
        sign = match.group()
        if match.lastgroup:
            words += _tokenise(text[end : match.start()])
            end = match.end()
            more.append(words[-1])
            words[-1] = words[-1][: LONGEST_WORD - 2] + sign.translate(_WIDE)
        else:
            letter = text[match.start() - 1] if sign == "*" else ""
            more.append(f"{letter}{sign}".lower().translate(_WIDE)[:LONGEST_WORD])
    return (*words, *_tokenise(text[end:])) if end else tuple(tokenise(text)), tuple(more)


_split_signed_cached = lru_cache(maxsize=512)(_split_signed)


def _narrow_signs(text: str) -> str:
    """Replace the wide signs of Japanese keyboards and of stored names by usual ones."""
    return text if text.isascii() else text.translate(_USUAL)


def _mark_signs(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    text = _narrow_signs(text)
    return (_split_signed_cached if len(text) <= _MAX_CACHED else _split_signed)(text)


def has_signs(text: str) -> bool:
    """Whether a text has words that differ from others only by signs, such as "C++"."""
    return _SIGNED.search(_narrow_signs(text)) is not None


def list_distinct_words(text: str) -> list[str]:
    """List the tokens of a text, and words with signs besides: "C#" is "c" and "c＃"."""
    words, more = _mark_signs(text)
    return [*words, *more]


def list_name_words(text: str) -> list[str]:
    """List the tokens of a text in order, with signs that make them other words: "c＋＋"."""
    return list(_mark_signs(text)[0])


# Where an identifier goes on: "26.3.19", "1013-E60", "http.server.port", "read_timeout", "ReadMe".
_SEAM = re.compile(r"[a-z][A-Z]|[.:/_-]\w")
_JOINED = re.compile(r"\w{1,64}(?:(?:[.:/]{1,2}|-)\w{1,64})*")
_HYPHENATED = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")  # "well-known" is no identifier
_NEGATIONS = frozenset(
    (
        *("no", "not", "non", "without", "never", "cannot", "neither", "nor", "except"),
        *("nicht", "kein", "keine", "keinen", "keinem", "keiner", "ohne", "nie", "niemals"),
        *("ne", "pas", "sans", "jamais", "sin", "nunca", "senza", "sem", "nao"),
        *("niet", "geen", "zonder", "nooit", "inte", "utan", "ikke", "uden", "uten", "bez"),
        *("ilman", "fara", "не", "без", "нет"),
    )
)
_CONTRACTED = re.compile(r"n['\u2019]t\b", re.IGNORECASE)
_ALIKE = 0.5  # share of the words of two questions that are opposite
_SHORTEST_PLURAL = 3  # letters of a word that is none
_SAMPLE = 20_000  # characters by which a language is detected
_DEFAULT = "de"  # language of which a query has forms that is too short to tell
_FEW_IDENTIFIERS = 3  # of a text, whose parts are always found
_SHARE_OF_CODE = 0.05  # identifiers per token of a text from which it is code
_SMALL, _CAPITAL = "[a-zß-öø-ÿа-яё]", "[A-ZÀ-ÖØ-ÞА-ЯЁ]"
_HUMP = re.compile(_SMALL + _CAPITAL)
_PART = re.compile(rf"{_CAPITAL}+(?!{_SMALL})|{_CAPITAL}?{_SMALL}+|\d+")
_ANY_WORD = re.compile(r"\w+")


def list_searched_words(text: str, language: str | None = None) -> list[str]:
    """List the words by which a text is found: its tokens, and other forms of its words.

    "C#" is "c" and a word of its own, and so are "C++", "-O2", ".NET" and "> 5". Two neighbouring
    characters of a script without spaces, and two syllables of Korean, are a word. "26.3.19" is
    also "26_3_19"; "read_timeout" and "ReadTimeout" are also "read", "timeout", but not in code,
    where nearly every word has parts. Words of other languages than English have forms, see
    :func:`_list_forms`. ``language`` None detects the language.
    """
    tokens = list_distinct_words(text)
    if not text.isascii():
        tokens += [a + b for run in _find_runs(text) for a, b in pairwise(run)]
    detected = None if language else detect_language(text[:_SAMPLE], tokens)
    forms = _list_forms(text, language, detected)
    return tokens + _list_identifiers(text, len(tokens)) + forms


@lru_cache(maxsize=8192)
def fold_plural(word: str) -> str:
    """Return the singular of a regular English plural; any other word as it is."""
    if len(word) <= _SHORTEST_PLURAL or word[-1] != "s" or is_frequent(word):
        return word
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    if word.endswith(("ss", "us", "is")):
        return word
    return word[: -2 if word.endswith(("ses", "xes", "zes", "ches", "shes")) else -1]


def fold_plurals(words: Iterable[str]) -> frozenset[str]:
    """Return the words, each with :func:`fold_plural`."""
    return frozenset(map(fold_plural, words))


def _make_plural(word: str) -> str:
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "z", "ch", "sh")) else f"{word}s"


def list_with_plurals(words: Iterable[str]) -> list[str]:
    """List words, then singulars and plurals of those that are not frequent."""
    found = dict.fromkeys(words)
    for word in [*found]:
        if word.isalpha() and not is_frequent(word):
            one = fold_plural(word)
            found |= {one: None, _make_plural(one): None}
    return [*found]


def is_opposed(text: str, other: str) -> bool:
    """Whether two questions differ in who does what to whom, or in what is denied.

    Opposed questions have the same words in another order with the same beginning or end; or most
    of their words in common, and a negation in only one of them.
    """
    words, others = list_name_words(text), list_name_words(other)
    if _has_negation(text, words) != _has_negation(other, others):
        one, two = {*words}, {*others}
        return len(one & two) >= _ALIKE * len(one | two)
    if words == others or sorted(words) != sorted(others):
        return False
    return words[0] == others[0] or words[-1] == others[-1]


def _has_negation(text: str, words: Iterable[str]) -> bool:
    return not _NEGATIONS.isdisjoint(words) or _CONTRACTED.search(text) is not None


def list_query_words(text: str, language: str | None = None) -> list[str]:
    """List the words that a query searches for, as :func:`list_searched_words` finds them.

    A character of a script without spaces is a word only if none stands beside it. ``language``
    None detects the language; if a few words do not tell it, they also get the forms of German
    words.
    """
    words = list_distinct_words(text)
    detected = None if language else detect_language(text[:_SAMPLE], words) or _DEFAULT
    identifiers = _list_identifiers(text, len(words))
    words += identifiers
    # "v1.2.3" and "1.2.3" are one version.
    versions = filter(None, map(_VERSION.fullmatch, identifiers))
    words += [f"{'' if found[1] else 'v'}{found[2]}" for found in versions]
    if not text.isascii():
        runs = list(_find_runs(text))
        alone = {run[0] for run in runs if len(run) == 1}
        paired = {token for run in runs for token in run} - alone
        words = [word for word in words if word not in paired]
        words += [a + b for run in runs for a, b in pairwise(run)]
    return words + _list_forms(text, language, detected, _END)


def _find_runs(text: str) -> Iterator[list[str]]:
    """Tokens of each run of characters of scripts without spaces; not all characters are tokens."""
    return filter(None, (tokenise(found.group()) for found in _RUN.finditer(text)))


def _list_identifiers(text: str, size: int) -> list[str]:
    """List identifiers of a text, whole and in parts; ``size`` is its number of tokens."""
    end = 0
    joined: dict[str, None] = {}
    for seam in _SEAM.finditer(text):
        place = seam.start()
        if place < end:
            continue
        first = max(end, place - LONGEST_WORD)
        start = max(first, *(text.rfind(space, first, place) for space in " \n\t"))
        for match in _JOINED.finditer(text, start):
            end = match.end()
            if end > place:
                joined.setdefault(match.group())
                break
    wholes = [whole for name in joined for whole in _join_identifier(name)]
    parts = [_list_parts(name) for name in joined]
    several = sum(map(bool, parts))
    if several > max(_FEW_IDENTIFIERS, size * _SHARE_OF_CODE):
        return wholes
    return wholes + [part for found in parts for part in found]


_VERSION = re.compile(r"(v?)(\d+(?:_\w+)+)")
_FORM = "\u2026"  # is in no token, so that forms are never taken for words
_STEM, _END = 6, 4  # letters of a stem and of the end of a compound
_COMPOUND = 9  # letters of a stem from which it may be of a compound


def _list_forms(
    text: str, chosen: str | None, detected: str | None, shortest: int = _COMPOUND
) -> list[str]:
    """List the stem of each word, cut to 6 letters, and the last 4 of possible compounds.

    Stems that are cut find words with a common beginning (McNamee & Mayfield 2004).

    Args:
        chosen: Language that is set for the text, None if none is; only some languages have forms.
        detected: Language otherwise, None if unknown; a word in a language's own script is in that
            language.
        shortest: Least letters of a stem whose end is a form, too, as it may be a compound.
    """
    base = chosen or detected
    if not has_stems(base) and (chosen or text.isascii()):
        return []
    forms, is_plain = [], not (chosen or has_stems(base))
    for token, _, start, end in split_words(text):
        if is_plain and token.isascii():
            continue
        if _RUN.match(token) or not all(c.isalpha() or c in _MARKS for c in token):
            continue
        language = base if chosen or token.isascii() else find_script(token) or base
        if language is None or not has_stems(language):
            continue
        ends = has_compounds(language)
        surface = token
        if language != "de":
            surface = unicodedata.normalize("NFC", text[start:end]).casefold()
        stem = normalise(find_stem(surface, language))
        forms.append(stem[:_STEM] + _FORM)
        if language == "he" and stem != token:
            forms.append(token[:_STEM] + _FORM)
        if ends and len(stem) >= shortest:
            forms.append(_FORM + stem[-_END:])
    return forms


def drop_foreign_forms(frequencies: Mapping[str, int]) -> dict[str, int]:
    """Drop forms of words that are rarer than their word.

    ``frequencies`` are by word and form. If a form is rarer, most texts with the word are in
    languages without forms.
    """
    kept = dict(frequencies)
    for form in [f for f in frequencies if f.endswith(_FORM)]:
        of = [w for w in frequencies if _FORM not in w and w.startswith(form[:-1])]
        if any(frequencies[w] > frequencies[form] for w in of):
            for each in (form, *(_FORM + w[-_END:] for w in of)):
                kept.pop(each, None)
    return kept


def _join_identifier(name: str) -> list[str]:
    """Join the words of an identifier: "AX-200" is "ax_200" and "ax200", "well-known" nothing."""
    words = () if _HYPHENATED.fullmatch(name) else tokenise(name)
    if len(words) <= 1:
        return []
    compact = "".join(words)
    is_part = len(words) == 2 and words[0].isalpha() and words[1][0].isdigit()  # noqa: PLR2004
    return ["_".join(words)[:LONGEST_WORD], *([compact[:LONGEST_WORD]] if is_part else ())]


def _list_parts(name: str) -> list[str]:
    """Parts of the words of a name in snake_case or CamelCase."""
    found: list[str] = []
    for word in _ANY_WORD.findall(name):
        if "_" in word or _HUMP.search(word):
            found += [normalise(part) for part in _PART.findall(word) if 1 < len(part) < len(word)]
    return found


# Counts, ordinals, years and decades, and what joins two of them: "7th", "3km", "1960s", "1992_93".
_NUMBER = re.compile(r"\d{1,3}[a-z]{0,3}|(?:1\d|20)\d{2}s?|\d{1,4}_[^_]{1,5}")
_ADDRESS = 10  # signs of an address, at least


def is_code(word: str) -> bool:
    """Whether a query word identifies one thing: a code, a long number, an address."""
    if any(map(str.isdigit, word)):
        return len(word) > 2 and not _NUMBER.fullmatch(word)  # noqa: PLR2004
    return word.count("_") > 1 and len(word) >= _ADDRESS


_SIGN = re.compile(r"[+<=>^|~$€£#%&@]|^-\w")
_EDGES = ".,;:!?()[]{}\"'*_`“”‘’«»¿¡…、。，：；？！（）「」"


@lru_cache(maxsize=4096)
def find_signs(text: str) -> frozenset[str]:
    """Find words of a text that only signs tell from others: "C#", ">5", "-O2"; in lower case."""
    words = (word.strip(_EDGES) for word in text.casefold().split())
    return frozenset(word for word in words if _SIGN.search(word))


def hash_texts(*values: str) -> str:
    """Hash texts in their order, as 64 hexadecimal digits."""
    # Length prefixes distinguish ("ab", "c") from ("a", "bc").
    return sha256("".join(f"{len(value)}:{value}" for value in values).encode()).hexdigest()


def hash_question(namespace: str, question: str) -> str:
    """Hash a question in a namespace to an id, by the question's tokens in order and its signs."""
    words = " ".join(tokenise(question)) or question.strip()
    if signs := find_signs(question):
        words += "\n" + " ".join(sorted(signs))
    return sha256(f"{namespace}\n{words}".encode(errors="surrogatepass")).hexdigest()[:32]


HEADING_JOINT = " › "
"""What stands between the title of a page and the heading of a chunk, in the title of the chunk."""


def prepend_title(title: str, content: str) -> str:
    """Put the title before a text, unless the text begins with it.

    First lines of the text that repeat the title or its heading, as Markdown or not, are left out.
    """
    body = drop_repeated_title(title, content)
    return content if body == content and body.startswith(title) else f"{title}\n{body}"


def drop_repeated_title(title: str, content: str) -> str:
    """Remove first lines that repeat the title, or the page or heading named in it."""
    names = {title, *title.split(HEADING_JOINT)}
    body = content
    while body:
        line, _, rest = body.partition("\n")
        if (name := line.strip(" #*=\r")) and name not in names:
            break
        body = rest
    return body if body.strip() and title else content


def normalise_name(name: str) -> str:
    """Normalise a name for storage: its tokens with signs, joined by single spaces."""
    return " ".join(list_name_words(name))


def list_mention_names(title: str, aliases: Sequence[str] = ()) -> tuple[str, ...]:
    """List names by which a text may mention a document: its title and ``aliases``, normalised.

    Each is listed with and without words in brackets, if it is specific enough.
    """
    keys: dict[str, None] = {}
    for name in (title, *aliases):
        short = " ".join(name.split())  # in long white space a match would take quadratic time
        for variant in (name, _QUALIFIER.sub("", short)):
            key = normalise_name(variant)
            if is_specific_name(key):
                keys[key] = None
    return tuple(keys)


def is_specific_name(key: str) -> bool:
    """Whether a name can identify a document: "C#", or 3 to 200 characters, not a number."""
    if key.replace(" ", "").isdigit() or len(key) > 200:  # noqa: PLR2004
        return False
    return len(key) > 2 or is_signed(key)  # noqa: PLR2004


# What follows a Korean noun in one word: particles, and endings of "to be".
_PARTICLES = re.compile(
    "(?:씨|님)?(?:들)?"
    "(?:에서|에게|으로부터|로부터|으로|까지|부터|처럼|보다|하고|이나|이랑|한테|이라|께서|마다|조차|밖에|로|에|의)?"
    "(?:은|는|이|가|을|를|와|과|도|만|의|나|랑|인|며|이며|이다|이었다|였다|입니다|입니까|라고)?"
    "(?![\u1100-\u11ff\uac00-\ud7a3])"
)
_HANGUL = re.compile("[\u1100-\u11ff\uac00-\ud7a3]")
_THAI = re.compile("[\u0e00-\u0e7f]")
_WITHIN_KATAKANA = re.compile("[\u30a1-\u30fa\u30fc]{2}")
_LONG_NAME = 4  # characters of a name that is hardly ever part of other words


def is_character(token: str) -> bool:
    """Whether a token is a character of a script without spaces, or a Korean syllable."""
    return _RUN.match(token) is not None


def count_words(text: str) -> float:
    """Count the words of a text; two characters of a script without spaces count as one."""
    tokens = tokenise(text)
    return len(tokens) - sum(map(is_character, tokens)) / 2


def drop_signs(name: str) -> str:
    """Remove the signs that tell a word or name from others, see :func:`list_name_words`."""
    return name if name.isascii() else name.translate(_NARROW)


def is_signed(name: str) -> bool:
    """Whether a word or name has signs that make it another word, as in "C#"."""
    return drop_signs(name) != name


def contains_name(text: str, name: str) -> bool:
    """Whether a text contains a name that stands by itself, in any script.

    "Google+" does not contain "Google".
    """
    tokens = name.split(" ")
    if not is_character(tokens[0]):
        known, more = _mark_signs(text)
        return name not in more or name in known
    words = list(split_words(text))
    found = [word.token for word in words]
    return any(
        token == tokens[0]
        and found[at : at + len(tokens)] == tokens
        and _stands_alone(text, words[at].start, words[at + len(tokens) - 1].end, len(tokens))
        for at, token in enumerate(found)
    )


def _stands_alone(text: str, start: int, end: int, size: int) -> bool:
    """Whether words of a script without spaces begin and end at these places."""
    before = max(0, start - 1)
    if _HANGUL.match(text, start):
        inside = start > 0 and _HANGUL.match(text, before) is not None
        return not inside and _PARTICLES.match(text, end) is not None
    if _WITHIN_KATAKANA.match(text[before : start + 1]) or _WITHIN_KATAKANA.match(text, end - 1):
        return False
    runs = (run for run in _RUN.finditer(text) if run.start() <= start < run.end())
    run = next(runs, None)
    if size >= _LONG_NAME or run is None:
        return True
    starts = find_word_starts(run.group())
    ends = not _THAI.match(text, start) or end >= run.end() or end - run.start() in starts
    return start - run.start() in starts and ends


def consists_of_name(words: Iterable[str], name: str) -> bool:
    """Whether all words of a query belong to a stored name; forms of words are ignored."""
    tokens = drop_signs(name).split(" ")
    known = {*tokens, *map("".join, pairwise(tokens))}
    return all(drop_signs(word) in known for word in words if _FORM not in word)


Floats = NDArray[np.float64]

_CODE = np.dtype("<u2")
BYTES_PER_TERM = _CODE.itemsize
"""Bytes of each distinct word of a text as from :func:`encode_terms`."""
_CODES = 1 << 16
_ABSENT = 255


def encode_terms(words: Iterable[str]) -> bytes:
    """Encode the distinct words of a text as sorted codes of two bytes each."""
    codes = sorted(set(map(_code, set(words))))
    return pack(f"<{len(codes)}H", *codes)


@lru_cache(maxsize=65_536)
def _code(word: str) -> int:
    return crc32(word.encode()) % _CODES


class IndexedWords(NamedTuple):
    """Words of a text for full text, statistics and ranking: it is tokenised once."""

    tokens: str
    terms: bytes

    @classmethod
    def from_text(cls, title: str, content: str, language: str | None = None) -> "IndexedWords":
        """Split a title and a text into words; ``language`` None detects the language."""
        tokens = list_searched_words(prepend_title(title, content), language)
        return cls(" ".join(tokens), encode_terms(tokens))


class QueryInformation(NamedTuple):
    """Words of a query and their information, i.e. inverse document frequency (BM25 idf).

    ``words`` are those that occur in the corpus, at most 255; ``nats`` has shape ``[Q]``.
    """

    words: tuple[str, ...]
    nats: Floats

    @classmethod
    def from_idf(cls, idf: Mapping[str, float]) -> "QueryInformation":
        """Make the information from inverse document frequencies by word; only 255 words count."""
        first = dict(list(idf.items())[:_ABSENT])
        return cls(tuple(first), np.array(list(first.values()), dtype=np.float64))

    @property
    def length(self) -> float:
        """Number of words, without forms; a character, or pair of them, counts as half."""
        own = [word for word in self.words if _FORM not in word and not is_signed(word)]
        return len(own) - sum(map(is_character, own)) / 2

    @property
    def total(self) -> float:
        """Total information of the query, in nats."""
        return float(self.nats.sum())

    def find_words(self, packed: Sequence[bytes]) -> Floats:
        """Find which texts have which of the query's words: 1 or 0, shape ``[n, Q]``."""
        column = np.full(_CODES, _ABSENT, dtype=np.uint8)
        column[[_code(word) for word in self.words]] = np.arange(len(self.words))
        columns = column.take(np.frombuffer(b"".join(packed), dtype=_CODE))
        known = np.flatnonzero(columns != _ABSENT)
        ends = np.cumsum([len(codes) // _CODE.itemsize for codes in packed])
        present = np.zeros((len(packed), len(self.words)))
        present[np.searchsorted(ends, known, side="right"), columns[known]] = 1.0
        return present


_URI = r"data:[^()\n]*(?:\([^()\n]*\)[^()\n]*)*"
_MARKDOWN_LINK = re.compile(rf"!?\[([^\[\]\n]{{0,500}})\]\(\s*<?{_URI}\)", re.IGNORECASE)
_REFERENCE = re.compile(r"^ {0,3}\[[^\]\n]{1,300}\]:\s*<?data:.*\n?", re.IGNORECASE | re.MULTILINE)
_ATTRIBUTE = re.compile(r"""=\s*(?:"\s*data:[^"]*"|'\s*data:[^']*')""", re.IGNORECASE)
_IMAGE = re.compile(r"<img\b[^<>]{0,2000}>", re.IGNORECASE)
_ALT = re.compile(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_BARE = re.compile(
    r"(?<!\w)data:(?:[a-z]+/[\w.+-]{1,100}|(?=;))(?:;[^,;\s\"'<>]{1,100}){0,8},"
    r"[^\s\"'<>)\]}`]*(?:\s+[A-Za-z0-9+/]{40,}={0,2})*(?:\s+[A-Za-z0-9+/]{2,}={1,2}(?!\S))?",
    re.IGNORECASE,
)


def remove_pictures(text: str) -> str:
    """Remove ``data:`` URIs from a text; the name of a picture stays."""
    if "data:" not in text.lower():
        return text
    text = _MARKDOWN_LINK.sub(r"\1", text)
    text = _REFERENCE.sub("", text)
    text, found = _ATTRIBUTE.subn('=""', text)
    if found:
        text = _IMAGE.sub(_name_image, text)
    return _BARE.sub("", text)


def _name_image(tag: re.Match[str]) -> str:
    if '=""' not in tag[0]:
        return tag[0]
    name = _ALT.search(tag[0])
    return "" if name is None else next(filter(None, name.groups()), "")
