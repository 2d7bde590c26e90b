"""Synthetic passages: words by Zipf's law, titles that others mention, vectors, random edges."""

import itertools
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crabpath_retrievers.core.records import EdgeKind, Vector

BATCH = 5000
"""Passages that are made at once; the first batch is the same in a corpus of any size."""

DIMENSIONS = 384
DEGREE = 10
"""Edges that leave each passage."""

_LENGTH = 40  # words of a text
_VOCABULARY = 300_000
_SYLLABLES = [a + b for a, b in itertools.product("bdfgklmnprstvz", "aeiou")]
_NOISE = 0.02  # per coordinate; cosine to the original about 0.93
_KINDS = (EdgeKind.MENTION, EdgeKind.MENTIONED_BY, EdgeKind.SHARED_TERM, EdgeKind.SIMILAR)
_HITS = 20

Keys = npt.NDArray[np.int64]


class Passage(NamedTuple):
    """A passage: its number from 0, title and text."""

    number: int
    title: str
    text: str


class Question(NamedTuple):
    """A question, its unit vector ``[d]``, and the numbers of the passages nearest to it."""

    text: str
    vector: Vector
    nearest: tuple[int, ...]


class Corpus:
    """Passages, edges and questions, the same in every process."""

    def __init__(self, size: int) -> None:
        """Describe ``size`` passages, a multiple of ``BATCH``."""
        self.size = size
        ranks = np.arange(_VOCABULARY) + 3.0
        shares = np.cumsum(1.0 / ranks)
        self._shares = shares / shares[-1]
        rng = np.random.default_rng(0)
        bases = rng.standard_normal((BATCH, DIMENSIONS)).astype(np.float32)
        # Around a hundred topics, so that passages have near neighbours.
        bases += (
            1.5 * rng.standard_normal((100, DIMENSIONS)).astype(np.float32)[np.arange(BATCH) % 100]
        )
        self._bases = _normalise(bases)

    def passages(self, batch: int) -> tuple[list[Passage], Vector]:
        """The passages of a batch and their unit vectors, shape ``[BATCH, d]``."""
        rng = np.random.default_rng(batch + 1)
        drawn = np.searchsorted(self._shares, rng.random((BATCH, _LENGTH)))
        first = batch * BATCH
        made = []
        for row, words in enumerate(drawn.tolist()):
            number = first + row
            other = make_title((number * 7 + 1) % self.size)
            text = f"{' '.join(map(make_word, words))}. See {other}."
            made.append(Passage(number, make_title(number), text))
        noise = rng.normal(0.0, _NOISE, self._bases.shape).astype(np.float32)
        return made, _normalise(self._bases + noise)

    def edges(self) -> Iterator[tuple[Keys, Keys, Keys]]:
        """Sources, targets and kinds of the edges of each batch, sorted, as numbers from 0."""
        kinds = np.array([_KINDS[i % len(_KINDS)].value for i in range(DEGREE)])
        for batch in range(self.size // BATCH):
            rng = np.random.default_rng((1, batch))
            sources = np.repeat(np.arange(BATCH) + batch * BATCH, DEGREE)
            targets = rng.integers(0, self.size, len(sources))
            targets[targets == sources] = (sources[targets == sources] + 1) % self.size
            found = np.unique((sources * self.size + targets) * 16 + np.tile(kinds, BATCH))
            ends, kind = np.divmod(found, 16)
            yield *np.divmod(ends, self.size), kind

    def count_mentions(self) -> Keys:
        """How many edges mention each passage, shape ``[size]``."""
        counts = np.zeros(self.size, dtype=np.int64)
        for _, targets, kinds in self.edges():
            mentioned = targets[kinds == EdgeKind.MENTION.value]
            np.add.at(counts, mentioned, 1)
        return counts

    def questions(self, count: int, seed: int) -> list[Question]:
        """Questions about passages of the first batch: some of its words, and another title."""
        rng = np.random.default_rng((2, seed))
        passages, vectors = self.passages(0)
        made = []
        for place in rng.choice(BATCH, count).tolist():
            words = passages[place].text.split(".")[0].split()
            asked = " ".join(rng.choice(words, 6).tolist())
            title = make_title(int(rng.integers(BATCH)))
            vector = _normalise(
                vectors[place] + rng.normal(0.0, _NOISE, DIMENSIONS).astype(np.float32)
            )
            best = np.argsort(-(self._bases @ vector))[:_HITS]
            copies = rng.integers(0, self.size // BATCH, _HITS) * BATCH
            nearest = tuple((best + copies).tolist())
            made.append(Question(f"What of {asked} in {title}?", vector, nearest))
        return made


@cache
def make_word(rank: int) -> str:
    """The word of a rank, by frequency."""
    found = ""
    rank += len(_SYLLABLES)
    while rank:
        rank, place = divmod(rank, len(_SYLLABLES))
        found += _SYLLABLES[place]
    return found


def make_title(number: int) -> str:
    """The title of a passage, which no other has."""
    return f"{make_word(number * 31 % _VOCABULARY).capitalize()} {number}"


def make_id(number: int) -> str:
    """The id of a passage."""
    return f"n{number}"


def _normalise(vectors: Vector) -> Vector:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    result: Vector = np.asarray(vectors / lengths, dtype=np.float32)
    return result
