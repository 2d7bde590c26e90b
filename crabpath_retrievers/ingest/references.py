"""Link targets: those in a text, and those under which a document can be reached."""

import re
from collections.abc import Mapping
from posixpath import dirname, join, normpath
from typing import Any
from urllib.parse import unquote, urlsplit

from crabpath_retrievers.core.text import tokenise

# URLs may contain one pair of parentheses, as those of Wikipedia do.
_MARKDOWN_LINK = re.compile(
    r"\[[^\]\n]{0,300}\]\(\s*<?((?:[^()<>\s]|\([^()<>\s]{0,200}\)){1,500})>?(?:\s+[^)\n]{0,200})?\)"
)
_WIKI_LINK = re.compile(r"\[\[([^\]|#\n]{1,200})(?:[#|][^\]\n]{0,200})?\]\]")
_HTML_LINK = re.compile(r"""<a\s[^>]{0,500}?href\s*=\s*["']?([^"'>\s]{1,500})""", re.IGNORECASE)
_BARE_URL = re.compile(r"https?://(?:[^\s<>()\[\]\"']|\([^\s<>()\[\]\"']{0,200}\)){3,500}")
_MAX_TARGETS = 64
MAX_TARGET_CHARS = 500  # characters; databases index texts of bounded length only


def find_references(text: str, source: str) -> tuple[str, ...]:
    """Return the normalised targets of Markdown, wiki and HTML links and bare URLs in a text.

    Args:
        text: Text of a chunk.
        source: Path or URL of its document; relative links are resolved against it.
    """
    found = {_name_page(name): None for name in _WIKI_LINK.findall(text)}
    for pattern in (_MARKDOWN_LINK, _HTML_LINK, _BARE_URL):
        for target in pattern.findall(text):
            address = _normalise_target(target, source)
            if address:
                found[address] = None
    return tuple(target for target in found if len(target) <= MAX_TARGET_CHARS)[:_MAX_TARGETS]


def collect_addresses(source: str, title: str, metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the targets that lead to a document: its path or URL, and its title for wiki links."""
    places = [source, *(str(metadata[key]) for key in ("url", "source") if metadata.get(key))]
    found = {_normalise_target(place, ""): None for place in places}
    if title:
        found[_name_page(title)] = None
    return tuple(address for address in found if address and len(address) <= MAX_TARGET_CHARS)


def _name_page(title: str) -> str:
    return f"wiki:{' '.join(tokenise(title))}"


def _normalise_target(target: str, source: str) -> str:
    """Normalise a target; empty for anchors and for schemes that name no document."""
    try:
        parts = urlsplit(unquote(target.rstrip(".,;")))
    except ValueError:
        return ""
    if parts.scheme in ("http", "https"):
        path = parts.path.rstrip("/")
        query = f"?{parts.query}" if parts.query else ""
        return f"{parts.netloc.removeprefix('www.').lower()}{path}{query}"
    if parts.scheme not in ("", "file") or not parts.path:
        return ""
    base = urlsplit(source)
    if base.scheme in ("http", "https"):
        host = base.netloc.lower().removeprefix("www.")
        return host + normpath(join(dirname(base.path) or "/", parts.path)).rstrip("/")
    return normpath(join(dirname(source), parts.path))
