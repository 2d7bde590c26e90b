"""Reads of notes: by id, expired ones, those that are queued for the index."""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.records import EdgeKind, Vector
from crabpath_retrievers.core.text import hash_texts, normalise_name
from crabpath_retrievers.storage.schema import (
    contents,
    namespaces,
    nodes,
    notes,
    overlay,
)
from crabpath_retrievers.storage.sql_tools import (
    CompiledSelect,
    Queries,
    decode_rows,
    decode_vector,
)

_OF_ONE_QUESTION = re.compile(r"(correction:[0-9a-f]{24})-[0-9a-f]{8}")


class NoteVector(NamedTuple):
    """A note with its unit vector, shape ``[d]``, half precision."""

    key: int
    id: str
    namespace: int
    vector: Vector


class Correction(NamedTuple):
    """A note and a document that it corrects, by key, and the question that the note answers.

    The larger ``said`` is, the later the note was said.
    """

    document: int
    note: int
    query: str | None
    said: int


class NoteOrigin(NamedTuple):
    """A note by key: its kind, the question that it answers, and when it was said, as a number."""

    key: int
    kind: str
    query: str | None
    said: int


def build_correction_id(text_id: str, query: str) -> str:
    """Build the id of a correction of the question ``query`` from the id of its text."""
    return f"{text_id}-{hash_texts(normalise_name(query))[:8]}"


def find_text_id(note: str) -> str:
    """Find the id of a note's text, which its corrections of all questions share."""
    found = _OF_ONE_QUESTION.fullmatch(note)
    return found[1] if found else note


def build_note_episode_id(key: int, query: str) -> str:
    """Build the id of the episode by which similar questions recall a note."""
    return f"note-{key}-{sha256(query.encode()).hexdigest()[:16]}"


class NoteFacts(NamedTuple):
    """Facts about a note; ``namespace`` is a name, ``owner`` the key of the namespace.

    ``is_outdated``: a document that it corrects has got another text since. ``is_settled``: saying
    it again changes nothing, since a user said it directly and, if it is a correction, nothing else
    was said since and it is not outdated.
    """

    id: str
    kind: str
    namespace: str
    owner: int
    born: int
    last: int
    uses: int
    query: str | None
    turn: str | None
    feedback: str | None
    digest: str
    is_outdated: bool
    is_settled: bool


class SaidNote(NamedTuple):
    """Who gave a note; ``namespace`` is a name, ``owner`` the key of the namespace.

    ``is_direct``: it was given by itself, with the token of id ``token``. Otherwise it was made
    from the feedback with the id ``feedback``.
    """

    id: str
    namespace: str
    owner: int
    is_direct: bool
    token: str | None
    feedback: str | None


_USES_PROVEN = 2
"""Successful turns after which the probation of an ``auto`` note ends."""

_VECTOR = (nodes.c.key, nodes.c.id, notes.c.namespace, nodes.c.embedding)
_JOINED = notes.join(nodes, nodes.c.key == notes.c.node)
# The sum keeps the planner from the index on namespaces, as for episodes.
_IN_NAMESPACE = notes.c.namespace + 0 == sa.bindparam("namespace")
_BY_ID = nodes.c.id.in_(sa.bindparam("ids", expanding=True))
IS_SEARCHED = notes.c.kind != "state"
"""Condition: queries may find a note, so that the index of notes holds it."""
IS_CURRENT = IS_SEARCHED & sa.or_(
    notes.c.kind != "auto",
    notes.c.uses >= _USES_PROVEN,
    notes.c.last_turn >= sa.bindparam("since"),
)
"""Condition: a note is found by queries; ``since`` is the first turn of the current probation."""
_NEAR = CompiledSelect(
    sa.union_all(
        sa.select(*_VECTOR).select_from(_JOINED).where(_IN_NAMESPACE, _BY_ID, IS_CURRENT),
        sa.select(*_VECTOR)
        .select_from(_JOINED)
        .where(_IN_NAMESPACE, notes.c.indexed == 0, IS_CURRENT),
    )
)
_EXPIRED = CompiledSelect(
    sa.select(nodes.c.id).select_from(_JOINED).where(_IN_NAMESPACE, _BY_ID, sa.not_(IS_CURRENT))
)
_OF_KEYS = CompiledSelect(
    sa.select(notes.c.node, notes.c.kind, notes.c.query, notes.c.said).where(
        _IN_NAMESPACE, notes.c.node.in_(sa.bindparam("keys", expanding=True))
    )
)
# The inhibitory edge from a note to what it corrects is the record of the correction; its weight
# does not matter here, so the note goes with the document however much of it has decayed; it is 0
# once the document has another text.
_IS_CORRECTION = sa.and_(overlay.c.kind == EdgeKind.INHIBITS.value, notes.c.kind == "correction")
_LINKS = (
    sa.select(overlay.c.target, notes.c.node, notes.c.query, notes.c.said)
    .select_from(overlay.join(notes, notes.c.node == overlay.c.source))
    .where(
        _IS_CORRECTION,
        overlay.c.weight != 0.0,
        notes.c.namespace + 0 == overlay.c.namespace,
    )
)
_OF_NAMESPACE = sa.bindparam("namespace", type_=sa.BigInteger)
_FIRST = _LINKS.where(
    overlay.c.target.in_(sa.bindparam("keys", expanding=True)),
    overlay.c.namespace == _OF_NAMESPACE,
).cte("corrections", recursive=True)
# The sum keeps the planner on the index of targets.
_ALL_LINKS = _FIRST.union(
    _LINKS.where(overlay.c.target == _FIRST.c.node, overlay.c.namespace + 0 == _OF_NAMESPACE)
)
_CORRECTIONS = CompiledSelect(
    sa.select(_ALL_LINKS)
    .order_by(_ALL_LINKS.c.said.desc(), _ALL_LINKS.c.node.desc())
    .limit(sa.bindparam("limit"))
    .offset(sa.literal_column("0"))
)
_UNINDEXED_COUNT = CompiledSelect(
    sa.select(sa.func.count()).where(notes.c.indexed == 0, IS_SEARCHED)
)


class NoteQueries(Queries):
    """Reads of notes. A note on probation that was last used before turn ``since`` is expired."""

    def near(self, namespace: int, ids: Sequence[str], since: int) -> list[NoteVector]:
        """Read the current notes among ``ids``, and all current notes that wait for the index.

        A note on probation is current if it was used since the turn ``since``.
        """
        found = self._run(_NEAR, namespace=namespace, ids=list(ids), since=since)
        return decode_rows("a note", {row[0]: row for row in found}.values(), _decode_note)

    def find_origins(self, namespace: int, keys: Sequence[int]) -> list[NoteOrigin]:
        """Read the notes of a namespace among the nodes with these keys."""
        rows = self._run(_OF_KEYS, namespace=namespace, keys=list(keys))
        return [NoteOrigin(*row) for row in rows]

    def find_corrections(self, namespace: int, keys: Sequence[int], limit: int) -> list[Correction]:
        """List the latest corrections of nodes, and of notes that correct these, newest first."""
        rows = self._run(_CORRECTIONS, namespace=namespace, keys=list(keys), limit=limit)
        return [Correction(*row) for row in rows]

    def latest(self, namespace: int, since: int, limit: int) -> list[NoteVector]:
        """Read the latest ``limit`` current notes of a namespace, for an index without notes.

        A note on probation is current if it was used since the turn ``since``.
        """
        query = (
            sa.select(*_VECTOR)
            .select_from(_JOINED)
            .where(notes.c.namespace == namespace, IS_CURRENT)
            .params(since=since)
            .order_by(notes.c.created_turn.desc(), notes.c.node.desc())
            .limit(limit)
        )
        return decode_rows("a note", self._rows(query), _decode_note)

    def find_said(
        self,
        namespace: str | None,
        *,
        name: str | None = None,
        turn: str | None = None,
        token: str | None = None,
    ) -> list[SaidNote]:
        """Find who gave notes: that with an id (``name``), those of a turn, or those of a token.

        ``namespace`` None looks in all. Of a turn or token only notes are found that were given by
        themselves, the newest first.
        """
        n = notes.c
        named = {nodes.c.id: name, n.turn: turn, n.token: token, namespaces.c.name: namespace}
        where = [column == value for column, value in named.items() if value is not None]
        if name is None:
            where.append(n.said_directly.is_not(None))
        query = (
            sa.select(nodes.c.id, namespaces.c.name, n.namespace)
            .add_columns(n.said_directly.is_not(None), n.token, n.feedback)
            .select_from(_JOINED)
            .join(namespaces, namespaces.c.key == n.namespace)
            .where(*where)
            .order_by(n.said.desc(), n.node.desc())
        )
        return [SaidNote(*row) for row in self._rows(query)]

    def find_expired(self, namespace: int, ids: Sequence[str], since: int) -> set[str]:
        """Select those of ``ids`` that are notes whose probation ended without a use.

        Notes on probation must have been used since the turn ``since``.
        """
        rows = self._run(_EXPIRED, namespace=namespace, ids=list(ids), since=since)
        return {node for (node,) in rows}

    def count_unindexed(self) -> int:
        """Number of notes that are queued for the index."""
        ((count,),) = self._run(_UNINDEXED_COUNT)
        return int(count)

    def get_unindexed(self) -> list[NoteVector]:
        """Notes that are queued for the index."""
        query = sa.select(*_VECTOR).select_from(_JOINED).where(notes.c.indexed == 0, IS_SEARCHED)
        return decode_rows("a note", self._rows(query), _decode_note)

    def ids(self, namespace: int) -> set[str]:
        """Ids of all notes of a namespace."""
        query = sa.select(nodes.c.id).select_from(_JOINED).where(notes.c.namespace == namespace)
        return set(self._scalars(query))

    def list_automatic(self) -> Sequence[Any]:
        """List automatic notes: id, name of the namespace, and turn that was answered."""
        query = (
            sa.select(nodes.c.id, namespaces.c.name, notes.c.turn)
            .select_from(_JOINED)
            .join(namespaces, namespaces.c.key == notes.c.namespace)
        )
        return self._rows(query.where(notes.c.kind == "auto"))

    def get_facts(self, ids: Iterable[str], namespace: str | None = None) -> list[NoteFacts]:
        """Read facts about the notes among ``ids``; ``namespace`` None reads those of any."""
        n = notes.c
        columns = (n.created_turn, n.last_turn, n.uses, n.query, n.turn, n.feedback)
        other = notes.alias()
        last = sa.select(sa.func.max(other.c.said)).where(other.c.namespace == n.namespace)
        is_last = sa.func.coalesce(n.said_directly == last.scalar_subquery(), sa.false())
        own = (_IS_CORRECTION, overlay.c.source == n.node, overlay.c.namespace == n.namespace)
        outdated = sa.exists().where(*own, overlay.c.weight == 0.0).correlate(notes)
        last_word = is_last & ~outdated
        settled = sa.case((n.kind == "correction", last_word), else_=n.said_directly.is_not(None))
        query = (
            sa.select(nodes.c.id, n.kind, namespaces.c.name, n.namespace, *columns)
            .add_columns(contents.c.digest, outdated, settled)
            .select_from(_JOINED)
            .join(contents, contents.c.node == nodes.c.key)
            .join(namespaces, namespaces.c.key == n.namespace)
        )
        if namespace is not None:
            query = query.where(namespaces.c.name == namespace)
        return [NoteFacts(*row) for row in self._rows_in(query, nodes.c.id, ids)]


def _decode_note(row: Sequence[Any]) -> NoteVector:
    key, node, namespace, embedding = row
    return NoteVector(key, node, namespace, decode_vector(embedding))
