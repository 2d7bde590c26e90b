"""Parts of an ingest: whole documents, split, and those of a bulk ingest also embedded.

Any process can make the latter, which need only be written. What the store holds already is not
embedded again, so an ingest that was interrupted goes on where it stopped. Chunks that the embedder
gives no usable vector are left out, or refused.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from langchain_core.documents import Document
from typing_extensions import Self

from crabpath_retrievers.core.records import Node, Vector
from crabpath_retrievers.core.text import IndexedWords, is_blank
from crabpath_retrievers.errors import DuplicateIdError, InvalidInputError
from crabpath_retrievers.ingest.chunking import (
    Chunking,
    collect_caller_ids,
    has_caller_id,
    make_embedding_text,
    make_metadata_id,
    name_first,
)
from crabpath_retrievers.vectors.embedder import Embedder

_log = logging.getLogger(__name__)


class ChunkEmbedder(NamedTuple):
    """Embeds chunks.

    A vector that is all zero or not finite is refused if ``strict``; else its chunk is left out.
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
        """Embed texts, each given with its chunk; return unit vectors ``[d]`` by text.

        Texts without a usable vector are left out.

        Raises:
            InvalidInputError: The embedder answers wrongly; or, if ``strict``, a text has no usable
                vector.
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


@dataclass(slots=True)
class Part:
    """Chunks and counts of some whole documents.

    Attributes:
        nodes: Their chunks in order; those that the store holds unchanged have no vector.
        words: Words of the other chunks by digest.
        named: Ids that the caller gave.
        documents: Number of documents with text.
        blank: Number of documents without text.
        repeated: Number of texts that are no chunk, as they repeat another one of their document.
        embedded: Characters that were embedded.
        files: Number of files that were read, or could not be read.
        skipped: Why files, and parts of files, were not read, by source and place.
        left_out: Chunks without a usable vector, described.
    """

    nodes: list[Node] = field(default_factory=list)
    words: dict[str, IndexedWords] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    documents: int = 0
    blank: int = 0
    repeated: int = 0
    embedded: int = 0
    files: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, chunking: Chunking, documents: Sequence[Document], ids: Sequence[str] | None = None
    ) -> Self:
        """Split documents into a part, without embedding anything.

        ``ids`` has one id per document; None takes those of the documents.
        """
        nodes, repeated = chunking.make_nodes(documents, ids)
        blank = sum(is_blank(document.page_content) for document in documents)
        return cls(
            nodes,
            named=collect_caller_ids(documents, ids),
            documents=len(documents) - blank,
            blank=blank,
            repeated=repeated,
        )

    def extend(self, other: "Part") -> None:
        """Add another part behind this one; a chunk that is in both stays once.

        Raises:
            DuplicateIdError: The parts give one id to different texts.
        """
        known = {node.id: node for node in self.nodes}
        for given in other.nodes:
            node = given
            held = known.get(node.id)
            if held is not None and held.digest != node.digest:
                if has_caller_id(node):
                    msg = (
                        f"two documents have the id {node.id!r} but different text: "
                        "give each its own id"
                    )
                    raise DuplicateIdError(msg)
                if make_metadata_id(held) != make_metadata_id(node):
                    node = replace(node, id=make_metadata_id(node))
                    held = known.get(node.id)
            if held is None:
                known[node.id] = node
                self.nodes.append(node)
            else:
                self.repeated += 1
        self.words |= other.words
        self.named |= other.named
        self.documents += other.documents
        self.blank += other.blank
        self.repeated += other.repeated
        self.embedded += other.embedded
        self.files += other.files
        self.skipped |= other.skipped
        self.left_out += other.left_out
