"""Writers of publication: a staged batch becomes visible."""

import json
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.core.records import Node
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


def defer_indexes(tx: Transaction) -> None:
    """Drop the indexes of an empty store that are faster built afterwards; nothing on SQLite."""
    tx.fulltext.defer(tx.connection)


def build_indexes(tx: Transaction) -> None:
    """Build the indexes that were deferred, and tidy the full text for many look-ups."""
    tx.fulltext.complete(tx.connection)


def publish_staged(tx: Transaction) -> None:
    """Make the staged batch visible to queries, and queue its nodes for linking."""
    tx.touches_corpus = True
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
    move_nodes(tx, [(row.id, int(row.payload)) for row in moved])
    write_journal(tx, "publish", {name: len(rows) for name, rows in ids.items()})


def _decode_staged(row: Any, language: str | None) -> NewNode:
    payload = json.loads(row.payload)
    words = IndexedWords.from_text(payload["title"], payload["content"], language)
    return NewNode(row.id, payload, row.embedding, words)


def publish_nodes(
    tx: Transaction,
    nodes: Sequence[Node],
    words: Sequence[IndexedWords],
    removed: Sequence[str] = (),
    *,
    indexed: bool = False,
    queued: bool = True,
) -> dict[int, str]:
    """Make a batch visible without staging it.

    Args:
        tx: The transaction.
        nodes: Nodes to add or replace, with their vectors.
        words: Their words, one for each node.
        removed: Ids of nodes to delete.
        indexed: Whether this transaction also writes their vectors to the index; otherwise they
            are queued for it first.
        queued: Whether they are queued for linking; otherwise this transaction also links them.

    Returns:
        Ids of the nodes to link by key, in order, where they are not queued: the given ones, and
        siblings of those that were replaced or deleted.
    """
    tx.touches_corpus = True
    given = []
    for node, own in zip(nodes, words, strict=True):
        assert node.vector is not None, "published nodes must have a vector"  # noqa: S101
        given.append(NewNode(node.id, build_payload(node), encode_vector(node.vector), own))
    ids = [node.id for node in given]
    siblings = _take_away(tx, removed, remove_nodes)
    keys, of_replaced = write_nodes(tx, given)
    siblings += of_replaced
    write_journal(tx, "publish", {"put": len(ids), "removed": len(removed)})
    if not queued:
        found = {**keys, **find_visible(tx, siblings)}
        return {key: found_id for found_id, key in sorted(found.items(), key=itemgetter(1))}
    if indexed:
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


def move_nodes(tx: Transaction, positions: Sequence[tuple[str, int]]) -> None:
    """Set positions of nodes by id, and queue them and their siblings for linking."""
    if positions:
        tx.touches_corpus = True
        moved = [node for node, _ in positions]
        keys = tx.get_node_keys(moved)
        own = s.contents.c.node == sa.bindparam("moved")
        update = s.contents.update().where(own).values(position=sa.bindparam("to"))
        rows = [{"moved": keys[n], "to": to} for n, to in positions if n in keys]
        tx.run(update, rows)
        queue_linking(tx, [*moved, *find_siblings(tx, moved)])


def remove_documents(tx: Transaction, ids: Sequence[str]) -> None:
    """Delete nodes with all rows that refer to them.

    Their vectors are queued for deletion, their siblings for linking.
    """
    tx.touches_corpus = True
    queue_linking(tx, _take_away(tx, ids, remove_nodes))
    write_journal(tx, "remove", {"nodes": len(ids)})
