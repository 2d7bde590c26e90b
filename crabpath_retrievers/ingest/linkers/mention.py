"""Linker ``mention``: a text contains the title or an alias of another document.

Each mention makes an edge, and a weaker edge back. Titles in a new text are found by looking up
its word n-grams in the names table; stored texts that contain a new title are found by a phrase
search. The cost depends on the document and its matches, not on the size of the corpus.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.core.graph import Edge, EdgeKind
from crabpath_retrievers.core.text import is_specific_name, split_words
from crabpath_retrievers.ingest.linkers.base import make_edge
from crabpath_retrievers.storage.read.links import LinkNode, LinkQueries

_MAX_WORDS = 4000  # of one chunk; only unsplit documents are longer


class MentionLinker:
    """Links texts to the documents whose names they contain."""

    def __init__(self, settings: LinkSettings) -> None:
        """Use the priors and bounds of ``settings``."""
        self._settings = settings

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:
        """Return edges for mentions by the new nodes and of them."""
        found = dict.fromkeys(
            (*self._find_mentions_by(new, store), *self._find_mentions_of(new, store))
        )
        nodes = {node.key: node for node in new}
        others = {key for pair in found for key in pair if key not in nodes}
        nodes |= {node.key: node for node in store.nodes(sorted(others))}
        # The chunks of one document all carry its title.
        pairs = [(s, t) for s, t in found if nodes[s].document != nodes[t].document]
        back = store.out_degrees(sorted({t for _, t in pairs}), EdgeKind.MENTIONED_BY.value)
        count = {key: node.mentions for key, node in nodes.items()}
        for source, target in pairs:
            if count[target] >= self._settings.max_mentions:
                continue
            count[target] += 1
            yield make_edge(self._settings, source, target, EdgeKind.MENTION)
            if back.get(target, 0) < self._settings.max_back_links:
                back[target] = back.get(target, 0) + 1
                yield make_edge(self._settings, target, source, EdgeKind.MENTIONED_BY)

    def _find_mentions_by(
        self, new: Sequence[LinkNode], store: LinkQueries
    ) -> Iterator[tuple[int, int]]:
        """Yield pairs (new node, node that it mentions)."""
        names_by_key = {node.key: self._find_names(node.text) for node in new}
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
        for key, found in names.items():
            for name in found:
                if name.count(" ") >= self._settings.max_name_words:
                    continue  # mentions by new nodes do not look up longer names either
                readers = store.phrase(name.split(), self._settings.max_mentions)
                for reader in self._keep_real_mentions(name, readers, store):
                    if key in self._resolve_owners(owners[name], reader):
                        yield reader, key

    def _keep_real_mentions(
        self, name: str, readers: Sequence[int], store: LinkQueries
    ) -> Iterable[int]:
        if " " in name:
            return readers
        # A single word must be capitalised, which full-text search ignores.
        return (node.key for node in store.nodes(readers) if name in self._find_names(node.text))

    def _resolve_owners(self, owners: Sequence[int], reader: int) -> Sequence[int]:
        """Return the owners of a name; none if it is ambiguous or names the reader itself."""
        common = len(owners) > self._settings.max_owners or reader in owners
        return () if common else owners

    def _find_names(self, text: str) -> set[str]:
        return find_candidate_names(text, self._settings.max_name_words)


def find_candidate_names(text: str, longest: int) -> set[str]:
    """Return every word n-gram of a text that could be a name, as stored in the names table.

    Args:
        text: Any text.
        longest: Largest n, in words.
    """
    found = list(islice(split_words(text), _MAX_WORDS))
    tokens = [word.token for word in found]
    # A single lower-case word is not a name.
    names = {word.token for word in found if word.capitalised}
    for start, name in enumerate(tokens):
        gram = name
        for token in tokens[start + 1 : start + longest]:
            gram += " " + token
            names.add(gram)
    return {name for name in names if is_specific_name(name)}
