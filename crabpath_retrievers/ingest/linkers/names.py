"""The linkers that read names in texts.

Linker ``mention``: a text contains the title or an alias of another document. Each mention makes an
edge, and a weaker edge back. Titles in a new text are found word by word: of its word n-grams only
those with which a name begins are looked up with one more word. Stored texts that contain a new
title are found by a phrase search. The cost depends on the document and its matches, not on the
size of the corpus.

Linker ``shared_term``: two chunks contain the same rare name or identifier. It connects corpora
whose titles are headlines that no other text repeats.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, pairwise

from crabpath_retrievers.core.language import detect_language, follows_article
from crabpath_retrievers.core.records import EdgeKind
from crabpath_retrievers.core.text import (
    contains_name,
    is_character,
    is_signed,
    list_searched_words,
    split_words,
)
from crabpath_retrievers.ingest.linkers.base import (
    FoundPairs,
    LinkUpdate,
    Pair,
    PairLinker,
    find_full_targets,
    join_with_way_back,
    keep_freed,
)
from crabpath_retrievers.storage.read.catalog import LinkNode, LinkQueries

_SEARCHED = 1024  # texts with a new name, among which those that mention it are chosen


class MentionLinker(PairLinker):
    """Links texts to the documents whose names they contain."""

    kind = EdgeKind.MENTION

    def find(
        self, new: Sequence[LinkNode], store: LinkQueries, before: int | None = None
    ) -> FoundPairs:
        """Return mentions by and of the new nodes, and mentions by names that are ambiguous now."""
        incoming, doubtful = list[Pair](), set[Pair]()
        if before != 0:
            keys = [node.key for node in new]
            names, owners = _read_owners(keys, store)
            incoming = [
                pair
                for pair in self._find_mentions_of(names, owners, store)
                if before is None or pair[0] < before
            ]
            doubtful = self._find_doubtful(keys, owners, store)
        found = dict.fromkeys((*self._find_mentions_by(new, store), *incoming))
        documents = {node.key: node.document for node in new}
        others = {key for pair in found for key in pair if key not in documents}
        documents |= store.documents(sorted(others))
        readers = store.nodes(sorted({reader for reader, _ in doubtful}))
        # The chunks of one document all carry its title.
        return FoundPairs(
            [(s, t) for s, t in found if documents[s] != documents[t]],
            doubtful - set(self._find_mentions_by(readers, store)),
        )

    def make_edges(self, pairs: FoundPairs, store: LinkQueries) -> LinkUpdate:
        """Return an edge for each mention, and one back, both within their limits."""
        kinds = (EdgeKind.MENTION, EdgeKind.MENTIONED_BY)
        return join_with_way_back(self.settings, pairs, kinds, self.settings.max_mentions, store)

    def find_freed(self, leaving: Sequence[int], store: LinkQueries) -> set[int]:
        """Return nodes that may get more edges once the nodes ``leaving`` are gone.

        These are owners of names that are no longer ambiguous, and mentioned nodes that have
        reached a limit.
        """
        _, owners = _read_owners(leaving, store)
        most = min(self.settings.max_mentions, self.settings.max_back_links)
        return {
            *keep_freed(owners.values(), leaving, self.settings.max_owners),
            *find_full_targets(leaving, self.kind, most, store),
        }

    def _find_doubtful(
        self, keys: Sequence[int], owners: Mapping[str, Sequence[int]], store: LinkQueries
    ) -> set[Pair]:
        """Find mentions to check again: by or of the nodes ``keys``, and by names they share.

        ``owners`` has all nodes of each name.
        """
        given, most = set(keys), self.settings.max_owners
        parted = [
            [key for key in found if key not in given]
            for found in owners.values()
            if len(found) > most
        ]
        named = given.union(*(found for found in parted if len(found) <= most))
        by_target = store.find_sources(sorted(named), self.kind.value)
        return {(source, target) for target, source in by_target} | store.find_ends(
            keys, self.kind.value
        )

    def _find_mentions_by(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterator[Pair]:
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
        self,
        names: Mapping[int, Sequence[str]],
        owners: Mapping[str, Sequence[int]],
        store: LinkQueries,
    ) -> Iterator[Pair]:
        """Yield pairs (stored node, new node that it mentions).

        ``names`` are those of each new node; ``owners`` has all nodes of each name.
        """
        # Mentions by new nodes do not look up longer names either.
        short = [tuple(name.split()) for name in owners]
        short = [words for words in short if _count_words(words) <= self.settings.max_name_words]
        most = max(_SEARCHED, self.settings.max_mentions)
        language = store.language
        readers: dict[str, Sequence[int]] = {}
        for words, keys in store.find_phrases(short, most).items():
            name = " ".join(words)
            # What makes a word a name, full-text search ignores; scripts without spaces have words
            # of several tokens.
            readers[name] = (
                [n.key for n in store.nodes(keys) if _keep_names(n.text, [name], language)]
                if len(words) == 1 or is_character(words[0])
                else keys
            )
        for key, found in names.items():
            for name in found:
                for reader in readers.get(name, ()):
                    if key in self._resolve_owners(owners[name], reader):
                        yield reader, key

    def _resolve_owners(self, owners: Sequence[int], reader: int) -> Sequence[int]:
        """Return the owners of a name; none if it is ambiguous or is a name of ``reader``."""
        common = len(owners) > self.settings.max_owners or reader in owners
        return () if common else owners

    def _find_names(self, nodes: Sequence[LinkNode], store: LinkQueries) -> list[list[str]]:
        """Find the stored names that occur in the text of each node, the shortest first."""
        # The words in which a new name is searched for, so that both ways find the same.
        language = store.language
        texts = [list_searched_words(node.text, language) for node in nodes]
        found: list[dict[str, None]] = [{} for _ in nodes]
        following = store.find_longer_names(sorted(set().union(*texts)))
        single = {word for word, name in following.items() if word == name}
        for own, text in zip(found, texts, strict=True):
            if not single.isdisjoint(text):
                own.update(dict.fromkeys(word for word in text if word in single))
        known = store.find_second_words(following)
        seconds = {first: None if known is None else known[first] for first in following}
        # Where longer names may begin: number of the text, position of the next word, words so far
        # and their number.
        begun = [
            (i, at + 1, f"{first} {second}", _count_words((first, second)))
            for i, text in enumerate(texts)
            for at, (first, second) in enumerate(pairwise(text), 1)
            if first in seconds and ((after := seconds[first]) is None or second in after)
        ]
        while begun := [each for each in begun if each[3] <= self.settings.max_name_words]:
            following = store.find_longer_names(sorted({gram for _, _, gram, _ in begun}))
            longer = []
            for i, at, gram, words in begun:
                name = following.get(gram)
                if name is None:
                    continue
                if name == gram:
                    found[i][gram] = None
                if at < len(texts[i]):
                    word = texts[i][at]
                    longer.append((i, at + 1, f"{gram} {word}", words + (not is_character(word))))
            begun = longer
        pairs = zip(nodes, found, strict=True)
        return [_keep_names(node.text, names, language) for node, names in pairs]


def _read_owners(
    keys: Sequence[int], store: LinkQueries
) -> tuple[dict[int, list[str]], dict[str, list[int]]]:
    """Read the names of each of the nodes ``keys``, and all owners of these names."""
    names = store.names(keys)
    return names, store.owners(sorted({name for found in names.values() for name in found}))


def _count_words(tokens: Iterable[str]) -> int:
    """Count the words of a name; characters of scripts without spaces do not count."""
    return sum(not is_character(token) for token in tokens)


def _keep_names(text: str, names: Iterable[str], language: str | None) -> list[str]:
    """Keep the ``names`` that a text uses as names.

    These are names of several words; single words with a capital letter, or of a script without
    capitals, unless the text uses them as common nouns; and, in scripts without spaces, names that
    stand alone. ``language`` is that of the text; None to detect it.
    """
    given = list(names)
    single = {n for n in given if not (" " in n or is_character(n) or is_signed(n))}
    if single:
        marked = split_words(text, marked=True)
        found = {
            word.token
            for word in marked
            if word.token.upper() == word.token or not text[word.start : word.end].islower()
        }
        common = single - found
        if len(common) < len(single):
            common |= _find_common_nouns(text, language)
        given = [name for name in given if name not in single or name not in common]
    return [name for name in given if contains_name(text, name)]


def _find_common_nouns(text: str, language: str | None) -> set[str]:
    """Find words that a text has in lower case at least as often as capitalised.

    In German, these are words that follow an article at least as often as not. ``language`` is that
    of the text; None to detect it.
    """
    words = list(split_words(text))
    language = language or detect_language(text, [word.token for word in words])
    in_german = language == "de"
    names, nouns = Counter[str](), Counter[str]()
    follows = False
    for token, capitalised, start, end in words:
        small = text[start:end].islower() and not in_german and token.upper() != token
        is_noun = follows if capitalised else small
        (nouns if is_noun else names)[token] += 1
        follows = in_german and follows_article(token, after_article=follows and not capitalised)
    return {word for word, count in nouns.items() if count >= names[word]}


class SharedTermLinker(PairLinker):
    """Links chunks that share a term found in few chunks."""

    kind = EdgeKind.SHARED_TERM

    def find(
        self, new: Sequence[LinkNode], store: LinkQueries, before: int | None = None
    ) -> FoundPairs:
        """Return pairs of new nodes and holders of their terms; pairs by terms now too common."""
        given = {node.key for node in new}
        terms = store.references(sorted(given), terms=True)
        pairs = set[Pair]()
        doubtful = store.find_ends(sorted(given), self.kind.value) if before != 0 else set()
        for keys in self._find_holders(terms, store):
            if len(keys) <= self.settings.max_chunks_per_term:
                # Other new nodes, whose keys are higher, find the pair themselves.
                pairs.update(
                    (a, b)
                    for a, b in combinations(keys, 2)
                    if b in given or (a in given and (before is None or b < before))
                )
            else:
                old = [k for k in keys if k not in given and (before is None or k < before)]
                if len(old) <= self.settings.max_chunks_per_term:
                    doubtful.update(combinations(old, 2))
        documents = store.documents(sorted({key for pair in pairs for key in pair}))
        across = [(a, b) for a, b in pairs if documents[a] != documents[b]]
        return FoundPairs(across, self._find_lost(doubtful, store))

    def find_freed(self, leaving: Sequence[int], store: LinkQueries) -> set[int]:
        """Return the holders of terms that are rare again once the nodes ``leaving`` are gone."""
        holders = self._find_holders(store.references(leaving, terms=True), store)
        return set(keep_freed(holders, leaving, self.settings.max_chunks_per_term))

    def _find_holders(
        self, terms: Mapping[int, Sequence[str]], store: LinkQueries
    ) -> Iterator[Sequence[int]]:
        """Yield the nodes with each term of some nodes, in order.

        ``terms`` are by node. For a common term, only as many holders are yielded as show that it
        is too common, besides the nodes themselves.
        """
        by_count: dict[int, list[str]] = defaultdict(list)
        for term, count in Counter(chain.from_iterable(terms.values())).items():
            by_count[count].append(term)
        for count, group in by_count.items():
            most = self.settings.max_chunks_per_term + 1 + count
            yield from store.find_few_referring(sorted(group), most).values()

    def _find_lost(self, doubtful: Collection[Pair], store: LinkQueries) -> set[Pair]:
        """Find which of the pairs ``doubtful`` no longer share a term of few nodes."""
        terms = store.references(sorted({key for pair in doubtful for key in pair}), terms=True)
        shared = {(a, b): {*terms.get(a, ())} & {*terms.get(b, ())} for a, b in doubtful}
        most = self.settings.max_chunks_per_term
        holders = store.find_few_referring(sorted(set().union(*shared.values())), most + 1)
        return {
            pair
            for pair, found in shared.items()
            if all(len(holders.get(term, ())) > most for term in found)
        }
