"""The informative words of an answer and their weights."""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from crabpath_retrievers.core.text import Word, split_words

# English only; in other languages such an answer counts as an ordinary word.
POLAR_WORDS = frozenset({"yes", "no", "true", "false"})
_MIN_IDF = math.log(2) - 1e-9  # a word in more than half of all nodes
# Weight of a word that the query contains too; results hardly differ between 0.1 and 0.5.
_QUERY_WORD_WEIGHT = 0.25
# Weight of a word that is neither a name nor a number: most belong to the chain's phrasing.
_COMMON_WORD_WEIGHT = 0.2
_SENTENCE_END = re.compile(r"[.!?:]\s|\n")


class AnswerTerms(NamedTuple):
    """Words of an answer.

    Attributes:
        weights: The informative words with their weights, in nats.
        names: Those among them that are names or numbers and do not occur in the query.
    """

    weights: dict[str, float]
    names: frozenset[str]


def extract_answer_terms(
    answer: str, query_words: Collection[str], idf: Mapping[str, float]
) -> AnswerTerms:
    """Extract the informative words of an answer.

    A word that is not in the corpus counts as the rarest. Polar words ("yes"), words in more than
    half of all nodes, and single Latin letters are left out.

    Args:
        answer: The chain's answer.
        query_words: Words of the query.
        idf: Inverse document frequency by word, in nats.
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
    return AnswerTerms(weights, frozenset(names))


def _flag_names(answer: str) -> Iterator[tuple[str, bool]]:
    """Yield every word, and whether it looks like a name or a number in its place."""
    tokens = list(split_words(answer))
    sentence_starts = [True, *(_ends_sentence(answer, *pair) for pair in pairwise(tokens)), True]
    for position, word in enumerate(tokens):
        # A capital that begins a sentence counts if the next word has one too: "Stephen King".
        continues = not sentence_starts[position + 1] and tokens[position + 1].capitalised
        is_informative = not sentence_starts[position] or continues or word.token[0].isdigit()
        yield word.token, word.capitalised and is_informative


def _ends_sentence(answer: str, before: Word, after: Word) -> bool:
    """Whether a sentence ends between two words."""
    return _SENTENCE_END.search(answer, before.end, after.start) is not None
