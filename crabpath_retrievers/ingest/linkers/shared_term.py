"""Linker ``shared_term``: two chunks contain the same rare name or identifier.

It connects corpora whose titles are headlines that no other text repeats.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.core.graph import Edge, EdgeKind
from crabpath_retrievers.core.text import split_words
from crabpath_retrievers.ingest.linkers.base import Linker, make_edge
from crabpath_retrievers.storage.read.links import LinkNode, LinkQueries

_IDENTIFIER = re.compile(r"[a-z]\w*[A-Z_]|\w*[a-zA-Z]\w*\d|\w*\d\w*[a-zA-Z]")
_JOINTS = frozenset((" ", "-", ". ", "’", "'"))  # what may stand between the words of a name
_MAX_NAME_WORDS = 4


@dataclass(frozen=True)
class SharedTermLinker(Linker):
    """Links chunks that share a term found in few chunks."""

    settings: LinkSettings

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:
        """Return edges, both ways, between new nodes and chunks that share their rare terms."""
        terms = {node.key: find_candidate_terms(node.text) for node in new}
        chosen = self._choose_terms(terms, store)
        holders = self._find_holders({t for found in chosen.values() for t in found}, store)
        most = self.settings.max_chunks_per_term
        rare = {term: keys for term, keys in holders.items() if len(keys) <= most}
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
                yield make_edge(self.settings, key, other, EdgeKind.SHARED_TERM)
                yield make_edge(self.settings, other, key, EdgeKind.SHARED_TERM)

    def _find_holders(
        self, terms: Iterable[tuple[str, ...]], store: LinkQueries
    ) -> dict[tuple[str, ...], list[int]]:
        """Find the chunks that contain each term; of common terms one more than count as few."""
        by_size: dict[int, list[tuple[str, ...]]] = defaultdict(list)
        for term in sorted(terms):
            by_size[len(term)].append(term)
        holders: dict[tuple[str, ...], list[int]] = {}
        for _, group in sorted(by_size.items()):
            searched = []
            for term in group:
                # A name is in the only chunk that has its beginning or its end: most are.
                within = (holders.get(term[:-1], ()), holders.get(term[1:], ()))
                only = next((keys for keys in within if len(keys) == 1), None)
                if only is None:
                    searched.append(term)
                else:
                    holders[term] = list(only)
            holders |= store.find_phrases(searched, self.settings.max_chunks_per_term + 1)
        return holders

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
            common = len(term) == 1 and rarest > self.settings.max_chunks_per_term
            if rarest > 1 and not common:
                ranked.append((rarest, term))
        return [term for _, term in sorted(ranked)[: self.settings.max_terms_per_chunk]]


@lru_cache(maxsize=4096)
def find_candidate_terms(text: str) -> frozenset[tuple[str, ...]]:
    """Find identifiers and names: two to four capitalised words, also within longer names."""
    terms: set[tuple[str, ...]] = set()
    names: list[str] = []  # capitalised words with only a joint between
    end = 0
    for token, capitalised, start, next_end in split_words(text, marked=True):
        if not (capitalised and text[end:start] in _JOINTS):
            terms.update(_list_names(names))
            names.clear()
        if capitalised:
            names.append(token)
        surface = text[start:next_end]
        is_plain = surface.isalpha() and (capitalised or surface.islower())
        if not is_plain and _IDENTIFIER.match(surface):
            terms.add((token,))
        end = next_end
    terms.update(_list_names(names))
    return frozenset(terms)


def _list_names(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the two to four words that stand together in a run of capitalised words."""
    for size in range(2, min(len(words), _MAX_NAME_WORDS) + 1):
        yield from (tuple(words[i : i + size]) for i in range(len(words) - size + 1))
