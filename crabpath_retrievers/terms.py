"""Words as 16-bit codes, so that one table look-up finds the words of a query in a document.

Two words share a code with probability 1/65,536; a document may then seem to contain a word that
it does not contain.
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


def encode_terms(words: Iterable[str]) -> bytes:
    """The distinct words of a text as sorted codes of two bytes each."""
    codes = {_code(word) for word in words}
    return np.array(sorted(codes), dtype=_CODE).tobytes()


def _code(word: str) -> int:
    return crc32(word.encode()) % _CODES


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

    def is_subset(self, words: Iterable[str]) -> bool:
        """Whether all words of the query are among these."""
        return set(self.words) <= set(words)

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
