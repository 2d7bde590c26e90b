"""The linkers that read names in texts.

Linker ``mention``: a text contains the title or an alias of another document. Each mention makes an
edge, and a weaker edge back. Titles in a new text are found word by word: of its word n-grams only
those with which a name begins are looked up with one more word. Stored texts that contain a new
title are found by a phrase search. The cost depends on the document and its matches, not on the
size of the corpus.

Linker ``shared_term``: two chunks contain the same rare name or identifier. It connects corpora
whose titles are headlines that no other text repeats.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.core.graph import Edge, EdgeKind
from crabpath_retrievers.core.text import LONGEST_WORD, split_words, tokenise
from crabpath_retrievers.ingest.linkers.base import (
    Pair,
    PairLinker,
    make_edge,
    make_edges_both_ways,
)
from crabpath_retrievers.ingest.linkers.shared_terms import TermRows, hash_terms
from crabpath_retrievers.storage.read.links import LinkNode, LinkQueries

_MAX_WORDS = 4000  # of one chunk; only unsplit documents are longer
_IDENTIFIER = re.compile(r"[a-z]\w*[A-Z_]|\w*[a-zA-Z]\w*\d|\w*\d\w*[a-zA-Z]")
_JOINTS = frozenset((" ", "-", ". ", "’", "'"))  # what may stand between the words of a name
_MAX_NAME_WORDS = 4
# In ASCII: capitalised words with a joint between, and words with a digit, an underscore or a
# capital letter within.
_ASCII_NAMES = re.compile(r"\b[A-Z0-9]\w*(?:(?:[ '-]|\. )[A-Z0-9]\w*)+", re.ASCII)
_ASCII_WORD = re.compile(r"\w+", re.ASCII)
_ASCII_ODD = re.compile(r"\b(?:[A-Za-z]*[0-9_]|[a-z]+[A-Z])\w*", re.ASCII)


@dataclass(frozen=True)
class MentionLinker(PairLinker):
    """Links texts to the documents whose names they contain."""

    kind = EdgeKind.MENTION
    settings: LinkSettings

    def find(
        self, new: Sequence[LinkNode], store: LinkQueries, before: int | None = None
    ) -> Sequence[Pair]:
        """Return mentions by the new nodes and of them."""
        incoming = [
            pair
            for pair in (self._find_mentions_of(new, store) if before != 0 else ())
            if before is None or pair[0] < before
        ]
        found = dict.fromkeys((*self._find_mentions_by(new, store), *incoming))
        documents = {node.key: node.document for node in new}
        others = {key for pair in found for key in pair if key not in documents}
        documents |= store.documents(sorted(others))
        # The chunks of one document all carry its title.
        return [(s, t) for s, t in found if documents[s] != documents[t]]

    def make_edges(self, pairs: Sequence[Pair], store: LinkQueries) -> Iterable[Edge]:
        """Return an edge for each mention, and one back, both within their limits."""
        targets = sorted({target for _, target in pairs})
        counts = store.count_mentions(targets)
        for source, target in pairs:
            count, back = counts[target]
            if count >= self.settings.max_mentions:
                continue
            led_back = back < self.settings.max_back_links
            counts[target] = (count + 1, back + led_back)
            yield make_edge(self.settings, source, target, EdgeKind.MENTION)
            if led_back:
                yield make_edge(self.settings, target, source, EdgeKind.MENTIONED_BY)

    def _find_mentions_by(
        self, new: Sequence[LinkNode], store: LinkQueries
    ) -> Iterator[tuple[int, int]]:
        """Yield pairs (new node, node that it mentions)."""
        names_by_key = {
            node.key: found for node, found in zip(new, self._find_names(new, store), strict=True)
        }
        owners = store.owners(sorted(set().union(*names_by_key.values())))
        for key, names in names_by_key.items():
            for name in names:
                for owner in self._resolve_owners(owners.get(name, ()), key):
                    yield key, owner

    def _find_mentions_of(
        self, new: Sequence[LinkNode], store: LinkQueries
    ) -> Iterator[tuple[int, int]]:
        """Yield pairs (node that mentions it, new node)."""
        names = store.names([node.key for node in new])
        owners = store.owners(sorted({name for found in names.values() for name in found}))
        # Mentions by new nodes do not look up longer names either.
        short = [tuple(name.split()) for name in owners]
        short = [words for words in short if len(words) <= self.settings.max_name_words]
        readers = {
            " ".join(words): self._keep_real_mentions(words, keys, store)
            for words, keys in store.find_phrases(short, self.settings.max_mentions).items()
        }
        for key, found in names.items():
            for name in found:
                for reader in readers.get(name, ()):
                    if key in self._resolve_owners(owners[name], reader):
                        yield reader, key

    def _keep_real_mentions(
        self, tokens: Sequence[str], readers: Sequence[int], store: LinkQueries
    ) -> Sequence[int]:
        if len(tokens) > 1:
            return readers
        # A single word must be capitalised, which full-text search ignores.
        return [node.key for node in store.nodes(readers) if _is_capitalised(tokens[0], node.text)]

    def _resolve_owners(self, owners: Sequence[int], reader: int) -> Sequence[int]:
        """Return the owners of a name; none if it is ambiguous or names the reader itself."""
        common = len(owners) > self.settings.max_owners or reader in owners
        return () if common else owners

    def _find_names(self, nodes: Sequence[LinkNode], store: LinkQueries) -> list[list[str]]:
        """Stored names that occur in the text of each node, the shortest first."""
        texts = [tokenise(node.text)[:_MAX_WORDS] for node in nodes]
        found: list[dict[str, None]] = [{} for _ in nodes]
        following = store.find_longer_names(sorted(set().union(*texts)))
        single = {word for word, name in following.items() if word == name}
        for own, text in zip(found, texts, strict=True):
            if not single.isdisjoint(text):
                own.update(dict.fromkeys(word for word in text if word in single))
        known = store.find_second_words(following)
        seconds = {first: None if known is None else known[first] for first in following}
        # Where longer names may begin: number of the text, position of the next word, words so far.
        begun = [
            (i, at + 1, f"{first} {second}")
            for i, text in enumerate(texts)
            for at, (first, second) in enumerate(pairwise(text), 1)
            if first in seconds and ((after := seconds[first]) is None or second in after)
        ]
        for words in range(2, self.settings.max_name_words + 1):
            following = store.find_longer_names(sorted({gram for _, _, gram in begun}))
            longer = []
            for i, at, gram in begun:
                name = following.get(gram)
                if name is None:
                    continue
                if name == gram:
                    found[i][gram] = None
                if words < self.settings.max_name_words and at < len(texts[i]):
                    longer.append((i, at + 1, f"{gram} {texts[i][at]}"))
            begun = longer
        return [
            self._keep_names(node.text, names) for node, names in zip(nodes, found, strict=True)
        ]

    def _keep_names(self, text: str, names: Iterable[str]) -> list[str]:
        """Return names of several words, and single ones that the text has capitalised."""
        given = list(names)
        if all(" " in name for name in given):
            return given
        capitalised = {word.token for word in split_words(text, marked=True) if word.capitalised}
        return [name for name in given if " " in name or name in capitalised]


def _is_capitalised(name: str, text: str) -> bool:
    """Whether a text contains a word that is a name, capitalised: other words are none."""
    return any(word.capitalised and word.token == name for word in split_words(text, marked=True))


@dataclass(frozen=True)
class SharedTermLinker(PairLinker):
    """Links chunks that share a term found in few chunks."""

    kind = EdgeKind.SHARED_TERM
    settings: LinkSettings

    def find(
        self,
        new: Sequence[LinkNode],
        store: LinkQueries,
        before: int | None = None,  # noqa: ARG002  who chooses a term differs by side
    ) -> Sequence[Pair]:
        """Return the new nodes with the chunks that share their rare terms."""
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
        pairs = dict.fromkeys(
            (key, other)
            for key, found in chosen.items()
            for term in found
            for other in rare.get(term, ())
            if term in terms[other]
        )
        return [(a, b) for a, b in pairs if nodes[a].document != nodes[b].document]

    def make_edges(self, pairs: Sequence[Pair], store: LinkQueries) -> Iterable[Edge]:  # noqa: ARG002
        """Return edges both ways."""
        return make_edges_both_ways(self.settings, pairs, EdgeKind.SHARED_TERM)

    def collect_terms(self, new: Sequence[LinkNode], store: LinkQueries) -> TermRows:
        """Collect the terms of the nodes that other nodes may share, for :func:`join_terms`."""
        terms = {node.key: find_candidate_terms(node.text) for node in new}
        known = {word for found in terms.values() for term in found for word in term}
        frequencies = store.frequencies(sorted(known))
        most, common = self.settings.max_chunks_per_term, set[tuple[str, ...]]()
        shared: list[tuple[str, ...]] = []
        keys: list[int] = []
        chosen: list[bool] = []
        for key, found in terms.items():
            ranked = self._rank_terms(found, frequencies)
            first = ranked[: self.settings.max_terms_per_chunk]
            common.update(term for rarest, term in first if rarest > most)
            shared += (term for _, term in ranked)
            keys += [key] * len(ranked)
            chosen += [place < len(first) for place in range(len(ranked))]
        searched = dict(zip(hash_terms(common).tolist(), map(" ".join, common), strict=True))
        return TermRows(
            hash_terms(shared), np.array(keys, dtype=np.int64), np.array(chosen, bool), searched
        )

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
        """Return at most ``max_terms_per_chunk`` terms that few chunks can share, rarest first."""
        ranked = self._rank_terms(terms, frequencies)
        return [term for _, term in ranked[: self.settings.max_terms_per_chunk]]

    def _rank_terms(
        self, terms: Iterable[tuple[str, ...]], frequencies: dict[str, int]
    ) -> list[tuple[int, tuple[str, ...]]]:
        """Return the terms that few chunks can share, with the frequency of their rarest word."""
        most = self.settings.max_chunks_per_term
        ranked = []
        for term in terms:
            rarest = min([frequencies.get(word, 0) for word in term])
            if rarest > 1 and (len(term) > 1 or rarest <= most):
                ranked.append((rarest, term))
        ranked.sort()
        return ranked


@lru_cache(maxsize=4096)
def find_candidate_terms(text: str) -> frozenset[tuple[str, ...]]:
    """Find identifiers and names: two to four capitalised words, also within longer names."""
    if text.isascii():
        return frozenset(_find_ascii_terms(text))
    terms: set[tuple[str, ...]] = set()
    names: list[str] = []  # capitalised words with only a joint between
    end = 0
    for token, capitalised, start, next_end in split_words(text, marked=True):
        if names and not (capitalised and text[end:start] in _JOINTS):
            if len(names) > 1:
                terms.update(_list_names(names))
            names = []
        if capitalised:
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


def _find_ascii_terms(text: str) -> Iterator[tuple[str, ...]]:
    """Find the same by regular expressions, which take a third of the time."""
    for names in _ASCII_NAMES.findall(text):
        yield from _list_names([word[:LONGEST_WORD] for word in _ASCII_WORD.findall(names.lower())])
    for word in _ASCII_ODD.findall(text):
        cut = word[:LONGEST_WORD]
        if not (cut.islower() and cut.isalpha()) and _IDENTIFIER.match(cut):
            yield (cut.lower(),)


def _list_names(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the two to four words that stand together in a run of capitalised words."""
    yield from pairwise(words)
    if len(words) > 2:  # noqa: PLR2004
        for size in range(3, min(len(words), _MAX_NAME_WORDS) + 1):
            yield from zip(*(words[i:] for i in range(size)), strict=False)
