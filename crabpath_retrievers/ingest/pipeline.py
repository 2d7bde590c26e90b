"""Publishing documents so that a crash at any point loses and duplicates nothing.

A batch passes through four states, each one transaction: staged (intended, invisible) → its vectors
are in the index → published (visible, waiting for edges) → linked. Whatever a crash leaves behind
is finished by :meth:`Ingest.recover`, which every open and every ingest runs first.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np
from langchain_core.documents import Document

from crabpath_retrievers.changes import (
    EmptyTrash,
    MoveNodes,
    PublishStaged,
    PutEdges,
    RemoveEdges,
    RemoveNodes,
    StageNodes,
)
from crabpath_retrievers.changes.archive import NodesIndexed
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import Edge, EdgeKind, Node, Vector
from crabpath_retrievers.ingest.chunking import Chunking, embedded_text
from crabpath_retrievers.ingest.identity import settled
from crabpath_retrievers.ingest.linkers import Linker
from crabpath_retrievers.seeds.embedder import Embedder
from crabpath_retrievers.seeds.index import VectorIndex
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.catalog import Known
from crabpath_retrievers.storage.replaced import WHOLES
from crabpath_retrievers.text import shown

Cleanup = Literal["incremental", "full"] | None
_FIRST = 16
_INDEXED_AT_ONCE = 2048


class Progress(Protocol):
    """Something that shows how far an ingest is."""

    def __call__(self, total: int, /) -> AbstractContextManager["Advance"]:
        """Start showing; the result is called with the number of chunks done."""


class Advance(Protocol):
    """Reports chunks as done."""

    def __call__(self, chunks: int, /) -> object:
        """Add ``chunks`` to what is done."""


@dataclass(slots=True)
class IngestReport:
    """What an ingest did, in chunks.

    Attributes:
        added, updated, removed, unchanged: Numbers of chunks.
        ids: Ids of all chunks of the given documents, in their order.
    """

    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    ids: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ingest:
    """Adds, updates and removes documents in the graph store and the vector index together."""

    store: GraphStore
    index: VectorIndex
    embedder: Embedder
    linkers: tuple[Linker, ...]
    batch: int

    def add(
        self,
        documents: Iterable[Document],
        *,
        chunking: Chunking,
        ids: Sequence[str] | None = None,
        cleanup: Cleanup = "incremental",
        progress: Progress | None = None,
    ) -> IngestReport:
        """Bring the store to hold these documents as they are now.

        Args:
            documents: What to add. Unchanged chunks cost a look-up.
            chunking: How to split.
            ids: One id per document.
            cleanup: ``"incremental"`` removes chunks that a given document no longer has;
                ``"full"`` removes everything that is not given; None removes nothing. The names
                and meanings are those of LangChain's indexing API.
            progress: Shows progress.

        Raises:
            InvalidInputError: A document cannot be used; nothing was changed.
        """
        known = isinstance(cleanup, str) and cleanup in ("incremental", "full")
        if cleanup is not None and not known:
            msg = f"cleanup must be 'incremental', 'full' or None, not {shown(cleanup)}"
            raise InvalidInputError(msg)
        nodes = chunking.nodes(documents, ids)
        with self.store.ingesting():
            self.recover()
            plan = self._plan(nodes, cleanup)
            with progress(len(plan.changed)) if progress else nullcontext(_ignore) as advance:
                for part in self._batches(plan):
                    self.publish(part)
                    advance(len(part.nodes))
            self._move(plan)
        return plan.report

    def adopt(self, nodes: Sequence[Node]) -> IngestReport:
        """Hold exactly these nodes, which the index holds already; the index is not written."""
        with self.store.ingesting():
            self.recover()
            plan = self._plan(nodes, "full")
            for part in self._batches(plan):
                self._stage(part)
                self._finish(indexed=True)
            self._move(plan)
        return plan.report

    def remove(self, ids: Sequence[str]) -> None:
        """Remove nodes from both stores."""
        with self.store.ingesting():
            self.recover()
            self.store.apply([RemoveNodes(tuple(ids))])
            self._index()
            self._link()
            self._empty_trash()

    def recover(self) -> None:
        """Finish what an interrupted ingest left behind, unless it is still running elsewhere."""
        if self.store.catalog.unfinished():
            with self.store.ingesting(wait=False) as held:
                if held:
                    self._index()
                    self._finish(indexed=False)

    def _index(self) -> None:
        """Have the index hold what came from another store, or came back."""
        while waiting := self.store.catalog.unindexed(_INDEXED_AT_ONCE):
            missing = waiting
            if self._foreign:
                held = self.index.held([node.id for node in waiting]) or ()  # type: ignore[attr-defined]
                missing = [node for node in waiting if node.id not in held]
            self._upsert(missing)
            self.store.apply([NodesIndexed(tuple(node.id for node in waiting))])

    @property
    def _foreign(self) -> bool:
        """Whether the index holds documents of somebody else, which only they take away."""
        return bool(getattr(self.index, "foreign", False))

    def _plan(self, nodes: Sequence[Node], cleanup: Cleanup) -> "_Plan":
        self.refuse_notes(nodes)
        known = {
            known.id: known
            for known in self.store.catalog.known(
                ids=[node.id for node in nodes],
                documents={node.document for node in nodes},
                owners=WHOLES,
            )
        }
        nodes = settled(nodes, known)
        given = {node.id for node in nodes}
        gone: list[str] = []
        if cleanup == "incremental":
            documents = {node.document for node in nodes}
            gone = [k.id for k in known.values() if k.id not in given and k.document in documents]
        elif cleanup == "full":
            gone = [node_id for node_id in self.store.catalog.all_ids() if node_id not in given]
        changed = [n for n in nodes if n.id not in known or known[n.id].digest != n.digest]
        updated = sum(node.id in known for node in changed)
        report = IngestReport(
            added=len(changed) - updated,
            updated=updated,
            removed=len(gone),
            unchanged=len(nodes) - len(changed),
            ids=[node.id for node in nodes],
        )
        return _Plan(nodes, changed, gone, known, report)

    def refuse_notes(self, nodes: Sequence[Node]) -> None:
        """Refuse nodes with the ids of notes.

        Raises:
            InvalidInputError: One has such an id.
        """
        taken = self.store.notes.facts(node.id for node in nodes)
        if taken:
            msg = f"the id {taken[0].id!r} is that of a note: give the document another one"
            raise InvalidInputError(msg)

    def _batches(self, plan: "_Plan") -> Iterator[StageNodes]:
        """Whole documents per batch, so that no reader ever sees half of a changed one."""
        by_document: dict[str, list[Node]] = defaultdict(list)
        for node in plan.changed:
            by_document[node.document].append(node)
        leaving: dict[str, list[str]] = defaultdict(list)
        orphans: list[str] = []
        for node_id in plan.gone:
            document = plan.known[node_id].document if node_id in plan.known else ""
            (leaving[document] if document in by_document else orphans).append(node_id)
        nodes: list[Node] = []
        removed: list[str] = []
        # The first batch is small: progress shows early and an unusable embedder fails fast.
        size = _FIRST
        for document, chunks in by_document.items():
            nodes += chunks
            removed += leaving[document]
            if len(nodes) >= size:
                yield StageNodes(tuple(nodes), tuple(removed))
                nodes, removed, size = [], [], self.batch
        if nodes or removed or orphans:
            yield StageNodes(tuple(nodes), (*removed, *orphans))

    def publish(self, part: StageNodes) -> None:
        """Carry a batch through all states; the caller holds the right to ingest."""
        self._stage(part)
        self._finish(indexed=False)

    def _stage(self, part: StageNodes) -> None:
        bare = [node for node in part.nodes if node.vector is None]
        embedded = iter(self.embedder.documents([embedded_text(node) for node in bare]))
        nodes = [replace(n, vector=next(embedded)) if n.vector is None else n for n in part.nodes]
        self.store.apply([replace(part, nodes=tuple(nodes))])

    def _finish(self, *, indexed: bool) -> None:
        """Carry everything staged through the remaining states. Safe to repeat."""
        staged = self.store.catalog.staged()
        if staged and not indexed:
            self._upsert(staged)
        self.store.apply([PublishStaged()])
        self._index()
        self._link()
        self._empty_trash(indexed=indexed)

    def _upsert(self, nodes: Sequence[Node]) -> None:
        self.index.upsert(
            [node.id for node in nodes],
            [_full_precision(node.vector) for node in nodes],
            [node.content for node in nodes],
            [node.metadata for node in nodes],
        )

    def _link(self) -> None:
        keys = self.store.catalog.unlinked()
        if keys:
            nodes = self.store.links.nodes(keys)
            edges: list[Edge] = []
            for linker in self.linkers:
                edges += linker.link(nodes, self.store.links)
            # Whoever got a new neighbour may have lost an old one.
            waiting = set(keys)
            beside = {e.target for e in edges if e.kind is EdgeKind.SIBLING and e.source in waiting}
            stale = RemoveEdges(tuple(waiting | beside), (EdgeKind.SIBLING,))
            self.store.apply([stale, PutEdges(tuple(edges), tuple(keys))])

    def _empty_trash(self, *, indexed: bool = False) -> None:
        ids = self.store.catalog.trash()
        if ids:
            kept = self.store.catalog.replaced(ids) if self._foreign else ()
            if not indexed:
                self.index.delete([node for node in ids if node not in kept])
            self.store.apply([EmptyTrash(tuple(ids))])

    def _move(self, plan: "_Plan") -> None:
        """Follow chunks that changed place inside their document, and their new neighbours."""
        moved = [
            (node.id, node.position)
            for node in plan.nodes
            if node.id in plan.known and plan.known[node.id].position != node.position
        ]
        if moved:
            self.store.apply([MoveNodes(tuple(moved))])
            self._link()


@dataclass(frozen=True, slots=True)
class _Plan:
    nodes: list[Node]
    changed: list[Node]
    gone: list[str]
    known: dict[str, Known]
    report: IngestReport


def _full_precision(vector: Vector | None) -> Vector:
    return np.asarray(vector, dtype=np.float32)


def _ignore(_chunks: int) -> None:
    """No progress is shown."""
