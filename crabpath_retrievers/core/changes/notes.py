"""Change records of notes and of the authority of nodes."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from crabpath_retrievers.core.changes.corpus import Change
from crabpath_retrievers.core.records import Authority, EdgeKind, Node, Vector

NoteKind = Literal["teaching", "correction", "directive", "auto", "state"]
"""Origin of a note: given by a user in one of three ways, made from an answer (``auto``), or a
``state`` of an agent's episode, which no query finds."""


@dataclass(frozen=True, slots=True)
class NoteEdge:
    """An edge of a note.

    Attributes:
        source, target: Ids of nodes; None is the note itself.
        weight: Weight of the edge, in [-1, 1]; added to the present weight if neither end is the
            note.
    """

    source: str | None
    target: str | None
    kind: EdgeKind
    weight: float


@dataclass(frozen=True, slots=True)
class KeepNote(Change):
    """Store a note of one namespace, or replace its note with the same id.

    Raises ``InvalidInputError`` when the id belongs to a document.

    Attributes:
        node: The note with its vector; document and source are empty.
        query: The query that it answers, if known; with ``query_vector``, a unit vector of shape
            ``[d]``, it becomes an episode of the note.
        turn, feedback: Ids of the turn and feedback that it was made from. A note that a user
            gave directly keeps that origin when feedback repeats it, and survives its undo.
        edges: Edges of the note, and edges between other nodes; those of deleted nodes are skipped.
    """

    touches_corpus: ClassVar[bool] = False
    namespace: str
    node: Node
    kind: NoteKind
    authority: Authority = Authority.OVERLAY
    query: str | None = None
    query_vector: Vector | None = None
    turn: str | None = None
    feedback: str | None = None
    edges: tuple[NoteEdge, ...] = ()


@dataclass(frozen=True, slots=True)
class UseNotes(Change):
    """Update the use counts of notes; ids of other nodes are ignored.

    Attributes:
        used: Ids of nodes that a successful answer used.
        seen: Ids of notes whose probation starts again although they were not used.
    """

    touches_corpus: ClassVar[bool] = False
    namespace: str
    used: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
