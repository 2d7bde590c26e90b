"""Terms that few texts share: names of several words, and identifiers."""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise

from crabpath_retrievers.core.text import LONGEST_WORD, prepend_title, split_words

TERM = "term:"
"""How a term begins among the references of a node."""

_MAX_TERMS = 64  # of one chunk; only lists of names have more
_IDENTIFIER = re.compile(r"[a-z]\w*[A-Z_]|\w*[a-zA-Z]\w*\d|\w*\d\w*[a-zA-Z]")
_JOINTS = frozenset((" ", "-", ". ", "’", "'"))  # what may stand between the words of a name
_MAX_NAME_WORDS = 4
# In ASCII: capitalised words with a joint between, and words with a digit, an underscore or a
# capital letter within.
_ASCII_NAMES = re.compile(r"\b[A-Z0-9]\w*(?:(?:[ '-]|\. )[A-Z0-9]\w*)+", re.ASCII)
_ASCII_WORD = re.compile(r"\w+", re.ASCII)
_WORD = re.compile(r"\w+")
_ENDS = frozenset(".!?:\n")  # before the first word of a sentence
_NEAR = 4  # characters before a word in which such a mark is looked for
_ASCII_ODD = re.compile(r"\b(?:[A-Za-z]*[0-9_]|[a-z]+[A-Z])\w*", re.ASCII)


def list_terms(title: str, content: str) -> tuple[str, ...]:
    """List the terms of a title and a text as references, in order; of many the first 64."""
    found = find_candidate_terms(prepend_title(title, content))
    return tuple(TERM + term for term in sorted(map(" ".join, found))[:_MAX_TERMS])


def find_candidate_terms(text: str) -> frozenset[tuple[str, ...]]:
    """Find identifiers and names: two to four capitalised words, also within longer names.

    A word that begins a sentence, and that the text also has in lower case, is not part of a name.
    """
    common = {word.casefold() for word in _WORD.findall(text) if word.islower()}
    if text.isascii():
        return frozenset(_find_ascii_terms(text, common))
    terms: set[tuple[str, ...]] = set()
    names: list[str] = []  # capitalised words with only a joint between
    end = 0
    for token, capitalised, start, next_end in split_words(text, marked=True):
        is_common = capitalised and _is_common(text, start, next_end, common)
        if names and not (capitalised and text[end:start] in _JOINTS and not is_common):
            if len(names) > 1:
                terms.update(_list_names(names))
            names = []
        if capitalised and not is_common:
            names.append(token)
        surface = text[start : min(next_end, start + LONGEST_WORD)]  # matching is quadratic in it
        # Most words are letters only, the first of which alone is a capital one.
        if not (surface.isalpha() and (capitalised or surface.islower())) and _IDENTIFIER.match(
            surface
        ):
            terms.add((token,))
        end = next_end
    terms.update(_list_names(names))
    return frozenset(terms)


def _find_ascii_terms(text: str, common: AbstractSet[str]) -> Iterator[tuple[str, ...]]:
    """Find the terms of an ASCII text by regular expressions, in a third of the time."""
    for found in _ASCII_NAMES.finditer(text):
        names: list[str] = []
        for word in _ASCII_WORD.finditer(text, *found.span()):
            if _is_common(text, *word.span(), common):
                yield from _list_names(names)
                names = []
            else:
                names.append(word.group()[:LONGEST_WORD].lower())
        yield from _list_names(names)
    for word in _ASCII_ODD.findall(text):
        cut = word[:LONGEST_WORD]
        if not (cut.islower() and cut.isalpha()) and _IDENTIFIER.match(cut):
            yield (cut.lower(),)


def _is_common(text: str, start: int, end: int, common: AbstractSet[str]) -> bool:
    """Whether the place of a word in the text alone explains its capital letter."""
    if text[start:end].casefold() not in common:
        return False
    before = text[max(0, start - _NEAR) : start].rstrip(" \"'(“„«")
    return not before or before[-1] in _ENDS


def _list_names(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield every two to four words that stand side by side in a run of capitalised words."""
    yield from pairwise(words)
    if len(words) > 2:  # noqa: PLR2004
        for size in range(3, min(len(words), _MAX_NAME_WORDS) + 1):
            yield from zip(*(words[i:] for i in range(size)), strict=False)
