"""Embeds chunks; those that the embedder gives no usable vector are left out, or refused."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from crabpath_retrievers.core.records import Node, Vector
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.chunking import make_embedding_text, name_first
from crabpath_retrievers.vectors.embedder import Embedder

_log = logging.getLogger(__name__)


class ChunkEmbedder(NamedTuple):
    """Embeds chunks.

    Attributes:
        embedder: Gives the vectors.
        strict: Refuse a vector that is all zero or not finite; else its chunk is left out.
    """

    embedder: Embedder
    strict: bool = False

    def embed(self, nodes: Sequence[Node]) -> tuple[list[Node], list[Node]]:
        """Embed the chunks that have no vector.

        Returns:
            All chunks with a vector, in order; and those that are left out.

        Raises:
            InvalidInputError: The embedder answers wrongly; the message names the document.
        """
        texts = [make_embedding_text(node) if node.vector is None else None for node in nodes]
        bare = [(text, node) for text, node in zip(texts, nodes, strict=True) if text is not None]
        vectors = self.embed_texts(bare)
        embedded = [
            node if text is None else replace(node, vector=vectors.get(text))
            for text, node in zip(texts, nodes, strict=True)
        ]
        left_out = [node for text, node in bare if text not in vectors]
        return [node for node in embedded if node.vector is not None], left_out

    def embed_texts(self, given: Sequence[tuple[str, Node]]) -> dict[str, Vector]:
        """Unit vectors ``[d]`` by text, where they are usable.

        Args:
            given: Texts, each with the chunk that it is of.

        Raises:
            InvalidInputError: As for :meth:`embed`.
        """
        texts = [text for text, _ in given]
        found = self.embedder.try_documents(texts, lambda place: describe_chunk(given[place][1]))
        left = [
            describe_chunk(node) for (_, node), v in zip(given, found, strict=True) if v is None
        ]
        if left and self.strict:
            raise InvalidInputError(explain_left_out(left))
        return {text: v for text, v in zip(texts, found, strict=True) if v is not None}


def describe_chunk(node: Node) -> str:
    """Describe a chunk to a person: its source, page, place there and id."""
    page = node.metadata.get("page")
    where = "" if page is None else f" page {page}"
    return f"{node.source!r}{where} chunk {node.position + 1} (id {node.id})"


def explain_left_out(labels: Sequence[str]) -> str:
    """Say which chunks have no usable vector."""
    return (
        f"the embedder gives {len(labels)} chunks a vector that is all zero or not finite: "
        f"{name_first(labels)}"
    )


def warn_of_left_out(labels: Sequence[str]) -> None:
    """Log one warning that names the chunks that are left out, if there are any."""
    if labels:
        _log.warning("%s; left out, add them again to try again", explain_left_out(labels))
