"""Documents without text, such as blank pages: they are skipped, with one warning."""

import logging
from collections.abc import Sequence

from langchain_core.documents import Document

_log = logging.getLogger(__name__)
_MAX_NAMED = 5  # documents named in the warning; the rest are counted
_MAX_LABEL_CHARS = 200  # the end of a path is kept: it tells more than its beginning


def describe_document(document: Document, node_id: str | None, number: int) -> str:
    """Describe a document to a person: its source and page, else its id, else its number.

    Args:
        document: The document.
        node_id: Id given by the caller, if any.
        number: Position among the documents of the call, from 1.
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
    """Log one warning that names the documents without text, if there are any.

    Args:
        labels: One description per document without text, from :func:`describe_document`.
        total: Number of documents in the call.
    """
    if labels:
        more = len(labels) - _MAX_NAMED
        named = ", ".join(labels[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        _log.warning("%d of %d documents have no text, left out: %s", len(labels), total, named)
