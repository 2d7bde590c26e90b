"""Documents as their owners know them: contents, fingerprints, staged work, statistics."""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.graph import EdgeKind, Node, Vector
from crabpath_retrievers.storage.batching import parts
from crabpath_retrievers.storage.hot import HotSelect
from crabpath_retrievers.storage.packing import unpack
from crabpath_retrievers.storage.reading import Readable
from crabpath_retrievers.storage.schema import (
    contents,
    edges,
    meta,
    namespaces,
    nodes,
    notes,
    overlay,
    staging,
    trash,
    turns,
)


class _Content(NamedTuple):
    """A row of the contents of nodes, in the order in which they are read."""

    id: str
    document: str
    source: str
    content: str
    title: str
    position: int
    metadata: str
    digest: str


class Known(NamedTuple):
    """What the store holds of a node: enough to see whether a document changed."""

    id: str
    document: str
    source: str
    position: int
    digest: str


_CONTENT = (
    nodes.c.id,
    contents.c.document,
    contents.c.source,
    contents.c.content,
    nodes.c.title,
    contents.c.position,
    contents.c.metadata,
    contents.c.digest,
)
_BY_IDS = HotSelect(
    sa.select(*_CONTENT)
    .join(contents, contents.c.node == nodes.c.key)
    .where(
        nodes.c.id.in_(sa.bindparam("ids", expanding=True)),
        sa.or_(
            nodes.c.owner == sa.literal_column("0", sa.Integer),
            nodes.c.owner == sa.bindparam("namespace"),
        ),
    )
)
_KNOWN = (
    sa.select(
        nodes.c.id, contents.c.document, contents.c.source, contents.c.position, contents.c.digest
    )
    .join(contents, contents.c.node == nodes.c.key)
    .where(nodes.c.owner == 0)
)


class Catalog:
    """Reads by document id and source."""

    def __init__(self, store: Readable) -> None:
        """Read from ``store``."""
        self._store = store

    def documents(self, ids: Sequence[str], *, namespace: int = 0) -> dict[str, Node]:
        """The nodes with these ids, without vectors; unknown ids are left out.

        Args:
            ids: Of nodes.
            namespace: Key of the namespace whose notes are seen, too.
        """
        with self._store.reading() as connection:
            found = _BY_IDS.rows(connection, {"ids": list(ids), "namespace": namespace})
        rows = [_Content(*row) for row in found]
        return {
            row.id: Node(
                id=row.id,
                document=row.document,
                source=row.source,
                content=row.content,
                title=row.title,
                position=row.position,
                metadata=json.loads(row.metadata),
                digest=row.digest,
            )
            for row in rows
        }

    def known(
        self,
        *,
        ids: Iterable[str] = (),
        documents: Iterable[str] = (),
        sources: Iterable[str] = (),
    ) -> list[Known]:
        """The nodes with these ids, of these documents or from these sources; no notes."""
        wanted = ((nodes.c.id, ids), (contents.c.document, documents), (contents.c.source, sources))
        found: dict[str, Known] = {}
        with self._store.reading() as connection:
            for column, values in wanted:
                for part in parts(values):
                    rows = connection.execute(_KNOWN.where(column.in_(part)))
                    found |= {row.id: Known(*row) for row in rows}
        return list(found.values())

    def all_ids(self) -> list[str]:
        """The id of every node but notes; for whole-corpus work only."""
        with self._store.reading() as connection:
            return list(connection.scalars(sa.select(nodes.c.id).where(nodes.c.owner == 0)))

    def vectors(self, ids: Iterable[str]) -> dict[str, Vector]:
        """Stored unit vectors of these nodes, half precision."""
        found: dict[str, Vector] = {}
        with self._store.reading() as connection:
            for part in parts(ids):
                rows = connection.execute(
                    sa.select(nodes.c.id, nodes.c.embedding).where(nodes.c.id.in_(part))
                )
                found |= {node_id: unpack(embedding) for node_id, embedding in rows}
        return found

    def staged(self) -> list[Node]:
        """Nodes that wait for their vectors and for publication."""
        with self._store.reading() as connection:
            rows = connection.execute(
                sa.select(staging.c.id, staging.c.payload, staging.c.embedding).where(
                    staging.c.operation == "put"
                )
            ).all()
        return [
            Node(id=node_id, vector=unpack(embedding), **json.loads(payload))
            for node_id, payload, embedding in rows
        ]

    def unlinked(self) -> list[int]:
        """Keys of published nodes that still wait for their edges."""
        with self._store.reading() as connection:
            query = sa.select(nodes.c.key).join(staging, staging.c.id == nodes.c.id)
            return list(connection.scalars(query.where(staging.c.operation == "link")))

    def trash(self) -> list[str]:
        """Ids whose vectors must still be deleted."""
        with self._store.reading() as connection:
            return list(connection.scalars(sa.select(trash.c.id)))

    def unfinished(self) -> bool:
        """Whether an ingest was interrupted."""
        with self._store.reading() as connection:
            found = connection.scalar(
                sa.select(sa.exists(sa.select(staging.c.id)) | sa.exists(sa.select(trash.c.id)))
            )
        return bool(found)

    def meta(self) -> dict[str, str]:
        """Facts about the store itself."""
        with self._store.reading() as connection:
            return {name: value for name, value in connection.execute(sa.select(meta))}

    def statistics(self) -> dict[str, object]:
        """Counts for people: nodes, sources, edges by kind, namespaces with their turns, notes."""
        self._store.settle()
        private = sa.select(notes.c.node)
        with self._store.reading() as connection:
            kinds = connection.execute(
                sa.select(edges.c.kind, sa.func.count()).group_by(edges.c.kind)
            )
            spaces = connection.execute(
                sa.select(namespaces.c.name, namespaces.c.turn).order_by(namespaces.c.name)
            )
            noted = connection.scalar(sa.select(sa.func.count()).select_from(notes)) or 0
            every = connection.scalar(sa.select(sa.func.count()).select_from(nodes)) or 0
            return {
                "nodes": every - noted,
                "notes": noted,
                "sources": connection.scalar(
                    sa.select(sa.func.count(sa.distinct(contents.c.source))).where(
                        contents.c.node.not_in(private)
                    )
                ),
                "edges": {EdgeKind(kind).label: count for kind, count in kinds},
                "namespaces": {name: turn for name, turn in spaces},
                "learned_weights": connection.scalar(
                    sa.select(sa.func.count()).select_from(overlay)
                ),
                "turns": connection.scalar(sa.select(sa.func.count()).select_from(turns)),
            }
