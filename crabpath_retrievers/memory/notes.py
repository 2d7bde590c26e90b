"""Notes of a namespace: teachings, directives and corrections, visible to it alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import TypedDict

from crabpath_retrievers.core.changes.notes import KeepNote, NoteEdge, NoteKind
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE
from crabpath_retrievers.core.graph import Authority, Vector
from crabpath_retrievers.core.metadata import remove_answer_metadata
from crabpath_retrievers.core.query import namespace_of, text_of, texts_of
from crabpath_retrievers.core.text import format_value, prepend_title, to_storable
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.ingest.chunking import to_json_safe
from crabpath_retrievers.learning.note_changes import build_entry_inhibitions
from crabpath_retrievers.learning.rules.notes import (
    MAX_NOTE_CHARS,
    NoteContent,
    NoteQuestion,
    build_note,
    hash_note,
    make_note_id,
)
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.turns import StoredTurn

TAUGHT_KINDS: Mapping[str, tuple[NoteKind, str]] = {
    "teaching": ("teaching", "overlay"),
    "directive": ("directive", "canonical"),
}
"""Kinds of notes that ``teach`` takes, each with its default authority."""

_LONGEST_NAME = 600
_SHOWN = 5


class NoteFields(TypedDict, total=False):
    """Optional fields of a note: see ``CrabPath.teach``."""

    title: str
    related: Sequence[str] | str
    id: str | None
    metadata: Mapping[str, Any] | None


def teach_note(
    services: Services,
    text: str,
    kind: str,
    *,
    query: str | None,
    namespace: str,
    authority: str | None,
    fields: NoteFields,
) -> str:
    """Save a teaching or a directive; arguments, result and errors as ``CrabPath.teach``."""
    if not isinstance(kind, str) or kind not in TAUGHT_KINDS:
        msg = f"kind must be 'teaching' or 'directive', not {format_value(kind)}: or use correct"
        raise InvalidInputError(msg)
    note_kind, default_authority = TAUGHT_KINDS[kind]
    said = _note_content(text, fields)
    asked = None if query is None else NoteQuestion(query)
    rank = default_authority if authority is None else authority
    return _save_note(services, note_kind, namespace, said, rank, asked)


def correct_turn(
    services: Services,
    text: str,
    *,
    turn_id: str | None,
    wrong: Sequence[str] | str | None,
    query: str | None,
    namespace: str | None,
    authority: str,
    fields: NoteFields,
) -> str:
    """Save a correction; arguments, result and errors as ``CrabPath.correct``."""
    logged = None if turn_id is None else _find_turn(services, turn_id, namespace)
    if namespace is None:
        namespace = logged.turn.namespace if logged else DEFAULT_NAMESPACE
    if wrong is None:
        wrong = _best_document(services.store, logged) if logged else ()
    said = _note_content(text, fields, wrong)
    asked = NoteQuestion(query) if query is not None else _question(logged)
    return _save_note(services, "correction", namespace, said, authority, asked, logged)


def resolve_nodes(store: GraphStore, ids: Sequence[str], namespace: str) -> dict[str, int]:
    """Keys by id of nodes that a namespace sees.

    Args:
        store: Of the memory.
        ids: Ids of chunks or notes; or of whole documents, for all their chunks.
        namespace: The namespace whose notes may be among them.

    Raises:
        NotFoundError: An id does not exist in this namespace.
    """
    owner = store.walk.get_clock(namespace).key
    keys = {head.id: head.key for head in store.walk.get_nodes(ids, namespace=owner)}
    missing = [node for node in dict.fromkeys(ids) if node not in keys]
    chunks = store.catalog.find_chunks(documents=missing)
    unknown = [node for node in missing if node not in {chunk.document for chunk in chunks}]
    if unknown:
        names = ", ".join(map(repr, unknown[:_SHOWN])) + (" …" if unknown[_SHOWN:] else "")
        msg = f"there is no document or note {names}: check the ids and the namespace"
        raise NotFoundError(msg)
    return keys | store.learned.keys([chunk.id for chunk in chunks])


def _note_content(text: str, fields: NoteFields, wrong: Sequence[str] | str = ()) -> NoteContent:
    return NoteContent(
        text,
        fields.get("title", ""),
        texts_of(fields.get("related", ()), name="related"),
        texts_of(wrong, name="wrong"),
        fields.get("id"),
        fields.get("metadata") or {},
    )


def _save_note(
    services: Services,
    kind: NoteKind,
    namespace: str,
    raw: NoteContent,
    authority: str,
    asked: NoteQuestion | None,
    logged: StoredTurn | None = None,
) -> str:
    """Save a note unless it exists already just so; returns its id."""
    services.require_open()
    store = services.store
    rank, owner = Authority.of(authority), namespace_of(namespace)
    if asked is not None:
        asked = replace(asked, query=_check_text("query", asked.query, MAX_NOTE_CHARS))
    if store.learned.get_state(owner).frozen:
        msg = f"namespace {owner!r} is frozen: it learns nothing, teach another one"
        raise InvalidInputError(msg)
    said = _check_note(raw)
    related, wrong = ([*resolve_nodes(store, ids, owner)] for ids in (said.related, said.wrong))
    said = replace(said, related=related, wrong=wrong)
    name = said.id or make_note_id(kind, owner, said.text)
    known = {fact.digest for fact in store.notes.get_facts([name]) if fact.namespace == owner}
    query = None if asked is None else asked.query
    if hash_note(kind, said, rank, query) not in known:
        edges = () if logged is None else build_entry_inhibitions(store, logged.turn, said.wrong)
        store.apply([_note_change(services, kind, owner, said, rank, asked, edges)])
    return name


def _note_change(
    services: Services,
    kind: NoteKind,
    namespace: str,
    said: NoteContent,
    rank: Authority,
    asked: NoteQuestion | None,
    edges: Iterable[NoteEdge],
) -> KeepNote:
    text = prepend_title(said.title, said.text) if said.title else said.text
    vector = services.identity.embed_text(text)
    if asked is not None and asked.vector is None:
        asked = replace(asked, vector=services.embedder.query(asked.query))
    return build_note(namespace, kind, said, vector, authority=rank, asked=asked, beside=edges)


def _find_turn(services: Services, turn_id: str, namespace: str | None) -> StoredTurn:
    services.require_open()
    scope = None if namespace is None else namespace_of(namespace)
    name = text_of("turn_id", turn_id)
    logged = services.store.turns.find(name, namespace=scope)
    if logged is None:
        msg = f"no turn {name!r} is recorded here: check the id and the namespace"
        raise NotFoundError(msg)
    return logged


def _best_document(store: GraphStore, logged: StoredTurn) -> list[str]:
    """Id of the best document of a turn; none when it was forgotten."""
    best = [item.node for item in logged.turn.returned[:1]]
    return [node for node in best if store.learned.keys([node])]


def _question(logged: StoredTurn | None) -> NoteQuestion | None:
    """The question of a turn, with its vector where that was recorded."""
    if logged is None:
        return None
    vector: Vector | None = None
    if logged.vector is not None:
        vector = np.asarray(logged.vector, dtype=np.float32)
    return NoteQuestion(logged.turn.query, vector, logged.turn.id)


def _check_note(said: NoteContent) -> NoteContent:
    """A note as it is stored.

    Raises:
        InvalidInputError: One of its fields is no text, empty or too long.
    """
    untitled = isinstance(said.title, str) and not said.title
    title = "" if untitled else _check_text("title", said.title, _LONGEST_NAME)
    name = None if said.id is None else _check_text("id", said.id, _LONGEST_NAME)
    if not isinstance(said.metadata, Mapping):
        msg = f"the metadata must be a mapping, not {type(said.metadata).__name__}"
        raise InvalidInputError(msg)
    metadata = to_json_safe(remove_answer_metadata(said.metadata))
    text = _check_text("text", said.text, MAX_NOTE_CHARS)
    return replace(said, text=text, title=title, id=name, metadata=metadata)


def _check_text(name: str, value: object, longest: int) -> str:
    if not isinstance(value, str):
        msg = f"the {name} must be a text, not {type(value).__name__}"
        raise InvalidInputError(msg)
    text = to_storable(value).strip()
    if not 1 <= len(text) <= longest:
        advice = "" if name != "text" else "; what is longer is a document: use add_documents"
        msg = f"the {name} must have 1 to {longest} characters, not {len(text)}{advice}"
        raise InvalidInputError(msg)
    return text
