"""Splitting a node: its parts are embedded, indexed and published as any document is."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from crabpath_retrievers.changes import Split, StageNodes
from crabpath_retrievers.graph import Node
from crabpath_retrievers.ingest.pipeline import Ingest
from crabpath_retrievers.ingest.references import references_in
from crabpath_retrievers.maintenance.broad import Piece, Topics
from crabpath_retrievers.text import names_of


@dataclass(frozen=True, slots=True)
class Splitting:
    """What splitting needs beside the graph store.

    Attributes:
        ingest: Embeds, indexes, publishes and links; a kill at any moment is made up for by it.
        topics: Asks a chat model where topics begin; tells nothing where there is none.
    """

    ingest: Ingest
    topics: Topics

    def split(self, node: Node, pieces: Sequence[Piece], run: str) -> None:
        """Let parts stand for a node, in one unit.

        Args:
            node: As the store has it.
            pieces: Its parts, two or more.
            run: The maintenance by which it is taken back.
        """
        parts = parts_of(node, pieces)
        whole = Split(node.id, tuple(part.id for part in parts), run)
        self.ingest.publish(StageNodes(tuple(parts), splits=(whole,)))


def parts_of(node: Node, pieces: Sequence[Piece]) -> list[Node]:
    """The parts of a node: of the same document and source, at the same place in it.

    Others may mention a part by its headings, the first one by the names of the whole, too.

    Their ids follow from that of the node and their texts, so that none comes twice.
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
            names=names_of(piece.heading, (*piece.more, *(() if number else whole))),
            references=references_in(piece.text, node.source),
            position=node.position,
            metadata={**node.metadata, "split_from": node.id},
            digest=_make_id(node, number, piece),
        )
        for number, piece in enumerate(pieces)
    ]


def _make_id(node: Node, number: int, piece: Piece) -> str:
    return hashlib.sha256(f"{node.id}\n{number}\n{piece.text}".encode()).hexdigest()[:32]


def _make_title(title: str, heading: str) -> str:
    if not heading or heading == title:
        return title
    return f"{title} › {heading}" if title else heading
