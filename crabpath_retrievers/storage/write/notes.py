"""Writer of notes and of authority."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import singledispatchmethod
from hashlib import sha256
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.changes import notes as n
from crabpath_retrievers.core.graph import EdgeKind, Node
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.sql_tools import decode_vector, encode_vector, split_batches
from crabpath_retrievers.storage.write.history import decode_snapshot, remove_notes_from_snapshot
from crabpath_retrievers.storage.write.journal import write_journal
from crabpath_retrievers.storage.write.nodes import NodeWriter, build_content_row, build_node_row
from crabpath_retrievers.storage.write.weights import materialise_decay, read_effective_weight

_OWN_KINDS = (EdgeKind.TAUGHT.value, EdgeKind.INHIBITS.value)  # edges created with a note


class NoteWriter:
    """Writes notes on one open transaction."""

    def __init__(
        self,
        connection: sa.Connection,
        insert: Callable[..., Any],
        nodes: NodeWriter,
        then: Callable[[c.Change], None],
    ) -> None:
        """Write on ``connection``.

        Args:
            connection: An open transaction.
            insert: The insert function of the dialect, with ON CONFLICT.
            nodes: Writer of nodes on the same transaction.
            then: Applies the changes that follow from a note: weights, episodes.
        """
        self._connection, self._insert = connection, insert
        self._nodes, self._then = nodes, then

    @singledispatchmethod
    def apply(self, change: object) -> None:
        """Carry out one change."""
        msg = f"unknown change {type(change).__name__}"
        raise TypeError(msg)

    @apply.register
    def _(self, change: n.KeepNote) -> None:
        # Creates the namespace if it is new.
        self._then(c.AdvanceClock(change.namespace))
        namespace, turn = self._connection.execute(
            sa.select(s.namespaces.c.key, s.namespaces.c.turn)
            .where(s.namespaces.c.name == change.namespace)
            .with_for_update()
        ).one()
        key = self._write_node(change, namespace)
        self._write_note(change, key, namespace, turn)
        self._then(c.PutMeta((("notes", "1"),)))
        self._recount([namespace])
        self._add_episode(change, key)
        self._journal("note", change.namespace, {"id": change.node.id, "kind": change.kind})
        if deltas := tuple(self._compute_deltas(change, key, namespace)):
            self._then(c.AdjustWeights(change.namespace, deltas, change.feedback or change.node.id))

    def _write_node(self, change: n.KeepNote, namespace: int) -> int:
        """Write the node of a note; returns its key."""
        node = change.node
        assert node.vector is not None, "notes carry their vector"  # noqa: S101
        row = build_node_row(node.id, _build_payload(node), encode_vector(node.vector))
        # Only its namespace sees a note, but regions are shared: a note is no hub.
        row |= {"owner": namespace, "authority": change.authority.value, "level": 0}
        known = self._connection.execute(
            sa.select(s.nodes.c.key, s.nodes.c.owner).where(s.nodes.c.id == node.id)
        ).one_or_none()
        if known is None:
            made = self._connection.execute(s.nodes.insert().values(row).returning(s.nodes.c.key))
            return int(made.scalar_one())
        if known.owner != namespace:
            msg = f"the id {node.id!r} is taken: choose another one, or none"
            raise InvalidInputError(msg)
        self._delete_former_content(known.key, namespace, node)
        materialise_decay(self._connection, [known.key])
        self._connection.execute(s.nodes.update().where(s.nodes.c.key == known.key).values(row))
        return int(known.key)

    def _delete_former_content(self, key: int, namespace: int, node: Node) -> None:
        """Delete the former content of a note, and with another text its edges and episodes."""
        content = s.contents.c.node == key
        former = self._connection.scalar(sa.select(s.contents.c.content).where(content))
        self._connection.execute(s.contents.delete().where(content))
        if former != node.content:
            for table in (s.overlay, s.weight_changes):
                own = table.c.kind.in_(_OWN_KINDS) & (table.c.source == key)
                self._connection.execute(table.delete().where(own))
            self._remove_from_episodes(key, namespace, node.id)

    def _write_note(self, change: n.KeepNote, key: int, namespace: int, turn: int) -> None:
        self._connection.execute(
            s.contents.insert(), build_content_row(key, _build_payload(change.node))
        )
        fresh = {
            "kind": change.kind,
            "last_turn": turn,
            "indexed": 0,
            "query": change.query,
            "turn": change.turn,
            "feedback": change.feedback,
        }
        row = {"node": key, "namespace": namespace, "created_turn": turn, "uses": 0, **fresh}
        insert = self._insert(s.notes).values(row)
        # A note without feedback comes from a user; feedback that repeats it does not change that.
        origin = sa.case((s.notes.c.feedback.is_(None), sa.null()), else_=insert.excluded.feedback)
        update = {**fresh, "feedback": origin}
        self._connection.execute(insert.on_conflict_do_update(index_elements=["node"], set_=update))

    def _add_episode(self, change: n.KeepNote, key: int) -> None:
        """Add the episode by which similar queries recall the note."""
        if change.query is not None and change.query_vector is not None:
            query, vector = change.query, change.query_vector
            credit = {change.node.id: 1.0}
            name = _build_episode_id(key, query)
            self._then(c.KeepEpisode(change.namespace, name, query, vector, 1.0, 1.0, credit))

    def _remove_from_episodes(self, key: int, namespace: int, node: str) -> None:
        """Remove a note from its episodes; credit of other nodes is kept."""
        own = s.episodes.c.id.startswith(_build_episode_prefix(key)) & (
            s.episodes.c.namespace == namespace
        )
        query = sa.select(s.episodes.c.id, s.episodes.c.documents).where(own)
        for episode, documents in self._connection.execute(query).all():
            remaining = {i: credit for i, credit in json.loads(documents).items() if i != node}
            where = s.episodes.c.id == episode
            if remaining:
                update = s.episodes.update().where(where)
                self._connection.execute(update.values(documents=json.dumps(remaining)))
            else:
                self._connection.execute(s.episodes.delete().where(where))

    def _compute_deltas(
        self, change: n.KeepNote, key: int, namespace: int
    ) -> Iterable[c.WeightDelta]:
        """Weight changes for the edges; those of the note itself are set to the given weight."""
        own = change.node.id
        ids = {node or own for edge in change.edges for node in (edge.source, edge.target)}
        seen = s.nodes.c.owner.in_((0, namespace))
        rows = self._connection.execute(
            sa.select(s.nodes.c.id, s.nodes.c.key).where(s.nodes.c.id.in_(ids), seen)
        )
        keys = {node: key for node, key in rows}
        for edge in change.edges:
            source, target = keys.get(edge.source or own), keys.get(edge.target or own)
            if source and target and source != target:
                present = 0.0
                if key in {source, target}:
                    row = {"source": source, "target": target, "kind": edge.kind.value}
                    present = read_effective_weight(self._connection, namespace, row)
                yield c.WeightDelta(source, target, edge.kind, edge.weight - present)

    @apply.register
    def _(self, change: n.UndoNotes) -> None:
        space = sa.select(s.namespaces.c.key).where(s.namespaces.c.name == change.namespace)
        key = self._connection.scalar(space.with_for_update())
        for node, uses in Counter(change.used).items():
            found = sa.select(s.nodes.c.key).where(s.nodes.c.id == node).scalar_subquery()
            own = (s.notes.c.node == found) & (s.notes.c.namespace == key)
            remaining = sa.case((s.notes.c.uses > uses, s.notes.c.uses - uses), else_=0)
            self._connection.execute(s.notes.update().where(own).values(uses=remaining))
        for node, query in change.notes:
            self._undo_note(change.namespace, key, node, query)

    def _undo_note(self, name: str, namespace: int | None, node: str, query: str | None) -> None:
        """Undo that feedback created or repeated a note."""
        row = self._connection.execute(
            sa.select(s.notes.c.node, s.notes.c.feedback)
            .join(s.nodes, s.nodes.c.key == s.notes.c.node)
            .where(s.nodes.c.id == node, s.notes.c.namespace == namespace)
        ).one_or_none()
        if row is None:
            return
        same = s.feedback_effects.c.record.contains(
            f'{{"note":{to_json(node).decode()},', autoescape=True
        )
        other = self._connection.scalar(
            sa.select(s.feedback_effects.c.feedback)
            .where(s.feedback_effects.c.namespace == namespace, same)
            .order_by(s.feedback_effects.c.sequence.desc())
            .limit(1)
        )
        if row.feedback is not None and other is None:
            self._delete_where(s.nodes.c.id == node)
            self._journal("remove_notes", None, {"ids": [node]})
            return
        if row.feedback is not None:
            own = s.notes.c.node == row.node
            self._connection.execute(s.notes.update().where(own).values(feedback=other))
        if query is not None:
            self._undo_episode(name, _build_episode_id(row.node, query), node)

    def _undo_episode(self, namespace: str, episode: str, node: str) -> None:
        """Subtract one turn from an episode by which a note is recalled."""
        query = sa.select(s.episodes.c.embedding, s.episodes.c.clock)
        row = self._connection.execute(query.where(s.episodes.c.id == episode)).one_or_none()
        if row is not None:
            negated_credit, vector = {node: -1.0}, decode_vector(row.embedding)
            self._then(
                c.KeepEpisode(namespace, episode, "", vector, -1.0, -1.0, negated_credit, row.clock)
            )

    @apply.register
    def _(self, change: n.UseNotes) -> None:
        key, turn = (
            sa.select(column).where(s.namespaces.c.name == change.namespace).scalar_subquery()
            for column in (s.namespaces.c.key, s.namespaces.c.turn)
        )
        for ids, uses in ((change.used, 1), (change.seen, 0)):
            found = sa.select(s.nodes.c.key).where(s.nodes.c.id.in_(ids))
            own = s.notes.c.node.in_(found) & (s.notes.c.namespace == key)
            update = s.notes.update().where(own)
            self._connection.execute(update.values(uses=s.notes.c.uses + uses, last_turn=turn))

    @apply.register
    def _(self, change: n.MarkNotesIndexed) -> None:
        for part in split_batches(change.keys):
            update = s.notes.update().where(s.notes.c.node.in_(part))
            self._connection.execute(update.values(indexed=1))

    @apply.register
    def _(self, change: n.RemoveNotes) -> None:
        for part in split_batches(change.ids):
            self._remove_from_snapshots(self._delete_where(s.nodes.c.id.in_(part)))
        self._journal("remove_notes", None, {"ids": list(change.ids)})

    def _remove_from_snapshots(self, removed: Sequence[Any]) -> None:
        """Delete notes from snapshots, so that no restore brings them back."""
        keys = {row.key for row in removed}
        own = s.snapshots.c.namespace.in_({row.namespace for row in removed})
        query = sa.select(s.snapshots.c.id, s.snapshots.c.content).where(own)
        for identity, content in self._connection.execute(query).all():
            remaining = remove_notes_from_snapshot(content, keys)
            update = s.snapshots.update().where(s.snapshots.c.id == identity)
            self._connection.execute(update.values(content=remaining))

    def restore(self, snapshot: str) -> None:
        """Restore the notes of a snapshot, and delete later ones."""
        query = sa.select(s.snapshots.c.namespace, s.snapshots.c.content)
        row = self._connection.execute(query.where(s.snapshots.c.id == snapshot)).one_or_none()
        if row is None:
            return
        content = decode_snapshot(row.content)
        note_rows = {table: rows for table, rows in content.note_rows(row.namespace)}
        former_ids = {node["key"]: node["id"] for node in note_rows[s.nodes]}
        own = s.notes.c.namespace == row.namespace
        present_keys = set(self._connection.scalars(sa.select(s.notes.c.node).where(own)))
        self._delete_notes(sorted(present_keys - former_ids.keys()))
        back = former_ids.keys() - self._find_foreign_ids(former_ids, row.namespace)
        for table, rows in note_rows.items():
            (key,) = table.primary_key.columns
            for part in split_batches(sorted(back)):
                self._connection.execute(table.delete().where(key.in_(part)))
            if remaining := [one for one in rows if one[key.name] in back]:
                self._connection.execute(table.insert(), remaining)
        self._recount([row.namespace])

    def _delete_notes(self, keys: Sequence[int]) -> None:
        for part in split_batches(keys):
            self._delete_where(s.notes.c.node.in_(part))

    def _find_foreign_ids(self, ids: Mapping[int, str], namespace: int) -> set[int]:
        """Keys of former notes whose ids belong to other nodes now."""
        found: set[int] = set()
        keys = {node: key for key, node in ids.items()}
        for part in split_batches(sorted(keys)):
            query = sa.select(s.nodes.c.id).where(s.nodes.c.id.in_(part))
            other = query.where(s.nodes.c.owner != namespace)
            found |= {keys[node] for node in self._connection.scalars(other)}
        return found

    def forget(self, namespace: int) -> None:
        """Delete all notes of a namespace, by key."""
        self._delete_where(s.notes.c.namespace == namespace)

    def _delete_where(self, which: sa.ColumnElement[bool]) -> Sequence[Any]:
        rows = self._connection.execute(
            sa.select(s.nodes.c.key, s.nodes.c.id, s.notes.c.namespace)
            .join(s.notes, s.notes.c.node == s.nodes.c.key)
            .where(which)
        ).all()
        for row in rows:
            self._remove_from_episodes(row.key, row.namespace, row.id)
        for part in split_batches(row.id for row in rows):
            self._nodes.remove(part)
        self._recount({row.namespace for row in rows})
        return rows

    def _recount(self, namespaces: Iterable[int]) -> None:
        count = (
            sa.select(sa.func.count())
            .where(s.notes.c.namespace == s.namespaces.c.key)
            .scalar_subquery()
        )
        for key in namespaces:
            update = s.namespaces.update().where(s.namespaces.c.key == key)
            self._connection.execute(update.values(note_count=count))

    @apply.register
    def _(self, change: n.SetAuthority) -> None:
        for part in split_batches(change.keys):
            materialise_decay(self._connection, part)
            update = s.nodes.update().where(s.nodes.c.key.in_(part))
            self._connection.execute(update.values(authority=change.authority.value))
        payload = {"keys": list(change.keys), "authority": change.authority.name.lower()}
        self._journal("authority", None, payload)

    def _journal(self, change: str, namespace: str | None, payload: dict[str, Any]) -> None:
        write_journal(self._connection, change, payload, namespace)


def _build_episode_id(key: int, query: str) -> str:
    return f"{_build_episode_prefix(key)}{sha256(query.encode()).hexdigest()[:16]}"


def _build_episode_prefix(key: int) -> str:
    """Prefix of the ids of a note's episodes, made of its key, which is never reused."""
    return f"note-{key}-"


def _build_payload(node: Node) -> dict[str, Any]:
    return {
        # No document has an empty source, so linkers never read a note.
        "document": "",
        "source": "",
        "content": node.content,
        "title": node.title,
        "position": 0,
        "metadata": dict(node.metadata),
        "digest": node.digest,
    }
