"""Shared terms of a whole corpus at once: one sort instead of a search for every term.

The pairs are those that :class:`SharedTermLinker` finds when all chunks are one batch. A chunk that
alone has a term as a name shares it with nobody, and a term whose rarest word is in few chunks
is in few chunks itself: only the rest is searched for.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.ingest.linkers.base import Pair
from crabpath_retrievers.storage.read.links import LinkQueries

Term = tuple[str, ...]
_HASH = np.dtype("<u8")
_AT_ONCE = 4096  # terms that are searched for together
_PAIRS_AT_ONCE = 100_000
Pairs = NDArray[np.int64]


class TermRows(NamedTuple):
    """Terms of some chunks, one row for each term of a chunk, shape ``[n]`` each.

    Attributes:
        hashes: Of the term, 64 bits.
        keys: Of the chunk.
        chosen: Whether the chunk is linked by the term, and not only found by it.
        searched: The text of chosen terms that may be in many chunks, by hash.
    """

    hashes: NDArray[np.uint64]
    keys: NDArray[np.int64]
    chosen: NDArray[np.bool_]
    searched: dict[int, str]


def hash_terms(terms: Iterable[Term]) -> NDArray[np.uint64]:
    """Hash terms, alike in every process, to shape ``[n]``."""
    joined = (blake2b(" ".join(term).encode(), digest_size=8).digest() for term in terms)
    return np.frombuffer(b"".join(joined), dtype=_HASH)


def join_terms(parts: Sequence[TermRows], most: int, store: LinkQueries) -> Pairs:
    """Find the pairs of chunks that share a rare term, the lower key first, in order.

    Args:
        parts: Terms of all chunks of the store, at least one part.
        most: Chunks that may have a term.
        store: Searches phrases, and knows the document of each chunk.

    Returns:
        Keys, shape ``[n, 2]``.
    """
    hashes, keys, chosen = (np.concatenate([part[column] for part in parts]) for column in range(3))
    order = np.lexsort((keys, hashes))
    hashes, keys, chosen = hashes[order], keys[order], chosen[order]
    starts = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]][: len(hashes)])
    sizes = np.diff(np.r_[starts, len(hashes)])
    shared = (sizes > 1) & (sizes <= most)
    starts, sizes = starts[shared], sizes[shared]
    texts: dict[int, str] = {}
    for part in parts:
        texts |= part.searched
    common = _find_common(hashes[starts].tolist(), texts, most, store)
    found = array("q")
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        if int(hashes[start]) not in common:
            holders, linked = keys[start : start + size].tolist(), chosen[start : start + size]
            for pair in _list_pairs(holders, linked.tolist()):
                found.extend(pair)
    pairs = np.unique(np.frombuffer(found, dtype=np.int64).reshape(-1, 2), axis=0)
    blocks = [pairs[at : at + _PAIRS_AT_ONCE] for at in range(0, len(pairs), _PAIRS_AT_ONCE)]
    return np.concatenate([pairs[:0], *(_drop_same_document(block, store) for block in blocks)])


def _drop_same_document(pairs: Pairs, store: LinkQueries) -> Pairs:
    documents = store.documents(np.unique(pairs).tolist())
    return pairs[[documents[a] != documents[b] for a, b in pairs.tolist()]]


def _find_common(
    hashes: Sequence[int], texts: dict[int, str], most: int, store: LinkQueries
) -> set[int]:
    """Those of the terms that more than ``most`` chunks contain, as a name or not."""
    common: set[int] = set()
    searched = [value for value in hashes if value in texts]
    for start in range(0, len(searched), _AT_ONCE):
        some = searched[start : start + _AT_ONCE]
        phrases = [tuple(texts[value].split()) for value in some]
        found = store.find_phrases(phrases, most + 1)
        common |= {v for v, p in zip(some, phrases, strict=True) if len(found[p]) > most}
    return common


def _list_pairs(holders: Sequence[int], linked: Sequence[bool]) -> Iterator[Pair]:
    """Yield the pairs of holders of a term, of which one at least is linked by it."""
    for i, first in enumerate(holders):
        for j in range(i + 1, len(holders)):
            if linked[i] or linked[j]:
                yield first, holders[j]
