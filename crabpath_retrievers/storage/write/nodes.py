"""Writer of nodes: contents, vector, names, links, full text, term statistics.

Queues for the vector index and for linking: the store fills them, the ingest empties them.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import sqlalchemy as sa

from crabpath_retrievers.core.graph import (
    AUTHORITY_BY_NAME,
    LEARNED_KINDS,
    EdgeKind,
    compute_hub_level,
)
from crabpath_retrievers.core.text import encode_terms, prepend_title, tokenise
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.aliases import REPLACED, RETIRED, build_retired_address
from crabpath_retrievers.storage.fulltext import FullText
from crabpath_retrievers.storage.sql_tools import split_batches

TEXT_EDGE_KINDS = tuple(
    kind.value for kind in EdgeKind if kind not in {EdgeKind.STOP, *LEARNED_KINDS}
)
"""Numbers of the edge kinds that are derived from texts, and again when a text changes."""


def get_indexed_tokens(title: str, content: str) -> list[str]:
    """Tokens of a node for full text and term statistics: those of its title, then of its text."""
    return tokenise(prepend_title(title, content))


class NodeWriter:
    """Writes and removes nodes on one open transaction."""

    def __init__(
        self, connection: sa.Connection, fulltext: FullText, insert: Callable[..., Any]
    ) -> None:
        """Write on ``connection``; ``insert`` is the dialect's insert with ON CONFLICT."""
        self._connection = connection
        self._fulltext = fulltext
        self._insert = insert

    def write_nodes(self, staged: Sequence[tuple[str, dict[str, Any], bytes]]) -> list[str]:
        """Add nodes, or replace those with the same id, which keep their keys.

        Args:
            staged: Tuples ``(id, payload, embedding)``.

        Returns:
            Ids of the siblings of replaced nodes, which must be linked again.
        """
        existing = self.keys([node_id for node_id, _, _ in staged])
        siblings = self.siblings(existing)
        self._delete_contents(existing.values(), TEXT_EDGE_KINDS)
        rows = [build_node_row(*node) for node in staged]
        new = [row for row in rows if row["id"] not in existing]
        if new:
            self._connection.execute(s.nodes.insert(), [_with_authority(row) for row in new])
        changed = [{**row, "old": row["id"]} for row in rows if row["id"] in existing]
        if changed:
            columns: dict[str, Any] = {n: sa.bindparam(n) for n in rows[0] if n != "id"}
            # Authority set by a user is kept, unless the metadata of the document sets another.
            given = sa.bindparam("authority", type_=sa.SmallInteger())
            columns["authority"] = sa.func.coalesce(given, s.nodes.c.authority)
            update = s.nodes.update().where(s.nodes.c.id == sa.bindparam("old")).values(columns)
            self._connection.execute(update, [_without(row, "id") for row in changed])
        self._insert_contents(staged, self.keys([node_id for node_id, _, _ in staged]))
        self._add_to_hub_count(sum(row["level"] > 0 for row in rows))
        return siblings

    def _insert_contents(
        self, staged: Sequence[tuple[str, dict[str, Any], bytes]], keys: dict[str, int]
    ) -> None:
        named: list[dict[str, Any]] = []
        address_rows: list[dict[str, Any]] = []
        reference_rows: list[dict[str, Any]] = []
        content_rows: list[dict[str, Any]] = []
        texts: list[tuple[int, list[str]]] = []
        for node_id, payload, _ in staged:
            key = keys[node_id]
            named += [{"name": name, "node": key} for name in dict.fromkeys(payload["names"])]
            address_rows += [
                {"address": a, "node": key} for a in dict.fromkeys(payload["addresses"])
            ]
            reference_rows += [
                {"address": a, "node": key} for a in dict.fromkeys(payload["references"])
            ]
            content_rows.append(build_content_row(key, payload))
            texts.append((key, get_indexed_tokens(payload["title"], payload["content"])))
        for table, rows in (
            (s.names, named),
            (s.addresses, address_rows),
            (s.references, reference_rows),
            (s.contents, content_rows),
        ):
            if rows:
                self._connection.execute(table.insert(), rows)
        if texts:
            self._fulltext.add(self._connection, texts)
            self._count_terms(texts, sign=1)

    def remove(self, ids: Sequence[str]) -> list[str]:
        """Delete nodes with all rows that refer to them.

        Returns:
            Ids of their siblings, which must be linked again.
        """
        keys = list(self.keys(ids).values())
        siblings, hubs = self.siblings(ids), self._count_hubs_among(keys)
        self._delete_contents(keys, [kind.value for kind in EdgeKind])
        for column in (
            s.overlay.c.source,
            s.overlay.c.target,
            s.weight_changes.c.source,
            s.weight_changes.c.target,
            s.pair_counts.c.source,
            s.pair_counts.c.target,
            s.usage.c.node,
            s.transitions.c.region,
            s.nodes.c.key,
        ):
            self._delete(column, keys)
        self._add_to_hub_count(hubs)
        return siblings

    def retire(self, ids: Sequence[str]) -> list[str]:
        """Hide nodes from all queries; their texts and what was learned about them are kept.

        Hubs remain hubs: regions are defined by their vectors.

        Returns:
            Ids of their siblings, which must be linked again.
        """
        keys = list(self.keys(ids).values())
        siblings = self.siblings(ids)
        content_rows = [
            dict(row)
            for part in split_batches(keys)
            for row in self._connection.execute(
                sa.select(s.contents).where(s.contents.c.node.in_(part))
            ).mappings()
        ]
        self._delete_contents(keys, TEXT_EDGE_KINDS)
        self._set_owner(keys, RETIRED)
        if content_rows:
            self._connection.execute(s.contents.insert(), content_rows)
            address_rows = [
                {"address": build_retired_address(r["content"]), "node": r["node"]}
                for r in content_rows
            ]
            self._connection.execute(s.addresses.insert(), address_rows)
        return siblings

    def hide(self, keys: Sequence[int]) -> None:
        """Hide nodes that others replace from all queries."""
        self._unindex(keys)
        self._set_owner(keys, REPLACED)

    def show(self, keys: Sequence[int]) -> None:
        """Make hidden nodes visible to all queries; the caller queues them for the index."""
        self._set_owner(keys, 0)
        if texts := self._texts(keys):
            self._fulltext.add(self._connection, texts)
            self._count_terms(texts, sign=1)

    def _set_owner(self, keys: Sequence[int], owner: int) -> None:
        for part in split_batches(keys):
            mine = s.nodes.update().where(s.nodes.c.key.in_(part))
            self._connection.execute(mine.values(owner=owner))

    def _unindex(self, keys: Sequence[int]) -> None:
        """Delete visible nodes from full text and from the term statistics."""
        if texts := self._texts(keys):
            self._fulltext.remove(self._connection, [key for key, _ in texts])
            self._count_terms(texts, sign=-1)

    def _texts(self, keys: Sequence[int]) -> list[tuple[int, list[str]]]:
        """Tokens of those of the nodes that are visible to all namespaces, by key."""
        return [
            (row.key, get_indexed_tokens(row.title, row.content))
            for part in split_batches(keys)
            for row in self._connection.execute(
                sa.select(s.nodes.c.key, s.nodes.c.title, s.contents.c.content)
                .join(s.contents, s.contents.c.node == s.nodes.c.key)
                .where(s.nodes.c.key.in_(part), s.nodes.c.owner == 0)
            )
        ]

    def siblings(self, ids: Iterable[str]) -> list[str]:
        """Ids of the siblings of these nodes, without these nodes."""
        keys = list(self.keys(ids).values())
        siblings = self._targets(keys, EdgeKind.SIBLING) - set(keys)
        return [node_id for part in split_batches(siblings) for node_id in self._ids(part)]

    def _delete_contents(self, keys: Iterable[int], kinds: Sequence[int]) -> None:
        """Delete the contents, edges of these kinds, and full text of nodes."""
        keys = list(keys)
        if not keys:
            return
        self._unindex(keys)
        self.remove_edges(keys, kinds)
        for table in (s.names, s.addresses, s.references, s.contents, s.notes):
            self._delete(table.c.node, keys)

    def remove_edges(self, keys: Sequence[int], kinds: Sequence[int]) -> None:
        """Delete the edges of these kinds that leave or enter the nodes, and recount mentions."""
        mentioned = self._targets(keys, EdgeKind.MENTION)
        for part in split_batches(keys):
            touching = s.edges.c.source.in_(part) | s.edges.c.target.in_(part)
            self._connection.execute(s.edges.delete().where(touching, s.edges.c.kind.in_(kinds)))
        if EdgeKind.MENTION.value in kinds:
            self.recount(mentioned | set(keys))

    def _targets(self, keys: Sequence[int], kind: EdgeKind) -> set[int]:
        found: set[int] = set()
        for part in split_batches(keys):
            found |= set(
                self._connection.scalars(
                    sa.select(s.edges.c.target).where(
                        s.edges.c.source.in_(part), s.edges.c.kind == kind.value
                    )
                )
            )
        return found

    def recount(self, keys: Iterable[int]) -> None:
        """Update how many nodes mention each of these nodes."""
        count = (
            sa.select(sa.func.count())
            .where(s.edges.c.target == s.nodes.c.key, s.edges.c.kind == EdgeKind.MENTION.value)
            .scalar_subquery()
        )
        for part in split_batches(keys):
            self._connection.execute(
                s.nodes.update().where(s.nodes.c.key.in_(part)).values(mentions=count)
            )

    def _count_terms(self, texts: Sequence[tuple[int, Sequence[str]]], *, sign: int) -> None:
        frequency = Counter(term for _, text in texts for term in set(text))
        rows = [{"term": t, "frequency": sign * n} for t, n in sorted(frequency.items())]
        if rows:
            insert = self._insert(s.terms)
            total = s.terms.c.frequency + insert.excluded.frequency
            self._connection.execute(
                insert.on_conflict_do_update(
                    index_elements=[s.terms.c.term], set_={"frequency": total}
                ),
                rows,
            )
        if sign < 0:
            for part in split_batches(frequency):
                unused = s.terms.c.term.in_(part) & (s.terms.c.frequency <= 0)
                self._connection.execute(s.terms.delete().where(unused))
        self._add_to_meta("nodes", sign * len(texts))
        self._add_to_meta("tokens", sign * sum(len(text) for _, text in texts))

    def _add_to_meta(self, name: str, amount: int) -> None:
        query = sa.select(s.meta.c.value).where(s.meta.c.name == name).with_for_update()
        value = str(int(self._connection.scalar(query) or 0) + amount)
        insert = self._insert(s.meta).values(name=name, value=value)
        self._connection.execute(
            insert.on_conflict_do_update(index_elements=[s.meta.c.name], set_={"value": value})
        )

    def _count_hubs_among(self, keys: Sequence[int]) -> int:
        """Number of hubs among these nodes; notes are none."""
        count = sa.select(sa.func.count()).where(s.nodes.c.level > 0)
        return sum(
            self._connection.scalar(count.where(s.nodes.c.key.in_(part))) or 0
            for part in split_batches(keys)
        )

    def _add_to_hub_count(self, changed: int) -> None:
        """Change the stored number of hubs, which invalidates caches of hubs."""
        if changed:
            self._add_to_meta("hubs", changed)

    def _ids(self, keys: Sequence[int]) -> list[str]:
        query = sa.select(s.nodes.c.id).where(s.nodes.c.key.in_(keys))
        return list(self._connection.scalars(query))

    def keys(self, ids: Iterable[str]) -> dict[str, int]:
        """Keys of nodes by id, visible or not; unknown ids are left out."""
        found: dict[str, int] = {}
        for part in split_batches(ids):
            rows = self._connection.execute(
                sa.select(s.nodes.c.id, s.nodes.c.key).where(s.nodes.c.id.in_(part))
            )
            found |= {node_id: key for node_id, key in rows}
        return found

    def _delete(self, column: sa.Column[int], keys: Iterable[int]) -> None:
        for part in split_batches(keys):
            self._connection.execute(column.table.delete().where(column.in_(part)))


def build_node_row(node_id: str, payload: dict[str, Any], embedding: bytes) -> dict[str, Any]:
    """The row of ``nodes``; authority is None if the metadata sets none."""
    named = payload["metadata"].get("authority")
    authority = AUTHORITY_BY_NAME.get(named) if isinstance(named, str) else None
    return {
        "id": node_id,
        "owner": 0,
        "authority": None if authority is None else authority.value,
        "level": compute_hub_level(node_id),
        "mentions": 0,
        "title": payload["title"],
        "embedding": embedding,
        "terms": encode_terms(get_indexed_tokens(payload["title"], payload["content"])),
    }


def build_content_row(key: int, payload: dict[str, Any]) -> dict[str, Any]:
    """The row of ``contents``."""
    split = payload["metadata"].get("split_from")
    return {
        "node": key,
        "document": payload["document"],
        "source": payload["source"],
        "position": payload["position"],
        "digest": payload["digest"],
        "length": len(get_indexed_tokens(payload["title"], payload["content"])),
        "content": payload["content"],
        "metadata": json.dumps(payload["metadata"], ensure_ascii=False),
        "split_from": split if isinstance(split, str) else None,
    }


def _with_authority(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "authority": row["authority"] or 0}


def _without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


def queue_index_deletion(
    connection: sa.Connection, insert: Callable[..., Any], ids: Iterable[str]
) -> None:
    """Queue the vectors of nodes for deletion, and take the nodes off all other queues."""
    for part in split_batches(ids):
        connection.execute(s.staging.delete().where(s.staging.c.id.in_(part)))
        values = [{"id": node} for node in part]
        connection.execute(insert(s.index_deletions).on_conflict_do_nothing(), values)


def queue_indexing(
    connection: sa.Connection,
    insert: Callable[..., Any],
    ids: Iterable[str],
    operation: Literal["index", "return"],
) -> None:
    """Queue stored nodes for indexing; with ``return`` they are queued for linking afterwards.

    Their vectors are written whether or not the index still holds them.
    """
    for part in split_batches(ids):
        connection.execute(s.index_deletions.delete().where(s.index_deletions.c.id.in_(part)))
        new = insert(s.staging)
        again = {"operation": operation, "payload": None, "embedding": None}
        connection.execute(
            new.on_conflict_do_update(index_elements=[s.staging.c.id], set_=again),
            [{"id": node, **again} for node in part],
        )


def queue_linking(
    connection: sa.Connection, insert: Callable[..., Any], ids: Iterable[str]
) -> None:
    """Queue those of the nodes that queries see for linking."""
    for part in split_batches(ids):
        seen = sa.select(s.nodes.c.id).where(s.nodes.c.id.in_(part), s.nodes.c.owner >= 0)
        values = [{"id": node, "operation": "link"} for node in connection.scalars(seen)]
        if values:
            connection.execute(insert(s.staging).on_conflict_do_nothing(), values)
