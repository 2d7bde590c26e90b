"""Writers of publication: a staged batch becomes visible."""

import json
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.text import IndexedWords
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.sql_tools import encode_vector, split_batches
from crabpath_retrievers.storage.write.journal import write_journal
from crabpath_retrievers.storage.write.nodes import (
    NewNode,
    build_payload,
    find_siblings,
    find_visible,
    queue_index_deletion,
    queue_indexing,
    queue_linking,
    remove_nodes,
    retire_nodes,
    write_nodes,
)
from crabpath_retrievers.storage.write.transaction import Transaction

_OPERATIONS = ("put", "remove", "retire", "move")


def defer_indexes(tx: Transaction, _change: c.DeferIndexes) -> None:
    """Drop the indexes that are faster built afterwards."""
    tx.fulltext.defer(tx.connection)


def build_indexes(tx: Transaction, _change: c.BuildIndexes) -> None:
    """Build the indexes that are missing."""
    tx.fulltext.complete(tx.connection)


def publish_staged(tx: Transaction, _change: c.PublishStaged) -> None:
    """Make the staged batch visible to queries, and queue its nodes for linking."""
    query = sa.select(s.staging).where(s.staging.c.operation.in_(_OPERATIONS))
    queued = tx.run(query.order_by(s.staging.c.place)).all()
    if not queued:
        return
    added, removed, retired, moved = (
        [row for row in queued if row.operation == operation] for operation in _OPERATIONS
    )
    tx.delete_in(s.staging.c.id, [row.id for row in queued if row.operation != "put"])
    names = {"put": added, "removed": removed, "retired": retired}
    ids = {name: [row.id for row in rows] for name, rows in names.items()}
    siblings = _take_away(tx, ids["removed"], remove_nodes)
    siblings += _take_away(tx, ids["retired"], retire_nodes)
    language = tx.language
    siblings += write_nodes(tx, [_decode_staged(row, language) for row in added])[1]
    linking = {"operation": "link", "payload": None, "embedding": None}
    tx.update(s.staging, s.staging.c.operation == "put", **linking)
    queue_linking(tx, siblings)
    move_nodes(tx, c.MoveNodes(tuple((row.id, int(row.payload)) for row in moved)))
    write_journal(tx, "publish", {name: len(rows) for name, rows in ids.items()})


def _decode_staged(row: Any, language: str | None) -> NewNode:
    payload = json.loads(row.payload)
    words = IndexedWords.from_text(payload["title"], payload["content"], language)
    return NewNode(row.id, payload, row.embedding, words)


def publish_nodes(tx: Transaction, change: c.PublishNodes) -> dict[int, str]:
    """Make a batch visible, and queue it for linking or, first, for the vector index.

    Returns:
        Ids of the nodes to link by key, in order, unless they are queued.
    """
    given = []
    for node, words in zip(change.nodes, change.words, strict=True):
        assert node.vector is not None, "published nodes must have a vector"  # noqa: S101
        given.append(NewNode(node.id, build_payload(node), encode_vector(node.vector), words))
    ids = [node.id for node in given]
    siblings = _take_away(tx, change.removed, remove_nodes)
    keys, of_replaced = write_nodes(tx, given)
    siblings += of_replaced
    write_journal(tx, "publish", {"put": len(ids), "removed": len(change.removed)})
    if not change.queued:
        found = {**keys, **find_visible(tx, siblings)}
        return {key: found_id for found_id, key in sorted(found.items(), key=itemgetter(1))}
    if change.indexed:
        queue_linking(tx, ids)
    else:
        queue_indexing(tx, ids, "return")
    queue_linking(tx, siblings)
    return {}


def _take_away(
    tx: Transaction, ids: Sequence[str], take: Callable[[Transaction, Sequence[str]], list[str]]
) -> list[str]:
    """Remove or retire nodes; returns the ids of their siblings, which must be linked again."""
    siblings: list[str] = []
    for part in split_batches(ids):
        siblings += take(tx, part)
        queue_index_deletion(tx, part)
    return siblings


def move_nodes(tx: Transaction, change: c.MoveNodes) -> None:
    """Set positions, and queue the nodes and their siblings for linking."""
    if change.positions:
        moved = [node for node, _ in change.positions]
        keys = tx.get_node_keys(moved)
        own = s.contents.c.node == sa.bindparam("moved")
        update = s.contents.update().where(own).values(position=sa.bindparam("to"))
        rows = [{"moved": keys[n], "to": to} for n, to in change.positions if n in keys]
        tx.run(update, rows)
        queue_linking(tx, [*moved, *find_siblings(tx, moved)])


def queue_nodes(tx: Transaction, change: c.QueueLinking) -> None:
    """Queue nodes for linking."""
    queue_linking(tx, change.ids)


def remove_documents(tx: Transaction, change: c.RemoveNodes) -> None:
    """Delete nodes, and queue their vectors for deletion and their siblings for linking."""
    queue_linking(tx, _take_away(tx, change.ids, remove_nodes))
    write_journal(tx, "remove", {"nodes": len(change.ids)})
