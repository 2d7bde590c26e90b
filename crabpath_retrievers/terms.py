"""Words as 16-bit codes: which words of a query a document holds costs one table look-up.

Two words in 65,536 share a code by chance; a document then seems to hold a word that it does not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CODE = np.dtype("<u2")
_CODES = 1 << 16
_ABSENT = 255


def term_codes(words: Iterable[str]) -> bytes:
    """The distinct words of a text, two bytes each."""
    codes = {_code(word) for word in words}
    return np.array(sorted(codes), dtype=_CODE).tobytes()


def _code(word: str) -> int:
    return crc32(word.encode()) % _CODES


class Information(NamedTuple):
    """What a query asks for.

    Attributes:
        words: Its distinct words that the corpus knows, at most 255.
        nats: Inverse document frequency of each, shape ``[Q]``, in nats.
    """

    words: tuple[str, ...]
    nats: Floats

    @classmethod
    def of(cls, idf: Mapping[str, float]) -> "Information":
        """From inverse document frequencies by word."""
        kept = dict(list(idf.items())[:_ABSENT])
        return cls(tuple(kept), np.array(list(kept.values()), dtype=np.float64))

    @property
    def total(self) -> float:
        """All that the query asks for, in nats."""
        return float(self.nats.sum())

    def names_all(self, words: Iterable[str]) -> bool:
        """Whether the query asks for these words only."""
        return set(self.words) <= set(words)

    def present(self, packed: Sequence[bytes]) -> Floats:
        """1 where a text holds a word, shape ``[n, Q]``, for texts as :func:`term_codes`."""
        column = np.full(_CODES, _ABSENT, dtype=np.uint8)
        column[[_code(word) for word in self.words]] = np.arange(len(self.words))
        held = column.take(np.frombuffer(b"".join(packed), dtype=_CODE))
        known = np.flatnonzero(held != _ABSENT)
        ends = np.cumsum([len(codes) // _CODE.itemsize for codes in packed])
        found = np.zeros((len(packed), len(self.words)))
        found[np.searchsorted(ends, known, side="right"), held[known]] = 1.0
        return found
