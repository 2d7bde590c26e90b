"""Documents of a memory: read, added in bulk, followed as their sources change, and deleted.

A bulk ingest takes files in one process, or files or a dataset on Ray.
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from langchain_core.documents import Document
from typing_extensions import Self

from crabpath_retrievers.core.query import (
    parse_ids,
    parse_namespace,
    parse_text,
    parse_texts,
    require_count,
    require_flags,
)
from crabpath_retrievers.core.records import Node, Vector, compare_vectors
from crabpath_retrievers.core.text import format_value, is_blank
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.retrieval.corrections import mark_corrections
from crabpath_retrievers.retrieval.search import (
    find_nearest,
)
from crabpath_retrievers.storage.schema import RETIRED
from crabpath_retrievers.storage.write.history import forget_namespace
from crabpath_retrievers.storage.write.learned import drop_answers
from crabpath_retrievers.storage.write.notes import remove_notes
from crabpath_retrievers.vectors.base import require_deleting
from crabpath_retrievers.vectors.embedder import to_unit_vector

_log = logging.getLogger(__name__)

SourcePath = str | os.PathLike[str]
"""A file or a directory."""

_ALL_OWNERS = (0, RETIRED)  # forget deletes retired chunks, too


def get_documents(services: Services, ids: Sequence[str] | str, namespace: str) -> list[Document]:
    """Read chunks and notes by id; arguments and result as ``CrabPath.get_by_ids``."""
    store, names = services.store, parse_texts(ids)
    owner = store.walk.get_clock(parse_namespace(namespace)).key
    nodes = store.catalog.documents(list(dict.fromkeys(names)), namespace=owner)
    missing = [name for name in names if name not in nodes]
    chunks: dict[str, list[str]] = {}
    for chunk in sorted(store.catalog.find_chunks(documents=missing), key=lambda row: row.position):
        chunks.setdefault(chunk.document, []).append(chunk.id)
    nodes |= store.catalog.documents([chunk for group in chunks.values() for chunk in group])
    nodes |= mark_corrections(store, nodes, parse_namespace(namespace))
    wanted = chain.from_iterable(chunks.get(name, [name]) for name in names)
    return [make_document(nodes[name]) for name in dict.fromkeys(wanted) if name in nodes]


def find_similar(services: Services, text: str, k: int) -> list[tuple[Document, float]]:
    """Find the chunks nearest to a text; arguments and result as ``CrabPath.similarity_search``."""
    k = require_count("k", k)
    question = parse_text("text", text)
    if is_blank(question):
        msg = "the text is empty: pass a question or some words"
        raise InvalidInputError(msg)
    services.identity.verify()
    vector = services.embedder.query(question)
    with services.store.open_reader() as read:
        heads = find_nearest(read, services.index, vector, k)
        nodes = read.catalog.documents([head.id for head in heads])
    scores = compare_vectors([head.vector for head in heads], vector)
    return [
        (make_document(nodes[head.id]), float(score))
        for head, score in zip(heads, scores, strict=True)
        if head.id in nodes
    ]


def make_document(node: Node) -> Document:
    """Make the document of a chunk or note."""
    return Document(id=node.id, page_content=node.content, metadata=dict(node.metadata))


class Forgotten(int):
    """Counts of what :meth:`CrabPath.forget` deleted; as a number, how many chunks and notes.

    Attributes:
        documents, chunks: Documents, whole or in part, and their chunks.
        notes: Notes, those of a forgotten namespace included.
        turns, feedback, episodes, snapshots: Of a forgotten namespace.
        unknown: Those of the given ids, sources or namespaces that were not there.
    """

    documents: int = 0
    chunks: int = 0
    notes: int = 0
    turns: int = 0
    feedback: int = 0
    episodes: int = 0
    snapshots: int = 0
    unknown: tuple[str, ...] = ()

    def __new__(cls, number: int = 0, **parts: Any) -> Self:
        """Make it from the number of chunks and notes and from further attributes."""
        made = super().__new__(cls, number)
        vars(made).update(parts)
        return made

    def to_dict(self) -> dict[str, Any]:
        """Convert it to plain, JSON-safe data."""
        return {name: getattr(self, name) for name in Forgotten.__annotations__}

    def __repr__(self) -> str:
        """Show the counts that are not 0, and unknown names."""
        parts = ", ".join(f"{name}={value!r}" for name, value in self.to_dict().items() if value)
        return f"{type(self).__name__}({parts})"


def forget_documents(
    services: Services,
    ids: object,
    source: Iterable[str] | str | None,
    namespace: str | None,
    notes_of: str | None,
    *,
    erase: bool,
) -> Forgotten:
    """Delete documents, or what a namespace has learned; as ``CrabPath.forget``."""
    require_flags(erase=erase)
    given = sum(value is not None for value in (ids, source, namespace))
    if given > 1 or not (given or erase):
        msg = "give exactly one of ids, source and namespace to forget"
        raise InvalidInputError(msg)
    if notes_of is not None and ids is None:
        msg = "notes_of says whose notes may be among ids: give ids, or leave it out"
        raise InvalidInputError(msg)
    if namespace is not None:
        done = _forget_namespace(services, parse_namespace(namespace))
    else:
        names = [] if ids is None else parse_ids(ids)
        sources = [] if source is None else parse_texts(source, name="source")
        done = _remove(services, names, sources, notes_of)
    if erase:
        with services.store.hold_ingest_lock():
            services.ingest.recover()
            _drop_stale_answers(services)
            services.index.erase()
            services.store.erase()
    return done


def _drop_stale_answers(services: Services) -> None:
    """Delete answers that may quote documents that are gone, and notes that were made of them."""
    store = services.store

    def is_stale(turn: str | None) -> bool:
        found = None if turn is None else store.turns.find(turn)
        return found is None or any(one.node not in found.nodes for one in found.turn.returned)

    for block in store.learned.iterate_answers():
        stale = [number for number, turn in block if is_stale(turn)]
        if stale:
            store.write(drop_answers, stale)
    for note in store.notes.list_automatic():
        if is_stale(note.turn):
            _remove_notes(services, [note.id], note.name)


def _remove(
    services: Services, names: Sequence[str], sources: Sequence[str], notes_of: str | None
) -> Forgotten:
    chunks = services.store.catalog.find_chunks(
        ids=names, documents=names, sources=sources, owners=_ALL_OWNERS
    )
    if chunks:
        require_deleting(services.index)
        services.ingest.remove([chunk.id for chunk in chunks])
    hidden = {name for chunk in chunks for name in (chunk.id, chunk.document)}
    notes = _remove_notes(services, [name for name in names if name not in hidden], notes_of)
    known = {*notes, *chain.from_iterable((c.id, c.document, c.source) for c in chunks)}
    return Forgotten(
        len(chunks) + len(notes),
        documents=len({chunk.document for chunk in chunks}),
        chunks=len(chunks),
        notes=len(notes),
        unknown=tuple(name for name in dict.fromkeys((*names, *sources)) if name not in known),
    )


def _remove_notes(services: Services, ids: Sequence[str], namespace: str | None) -> list[str]:
    name = None if namespace is None else parse_namespace(namespace)
    notes = services.store.notes.get_facts(ids, name)
    for space, owner in {(note.namespace, note.owner) for note in notes}:
        own = tuple(note.id for note in notes if note.owner == owner)
        services.store.write(remove_notes, space, own)
        services.notes.delete(services.store, owner, own)
    return [note.id for note in notes]


def _forget_namespace(services: Services, namespace: str) -> Forgotten:
    clock = services.store.walk.get_clock(namespace)
    deleted = services.store.write(forget_namespace, namespace)
    services.delete_namespace_vectors(clock)
    unknown = () if clock.key or any(deleted.values()) else (namespace,)
    parts = {name: deleted.get(name, 0) for name in ("turns", "episodes", "snapshots")}
    kept = {"notes": deleted.get("notes", 0), "feedback": deleted["feedback"]}
    return Forgotten(kept["notes"], **kept, **parts, unknown=unknown)


def to_unit_vectors(vectors: object) -> dict[str, Vector]:
    """Check vectors, given by id, and scale them to length 1."""
    if vectors is None:
        return {}
    if not isinstance(vectors, Mapping):
        msg = f"vectors must map ids to embeddings, not {format_value(vectors)}"
        raise InvalidInputError(msg)
    return {name: to_unit_vector(vector) for name, vector in vectors.items()}
