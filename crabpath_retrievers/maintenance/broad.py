"""Which texts have grown too broad, and where they are cut."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from langchain_text_splitters import RecursiveCharacterTextSplitter

from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.ingest.chunking import sections

_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n\s*\n")
_SEPARATORS = ["\n\n", r"(?<=[.!?…])\s+", "\n", r"\s+", ""]
_HEADINGS = 2

Topics = Callable[[Sequence[str]], Sequence[int] | None]
"""Numbers, from 0, of the sentences with which another topic begins; None where nobody can tell."""


class Piece(NamedTuple):
    """A part of a text.

    Attributes:
        heading: Under which it begins; may be empty.
        text: The part.
        more: Further headings in it.
    """

    heading: str
    text: str
    more: tuple[str, ...] = ()


def broad(text: str, questions: Sequence[Vector], settings: MaintenanceSettings) -> bool:
    """Whether a long text has several headings, or answers questions that fall apart.

    Args:
        text: Of at least ``settings.split_above_chars`` characters.
        questions: Unit vectors, shape ``[d]``, of questions that it has helped with.
        settings: What counts as falling apart.
    """
    return len(_headed(text)) >= _HEADINGS or (
        len(questions) >= settings.split_min_questions
        and _spread(questions) < settings.split_below_similarity
    )


def _spread(questions: Sequence[Vector]) -> float:
    """Mean cosine of all pairs of unit vectors, in [-1, 1]."""
    single = [np.asarray(vector, dtype=np.float32) for vector in questions]
    return float(np.mean([a @ b for a, b in combinations(single, 2)]))


def _headed(text: str) -> list[Piece]:
    """Its sections that have a heading."""
    return [Piece(*section) for section in sections(text) if section[0]]


def pieces(text: str, size: int, topics: Topics) -> list[Piece]:
    """A text in parts of about ``size`` characters: every word once, in order.

    At headings first; without any where other topics begin, or else between sentences.

    Args:
        text: All of it.
        size: Most characters of a part that can be cut at all.
        topics: Asked where there are no headings.
    """
    if len(_headed(text)) >= _HEADINGS:
        given = [Piece(*section) for section in sections(text) if section[1].strip()]
        return [
            Piece(piece.heading, part.strip(), piece.more)
            for piece in _packed(given, size)
            for part in _cut(piece.text, size)
        ]
    said = [sentence for sentence in _SENTENCE.split(text) if sentence.strip()]
    starts = topics(said)
    if starts:
        blocks = [" ".join(block) for block in _blocks(said, starts)]
        return [Piece("", part) for block in blocks for part in _cut(block, size)]
    return [Piece("", part) for part in _cut(text, size)]


def _packed(given: Iterable[Piece], size: int) -> list[Piece]:
    """Small sections together, as long as there is room, under the first of their headings."""
    found: list[Piece] = []
    for piece in given:
        if found and len(found[-1].text) + len(piece.text) <= size:
            last = found.pop()
            heading, text = last.heading or piece.heading, last.text + piece.text
            more = (*last.more, *([piece.heading] if piece.heading != heading else []))
            found.append(Piece(heading, text, more))
        else:
            found.append(piece)
    return found


def _blocks(said: Sequence[str], starts: Sequence[int]) -> Iterator[Sequence[str]]:
    cuts = sorted({start for start in starts if 0 < start < len(said)})
    for begin, end in zip([0, *cuts], [*cuts, len(said)], strict=True):
        yield said[begin:end]


def _cut(text: str, size: int) -> list[str]:
    """A text between paragraphs, sentences or words, without overlap."""
    splitter = RecursiveCharacterTextSplitter(
        _SEPARATORS,
        keep_separator="start",
        is_separator_regex=True,
        chunk_size=size,
        chunk_overlap=0,
    )
    return splitter.split_text(text)
