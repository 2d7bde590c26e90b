"""Retired nodes: no query sees them; what was learned about them stays until they are forgotten.

They belong to an owner that no namespace is, have neither edges of the text nor full text nor a
vector in the index, and are found again by their text.
"""

import hashlib

RETIRED = -1
"""Their owner; 0 owns what all namespaces see, and keys of namespaces are above it."""


def address_of(content: str) -> str:
    """The address that a retired node keeps, by its text; no link leads there."""
    return f"retired:{hashlib.sha256(content.encode()).hexdigest()[:32]}"
