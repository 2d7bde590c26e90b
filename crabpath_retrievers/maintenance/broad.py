"""Decides which texts cover several topics, and where they are split."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from langchain_text_splitters import RecursiveCharacterTextSplitter

from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.ingest.chunking import split_sections

_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n\s*\n")
_SEPARATORS = ["\n\n", r"(?<=[.!?…])\s+", "\n", r"\s+", ""]
_MIN_HEADINGS = 2

FindTopics = Callable[[Sequence[str]], Sequence[int] | None]
"""Finds the indices, from 0, of the sentences that begin a new topic; None if it cannot tell."""


class TextPart(NamedTuple):
    """A part of a text.

    Attributes:
        heading: Heading under which the part begins; may be empty.
        text: Text of the part.
        more: Further headings in the part.
    """

    heading: str
    text: str
    more: tuple[str, ...] = ()


def is_broad(text: str, questions: Sequence[Vector], settings: MaintenanceSettings) -> bool:
    """Whether a long text has several headings, or answers dissimilar questions.

    Args:
        text: A text of at least ``settings.split_above_chars`` characters.
        questions: Unit vectors, shape ``[d]``, of questions that the text helped to answer.
        settings: Least number of questions, and their least mean cosine.
    """
    return len(_find_headed_sections(text)) >= _MIN_HEADINGS or (
        len(questions) >= settings.split_min_questions
        and _mean_pairwise_cosine(questions) < settings.split_below_similarity
    )


def _mean_pairwise_cosine(questions: Sequence[Vector]) -> float:
    """Return the mean cosine of all pairs of unit vectors, in [-1, 1]."""
    single = [np.asarray(vector, dtype=np.float32) for vector in questions]
    return float(np.mean([a @ b for a, b in combinations(single, 2)]))


def _find_headed_sections(text: str) -> list[TextPart]:
    """Return the sections of a text that have a heading."""
    return [TextPart(*section) for section in split_sections(text) if section[0]]


def split_text(text: str, size: int, topics: FindTopics) -> list[TextPart]:
    """Split a text into parts of about ``size`` characters: every word once, in order.

    The text is split at headings; without headings where a new topic begins, or else between
    sentences.

    Args:
        text: The whole text.
        size: Largest size of a part, in characters.
        topics: Finds topics in a text without headings.
    """
    if len(_find_headed_sections(text)) >= _MIN_HEADINGS:
        given = [TextPart(*section) for section in split_sections(text) if section[1].strip()]
        return [
            TextPart(piece.heading, part.strip(), piece.more)
            for piece in _join_small_sections(given, size)
            for part in _split_by_size(piece.text, size)
        ]
    sentences = [sentence for sentence in _SENTENCE.split(text) if sentence.strip()]
    starts = topics(sentences)
    if starts:
        blocks = [" ".join(block) for block in _group_sentences(sentences, starts)]
        return [TextPart("", part) for block in blocks for part in _split_by_size(block, size)]
    return [TextPart("", part) for part in _split_by_size(text, size)]


def _join_small_sections(given: Iterable[TextPart], size: int) -> list[TextPart]:
    """Join small sections up to ``size`` characters, under the first of their headings."""
    found: list[TextPart] = []
    for piece in given:
        if found and len(found[-1].text) + len(piece.text) <= size:
            last = found.pop()
            heading, text = last.heading or piece.heading, last.text + piece.text
            more = (*last.more, *([piece.heading] if piece.heading != heading else []))
            found.append(TextPart(heading, text, more))
        else:
            found.append(piece)
    return found


def _group_sentences(sentences: Sequence[str], starts: Sequence[int]) -> Iterator[Sequence[str]]:
    cuts = sorted({start for start in starts if 0 < start < len(sentences)})
    for begin, end in zip([0, *cuts], [*cuts, len(sentences)], strict=True):
        yield sentences[begin:end]


def _split_by_size(text: str, size: int) -> list[str]:
    """Split a text between paragraphs, sentences or words, without overlap."""
    splitter = RecursiveCharacterTextSplitter(
        _SEPARATORS,
        keep_separator="start",
        is_separator_regex=True,
        chunk_size=size,
        chunk_overlap=0,
    )
    return splitter.split_text(text)
