"""Rows of a node across the tables: contents, vector, names, links, full text, statistics."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.graph import AUTHORITIES, LEARNED, EdgeKind
from crabpath_retrievers.levels import level_of
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.batching import parts
from crabpath_retrievers.storage.fulltext import FullText
from crabpath_retrievers.storage.replaced import REPLACED
from crabpath_retrievers.storage.retired import RETIRED, address_of
from crabpath_retrievers.terms import term_codes
from crabpath_retrievers.text import titled, tokens

# Read off a text, and so read again when it changes. Learned edges stay.
TEXTUAL = tuple(kind.value for kind in EdgeKind if kind not in {EdgeKind.STOP, *LEARNED})


def indexed_tokens(title: str, content: str) -> list[str]:
    """What full text and term statistics see of a node: its title once, then its text."""
    return tokens(titled(title, content))


class NodeWriter:
    """Writes and removes nodes on one open transaction."""

    def __init__(
        self, connection: sa.Connection, fulltext: FullText, insert: Callable[..., Any]
    ) -> None:
        """Write on ``connection``; ``insert`` is the dialect's insert with ON CONFLICT."""
        self._connection = connection
        self._fulltext = fulltext
        self._insert = insert

    def put(self, staged: Sequence[tuple[str, dict[str, Any], bytes]]) -> list[str]:
        """Add or replace nodes, as ``(id, payload, embedding)``; a replaced one keeps its key.

        Returns:
            Ids of the nodes that stood beside replaced ones, which may have moved.
        """
        existing = self.keys([node_id for node_id, _, _ in staged])
        beside = self.beside(existing)
        self._strip(existing.values(), TEXTUAL)
        rows = [node_row(*node) for node in staged]
        new = [row for row in rows if row["id"] not in existing]
        if new:
            self._connection.execute(s.nodes.insert(), [_with_authority(row) for row in new])
        changed = [{**row, "old": row["id"]} for row in rows if row["id"] in existing]
        if changed:
            columns: dict[str, Any] = {n: sa.bindparam(n) for n in rows[0] if n != "id"}
            # What was anchored stays so, unless the document itself says something else.
            given = sa.bindparam("authority", type_=sa.SmallInteger())
            columns["authority"] = sa.func.coalesce(given, s.nodes.c.authority)
            update = s.nodes.update().where(s.nodes.c.id == sa.bindparam("old")).values(columns)
            self._connection.execute(update, [_without(row, "id") for row in changed])
        self._describe(staged, self.keys([node_id for node_id, _, _ in staged]))
        self._count_hubs(sum(row["level"] > 0 for row in rows))
        return beside

    def _describe(
        self, staged: Sequence[tuple[str, dict[str, Any], bytes]], keys: dict[str, int]
    ) -> None:
        named: list[dict[str, Any]] = []
        addressed: list[dict[str, Any]] = []
        referring: list[dict[str, Any]] = []
        held: list[dict[str, Any]] = []
        texts: list[tuple[int, list[str]]] = []
        for node_id, payload, _ in staged:
            key = keys[node_id]
            named += [{"name": name, "node": key} for name in dict.fromkeys(payload["names"])]
            addressed += [{"address": a, "node": key} for a in dict.fromkeys(payload["addresses"])]
            referring += [{"address": a, "node": key} for a in dict.fromkeys(payload["references"])]
            held.append(content_row(key, payload))
            texts.append((key, indexed_tokens(payload["title"], payload["content"])))
        for table, rows in (
            (s.names, named),
            (s.addresses, addressed),
            (s.references, referring),
            (s.contents, held),
        ):
            if rows:
                self._connection.execute(table.insert(), rows)
        if texts:
            self._fulltext.add(self._connection, texts)
            self._count(texts, sign=1)

    def remove(self, ids: Sequence[str]) -> list[str]:
        """Delete nodes with all that refers to them.

        Returns:
            Ids of the nodes that stood beside them and now stand beside others.
        """
        keys = list(self.keys(ids).values())
        beside, hubs = self.beside(ids), self._hubs(keys)
        self._strip(keys, [kind.value for kind in EdgeKind])
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
        self._count_hubs(hubs)
        return beside

    def retire(self, ids: Sequence[str]) -> list[str]:
        """Hide nodes from all queries, with all that was learned about them; texts are kept.

        A hub stays one: it is a place among vectors, and regions are counted by it.

        Returns:
            Ids of the nodes that stood beside them and now stand beside others.
        """
        keys = list(self.keys(ids).values())
        beside = self.beside(ids)
        held = [
            dict(row)
            for part in parts(keys)
            for row in self._connection.execute(
                sa.select(s.contents).where(s.contents.c.node.in_(part))
            ).mappings()
        ]
        self._strip(keys, TEXTUAL)
        self._own(keys, RETIRED)
        if held:
            self._connection.execute(s.contents.insert(), held)
            addressed = [{"address": address_of(r["content"]), "node": r["node"]} for r in held]
            self._connection.execute(s.addresses.insert(), addressed)
        return beside

    def hide(self, keys: Sequence[int]) -> None:
        """Let no query see these nodes, because others stand for them."""
        self._unindex(keys)
        self._own(keys, REPLACED)

    def show(self, keys: Sequence[int]) -> None:
        """Let all queries see these nodes again; they wait for the index."""
        self._own(keys, 0)
        if texts := self._texts(keys):
            self._fulltext.add(self._connection, texts)
            self._count(texts, sign=1)

    def _own(self, keys: Sequence[int], owner: int) -> None:
        for part in parts(keys):
            mine = s.nodes.update().where(s.nodes.c.key.in_(part))
            self._connection.execute(mine.values(owner=owner))

    def _unindex(self, keys: Sequence[int]) -> None:
        """Take the texts of nodes that all queries see out of full text and its counts."""
        if texts := self._texts(keys):
            self._fulltext.remove(self._connection, [key for key, _ in texts])
            self._count(texts, sign=-1)

    def _texts(self, keys: Sequence[int]) -> list[tuple[int, list[str]]]:
        """What full text knows of those of the nodes that all queries see."""
        return [
            (row.key, indexed_tokens(row.title, row.content))
            for part in parts(keys)
            for row in self._connection.execute(
                sa.select(s.nodes.c.key, s.nodes.c.title, s.contents.c.content)
                .join(s.contents, s.contents.c.node == s.nodes.c.key)
                .where(s.nodes.c.key.in_(part), s.nodes.c.owner == 0)
            )
        ]

    def beside(self, ids: Iterable[str]) -> list[str]:
        """Ids of the siblings of these nodes, without themselves."""
        keys = list(self.keys(ids).values())
        beside = self._targets(keys, EdgeKind.SIBLING) - set(keys)
        return [node_id for part in parts(beside) for node_id in self._ids(part)]

    def _strip(self, keys: Iterable[int], kinds: Sequence[int]) -> None:
        """Delete what was read off the text of these nodes; that of notes is counted nowhere."""
        keys = list(keys)
        if not keys:
            return
        self._unindex(keys)
        self.remove_edges(keys, kinds)
        for table in (s.names, s.addresses, s.references, s.contents, s.notes):
            self._delete(table.c.node, keys)

    def remove_edges(self, keys: Sequence[int], kinds: Sequence[int]) -> None:
        """Delete the edges of these kinds that leave or enter the nodes."""
        mentioned = self._targets(keys, EdgeKind.MENTION)
        for part in parts(keys):
            touching = s.edges.c.source.in_(part) | s.edges.c.target.in_(part)
            self._connection.execute(s.edges.delete().where(touching, s.edges.c.kind.in_(kinds)))
        if EdgeKind.MENTION.value in kinds:
            self.recount(mentioned | set(keys))

    def _targets(self, keys: Sequence[int], kind: EdgeKind) -> set[int]:
        found: set[int] = set()
        for part in parts(keys):
            found |= set(
                self._connection.scalars(
                    sa.select(s.edges.c.target).where(
                        s.edges.c.source.in_(part), s.edges.c.kind == kind.value
                    )
                )
            )
        return found

    def recount(self, keys: Iterable[int]) -> None:
        """Bring the number of nodes that mention each of these nodes up to date."""
        count = (
            sa.select(sa.func.count())
            .where(s.edges.c.target == s.nodes.c.key, s.edges.c.kind == EdgeKind.MENTION.value)
            .scalar_subquery()
        )
        for part in parts(keys):
            self._connection.execute(
                s.nodes.update().where(s.nodes.c.key.in_(part)).values(mentions=count)
            )

    def _count(self, texts: Sequence[tuple[int, Sequence[str]]], *, sign: int) -> None:
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
            for part in parts(frequency):
                gone = s.terms.c.term.in_(part) & (s.terms.c.frequency <= 0)
                self._connection.execute(s.terms.delete().where(gone))
        self._bump("nodes", sign * len(texts))
        self._bump("tokens", sign * sum(len(text) for _, text in texts))

    def _bump(self, name: str, amount: int) -> None:
        query = sa.select(s.meta.c.value).where(s.meta.c.name == name).with_for_update()
        value = str(int(self._connection.scalar(query) or 0) + amount)
        insert = self._insert(s.meta).values(name=name, value=value)
        self._connection.execute(
            insert.on_conflict_do_update(index_elements=[s.meta.c.name], set_={"value": value})
        )

    def _hubs(self, keys: Sequence[int]) -> int:
        """How many of these nodes are hubs; no note is one, whatever its id."""
        count = sa.select(sa.func.count()).where(s.nodes.c.level > 0)
        return sum(
            self._connection.scalar(count.where(s.nodes.c.key.in_(part))) or 0
            for part in parts(keys)
        )

    def _count_hubs(self, changed: int) -> None:
        """Let whoever keeps the hubs at hand notice that they are others now."""
        if changed:
            self._bump("hubs", changed)

    def _ids(self, keys: Sequence[int]) -> list[str]:
        query = sa.select(s.nodes.c.id).where(s.nodes.c.key.in_(keys))
        return list(self._connection.scalars(query))

    def keys(self, ids: Iterable[str]) -> dict[str, int]:
        """Keys of nodes by id, whoever sees them."""
        found: dict[str, int] = {}
        for part in parts(ids):
            rows = self._connection.execute(
                sa.select(s.nodes.c.id, s.nodes.c.key).where(s.nodes.c.id.in_(part))
            )
            found |= {node_id: key for node_id, key in rows}
        return found

    def _delete(self, column: sa.Column[int], keys: Iterable[int]) -> None:
        for part in parts(keys):
            self._connection.execute(column.table.delete().where(column.in_(part)))


def node_row(node_id: str, payload: dict[str, Any], embedding: bytes) -> dict[str, Any]:
    """What a walk reads of a node; its authority is None where its metadata names none."""
    named = payload["metadata"].get("authority")
    authority = AUTHORITIES.get(named) if isinstance(named, str) else None
    return {
        "id": node_id,
        "owner": 0,
        "authority": None if authority is None else authority.value,
        "level": level_of(node_id),
        "mentions": 0,
        "title": payload["title"],
        "embedding": embedding,
        "terms": term_codes(indexed_tokens(payload["title"], payload["content"])),
    }


def content_row(key: int, payload: dict[str, Any]) -> dict[str, Any]:
    """What is told of a node."""
    split = payload["metadata"].get("split_from")
    return {
        "node": key,
        "document": payload["document"],
        "source": payload["source"],
        "position": payload["position"],
        "digest": payload["digest"],
        "length": len(indexed_tokens(payload["title"], payload["content"])),
        "content": payload["content"],
        "metadata": json.dumps(payload["metadata"], ensure_ascii=False),
        "split_from": split if isinstance(split, str) else None,
    }


def _with_authority(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "authority": row["authority"] or 0}


def _without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}
