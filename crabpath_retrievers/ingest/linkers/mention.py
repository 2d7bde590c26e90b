"""Linker ``mention``: a text contains the title or an alias of another document.

Each mention makes an edge, and a weaker edge back. Titles in a new text are found word by word:
of its word n-grams only those with which a name begins are looked up with one more word. Stored
texts that contain a new title are found by a phrase search. The cost depends on the document and
its matches, not on the size of the corpus.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.core.graph import Edge, EdgeKind
from crabpath_retrievers.core.text import split_words, tokenise
from crabpath_retrievers.ingest.linkers.base import Linker, make_edge
from crabpath_retrievers.storage.read.links import LinkNode, LinkQueries

_MAX_WORDS = 4000  # of one chunk; only unsplit documents are longer


@dataclass(frozen=True)
class MentionLinker(Linker):
    """Links texts to the documents whose names they contain."""

    settings: LinkSettings

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
            if count[target] >= self.settings.max_mentions:
                continue
            count[target] += 1
            yield make_edge(self.settings, source, target, EdgeKind.MENTION)
            if back.get(target, 0) < self.settings.max_back_links:
                back[target] = back.get(target, 0) + 1
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
        # Beginnings of names: number of the text, position of the next word, words so far.
        begun = [(i, at, token) for i, text in enumerate(texts) for at, token in enumerate(text, 1)]
        for words in range(1, self.settings.max_name_words + 1):
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
            [name for name in names if " " in name or _is_capitalised(name, node.text)]
            for node, names in zip(nodes, found, strict=True)
        ]


def _is_capitalised(name: str, text: str) -> bool:
    """Whether a text contains a word that is a name, capitalised: other words are none."""
    return any(word.capitalised and word.token == name for word in split_words(text, marked=True))
