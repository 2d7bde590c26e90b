"""Which of the returned documents an answer rests on.

Citations decide if there are any. Otherwise the words decide: support goes to a document that
contains the answer, and to documents that lead to it. The ranker's probabilities are not used,
since learning from them would only confirm them.

Limits: synonyms and translations are not recognised; an answer in the chain's own words is often
attributed to nothing; of two documents that say the same, one may get no support.

Attribution over a store: reads what the pure function needs, in two queries.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from crabpath_retrievers.config import SeedSettings
from crabpath_retrievers.core.text import Floats, list_mention_names, normalise_name, tokenise
from crabpath_retrievers.core.turn import Turn
from crabpath_retrievers.learning.attribution.answer_terms import AnswerTerms, extract_answer_terms
from crabpath_retrievers.learning.attribution.citations import Passage, find_citations, to_passages
from crabpath_retrievers.learning.attribution.evidence_set import BoolArray, EvidenceSet
from crabpath_retrievers.retrieval.search import look_up_terms
from crabpath_retrievers.storage import GraphStore

MAX_ANSWER_CHARS = 5_000  # characters of an answer whose words count; citations count everywhere
_MAX_EXACT_WORDS = 12  # longest answer, in words, that is searched for as a phrase
_MIN_ANSWER_SHARE = 0.3  # of the answer's weight, in a document that contains it
_NAMED_PRECISION = 0.9  # P(relevant | named in the question), on yes-no training questions


def attribute_answer(
    answer: str, query: str, documents: Sequence[Passage], idf: Mapping[str, float]
) -> dict[str, float]:
    """Compute how far an answer rests on each document.

    Args:
        answer: The chain's answer.
        query: The question.
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
    """Compute support from the words of an answer that has no citations."""
    key, query_words = normalise_name(answer), tokenise(query)
    if not key or not documents or not idf:
        return ()
    names = _find_named_documents(query, documents)
    answer_terms = extract_answer_terms(answer, frozenset(query_words), idf)
    if not answer_terms.weights:
        return [_NAMED_PRECISION * name for name in names]
    answer_words = set(key.split())
    texts = [tokenise(document.text) for document in documents]
    words, answered, anchors = _find_answer_words(key, answer_terms, texts)
    if not anchors.any():
        return ()
    rest = {word: idf[word] for word in query_words if word in idf and word not in answer_words}
    contains = np.hstack([answered, _find_words(rest, texts)])
    shares = np.concatenate([_normalise(words), _normalise(np.array(list(rest.values())))])
    evidence = EvidenceSet(contains, shares, anchors, names, _find_links(documents))
    return [float(value) for value in evidence.compute_support()]


def _find_answer_words(
    key: str, answer_terms: AnswerTerms, texts: Sequence[Sequence[str]]
) -> tuple[Floats, BoolArray, BoolArray]:
    """Find where the answer stands.

    Returns:
        Weights of the answer's words in nats, shape ``[W]``; which document contains which word,
        shape ``[n, W]``; which document contains enough of the answer, shape ``[n]``.
    """
    if len(key.split()) <= _MAX_EXACT_WORDS:
        whole = np.array([f" {key} " in f" {' '.join(text)} " for text in texts])
        if whole.any():
            return np.ones(1), whole[:, None], whole
    contains = _find_words(answer_terms.weights, texts)
    nats = np.array(list(answer_terms.weights.values()))
    names = contains[:, [word in answer_terms.names for word in answer_terms.weights]].sum(axis=1)
    # A single word of a name is not evidence of the name.
    enough = (contains @ nats >= _MIN_ANSWER_SHARE * nats.sum()) & (
        names >= min(2, len(answer_terms.names))
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
    """Return whether the query names each document, shape ``[n]``."""
    text = f" {normalise_name(query)} "
    return np.array([any(f" {n} " in text for n in list_mention_names(d.title)) for d in documents])


def _find_links(documents: Sequence[Passage]) -> BoolArray:
    ids = [document.id for document in documents]
    leads = np.array([[other in d.linked for other in ids] for d in documents], dtype=bool)
    links: BoolArray = leads | leads.T
    return links


_ANSWER_SEARCH = SeedSettings(max_query_terms=2_000)


def attribute_turn(store: GraphStore, turn: Turn, answer: str) -> dict[str, float]:
    """Compute how far an answer rests on each document of a turn; see :func:`attribute_answer`.

    Args:
        store: The store with the documents.
        turn: The turn with its query and returned documents.
        answer: The chain's answer.

    Returns:
        Support in [0, 1] by document id: of every document, or empty if nothing is known.
    """
    namespace = store.walk.get_clock(turn.namespace).key
    nodes = store.catalog.documents([item.node for item in turn.returned], namespace=namespace)
    words = tokenise(turn.query) + tokenise(answer[:MAX_ANSWER_CHARS])
    idf = look_up_terms(store, words, _ANSWER_SEARCH).idf
    return attribute_answer(answer, turn.query, to_passages(turn, nodes), idf)
