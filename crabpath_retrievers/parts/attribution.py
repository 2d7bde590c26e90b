"""Which of the returned documents an answer rests on.

Citations decide if there are any: [1], [2, 3], ids and titles. Otherwise the words decide: support
goes to a document that contains the answer, and to documents that lead to it. The ranker's
probabilities are not used, since learning from them would only confirm them.

Limits: synonyms and translations are not recognised; an answer in the chain's own words is often
attributed to nothing; of two documents that say the same, one may get no support.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.config import SeedSettings
from crabpath_retrievers.core.records import Node, Turn
from crabpath_retrievers.core.text import (
    Floats,
    list_mention_names,
    normalise_name,
    prepend_title,
    split_words,
    tokenise,
)
from crabpath_retrievers.retrieval.search import compute_idf, select_query_words
from crabpath_retrievers.storage import Reader


@dataclass(frozen=True, slots=True)
class Passage:
    """A document that the chain was given.

    Attributes:
        content: Its text; may be empty.
        title: Its title; empty if it has none.
        linked: Ids of the documents with an edge to it on the walk.
    """

    id: str
    content: str
    title: str = ""
    linked: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Title and content."""
        return prepend_title(self.title, self.content)


def to_passages(turn: Turn, nodes: Mapping[str, Node]) -> list[Passage]:
    """Return the documents of a turn in the order in which they were shown.

    ``nodes`` are the contents by id. A document that was forgotten, or that the memory never had,
    keeps its position, without text.
    """
    returned = {item.node: item for item in turn.returned}
    result = []
    for name in turn.shown.values() or returned:
        item, node = returned.get(name), nodes.get(name)
        edges = () if item is None else (*item.path, *((item.support,) if item.support else ()))
        linked = tuple(dict.fromkeys(e.source for e in edges if e.target == name))
        content, title = (node.content, node.title) if node else ("", "")
        result.append(Passage(name, content, title, linked))
    return result


_BRACKETS = re.compile(r"\[([^\[\]]{1,300})\]|【([^【】]{1,300})】")
_SOURCES = re.compile(r"\b(?:sources?|references?|citations?)\s*:([^\n]{1,500})", re.IGNORECASE)
_SEPARATOR = re.compile(r"[,;]")
_LABEL = re.compile(r"(?:doc|document|source|passage|ref|reference)\b|[\s#^:.]", re.IGNORECASE)
_POSITIONS = re.compile(r"(\d{1,9})(?:\s*[-–—]\s*(\d{1,9}))?")
_MAX_CITATIONS = 2_000  # distinct citations that are read
_MIN_BARE_ID_CHARS = 6  # shorter ids may be words; in brackets every id counts


def find_citations(answer: str, documents: Sequence[Passage]) -> frozenset[str]:
    """Find the ids of the documents that an answer cites.

    In brackets, or after "Sources:", numbers are positions in ``documents``, counted from 1, and a
    whole id or title counts. Elsewhere an id counts only if it cannot be an ordinary word.
    Citations that match no document are ignored.
    """
    ids = {document.id for document in documents}
    titles = {
        normalise_name(document.title): document.id for document in documents if document.title
    }
    titles.pop("", None)
    cited_ids = set(_find_bare_ids(answer, ids))
    for part in dict.fromkeys(_split_citations(answer)):
        positions = _parse_positions(part, len(documents))
        if positions:
            cited_ids.update(documents[position - 1].id for position in positions)
        elif part in ids:
            cited_ids.add(part)
        elif titles and (document_id := titles.get(normalise_name(part))):
            cited_ids.add(document_id)
    return frozenset(cited_ids)


def _split_citations(answer: str) -> Iterator[str]:
    """Yield possible citations: each text in brackets or after "Sources:", and its parts."""
    insides = [m[1] or m[2] for m in _BRACKETS.finditer(answer)]
    insides += [m[1] for m in _SOURCES.finditer(answer)]
    for inside in [*dict.fromkeys(insides)][:_MAX_CITATIONS]:
        for part in (inside, *_SEPARATOR.split(inside)):
            yield part.split("†")[0].strip(" \t.()\"'")  # some models write 【1†source】


def _parse_positions(part: str, count: int) -> range:
    """Parse a number or a range into positions from 1 to ``count``; any other text has none."""
    match = _POSITIONS.fullmatch(_LABEL.sub("", part))
    if match is None:
        return range(0)
    first, last = int(match[1]), int(match[2] or match[1])
    return range(max(1, first), min(last, count) + 1)


def _find_bare_ids(answer: str, ids: Iterable[str]) -> Iterator[str]:
    """Find those of ``ids`` in running text that are too long and too unusual to be words."""
    distinctive = [
        i for i in ids if len(i) >= _MIN_BARE_ID_CHARS and not i.replace(" ", "").isalpha()
    ]
    if distinctive:
        # Longest first: one id may be a prefix of another.
        alternatives = "|".join(map(re.escape, sorted(distinctive, key=len, reverse=True)))
        for match in re.finditer(rf"(?<![\w-])(?:{alternatives})(?![\w-])", answer):
            yield match.group()


# English only; in other languages such an answer counts as an ordinary word.
POLAR_WORDS = frozenset({"yes", "no", "true", "false"})
_MIN_IDF = math.log(2) - 1e-9  # a word in more than half of all nodes
# Weight of a word that the query contains too; results hardly differ between 0.1 and 0.5.
_QUERY_WORD_WEIGHT = 0.25
# Weight of a word that is neither a name nor a number: most belong to the chain's phrasing.
_COMMON_WORD_WEIGHT = 0.2
_SENTENCE_END = re.compile(r"[.!?:]\s|\n")


def extract_answer_terms(
    answer: str, query_words: Collection[str], idf: Mapping[str, float]
) -> tuple[dict[str, float], set[str]]:
    """Extract the informative words of an answer with their weights, in nats.

    ``idf`` is in nats by word; a word that is not in it counts as the rarest. Words of the query
    (``query_words``) weigh less. Polar words ("yes"), words in more than half of all nodes, and
    single Latin letters are left out.

    Returns:
        The weights; and those words that are names or numbers and do not occur in the query.
    """
    rarest = max(idf.values(), default=0.0)
    weights: dict[str, float] = {}
    names: set[str] = set()
    for word, is_name in _flag_names(answer):
        nats = idf.get(word, rarest)
        if nats < _MIN_IDF or word in POLAR_WORDS or (len(word) == 1 and "a" <= word <= "z"):
            continue
        weight = (
            nats
            * (_QUERY_WORD_WEIGHT if word in query_words else 1.0)
            * (1.0 if is_name else _COMMON_WORD_WEIGHT)
        )
        weights[word] = max(weight, weights.get(word, 0.0))
        if is_name and word not in query_words:
            names.add(word)
    return weights, names


def _flag_names(answer: str) -> Iterator[tuple[str, bool]]:
    """Yield every word, and whether capital letter and position make it a name or a number."""
    tokens = list(split_words(answer))
    between = ((before.end, after.start) for before, after in pairwise(tokens))
    ends = (_SENTENCE_END.search(answer, *gap) is not None for gap in between)
    sentence_starts = [True, *ends, True]
    for position, word in enumerate(tokens):
        # A capital that begins a sentence counts if the next word has one too: "Stephen King".
        continues = not sentence_starts[position + 1] and tokens[position + 1].capitalised
        is_informative = not sentence_starts[position] or continues or word.token[0].isdigit()
        yield word.token, word.capitalised and is_informative


BoolArray = NDArray[np.bool_]

# Fitted on training questions of HotpotQA and 2WikiMultihopQA, see docs/decisions.md.
DOCUMENT_COST = 0.35
NAMED_BONUS = 0.1
LINKED_BONUS = 0.1
ANSWER_BONUS = 0.1


@dataclass(frozen=True, slots=True)
class EvidenceSet:
    """Parts of a question and its answer, and the documents that contain each part.

    Attributes:
        contains: Whether a document contains a word, shape ``[n, W]``.
        weights: Share of each word, shape ``[W]``; the words of the answer sum to 1, and so do
            those of the question.
        contains_answer: Whether a document contains the answer, shape ``[n]``.
        is_named: Whether the question names a document, shape ``[n]``.
        is_linked: Whether an edge leads from one document to the other, symmetric, shape ``[n,
            n]``.
    """

    contains: BoolArray
    weights: Floats
    contains_answer: BoolArray
    is_named: BoolArray
    is_linked: BoolArray

    def select_documents(self) -> list[int]:
        """Select documents greedily, as indices; empty if no document contains the answer.

        The first document contains the answer. Each further one raises the value of the set most;
        the selection ends when none raises it.
        """
        selected: list[int] = []
        best = -np.inf
        while len(selected) < len(self.contains_answer):
            candidates = [
                i
                for i in np.flatnonzero(self.contains_answer | bool(selected))
                if i not in selected
            ]
            scores = [self.compute_value([*selected, int(i)]) for i in candidates]
            if not scores or max(scores) <= best:
                break
            best = max(scores)
            selected.append(int(candidates[int(np.argmax(scores))]))
        return selected

    def compute_value(self, documents: list[int]) -> float:
        """Compute the value of a set of documents, given as indices; 0 for none.

        It is the sum of the weights of all words that any of them contains, plus 0.1 for each
        document that the question names, for each that contains the answer, and for each that has
        an edge to another one of the set, minus 0.35 per document.
        """
        if not documents:
            return 0.0
        together = float(self.contains[documents].any(axis=0) @ self.weights)
        linked = self.is_linked[np.ix_(documents, documents)].any(axis=1).sum()
        bonuses = (
            NAMED_BONUS * self.is_named[documents].sum()
            + ANSWER_BONUS * self.contains_answer[documents].sum()
        )
        return together + float(bonuses + LINKED_BONUS * linked) - DOCUMENT_COST * len(documents)

    def compute_support(self) -> Floats:
        """Return the support of every document in [0, 1], shape ``[n]``.

        A selected document that contains the answer has 1, any other selected document the value
        that the set would lose without it. Documents that were not selected have 0.
        """
        selected = np.zeros(len(self.contains_answer))
        chosen = self.select_documents()
        for i in chosen:
            others = [j for j in chosen if j != i]
            marginal = self.compute_value(chosen) - self.compute_value(others) + DOCUMENT_COST
            selected[i] = 1.0 if self.contains_answer[i] else min(1.0, marginal)
        return selected


MAX_ANSWER_CHARS = 5_000  # characters of an answer whose words count; citations count everywhere
_MAX_EXACT_WORDS = 12  # longest answer, in words, that is searched for as a phrase
_MIN_ANSWER_SHARE = 0.3  # of the answer's weight, in a document that contains it
_NAMED_PRECISION = 0.9  # P(relevant | named in the question), on yes-no training questions


def attribute_answer(
    answer: str, query: str, documents: Sequence[Passage], idf: Mapping[str, float]
) -> dict[str, float]:
    """Compute how far an answer rests on each document.

    Args:
        documents: The documents that the chain was given, in the order in which they were returned.
        idf: Inverse document frequency in nats, for the words of query and answer that occur in the
            corpus.

    Returns:
        Support in [0, 1] by document id: of every document, or empty if nothing is known.
    """
    named = find_citations(answer, documents)
    support = (
        [float(d.id in named) for d in documents]
        if named
        else _attribute_words(answer[:MAX_ANSWER_CHARS], query, documents, idf)
    )
    if not any(support):
        return {}
    return {d.id: float(value) for d, value in zip(documents, support, strict=True)}


def _attribute_words(
    answer: str, query: str, documents: Sequence[Passage], idf: Mapping[str, float]
) -> Sequence[float]:
    """Compute support of documents from the words of an answer without citations.

    It is empty if the words tell nothing: answer, ``documents`` or ``idf`` are empty, or no
    document contains enough of the answer. An answer without informative words ("yes") supports the
    documents that the query names.
    """
    key, query_words = " ".join(tokenise(answer)), tokenise(query)
    if not key or not documents or not idf:
        return ()
    names = _find_named_documents(query, documents)
    weights, answer_names = extract_answer_terms(answer, frozenset(query_words), idf)
    if not weights:
        return [_NAMED_PRECISION * name for name in names]
    answer_words = set(key.split())
    texts = [tokenise(document.text) for document in documents]
    words, answered, anchors = _find_answer_words(key, weights, answer_names, texts)
    if not anchors.any():
        return ()
    rest = {word: idf[word] for word in query_words if word in idf and word not in answer_words}
    contains = np.hstack([answered, _find_words(rest, texts)])
    shares = np.concatenate([_normalise(words), _normalise(np.array(list(rest.values())))])
    evidence = EvidenceSet(contains, shares, anchors, names, _find_links(documents))
    return [float(value) for value in evidence.compute_support()]


def _find_answer_words(
    key: str,
    weights: Mapping[str, float],
    answer_names: Collection[str],
    texts: Sequence[Sequence[str]],
) -> tuple[Floats, BoolArray, BoolArray]:
    """Find which documents contain the answer, and which of its words.

    Args:
        key: The answer's words, joined by spaces; a short answer is first searched for as a whole.

    Returns:
        Weights in nats, shape ``[W]``; which document contains which word, shape ``[n, W]``; which
        document contains enough of the answer, shape ``[n]``. A whole answer that was found counts
        as one word of weight 1.
    """
    if len(key.split()) <= _MAX_EXACT_WORDS:
        whole = np.array([f" {key} " in f" {' '.join(text)} " for text in texts])
        if whole.any():
            return np.ones(1), whole[:, None], whole
    contains = _find_words(weights, texts)
    nats = np.array(list(weights.values()))
    names = contains[:, [word in answer_names for word in weights]].sum(axis=1)
    # A single word of a name is not evidence of the name.
    enough = (contains @ nats >= _MIN_ANSWER_SHARE * nats.sum()) & (
        names >= min(2, len(answer_names))
    )
    # Words that no document contains cannot distinguish documents.
    return nats * contains.any(axis=0), contains, enough


def _find_words(words: Mapping[str, float], texts: Sequence[Sequence[str]]) -> BoolArray:
    """Return whether each text contains each word, shape ``[n, W]``."""
    vocabularies = [set(text) for text in texts]
    flags = [[word in present for word in words] for present in vocabularies]
    return np.array(flags, dtype=bool).reshape(len(texts), len(words))


def _normalise(nats: Floats) -> Floats:
    return nats / nats.sum() if nats.sum() > 0 else nats


def _find_named_documents(query: str, documents: Sequence[Passage]) -> BoolArray:
    """Return whether the query names each document by a form of its title, shape ``[n]``."""
    text = f" {normalise_name(query)} "
    return np.array([any(f" {n} " in text for n in list_mention_names(d.title)) for d in documents])


def _find_links(documents: Sequence[Passage]) -> BoolArray:
    ids = [document.id for document in documents]
    leads = np.array([[other in d.linked for other in ids] for d in documents], dtype=bool)
    links: BoolArray = leads | leads.T
    return links


_ANSWER_SEARCH = SeedSettings(max_query_terms=2_000)


def attribute_turn(read: Reader, turn: Turn, answer: str) -> dict[str, float]:
    """Compute how far an answer rests on each document of a turn, see :func:`attribute_answer`.

    Documents and frequencies of words come from ``read``. Empty if nothing is known.
    """
    words = tokenise(turn.query) + tokenise(answer[:MAX_ANSWER_CHARS])
    facts = read.walk.read_facts(turn.namespace, select_query_words(words, _ANSWER_SEARCH))
    shown = [item.node for item in turn.returned]
    nodes = read.catalog.documents(shown, namespace=facts.clock.key)
    return attribute_answer(answer, turn.query, to_passages(turn, nodes), compute_idf(facts))
