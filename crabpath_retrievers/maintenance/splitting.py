"""Splits a node; its parts are embedded, indexed and published like a document."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from crabpath_retrievers.changes import NodeSplit, StageNodes
from crabpath_retrievers.graph import Node
from crabpath_retrievers.ingest.pipeline import Ingest
from crabpath_retrievers.ingest.references import find_references
from crabpath_retrievers.maintenance.broad import FindTopics, TextPart
from crabpath_retrievers.text import list_mention_names


@dataclass(frozen=True, slots=True)
class NodeSplitter:
    """Splits nodes of a memory.

    Attributes:
        ingest: Embeds, indexes, publishes and links the parts; recovers after a crash.
        topics: Finds topics in a text, such as with a chat model.
    """

    ingest: Ingest
    topics: FindTopics

    def split(self, node: Node, pieces: Sequence[TextPart], run: str) -> None:
        """Replace a node by its parts, in one transaction.

        Args:
            node: The node as stored.
            pieces: Two or more parts of its text.
            run: Id of the maintenance run, by which the split can be undone.
        """
        parts = make_parts(node, pieces)
        whole = NodeSplit(node.id, tuple(part.id for part in parts), run)
        self.ingest.publish(StageNodes(tuple(parts), splits=(whole,)))


def make_parts(node: Node, pieces: Sequence[TextPart]) -> list[Node]:
    """Make the nodes of the parts: same document, source and position as the whole.

    Other texts can mention a part by its headings, and the first part also by the names of the
    whole. Ids are derived from the id of the node and the text, so a repeated split makes the
    same parts.
    """
    aliases = node.metadata.get("aliases")
    known = tuple(map(str, aliases)) if isinstance(aliases, (list, tuple)) else ()
    whole = (node.title, *known)
    return [
        Node(
            id=_make_id(node, number, piece),
            document=node.document,
            source=node.source,
            content=piece.text,
            title=_make_title(node.title, piece.heading),
            names=list_mention_names(piece.heading, (*piece.more, *(() if number else whole))),
            references=find_references(piece.text, node.source),
            position=node.position,
            metadata={**node.metadata, "split_from": node.id},
            digest=_make_id(node, number, piece),
        )
        for number, piece in enumerate(pieces)
    ]


def _make_id(node: Node, number: int, piece: TextPart) -> str:
    return hashlib.sha256(f"{node.id}\n{number}\n{piece.text}".encode()).hexdigest()[:32]


def _make_title(title: str, heading: str) -> str:
    if not heading or heading == title:
        return title
    return f"{title} › {heading}" if title else heading
