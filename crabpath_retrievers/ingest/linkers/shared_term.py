"""``shared_term``: rare names and identifiers that two chunks share.

Where titles are headlines nobody repeats, the names inside the texts connect them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.graph import Edge, EdgeKind
from crabpath_retrievers.ingest.linkers.base import edge
from crabpath_retrievers.storage.link_queries import LinkNode, LinkQueries
from crabpath_retrievers.text import Word, words

_IDENTIFIER = re.compile(r"[a-z]\w*[A-Z_]|\w*[a-zA-Z]\w*\d|\w*\d\w*[a-zA-Z]")
_LONGEST = 4


class SharedTermLinker:
    """Edges between chunks that share a term which few chunks have."""

    def __init__(self, settings: LinkSettings) -> None:
        """Use the priors and bounds of ``settings``."""
        self._settings = settings

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:
        """Edges, both ways, between each new node and the chunks that share its rare terms."""
        terms = {node.key: term_candidates(node.content) for node in new}
        frequencies = store.frequencies(
            sorted({word for found in terms.values() for term in found for word in term})
        )
        holders: dict[tuple[str, ...], list[int]] = {}
        sources = {node.key: node.source for node in new}
        pairs: dict[tuple[int, int], None] = {}
        for key, found in terms.items():
            for term in self._rarest(found, frequencies):
                if term not in holders:
                    holders[term] = store.phrase(term, self._settings.max_shared + 1)
                if len(holders[term]) <= self._settings.max_shared:
                    pairs |= {(key, other): None for other in holders[term] if other != key}
        others = {node.key: node.source for node in store.nodes(sorted({o for _, o in pairs}))}
        for key, other in pairs:
            if others[other] != sources[key]:
                yield edge(self._settings, key, other, EdgeKind.SHARED_TERM)
                yield edge(self._settings, other, key, EdgeKind.SHARED_TERM)

    def _rarest(
        self, terms: Iterable[tuple[str, ...]], frequencies: dict[str, int]
    ) -> list[tuple[str, ...]]:
        """Terms that could be shared by few chunks, rarest first, bounded in number."""
        ranked = []
        for term in terms:
            rarest = min(frequencies.get(word, 0) for word in term)
            common = len(term) == 1 and rarest > self._settings.max_shared
            if rarest > 1 and not common:
                ranked.append((rarest, term))
        return [term for _, term in sorted(ranked)[: self._settings.max_terms]]


def term_candidates(text: str) -> set[tuple[str, ...]]:
    """Names of two to four capitalised words and identifiers, as token tuples."""
    found = list(words(text))
    terms = set(_names(text, found))
    for word in found:
        surface = text[word.start : word.end]
        if _IDENTIFIER.match(surface):
            terms.add((word.token,))
    return terms


def _names(text: str, found: Sequence[Word]) -> Iterator[tuple[str, ...]]:
    """Runs of capitalised words with nothing but a space, hyphen or period between them."""
    run_numbers = []
    run = 0
    for index, word in enumerate(found):
        between = text[found[index - 1].end : word.start] if index else ""
        if not (word.capitalised and (index == 0 or between in (" ", "-", ". ", "’", "'"))):
            run += 1
        run_numbers.append(run)
    for _, group in groupby(zip(run_numbers, found, strict=True), key=lambda pair: pair[0]):
        names = [word for _, word in group if word.capitalised]
        if 2 <= len(names) <= _LONGEST:  # noqa: PLR2004
            yield tuple(word.token for word in names)
