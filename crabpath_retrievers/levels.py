"""The level of a node: which nodes are hubs, computed from their ids alone."""

import hashlib
import math

HUB_FANOUT = 16
"""M: one node in 16 of each level is on the next one, as in HNSW (Malkov & Yashunin 2016)."""

_BYTES = 8


def compute_hub_level(node_id: str) -> int:
    """Return ``floor(-ln U / ln M)``, U in (0, 1] from a hash of the id: 0 for 15 of 16 nodes.

    HNSW draws the level at random (Malkov & Yashunin 2016, §4.1); here it is the same for the same
    id on every machine and in every order of arrival. Nodes of level L and above are the hubs of
    level L.
    """
    digest = hashlib.blake2b(node_id.encode(), digest_size=_BYTES).digest()
    drawn = (int.from_bytes(digest, "big") + 1) / 2 ** (8 * _BYTES)
    return int(-math.log(drawn) / math.log(HUB_FANOUT))
