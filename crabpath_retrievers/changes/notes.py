"""Change records of what a namespace is told: notes, and how far nodes are above learning."""

from dataclasses import dataclass
from typing import Literal

from crabpath_retrievers.graph import Authority, EdgeKind, Node, Vector

NoteKind = Literal["teaching", "correction", "directive", "auto"]
"""Where a note comes from: three ways to be told, and an answer to something novel."""


@dataclass(frozen=True, slots=True)
class NoteEdge:
    """An edge that comes with a note.

    Attributes:
        source, target: Ids of nodes; None is the note itself.
        weight: To add to the weight of the edge, which is 0 when it is new.
    """

    source: str | None
    target: str | None
    kind: EdgeKind
    weight: float


@dataclass(frozen=True, slots=True)
class KeepNote:
    """Keep a note of one namespace, or replace the one that it has under this id.

    Raises ``InvalidInputError`` when the id belongs to a document or to another namespace.

    Attributes:
        node: The note with its vector; document and source are empty.
        query: What it answers, if that is known; with ``query_vector``, a unit vector of shape
            ``[d]``, it becomes an episode of the note.
        turn, feedback: Ids of what it was made from. What somebody told stays so when feedback
            says it again: then it does not go with that feedback.
        edges: Edges from and to it, and beside it; those of vanished nodes are skipped.
    """

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
class UseNotes:
    """Count a successful turn for those of the nodes that are notes of the namespace.

    Attributes:
        used: Ids of nodes that the answer rests on.
        seen: Ids of notes that begin a new term without being used.
    """

    namespace: str
    used: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UndoNotes:
    """Take back what feedback, undone earlier in the same call, has told and used.

    A note goes with it, unless somebody told it as well, or other feedback that stands.

    Attributes:
        told: Notes as ``(id, query)``, with the query by which it made them recalled, if any.
        used: Ids of what its answers rested on, once for each of its turns.
    """

    namespace: str
    told: tuple[tuple[str, str | None], ...] = ()
    used: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotesIndexed:
    """The vectors of these notes, by key, can be searched."""

    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RemoveNotes:
    """Delete notes with all that refers to them; other nodes with these ids stay."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetAuthority:
    """Set how far nodes are above learning; their weights go on from where they stand."""

    keys: tuple[int, ...]
    authority: Authority


NoteChange = KeepNote | UseNotes | UndoNotes | NotesIndexed | RemoveNotes | SetAuthority
"""Changes of notes and of authority."""
