"""Finds documents of an answer that say what a better one says, so that they are left out."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from crabpath_retrievers.core.graph import Node, Vector, stretch_cosine

_MIN_SIMILARITY = 0.97  # least similarity of texts that are compared word by word
# Metadata keys that say where a text is from: only these may differ between repeats.
_LOCATION_KEYS = frozenset(
    {
        *("source", "title", "path", "file_path", "file_name", "filename", "url", "page"),
        *("page_label", "start_index", "authority"),
    }
)
# Markers of headings, lists, quotes and rules, apart from the words of their line: "C#" and "-O2"
# are words. Then the first letter of a sentence, whose capital means nothing.
_EDGE = re.compile(r"^[ \t]*(?:[#>*_-]+(?:[ \t]+|$))+|[ \t]+[#*_-]+[ \t]*$", re.MULTILINE)
_FIRST = re.compile(r"(?:^|[.!?]\s)\W*\w", re.MULTILINE)
# Numbers with signs, parts and units of one sign, words, and single signs: "-5", "5", ">5" and 5"
# are not the same.
_TOKEN = re.compile(r"[-+]?\.?\d+(?:[.,:/]\d+)*['\"]?|[^\W\d]\w*|[^\w\s]|_")
_PUNCTUATION = frozenset(".,;:'\"()[]`…‘’“”")  # without meaning


def extract_wording(text: str) -> list[str]:
    """List the words of a text without punctuation, marks of formatting and initial capitals.

    Every other sign and word stays: texts that differ in one of them state different facts,
    however similar their vectors are.
    """
    plain = _FIRST.sub(lambda first: first[0].lower(), _EDGE.sub("", text))
    return [token for token in _TOKEN.findall(plain) if token not in _PUNCTUATION]


def find_repeats(
    ranked: Sequence[Node], vectors: Mapping[str, Vector], stretch: float = 1.0
) -> dict[str, str]:
    """Find documents with the wording of one that is ranked before them.

    Title and metadata must be equal as well, but for where the text is from. Notes are no repeats:
    each belongs to one namespace.

    Args:
        ranked: The documents of an answer, best first.
        vectors: Their unit vectors, each of shape ``[d]``, by id.
        stretch: Of the embedder.

    Returns:
        The best document of the same wording, by the id of each repeat.
    """
    documents = [node for node in ranked if node.document]
    if len(documents) <= 1:
        return {}
    matrix = np.array([vectors[node.id] for node in documents], dtype=np.float32)
    similar = stretch_cosine(matrix @ matrix.T, stretch) >= _MIN_SIMILARITY
    np.fill_diagonal(similar, val=False)
    if not similar.any():
        return {}
    wordings = [_describe(node) for node in documents]
    repeats: dict[str, str] = {}
    for first, later in np.argwhere(np.triu(similar)).tolist():
        if wordings[first] == wordings[later]:
            repeats.setdefault(documents[later].id, documents[first].id)
    return repeats


def find_near(
    names: Iterable[str], vectors: Mapping[str, Vector], stretch: float = 1.0
) -> list[str]:
    """Ids of the texts that are near enough to some of them to repeat one of these.

    Arguments as for :func:`find_repeats`.
    """
    matrix = np.array([*vectors.values()], dtype=np.float32)
    chosen = np.array([vectors[name] for name in names], dtype=np.float32)
    near = stretch_cosine(chosen @ matrix.T, stretch).max(axis=0, initial=-1.0)
    return [name for name, value in zip(vectors, near, strict=True) if value >= _MIN_SIMILARITY]


def _describe(node: Node) -> tuple[object, ...]:
    """Key by which repeats are equal: metadata, and the words of title and text."""
    metadata = {key: value for key, value in node.metadata.items() if key not in _LOCATION_KEYS}
    words = (tuple(extract_wording(text)) for text in (node.title, node.content))
    return (json.dumps(metadata, sort_keys=True, default=str), *words)
