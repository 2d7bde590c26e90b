"""Which texts say the same: near-duplicates, of which one may stand for the others."""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b

import numpy as np

from crabpath_retrievers.changes.maintenance import Merged
from crabpath_retrievers.graph import Authority
from crabpath_retrievers.storage.twin_queries import Said, Twin

# Numbers with their signs and parts, words, and single signs: "-5", "5" and ">5" are not the same.
_TOKEN = re.compile(r"[-+]?\d+(?:[.,:/]\d+)*|[^\W\d]\w*|[^\w\s]|_")
_PUNCTUATION = frozenset(".,;:'\"()[]*_`#-–—…‘’“”")  # how a text is set, not what it says
_ARTICLES = frozenset({"a", "an", "the"})


def wording(text: str) -> Iterator[str]:
    """What a text says word by word; only setting, case of a first letter and articles go.

    Numbers, names, negations and every other word stay: texts that differ in one of them are
    different facts, however near their vectors are.
    """
    for token in _TOKEN.findall(text):
        word = token.lower() if token[1:] == token[1:].lower() else token
        if word not in _PUNCTUATION and word not in _ARTICLES:
            yield word


def fingerprint(said: Said, places: Collection[str]) -> bytes:
    """Equal for texts that say the same of the same thing: title, text and metadata.

    Args:
        said: A text.
        places: Metadata keys that tell where a text stands, and may differ.
    """
    metadata = {k: v for k, v in json.loads(said.metadata).items() if k not in places}
    kind = json.dumps(metadata, sort_keys=True)
    words = (" ".join(wording(text)) for text in (said.title, said.content))
    return blake2b("\0".join((kind, *words)).encode(), digest_size=16).digest()


def same(said: Iterable[Sequence[Said]], places: Collection[str]) -> tuple[int, list[list[int]]]:
    """How many texts there are, and the keys of those that say the same, in groups.

    Args:
        said: All texts, block by block.
        places: As for :func:`fingerprint`.
    """
    found: dict[bytes, list[int]] = defaultdict(list)
    looked = 0
    for block in said:
        looked += len(block)
        for one in block:
            found[fingerprint(one, places)].append(one.key)
    return looked, [keys for keys in found.values() if len(keys) > 1]


def merging(twins: Iterable[Twin], alike: float) -> list[Merged]:
    """Who stands for whom: more authority first, then more use, then the older one.

    What is ``constitutional`` stands for others and is never merged away.

    Args:
        twins: Texts that say the same.
        alike: Least cosine of two of them.
    """
    keepers: list[Twin] = []
    found: list[Merged] = []
    for one in sorted(twins, key=lambda twin: (-twin.authority, -twin.uses, twin.key)):
        keeper = next((k for k in keepers if _cosine(k, one) >= alike), None)
        if keeper is None or one.authority == Authority.CONSTITUTIONAL.value:
            keepers.append(one)
        else:
            found.append(Merged(one.key, keeper.key))
    return found


def _cosine(one: Twin, other: Twin) -> float:
    a, b = (np.asarray(twin.vector, dtype=np.float32) for twin in (one, other))
    # Stored in half precision, a unit vector is one to three decimals only.
    return float(a @ b / max(1e-9, float(np.linalg.norm(a) * np.linalg.norm(b))))
