"""A returned document as attribution reads it."""

from collections.abc import Mapping
from dataclasses import dataclass

from crabpath_retrievers.graph import Node
from crabpath_retrievers.text import prepend_title
from crabpath_retrievers.trajectory import Turn


@dataclass(frozen=True, slots=True)
class Passage:
    """A document that the chain was given.

    Attributes:
        id: Its id, as in the turn.
        content: Its text; may be empty.
        title: Its title; empty if it has none.
        linked: Ids of the documents with an edge to it on the walk.
    """

    id: str
    content: str
    title: str = ""
    linked: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Title and content."""
        return prepend_title(self.title, self.content)


def to_passages(turn: Turn, nodes: Mapping[str, Node]) -> list[Passage]:
    """Return the documents of a turn in the order in which they were returned.

    Args:
        turn: The turn with its returned documents and their paths.
        nodes: Contents by id; a document that was forgotten keeps its position, without text.
    """
    result = []
    for item in turn.returned:
        edges = (*item.path, item.support) if item.support else item.path
        linked = tuple(dict.fromkeys(e.source for e in edges if e.target == item.node))
        node = nodes.get(item.node)
        content, title = (node.content, node.title) if node else ("", "")
        result.append(Passage(item.node, content, title, linked))
    return result
