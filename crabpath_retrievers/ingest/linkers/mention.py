"""``mention``: a text names another document's title or alias; a weaker edge back.

The titles that a new text names are found by looking its word n-grams up in the names table; the
old texts that name a new title are found by a phrase search. Both cost what the document and its
matches cost.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.graph import Edge, EdgeKind
from crabpath_retrievers.ingest.linkers.base import edge
from crabpath_retrievers.storage.link_queries import LinkNode, LinkQueries
from crabpath_retrievers.text import is_telling, words

_MOST_WORDS = 4000  # of one chunk; only chunks that were not split are longer


class MentionLinker:
    """Names of documents in the text of others."""

    def __init__(self, settings: LinkSettings) -> None:
        """Use the priors and bounds of ``settings``."""
        self._settings = settings

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:
        """Mentions by the new nodes and mentions of them."""
        found = dict.fromkeys((*self._mentions(new, store), *self._mentioned(new, store)))
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
            yield edge(self._settings, source, target, EdgeKind.MENTION)
            if back.get(target, 0) < self._settings.max_back_links:
                back[target] = back.get(target, 0) + 1
                yield edge(self._settings, target, source, EdgeKind.MENTIONED_BY)

    def _mentions(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterator[tuple[int, int]]:
        """Pairs (new node, node that it names)."""
        said = {node.key: self._said(node.text) for node in new}
        owners = store.owners(sorted(set().union(*said.values())))
        for key, names in said.items():
            for name in names:
                for owner in self._meant(owners.get(name, ()), key):
                    yield key, owner

    def _mentioned(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterator[tuple[int, int]]:
        """Pairs (node that names it, new node)."""
        names = store.names([node.key for node in new])
        owners = store.owners(sorted({name for found in names.values() for name in found}))
        for key, found in names.items():
            for name in found:
                if name.count(" ") >= self._settings.max_name_words:
                    continue  # the other way it would not be looked up either
                readers = store.phrase(name.split(), self._settings.max_mentions)
                for reader in self._really(name, readers, store):
                    if key in self._meant(owners[name], reader):
                        yield reader, key

    def _really(self, name: str, readers: Sequence[int], store: LinkQueries) -> Iterable[int]:
        if " " in name:
            return readers
        # A single word must stand as a name: full text does not know about capitals.
        return (node.key for node in store.nodes(readers) if name in self._said(node.text))

    def _meant(self, owners: Sequence[int], reader: int) -> Sequence[int]:
        """Whom a name means; nobody where too many carry it or the reader itself does."""
        common = len(owners) > self._settings.max_owners or reader in owners
        return () if common else owners

    def _said(self, text: str) -> set[str]:
        return names_said(text, self._settings.max_name_words)


def names_said(text: str, longest: int) -> set[str]:
    """Every word n-gram of a text that could be a name, as stored in the names table.

    Args:
        text: Any text.
        longest: Largest n.
    """
    found = list(islice(words(text), _MOST_WORDS))
    tokens = [word.token for word in found]
    # A single lower-case word is a word, not a name.
    names = {word.token for word in found if word.capitalised}
    for start, name in enumerate(tokens):
        gram = name
        for token in tokens[start + 1 : start + longest]:
            gram += " " + token
            names.add(gram)
    return {name for name in names if is_telling(name)}
