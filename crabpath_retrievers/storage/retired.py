"""Retired nodes: hidden from queries, while what was learned about them is kept.

They have neither structural edges nor full text nor an indexed vector. When the same text is added
again, it is found by an address that is a hash of the text, and the node becomes visible.
"""

import hashlib

RETIRED = -1
"""Owner of retired nodes; see the column ``owner`` of ``nodes``."""


def build_retired_address(content: str) -> str:
    """Address of a retired node with this text; not the target of any link."""
    return f"retired:{hashlib.sha256(content.encode()).hexdigest()[:32]}"
