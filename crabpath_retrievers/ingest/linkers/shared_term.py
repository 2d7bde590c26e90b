"""Linker ``shared_term``: two chunks contain the same rare name or identifier.

It connects corpora whose titles are headlines that no other text repeats.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.core.graph import Edge, EdgeKind
from crabpath_retrievers.core.text import Word, split_words
from crabpath_retrievers.ingest.linkers.base import make_edge
from crabpath_retrievers.storage.read.links import LinkNode, LinkQueries

_IDENTIFIER = re.compile(r"[a-z]\w*[A-Z_]|\w*[a-zA-Z]\w*\d|\w*\d\w*[a-zA-Z]")
_MAX_NAME_WORDS = 4


class SharedTermLinker:
    """Links chunks that share a term found in few chunks."""

    def __init__(self, settings: LinkSettings) -> None:
        """Use the priors and bounds of ``settings``."""
        self._settings = settings

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:
        """Return edges, both ways, between new nodes and chunks that share their rare terms."""
        terms = {node.key: find_candidate_terms(node.text) for node in new}
        chosen = self._choose_terms(terms, store)
        most = self._settings.max_chunks_per_term
        searched = dict.fromkeys(term for found in chosen.values() for term in found)
        rare = {
            term: keys for term, keys in store.find_phrases(searched, most + 1) if len(keys) <= most
        }
        nodes = {node.key: node for node in new}
        others = {key for keys in rare.values() for key in keys if key not in nodes}
        nodes |= {node.key: node for node in store.nodes(sorted(others))}
        # Full-text search ignores case: the other text must contain the term as a name, too.
        terms |= {key: find_candidate_terms(nodes[key].text) for key in others}
        for key, other in dict.fromkeys(
            (key, other)
            for key, found in chosen.items()
            for term in found
            for other in rare.get(term, ())
            if term in terms[other]
        ):
            if nodes[other].document != nodes[key].document:
                yield make_edge(self._settings, key, other, EdgeKind.SHARED_TERM)
                yield make_edge(self._settings, other, key, EdgeKind.SHARED_TERM)

    def _choose_terms(
        self, terms: Mapping[int, Iterable[tuple[str, ...]]], store: LinkQueries
    ) -> dict[int, list[tuple[str, ...]]]:
        """Choose the terms of each node that are searched for."""
        known = {word for found in terms.values() for term in found for word in term}
        frequencies = store.frequencies(sorted(known))
        return {key: self._select_rarest(found, frequencies) for key, found in terms.items()}

    def _select_rarest(
        self, terms: Iterable[tuple[str, ...]], frequencies: dict[str, int]
    ) -> list[tuple[str, ...]]:
        """Return at most ``max_terms`` terms that few chunks can share, rarest first."""
        ranked = []
        for term in terms:
            rarest = min(frequencies.get(word, 0) for word in term)
            common = len(term) == 1 and rarest > self._settings.max_chunks_per_term
            if rarest > 1 and not common:
                ranked.append((rarest, term))
        return [term for _, term in sorted(ranked)[: self._settings.max_terms_per_chunk]]


@lru_cache(maxsize=4096)
def find_candidate_terms(text: str) -> frozenset[tuple[str, ...]]:
    """Find identifiers and names: two to four capitalised words, also within longer names."""
    found = list(split_words(text))
    terms = set(_iterate_names(text, found))
    for word in found:
        surface = text[word.start : word.end]
        if _IDENTIFIER.match(surface):
            terms.add((word.token,))
    return frozenset(terms)


def _iterate_names(text: str, found: Sequence[Word]) -> Iterator[tuple[str, ...]]:
    """Yield runs of capitalised words separated only by a space, hyphen, period or apostrophe."""
    run_numbers = []
    run = 0
    for index, word in enumerate(found):
        between = text[found[index - 1].end : word.start] if index else ""
        if not (word.capitalised and (index == 0 or between in (" ", "-", ". ", "’", "'"))):
            run += 1
        run_numbers.append(run)
    for _, group in groupby(zip(run_numbers, found, strict=True), key=lambda pair: pair[0]):
        names = [word.token for _, word in group if word.capitalised]
        for size in range(2, _MAX_NAME_WORDS + 1):
            yield from (tuple(names[i : i + size]) for i in range(len(names) - size + 1))
