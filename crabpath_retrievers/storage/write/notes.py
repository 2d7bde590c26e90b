"""Writers of notes."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.calls import find_token
from crabpath_retrievers.core.changes import EpisodeContent
from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.records import EdgeKind, Node
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.read.notes import IS_SEARCHED, build_note_episode_id
from crabpath_retrievers.storage.sql_tools import encode_vector, is_one_of, split_batches
from crabpath_retrievers.storage.write.learned import (
    add_credit,
    keep_episode,
    read_episode,
    read_last_said,
    write_episode,
)
from crabpath_retrievers.storage.write.nodes import (
    build_content_row,
    build_node_row,
    delete_nodes,
    put_meta,
)
from crabpath_retrievers.storage.write.transaction import Transaction, write_journal
from crabpath_retrievers.storage.write.weights import (
    adjust_weights,
    materialise_decay,
    read_effective_weight,
    undo_weights,
)

_OWN_KINDS = (EdgeKind.TAUGHT.value, EdgeKind.INHIBITS.value)  # edges created with a note


def keep_note(tx: Transaction, change: c.KeepNote) -> None:
    """Store a note with its edges and its episode; one with the same id is replaced."""
    namespace, _ = tx.get_namespace(change.namespace, lock=True)
    turn = tx.scalar(sa.select(s.namespaces.c.turn).where(s.namespaces.c.key == namespace))
    node = change.node
    payload = {
        # No document has an empty source, so linkers never read a note.
        "document": "",
        "source": "",
        "position": 0,
        "metadata": dict(node.metadata),
        "content": node.content,
        "title": node.title,
        "digest": node.digest,
    }
    key = _write_node(tx, change, namespace, payload)
    tx.add(s.contents, [build_content_row(key, payload)])
    _write_note(tx, change, key, namespace, turn)
    put_meta(tx, {"notes": "1"})
    recount_notes(tx, [namespace])
    if change.query is not None and change.query_vector is not None:
        # The episode by which similar queries recall the note.
        name = build_note_episode_id(key, change.query)
        given = (change.query, change.query_vector, 1.0, 1.0, {node.id: 1.0})
        keep_episode(tx, c.KeepEpisode(change.namespace, name, *given))
    write_journal(tx, "note", {"kind": change.kind}, change.namespace)
    if deltas := tuple(_compute_deltas(tx, change, key, namespace)):
        cause = change.feedback or node.id
        adjust_weights(tx, c.AdjustWeights(change.namespace, deltas, cause))
    if change.feedback is None:  # else the feedback that is consumed with it does
        tx.increment_versions(namespace)


def _write_node(
    tx: Transaction, change: c.KeepNote, namespace: int, payload: dict[str, Any]
) -> int:
    """Write the node of a note, and delete its former content; return its key.

    Raises:
        InvalidInputError: The id is that of a document.
    """
    node = change.node
    assert node.vector is not None, "notes carry their vector"  # noqa: S101
    row = build_node_row(node.id, payload, encode_vector(node.vector))
    # Only its namespace sees a note, but regions are shared: a note is no hub.
    row |= {"owner": namespace, "authority": change.authority.value, "level": 0}
    query = sa.select(s.nodes).where(s.nodes.c.owner.in_((0, namespace)))
    known = {found.owner: found for found in tx.run(query.where(s.nodes.c.id == node.id))}
    if 0 in known:
        msg = f"the id {node.id!r:.250} is that of a document: choose another one, or none"
        raise InvalidInputError(msg)
    if namespace not in known:
        return int(tx.scalar(s.nodes.insert().values(row).returning(s.nodes.c.key)))
    key = int(known[namespace].key)
    _delete_former_content(tx, key, namespace, node)
    if known[namespace].authority != row["authority"]:  # its edges decay at another rate from now
        materialise_decay(tx, [key])
    tx.update(s.nodes, s.nodes.c.key == key, **row)
    return key


def _delete_former_content(tx: Transaction, key: int, namespace: int, node: Node) -> None:
    """Delete the former content of the note ``key``.

    If ``node`` has another text than before, edges and episodes of the note are deleted, too.
    """
    content = s.contents.c.node == key
    former = tx.scalar(sa.select(s.contents.c.content).where(content))
    tx.delete(s.contents, content)
    if former != node.content:
        for table in (s.overlay, s.weight_changes):
            tx.delete(table, table.c.kind.in_(_OWN_KINDS), table.c.source == key)
        _remove_from_episodes(tx, key, namespace, node.id)


def _write_note(tx: Transaction, change: c.KeepNote, key: int, namespace: int, turn: int) -> None:
    place = read_last_said(tx, namespace) + 1
    fresh: dict[str, Any] = {"kind": change.kind, "last_turn": turn, "indexed": 0, "said": place}
    if change.feedback is None:
        fresh["said_directly"] = place
    about: dict[str, Any] = {
        "query": change.query,
        "turn": change.turn,
        "feedback": change.feedback,
        "token": None if change.feedback else find_token(),
    }
    row = {"node": key, "namespace": namespace, "created_turn": turn, "uses": 0, **fresh, **about}
    insert = tx.insert(s.notes).values(row)
    if change.feedback is not None:
        # What a user said directly stays so; feedback that repeats it does not change that.
        direct, new = s.notes.c.said_directly.is_not(None), insert.excluded
        about = {name: sa.case((direct, s.notes.c[name]), else_=new[name]) for name in about}
    tx.run(insert.on_conflict_do_update(index_elements=["node"], set_={**fresh, **about}))


def _remove_from_episodes(tx: Transaction, key: int, namespace: int, node: str) -> None:
    """Remove a note, given by key and id (``node``), from its episodes.

    Credit of other nodes is kept; episodes without credit are deleted.
    """
    query = sa.select(s.episodes.c.id, s.episodes.c.documents).where(
        s.episodes.c.id.startswith(f"note-{key}-"),
        s.episodes.c.namespace == namespace,
    )
    for episode, documents in tx.run(query).all():
        remaining = {i: credit for i, credit in json.loads(documents).items() if i != node}
        own = s.episodes.c.id == episode
        if remaining:
            tx.update(s.episodes, own, documents=json.dumps(remaining))
        else:
            tx.delete(s.episodes, own)


def _compute_deltas(
    tx: Transaction, change: c.KeepNote, key: int, namespace: int
) -> Iterable[c.WeightDelta]:
    """Yield the weight changes that the edges of a note need.

    ``key`` is that of the note, ``namespace`` of its namespace. Edges that begin or end at the note
    are set to the given weight; to others the given weight is added. Edges of nodes that do not
    exist are left out.
    """
    own = change.node.id
    ids = {node or own for edge in change.edges for node in (edge.source, edge.target)}
    seen = sa.select(s.nodes.c.owner, s.nodes.c.id, s.nodes.c.key)
    seen = seen.where(s.nodes.c.owner.in_((0, namespace))).order_by(s.nodes.c.key)
    held = seen.with_for_update(read=True, key_share=True)
    # A document hides a note with its id.
    found = sorted(map(tuple, tx.select_in(held, s.nodes.c.id, ids)), reverse=True)
    keys = {node: number for _, node, number in found} | {own: key}
    for edge in change.edges:
        source, target = keys.get(edge.source or own), keys.get(edge.target or own)
        if source and target and source != target:
            present = 0.0
            if key in {source, target}:
                row = {"source": source, "target": target, "kind": edge.kind.value}
                present = read_effective_weight(tx, namespace, row)
            yield c.WeightDelta(source, target, edge.kind, edge.weight - present)


def undo_notes(
    tx: Transaction, name: str, made: Sequence[dict[str, Any]], used: Sequence[str]
) -> None:
    """Undo what feedback did to notes, after all its other effects have been undone.

    Args:
        made: Notes that the feedback created or repeated: ``note`` is the id, ``query`` that of its
            episode, ``asked`` the question, ``turn`` the turn, and ``said`` its number in the order
            of notes.
        used: Ids of the nodes that its answers used, once per turn.
    """
    if not (made or used):
        return
    key = tx.find_key(name)
    for node, uses in Counter(used).items():
        found = sa.select(s.nodes.c.key).where(s.nodes.c.id == node)
        remaining = sa.case((s.notes.c.uses > uses, s.notes.c.uses - uses), else_=0)
        tx.update(s.notes, s.notes.c.node.in_(found), s.notes.c.namespace == key, uses=remaining)
    for one in made:
        _undo_note(tx, name, key, one["note"], one["query"])


def _undo_note(
    tx: Transaction, name: str, namespace: int | None, node: str, query: str | None
) -> None:
    """Undo the feedback that created or repeated the note ``node``.

    The note is deleted if neither other feedback nor a person directly gave it. ``name`` and
    ``namespace`` are name and key of the namespace; ``query`` is the question of the episode that
    recalls the note, None without one.
    """
    row = tx.run(
        sa.select(s.notes.c.node, s.notes.c.said_directly)
        .join(s.nodes, s.nodes.c.key == s.notes.c.node)
        .where(s.nodes.c.id == node, s.notes.c.namespace == namespace)
    ).one_or_none()
    if row is None:
        return
    if query is not None:
        # Subtract one turn from the episode by which the note is recalled.
        episode = build_note_episode_id(row.node, query)
        now = read_episode(tx, episode)
        if now.turns:
            credit = add_credit(now.documents, {node: 1.0}, -1.0)
            turns = (now.turns - 1.0, now.labelled_turns - 1.0)
            after = EpisodeContent(*turns, credit, now.credit_by_user, now.clock)
            write_episode(tx, name, episode, now, after)
    own, other = s.notes.c.node == row.node, _find_last_maker(tx, namespace, node)
    if other is None and row.said_directly is None:
        delete_notes(tx, own)
        # What was left where the note was given by itself, too, and that was undone first.
        undo_weights(tx, *tx.get_namespace(name, lock=True), node)
        write_journal(tx, "remove_notes", {"notes": 1}, name)
        return
    kept: dict[str, Any] = {"said": row.said_directly or 0}
    if other is not None:
        kept["said"] = max(kept["said"], other["said"])
        if row.said_directly is None:
            kept |= other
    tx.update(s.notes, own, **kept)


def _find_last_maker(tx: Transaction, namespace: int | None, node: str) -> dict[str, Any] | None:
    """Find what the last feedback in effect that created or repeated a note wrote in its row."""
    effects = s.feedback_effects.c
    same = effects.record.contains(f'{{"note":{to_json(node).decode()},', autoescape=True)
    latest = sa.select(effects.feedback, effects.record).where(effects.namespace == namespace, same)
    found = tx.run(latest.order_by(effects.sequence.desc()).limit(1)).one_or_none()
    if found is None:
        return None
    made = next(one for one in json.loads(found.record)["notes"] if one["note"] == node)
    asked = {"query": made.get("asked", made["query"]), "turn": made.get("turn")}
    return {"said": made.get("said", 0), "feedback": found.feedback, **asked}


def undo_said(tx: Transaction, name: str, ids: Sequence[str]) -> None:
    """Undo that notes of the namespace ``name`` were given by themselves.

    They are deleted as by :func:`remove_notes`; but what feedback in effect says, too, stays as its
    note.
    """
    namespace, _ = tx.get_namespace(name, lock=True)
    makers = {node: _find_last_maker(tx, namespace, node) for node in ids}
    remove_notes(tx, name, [node for node, maker in makers.items() if maker is None])
    for node, maker in makers.items():
        if maker is not None:
            key = sa.select(s.nodes.c.key).where(s.nodes.c.id == node, s.nodes.c.owner == namespace)
            own = s.notes.c.node == key.scalar_subquery()
            tx.update(s.notes, own, said_directly=None, token=None, **maker)
            tx.increment_versions(namespace)


def use_notes(tx: Transaction, change: c.UseNotes) -> None:
    """Update the use counts of notes."""
    key, turn = (
        sa.select(column).where(s.namespaces.c.name == change.namespace).scalar_subquery()
        for column in (s.namespaces.c.key, s.namespaces.c.turn)
    )
    for ids, uses in ((change.used, 1), (change.seen, 0)):
        found = sa.select(s.nodes.c.key).where(s.nodes.c.id.in_(ids))
        own = (s.notes.c.node.in_(found), s.notes.c.namespace == key)
        tx.update(s.notes, *own, uses=s.notes.c.uses + uses, last_turn=turn)


def remove_notes(tx: Transaction, name: str, ids: Sequence[str]) -> None:
    """Delete notes of the namespace ``name`` with all rows that refer to them.

    Other ids are ignored. The notes are deleted from snapshots, too, so that no restore brings them
    back.
    """
    if tx.find_key(name) is None:
        return
    namespace, exponent = tx.get_namespace(name, lock=True)
    keys = set[int]()
    for part in split_batches(ids):
        own = (s.notes.c.namespace == namespace, is_one_of(tx.connection, s.nodes.c.id, part))
        gone = delete_notes(tx, *own)
        for row in gone:  # what it changed between other nodes, where no feedback did
            undo_weights(tx, namespace, exponent, row.id)
        keys |= {row.key for row in gone}
    if keys:
        tx.increment_versions(namespace)
    query = sa.select(s.snapshots.c.id, s.snapshots.c.content)
    for identity, content in tx.run(query.where(s.snapshots.c.namespace == namespace)).all():
        part = load_part("crabpath_retrievers.parts.operation.snapshots")
        remaining = part.remove_notes_from_snapshot(content, keys)
        tx.update(s.snapshots, s.snapshots.c.id == identity, content=remaining)
    write_journal(tx, "remove_notes", {"notes": len(ids)}, name)


def delete_notes(tx: Transaction, *which: sa.ColumnElement[bool]) -> Sequence[Any]:
    """Delete the notes that the conditions select, with all rows that refer to them.

    Returns:
        Rows with key, id and key of the namespace of each.
    """
    query = sa.select(s.nodes.c.key, s.nodes.c.id, s.notes.c.namespace)
    joined = query.join(s.notes, s.notes.c.node == s.nodes.c.key)
    rows: Sequence[Any] = tx.run(joined.where(*which)).all()
    for key, node, namespace in rows:
        _remove_from_episodes(tx, key, namespace, node)
    for part in split_batches(row.key for row in rows):
        delete_nodes(tx, part)
    recount_notes(tx, {row.namespace for row in rows})
    return rows


def recount_notes(tx: Transaction, namespaces: Iterable[int]) -> None:
    """Count the notes of namespaces, given by key, again."""
    inside = s.notes.c.namespace == s.namespaces.c.key
    notes = sa.select(sa.func.count()).where(inside, IS_SEARCHED)
    for key in namespaces:
        own = s.namespaces.c.key == key
        tx.update(s.namespaces, own, note_count=notes.scalar_subquery())
