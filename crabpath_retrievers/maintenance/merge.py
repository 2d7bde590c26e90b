"""Finds near-duplicate texts, and decides which one is kept."""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b

import numpy as np

from crabpath_retrievers.core.changes.maintenance import MergePair
from crabpath_retrievers.core.graph import Authority
from crabpath_retrievers.storage.read.maintenance import DocumentText, MergeCandidate

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


def hash_wording(said: DocumentText, places: Collection[str]) -> bytes:
    """Hash title, wording and metadata of a text; near-duplicates have equal hashes.

    Args:
        said: A text.
        places: Metadata keys that say where a text is stored; they may differ.
    """
    metadata = {k: v for k, v in json.loads(said.metadata).items() if k not in places}
    kind = json.dumps(metadata, sort_keys=True)
    words = (" ".join(extract_wording(text)) for text in (said.title, said.content))
    return blake2b("\0".join((kind, *words)).encode(), digest_size=16).digest()


def group_same_texts(
    said: Iterable[Sequence[DocumentText]], places: Collection[str]
) -> tuple[int, list[list[int]]]:
    """Group texts with equal wording.

    Args:
        said: All texts, block by block.
        places: As for :func:`hash_wording`.

    Returns:
        The number of texts, and the keys of each group of two or more equal texts.
    """
    groups: dict[bytes, list[int]] = defaultdict(list)
    count = 0
    for block in said:
        count += len(block)
        for text in block:
            groups[hash_wording(text, places)].append(text.key)
    return count, [keys for keys in groups.values() if len(keys) > 1]


def plan_merges(twins: Iterable[MergeCandidate], alike: float) -> list[MergePair]:
    """Decide which node of a group each duplicate is merged into.

    Nodes of higher authority are kept first, then more used ones, then older ones. A
    ``constitutional`` node is never merged into another one.

    Args:
        twins: Texts with equal wording.
        alike: Least cosine of a duplicate and the node that it is merged into.
    """
    keepers: list[MergeCandidate] = []
    merges: list[MergePair] = []
    for twin in sorted(twins, key=lambda twin: (-twin.authority, -twin.uses, twin.key)):
        keeper = next((k for k in keepers if _cosine(k, twin) >= alike), None)
        if keeper is None or twin.authority == Authority.CONSTITUTIONAL.value:
            keepers.append(twin)
        else:
            merges.append(MergePair(twin.key, keeper.key))
    return merges


def _cosine(one: MergeCandidate, other: MergeCandidate) -> float:
    a, b = (np.asarray(twin.vector, dtype=np.float32) for twin in (one, other))
    # Stored in half precision, a unit vector has length 1 to three decimals only.
    return float(a @ b / max(1e-9, float(np.linalg.norm(a) * np.linalg.norm(b))))
