"""Documents without text, such as blank pages: left out, named in one warning, counted."""

import logging
from collections.abc import Sequence

from langchain_core.documents import Document

_log = logging.getLogger(__name__)
_MAX_NAMED = 5  # the others are counted
_MAX_LABEL_CHARS = 200  # characters of a name that are shown; the end of a path tells more


def describe_document(document: Document, node_id: str | None, number: int) -> str:
    """What names a document to a person: its source and page, else its id, else its place.

    Args:
        document: What is named.
        node_id: The id that the caller gave it.
        number: Its place among the documents of the call, from 1.
    """
    metadata = document.metadata
    name = metadata.get("source") or metadata.get("file_path") or node_id
    page = metadata.get("page_label", metadata.get("page"))
    label = repr(str(name)[-_MAX_LABEL_CHARS:]) if name else f"number {number}"
    return label if page is None else f"{label} page {_format_page(page)}"


def _format_page(page: object) -> str:
    text = str(page)[:20]
    return text if text.isprintable() else repr(text)


def warn_of_blank(labels: Sequence[str], total: int) -> None:
    """Say in one line which of ``total`` documents have no text, if there are any.

    Args:
        labels: What names them, one per document without text.
        total: How many documents were given.
    """
    if labels:
        more = len(labels) - _MAX_NAMED
        named = ", ".join(labels[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        _log.warning("%d of %d documents have no text, left out: %s", len(labels), total, named)
