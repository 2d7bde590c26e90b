"""Finds documents of an answer that say what a better one says, so that they are left out."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from crabpath_retrievers.core.graph import Node, Vector

_MIN_SIMILARITY = 0.97  # least cosine of texts that are compared word by word
# Metadata keys that say where a text is from: only these may differ between repeats.
_LOCATION_KEYS = frozenset(
    {
        *("source", "title", "path", "file_path", "file_name", "filename", "url", "page"),
        *("page_label", "start_index", "authority"),
    }
)
# Numbers with their signs and parts, words, and single signs: "-5", "5" and ">5" are not the same.
_TOKEN = re.compile(r"[-+]?\d+(?:[.,:/]\d+)*|[^\W\d]\w*|[^\w\s]|_")
_PUNCTUATION = frozenset(".,;:'\"()[]*_`#-–—…‘’“”")  # formatting, without meaning
_ARTICLES = frozenset({"a", "an", "the"})


def extract_wording(text: str) -> Iterator[str]:
    """Yield the words of a text without punctuation, articles and case of the first letter.

    Numbers, names, negations and every other word stay: texts that differ in one of them state
    different facts, however similar their vectors are.
    """
    for token in _TOKEN.findall(text):
        word = token.lower() if token[1:] == token[1:].lower() else token
        if word not in _PUNCTUATION and word not in _ARTICLES:
            yield word


def find_repeats(ranked: Sequence[Node], vectors: Mapping[str, Vector]) -> set[str]:
    """Return the ids of documents with the wording of one that is ranked before them.

    Title and metadata must be equal as well, but for where the text is from. Notes are no repeats:
    each belongs to one namespace.

    Args:
        ranked: The documents of an answer, best first.
        vectors: Their unit vectors, each of shape ``[d]``, by id.
    """
    documents = [node for node in ranked if node.document]
    if len(documents) <= 1:
        return set()
    matrix = np.array([vectors[node.id] for node in documents], dtype=np.float32)
    similar = matrix @ matrix.T >= _MIN_SIMILARITY
    np.fill_diagonal(similar, val=False)
    if not similar.any():
        return set()
    wordings = [_describe(node) for node in documents]
    return {
        documents[later].id
        for first, later in np.argwhere(np.triu(similar)).tolist()
        if wordings[first] == wordings[later]
    }


def _describe(node: Node) -> tuple[object, ...]:
    """Return what equals in repeats: metadata, and the words of title and text."""
    metadata = {key: value for key, value in node.metadata.items() if key not in _LOCATION_KEYS}
    words = (tuple(extract_wording(text)) for text in (node.title, node.content))
    return (json.dumps(metadata, sort_keys=True, default=str), *words)
