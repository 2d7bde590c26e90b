"""Notes of a namespace: teachings, directives and corrections, visible to it alone."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import TypedDict

from crabpath_retrievers.core.changes import NoteEdge, NoteKind
from crabpath_retrievers.core.feedback import MAX_NOTE_CHARS
from crabpath_retrievers.core.query import (
    parse_namespace,
    parse_text,
    parse_texts,
    remove_answer_metadata,
)
from crabpath_retrievers.core.records import Authority, Vector
from crabpath_retrievers.core.text import format_value, prepend_title, remove_pictures, to_storable
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.ingest.chunking import to_json_safe
from crabpath_retrievers.learning.notes import (
    NoteContent,
    NoteQuestion,
    build_entry_inhibitions,
    build_note,
    find_contradicted,
    hash_note,
    make_note_id,
)
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.turns import StoredTurn

_DEFAULT_AUTHORITIES = {"teaching": "overlay", "directive": "canonical"}
_LONGEST_NAME = 600
_SHOWN = 5


class NoteFields(TypedDict, total=False):
    """Optional fields of a note: see ``CrabPath.teach``."""

    title: str
    related: Sequence[str] | str
    id: str | None
    metadata: Mapping[str, Any] | None


def require_taught_kind(kind: object) -> str:
    """Check the kind of a taught note; return the authority that it gets by default."""
    if not isinstance(kind, str) or kind not in _DEFAULT_AUTHORITIES:
        msg = f"kind must be 'teaching' or 'directive', not {format_value(kind)}: or use correct"
        raise InvalidInputError(msg)
    return _DEFAULT_AUTHORITIES[kind]


def resolve_nodes(store: GraphStore, ids: Sequence[str], namespace: str) -> dict[str, int]:
    """Look up the keys of nodes that a namespace sees, by id.

    Args:
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


def make_content(text: str, fields: NoteFields, wrong: Sequence[str] | str = ()) -> NoteContent:
    """Check the fields of a note, and normalise them for storage."""
    title, name = fields.get("title", ""), fields.get("id")
    untitled, metadata = isinstance(title, str) and not title, fields.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        msg = f"the metadata must be a mapping, not {type(metadata).__name__}"
        raise InvalidInputError(msg)
    return NoteContent(
        _check_text("text", text, MAX_NOTE_CHARS),
        "" if untitled else _check_text("title", title, _LONGEST_NAME),
        parse_texts(fields.get("related", ()), name="related"),
        parse_texts(wrong, name="wrong"),
        None if name is None else _check_text("id", name, _LONGEST_NAME),
        to_json_safe(remove_answer_metadata(metadata)),
    )


def save_note(
    services: Services,
    kind: NoteKind,
    namespace: str,
    said: NoteContent,
    authority: str,
    asked: NoteQuestion | None,
    logged: StoredTurn | None = None,
) -> str:
    """Save a note, unless it is stored with the same content already; return its id.

    Args:
        asked: The question that it answers; None without one.
        logged: The turn that it corrects; None without one.

    Raises:
        InvalidInputError: A field cannot be used, or the namespace is frozen.
        NotFoundError: A related or wrong node does not exist.
    """
    store = services.store
    store.require_in_place()  # else what is acknowledged would be lost
    rank, owner = Authority.of(authority), parse_namespace(namespace)
    if asked is not None:
        asked = replace(asked, query=_check_text("query", asked.query, MAX_NOTE_CHARS))
    if store.learned.get_state(owner).frozen:
        msg = f"namespace {owner!r} is frozen: it learns nothing, teach another one"
        raise InvalidInputError(msg)
    related, wrong = ([*resolve_nodes(store, ids, owner)] for ids in (said.related, said.wrong))
    said = replace(said, related=related, wrong=wrong)
    query = None if asked is None else asked.query
    name = said.id or make_note_id(kind, owner, said.text, query)
    digest = hash_note(kind, said, rank, query)
    known = store.notes.get_facts([name], owner)
    if any(fact.digest == digest and fact.is_settled for fact in known):
        return name
    vector = services.identity.embed_text(
        prepend_title(said.title, said.text) if said.title else said.text
    )
    if asked is not None and asked.vector is None:
        with suppress(InvalidInputError):  # a question without a vector is known by its words
            asked = replace(asked, vector=services.embedder.query(asked.query))
    edges: Sequence[NoteEdge] = ()
    if logged is not None:
        key = logged.state.clock.key
        edges = build_entry_inhibitions(store, logged.turn, said.wrong, key)
    note = build_note(owner, kind, said, vector, authority=rank, asked=asked, beside=edges)
    store.apply([note])
    return name


def find_turn(store: GraphStore, turn_id: str, namespace: str | None) -> StoredTurn:
    """Find a turn by its id, or the host's id of its run; ``namespace`` None looks in all.

    Raises:
        NotFoundError: There is no such turn.
    """
    scope = None if namespace is None else parse_namespace(namespace)
    name = parse_text("turn_id", turn_id)
    logged = store.turns.find(name, namespace=scope)
    if logged is None:
        msg = f"no turn {name!r} is recorded here: check the id and the namespace"
        raise NotFoundError(msg)
    return logged


def find_wrong(services: Services, logged: StoredTurn, text: str) -> list[str]:
    """Find the ids of a turn's documents that a text contradicts in nearly the same words."""
    text = _check_text("text", text, MAX_NOTE_CHARS)
    vector = services.identity.embed_text(text)
    stretch = services.store.stretch
    return find_contradicted(logged.turn, logged.nodes, vector, stretch)


def make_question(logged: StoredTurn | None) -> NoteQuestion | None:
    """Make the question of a note from a turn, with its vector if stored; None without a turn."""
    if logged is None:
        return None
    vector: Vector | None = None
    if logged.vector is not None:
        vector = np.asarray(logged.vector, dtype=np.float32)
    return NoteQuestion(logged.turn.query, vector, logged.turn.id)


def _check_text(name: str, value: object, longest: int) -> str:
    if not isinstance(value, str):
        msg = f"the {name} must be a text, not {type(value).__name__}"
        raise InvalidInputError(msg)
    text = to_storable(value) if name == "id" else remove_pictures(to_storable(value))
    text = text.strip()
    if not 1 <= len(text) <= longest:
        advice = "" if name != "text" else "; what is longer is a document: add it as one"
        msg = f"the {name} must have 1 to {longest} characters, not {len(text)}{advice}"
        raise InvalidInputError(msg)
    return text
