"""Publishes documents so that a crash at any point neither loses nor duplicates anything.

Where the vectors are in the database of the graph, added documents are published with their vectors
and edges in one transaction. Elsewhere, and in a sync, a batch passes through four states, each one
transaction: staged (invisible) → vectors indexed → published (visible, without edges) → linked.
:meth:`Ingest.recover` finishes what a crash left; every open and every ingest runs it first.

A new chunk gets an id derived from its document and text, or also from its metadata where the
document repeats the text. A sync keeps that id when the text is edited or moved, so an unchanged
text is recognised by document and digest, not by its id alone.
"""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple
from uuid import uuid4

import numpy as np
from langchain_core.documents import Document

from crabpath_retrievers.core.calls import count_ingest, elapsed_ms
from crabpath_retrievers.core.changes import Change
from crabpath_retrievers.core.processes import compute_ahead
from crabpath_retrievers.core.records import Node, Vector
from crabpath_retrievers.core.text import IndexedWords, format_value, is_blank
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.chunking import (
    Chunking,
    Part,
    has_caller_id,
    make_embedding_text,
    make_metadata_id,
    name_first,
)
from crabpath_retrievers.ingest.linking import (
    UNFINISHED_SINCE,
    FindAll,
    Linking,
    find_bulk_start,
    find_here,
)
from crabpath_retrievers.storage import GraphStore, Store
from crabpath_retrievers.storage.read.catalog import Catalog, PublishedLinks, StoredChunk
from crabpath_retrievers.storage.write.nodes import (
    confirm_index_deletions,
    mark_indexed,
    move_nodes,
    publish_nodes,
    publish_staged,
    put_edges,
    put_meta,
    remove_documents,
    stage_nodes,
)
from crabpath_retrievers.storage.write.transaction import Write
from crabpath_retrievers.vectors.base import VectorIndex, require_deleting
from crabpath_retrievers.vectors.embedder import Embedder, EmbedderFingerprint

_log = logging.getLogger(__name__)

Cleanup = Literal["incremental", "full"] | None
FIRST_BATCH = 16
"""Chunks of the first batch that is embedded; each next one is twice as large, up to a bound."""
MIN_BULK_CHUNKS = 10_000
"""New chunks from which ``add_documents`` is done in two passes; ``ingest`` always is."""
PUBLISHED_AT_ONCE = 1024
"""Chunks of one transaction of a bulk ingest."""
_INDEX_BATCH = 2048
_LONGEST_WAIT = 5.0  # seconds until what was embedded in bulk is published
STAMP = "indexed"
"""Fact about the graph store that its index repeats: both change with every ingest."""
_MANY = 1000  # changed chunks after which the database measures its tables again


Advance = Callable[[int], object]
"""Adds a number of chunks to those done."""

Progress = Callable[[int], AbstractContextManager[Advance]]
"""Shows the progress of an ingest, given its number of chunks."""


class Batch(NamedTuple):
    """Changes of documents that are published together: the arguments of ``stage_nodes``.

    Attributes:
        nodes: Nodes to add or replace.
        removed: Ids of nodes to delete.
        retired: Ids of nodes to hide.
        positions: New positions of other nodes, by id.
    """

    nodes: tuple[Node, ...] = ()
    removed: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    positions: tuple[tuple[str, int], ...] = ()


class ChunkEmbedder(NamedTuple):
    """Embeds chunks.

    A vector that is all zero or not finite is refused if ``strict``; else its chunk is left out.
    """

    embedder: Embedder
    strict: bool = False

    def embed(self, nodes: Sequence[Node]) -> tuple[list[Node], list[Node]]:
        """Embed the chunks that have no vector.

        Returns:
            All chunks with a vector, in order; and those that are left out.

        Raises:
            InvalidInputError: The embedder answers wrongly; the message names the document.
        """
        texts = [make_embedding_text(node) if node.vector is None else None for node in nodes]
        bare = [(text, node) for text, node in zip(texts, nodes, strict=True) if text is not None]
        vectors = self.embed_texts(bare)
        embedded = [
            node if text is None else replace(node, vector=vectors.get(text))
            for text, node in zip(texts, nodes, strict=True)
        ]
        left_out = [node for text, node in bare if text not in vectors]
        return [node for node in embedded if node.vector is not None], left_out

    def embed_texts(self, given: Sequence[tuple[str, Node]]) -> dict[str, Vector]:
        """Embed texts, each given with its chunk; return unit vectors ``[d]`` by text.

        Texts without a usable vector are left out.

        Raises:
            InvalidInputError: The embedder answers wrongly; or, if ``strict``, a text has no usable
                vector.
        """
        texts = [text for text, _ in given]
        found = self.embedder.try_documents(texts, lambda place: describe_chunk(given[place][1]))
        left = [
            describe_chunk(node) for (_, node), v in zip(given, found, strict=True) if v is None
        ]
        if left and self.strict:
            raise InvalidInputError(explain_left_out(left))
        return {text: v for text, v in zip(texts, found, strict=True) if v is not None}


def describe_chunk(node: Node) -> str:
    """Describe a chunk to a person: its source, page, place there and id."""
    page = node.metadata.get("page")
    where = "" if page is None else f" page {page}"
    return f"{node.source!r}{where} chunk {node.position + 1} (id {node.id})"


def explain_left_out(labels: Sequence[str]) -> str:
    """Say which chunks have no usable vector."""
    return (
        f"the embedder gives {len(labels)} chunks a vector that is all zero or not finite: "
        f"{name_first(labels)}"
    )


def warn_of_left_out(labels: Sequence[str]) -> None:
    """Log one warning that names the chunks that are left out, if there are any."""
    if labels:
        _log.warning("%s; left out, add them again to try again", explain_left_out(labels))


@dataclass(slots=True)
class IngestReport:
    """The result of an ingest, in chunks.

    Attributes:
        added, updated, removed, unchanged: Numbers of chunks.
        repeated: How many texts repeat another one: added and updated chunks, and those that are
            no chunk, as a text that repeats within a document is searched once.
        blank: Number of documents without text, which were skipped.
        ids: Ids of all chunks of the given documents, in order.
        left_out: Sources, places and ids of chunks without a usable vector, which were skipped:
            see ``settings.ingest.unusable_vectors``.
    """

    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    repeated: int = 0
    blank: int = 0
    ids: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, other: "IngestReport", *, lists_ids: bool = False) -> None:
        """Add the numbers of a later ingest, and its ids if ``lists_ids``."""
        self.ids += other.ids if lists_ids else ()
        for name in ("added", "updated", "removed", "unchanged", "repeated"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.left_out += other.left_out

    def require_all(self, rule: str | None) -> None:
        """Raise an error if chunks were left out and the ``rule`` does not allow it.

        The rule is ``settings.ingest.unusable_vectors``; None allows nothing.

        Raises:
            InvalidInputError: Chunks were left out, and the rule is None.
        """
        if self.left_out and rule is None:
            msg = (
                f"{explain_left_out(self.left_out)}; all others are added: use "
                "IngestSettings(unusable_vectors='skip') to go on without them"
            )
            raise InvalidInputError(msg)

    def __str__(self) -> str:
        """Format the numbers in one line."""
        repeated = f", {self.repeated} repeat the text of others" if self.repeated else ""
        blank = f", {self.blank} documents without text left out" if self.blank else ""
        left = f", {len(self.left_out)} without a vector left out" if self.left_out else ""
        return (
            f"{len(self.ids)} chunks: {self.added} added, {self.updated} updated, "
            f"{self.removed} removed, {self.unchanged} unchanged{repeated}{blank}{left}"
        )


@dataclass(frozen=True, slots=True)
class Ingest:
    """Adds, updates and removes documents in the graph store and the vector index together."""

    store: GraphStore
    index: VectorIndex
    embedder: ChunkEmbedder
    linking: Linking
    batch: int
    identity: EmbedderFingerprint

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        chunking: Chunking,
        ids: Sequence[str] | None = None,
        cleanup: Cleanup = None,
        progress: Progress | None = None,
    ) -> IngestReport:
        """Add documents to the store.

        Args:
            documents: Documents to add. An unchanged chunk costs one look-up.
            ids: One id per document; a document replaces what was added under its id before. None
                keeps ``Document.id``.
            cleanup: None removes only what ids replace; ``"incremental"`` also removes chunks
                that a given source no longer has; ``"full"`` removes everything that is not given.
                Names and meanings are those of LangChain's indexing API.
            progress: Shows progress; None for none.

        Raises:
            InvalidInputError: A document cannot be used; nothing was changed.
        """
        known = isinstance(cleanup, str) and cleanup in ("incremental", "full")
        if cleanup is not None and not known:
            msg = f"cleanup must be 'incremental', 'full' or None, not {format_value(cleanup)}"
            raise InvalidInputError(msg)
        if cleanup is not None:
            require_deleting(self.index)
        bare, version = Part.of(chunking, chunking.clean(documents), ids), self.identity.version
        part = self._embed_few(bare, cleanup)

        def choose_part() -> Iterator[Part]:
            # Read under the lock: the embedder may have been changed meanwhile.
            yield part if version == self.identity.version else bare

        return self.add(choose_part(), cleanup=cleanup, progress=progress)[0]

    def add(
        self,
        parts: Iterable[Part],
        *,
        cleanup: Cleanup = None,
        in_bulk: bool = False,
        progress: Progress | None = None,
        advance: Advance = lambda _: None,
        find_all: FindAll = find_here,
        linking: Progress | None = None,
    ) -> tuple[IngestReport, Part]:
        """Publish parts as they come, and link them: batch by batch, or in bulk at the end.

        Args:
            parts: Parts in the order of their documents; they are read under the ingest lock.
            cleanup: As for :meth:`add_documents`; a part has all documents of its sources, and for
                ``"full"`` all documents that are to stay.
            in_bulk: Whether to publish and link in two passes, however few the chunks; then the
                report lists no ids.
            progress: Shows the progress of each part in chunks; None for none.
            find_all: Finds the pairs to link in bulk, in this process or on a cluster.
            linking: Shows the progress of linking in bulk; None for none.

        Returns:
            The report on chunks, and a part without chunks that has all other counts.

        Raises:
            InvalidInputError: A document cannot be used; documents before it are in.
        """
        begun, report, total = time.perf_counter(), IngestReport(), Part()
        with self.store.hold_ingest_lock():
            self.identity.require_current()
            unfinished = self.recover(link_bulk=False)
            has_moved = False
            for part in _gather_parts(parts) if in_bulk else parts:
                plan = self._plan(part, cleanup)
                is_large = len(plan.changed) >= MIN_BULK_CHUNKS and not self.index.foreign
                with show_progress(progress, len(plan.changed)) as advance_chunks:
                    if in_bulk or unfinished or is_large:
                        self._publish_in_bulk(plan, part.words, advance_chunks)
                        unfinished = True
                    else:
                        self._publish_batches(plan, advance_chunks)
                has_moved |= self._move(plan)
                report.add(plan.finish(), lists_ids=not in_bulk)
                part.nodes.clear()
                part.words.clear()
                total.extend(part)
                advance(part.files)
            if unfinished or has_moved:
                self.linking.link(find_all, linking)
            if unfinished or report.added or report.updated or report.removed:
                self.stamp()
            if report.added + report.updated >= _MANY:
                self.store.refresh_statistics()
        report.blank = total.blank
        report.repeated += total.repeated
        report.left_out += total.left_out
        warn_of_left_out(report.left_out)
        if not in_bulk:
            _log.info("ingest of %s in %.0f ms", report, elapsed_ms(begun))
        count_ingest(report.added, report.updated, report.removed)
        return report, total

    def adopt(self, documents: Iterable[Document], *, chunking: Chunking) -> IngestReport:
        """Add the documents that a foreign index holds already, without changing the index.

        Args:
            documents: Documents of the index, each with its id. Stored nodes that are neither
                among them nor in the index are removed.

        Raises:
            InvalidInputError: A document cannot be used; nothing was changed.
        """
        begun = time.perf_counter()
        with self.store.hold_ingest_lock():
            self.recover()
            given = list(documents)
            # The index can find a record without text, but no edge can be derived from it.
            blank = {document.id for document in given if is_blank(document.page_content)}
            plan = self._plan(Part.of(chunking, given), "full")
            held = self.index.find_existing(plan.gone) or ()
            plan.gone[:] = [node for node in plan.gone if node in blank or node not in held]
            plan.report.removed, plan.report.blank = len(plan.gone), len(blank)
            for embedded, _ in self._embed_batches(plan):
                # One transaction: after a kill, staged nodes would be written to the foreign index.
                staged = Write(stage_nodes, *embedded)
                confirmed = Write(confirm_index_deletions, embedded.removed)
                self.store.apply([staged, Write(publish_staged), confirmed])
                self._finish()
            if self._move(plan):
                self.linking.link()
        seen = {document.id for document in given}
        left_out = blank | {node.id for node in plan.left_out}
        self.index.ignored = (self.index.ignored - seen) | left_out
        report = plan.finish()
        warn_of_left_out(report.left_out)
        _log.info("ingest of %s in %.0f ms", report, elapsed_ms(begun))
        count_ingest(report.added, report.updated, report.removed)
        return report

    def remove(self, ids: Sequence[str]) -> None:
        """Remove nodes from both stores."""
        with self.store.hold_ingest_lock():
            self.recover()
            freed = self.linking.queue_freed(self.store.links, ids)
            self.store.apply([*freed, Write(remove_documents, ids), *self.index.removal])
            self._index()
            self.linking.link()
            self._empty_trash()
            self.stamp()

    def stamp(self) -> None:
        """Give graph store and index one stamp, as they agree; the caller holds the ingest lock."""
        if not (self.index.foreign or self.index.removal):
            stamp = uuid4().hex
            self.store.write(put_meta, {STAMP: stamp})
            self.index.write_stamp(stamp)

    def _embed_few(self, part: Part, cleanup: Cleanup) -> Part:
        """Embed what a small ingest will change, before the lock is taken, so that others go on.

        A large part, or one with the ``cleanup`` "full", is returned as it is. What has to be
        embedded only because others changed the store in the meantime is embedded later.
        """
        nodes = part.nodes
        is_bare = any(node.vector is None for node in nodes)
        if not is_bare or cleanup == "full" or len(nodes) > self.batch:
            return part
        changed, _ = self.embedder.embed(self._plan(part, cleanup).changed)
        vectors = {make_embedding_text(node): node.vector for node in changed}
        embedded = [
            replace(node, vector=vectors.get(make_embedding_text(node)))
            if node.vector is None
            else node
            for node in nodes
        ]
        return replace(part, nodes=embedded)

    def _publish_batches(self, plan: "_Plan", advance: Advance) -> None:
        """Publish and link what a plan changes, batch by batch."""
        for embedded, size in self._embed_batches(plan):
            if self.index.removal:
                self._publish_at_once(embedded, plan.known.keys())
            else:
                self.publish(embedded)
            advance(size)

    def _publish_in_bulk(
        self, plan: "_Plan", words: Mapping[str, IndexedWords], advance: Advance
    ) -> None:
        """Publish what a plan changes in large batches, without linking it.

        ``words`` of chunks are by digest, as far as they are known; ``advance`` gets the number of
        chunks of each batch.
        """
        nodes: list[Node] = []
        removed: list[str] = []
        begun = time.monotonic()

        def publish() -> None:
            self._publish_unlinked(nodes, removed, words)
            advance(len(nodes))
            nodes.clear()
            removed.clear()

        for batch, _ in self._embed_batches(plan):
            nodes += batch.nodes
            removed += batch.removed
            # Slow embedders: a kill costs no more than some seconds of their work.
            if len(nodes) >= PUBLISHED_AT_ONCE or time.monotonic() - begun > _LONGEST_WAIT:
                publish()
                begun = time.monotonic()
        if nodes or removed:
            publish()
        self._empty_trash()

    def _publish_unlinked(
        self, nodes: Sequence[Node], removed: Sequence[str], words: Mapping[str, IndexedWords]
    ) -> None:
        """Publish a batch of whole documents with their vectors, in the order of the nodes."""
        language = self.store.language
        known = tuple(
            words.get(node.digest) or IndexedWords.from_text(node.title, node.content, language)
            for node in nodes
        )
        in_database = bool(self.index.removal)
        vectors = self._prepare_vectors(nodes) if in_database else ()  # creates their table
        self.linking.begin_bulk()
        with self.store.open_reader() as read:
            leaving = [*removed, *(node.id for node in nodes)]
            freed = self.linking.queue_freed(read.links, leaving)
        published = Write(publish_nodes, nodes, known, removed, indexed=in_database)
        self.store.apply([*freed, published, *vectors, *self.index.removal])
        if not in_database:
            self._prepare_vectors(nodes)
            self.store.write(mark_indexed, [node.id for node in nodes])

    def recover(self, progress: Progress | None = None, *, link_bulk: bool = True) -> bool:
        """Finish an interrupted ingest, unless another process is still running it.

        Args:
            progress: Shows the progress of the vector index; None for none.
            link_bulk: Whether to link the chunks of an interrupted bulk ingest, which takes long.

        Returns:
            Whether a bulk ingest remains unfinished.
        """
        unfinished, since = self.store.catalog.find_unfinished_work(UNFINISHED_SINCE)
        if not (unfinished or (since and link_bulk)):
            return bool(since)
        with self.store.hold_ingest_lock(wait=False) as held:
            if not held:
                return bool(since)
            self._index(progress)
            if link_bulk or find_bulk_start(self.store) is None:
                self._finish()
                self.stamp()
                return False
            waiting = len(self.store.catalog.get_unlinked_keys())
            message = "%d chunks of an interrupted ingest have no edges: run it again"
            _log.warning(message, waiting)
            return True

    def _index(self, progress: Progress | None = None) -> None:
        """Index the vectors of nodes that were imported, restored or lost in the index."""
        if not (total := self.store.catalog.count_unindexed()):
            return
        with show_progress(progress, total) as advance:
            while waiting := self.store.catalog.get_unindexed(_INDEX_BATCH):
                held = set[str]()
                if self.index.foreign:
                    held = self.index.find_existing([node.id for node in waiting]) or held
                vectors = self._prepare_vectors([node for node in waiting if node.id not in held])
                indexed = Write(mark_indexed, [node.id for node in waiting])
                self.store.apply([*vectors, indexed])
                advance(len(waiting))

    def _plan(self, part: Part, cleanup: Cleanup) -> "_Plan":
        """Plan the changes that a part makes.

        Without ``cleanup`` only documents with an id are replaced; see :meth:`add_documents`.
        """
        growing = {node.document for node in part.nodes} - part.named
        if cleanup is not None:
            growing = set()
        sources = {node.source for node in part.nodes} if cleanup == "incremental" else set()
        with self.store.open_reader() as read:
            nodes, known = _resolve_ids(read.catalog, part.nodes, growing, sources)
            nodes = _set_positions(read.catalog, nodes, known, growing)
            stored = read.catalog.all_ids() if cleanup == "full" else ()
        given = {node.id for node in nodes}
        if cleanup == "full":
            gone = [node_id for node_id in stored if node_id not in given]
        else:
            replaced = {node.document for node in nodes} - growing
            gone = [
                node.id
                for node in known.values()
                if node.id not in given and (node.document in replaced or node.source in sources)
            ]
        changed = [
            node
            for node in nodes
            if node.id not in known
            or (known[node.id].digest != node.digest and node.document not in growing)
        ]
        updated = sum(node.id in known for node in changed)
        report = IngestReport(
            added=len(changed) - updated,
            updated=updated,
            removed=len(gone),
            unchanged=len(nodes) - len(changed),
            repeated=len(changed) - len({node.content for node in changed}),
            ids=[node.id for node in nodes],
        )
        return _Plan(nodes, changed, gone, known, growing, report)

    def _make_batches(self, plan: "_Plan") -> Iterator[Batch]:
        """Group changes in batches of whole documents, so that no reader sees a half-changed one.

        A growing document, such as a log of many thousand messages, is spread over batches.
        """
        by_document: dict[tuple[str, int], list[Node]] = defaultdict(list)
        grown: Counter[str] = Counter()
        for node in plan.changed:
            by_document[node.document, grown[node.document] // self.batch].append(node)
            grown[node.document] += node.document in plan.growing
        leaving: dict[tuple[str, int], list[str]] = defaultdict(list)
        orphans: list[str] = []
        for node_id in plan.gone:
            document = plan.known[node_id].document if node_id in plan.known else ""
            whole = (document, 0)
            (leaving[whole] if whole in by_document else orphans).append(node_id)
        nodes: list[Node] = []
        removed: list[str] = []
        # The first batches are small: progress shows early, and a broken embedder fails fast.
        size = FIRST_BATCH
        for part, chunks in by_document.items():
            nodes += chunks
            removed += leaving[part]
            if len(nodes) >= size:
                yield Batch(tuple(nodes), tuple(removed))
                nodes, removed, size = [], [], min(2 * size, self.batch)
        if nodes or removed or orphans:
            yield Batch(tuple(nodes), (*removed, *orphans))

    def publish(self, part: Batch) -> None:
        """Carry an embedded batch through all states; the caller holds the ingest lock."""
        self.store.write(stage_nodes, *part)
        self._finish()

    def _publish_at_once(self, part: Batch, stored: AbstractSet[str]) -> None:
        """Publish and link a batch in one transaction, which also writes its vectors."""
        language = self.store.language
        words = tuple(IndexedWords.from_text(n.title, n.content, language) for n in part.nodes)
        given = (part.nodes, words, part.removed)
        published = Write(publish_nodes, *given, indexed=True, queued=False)
        vectors = self._prepare_vectors(part.nodes)  # creates their table
        removal = self.index.removal if part.removed else ()
        by_id = {node.id: node for node in part.nodes}
        with self.store.open_reader() as read:
            leaving = [*part.removed, *(by_id.keys() & stored)]
            freed = self.linking.find_freed(read.links, leaving)

        def publish(store: Store) -> None:
            ids, *_ = store.apply([published, *vectors, *removal])
            known = {key: by_id[node] for key, node in ids.items() if node in by_id}
            links = PublishedLinks(store, store.fulltext, known)
            old = {key for key, node in ids.items() if node in stored or node not in by_id}
            update, siblings = self.linking.find_edges(links.nodes([*{*ids, *freed}]), links)
            resorted = tuple(old.union(edge.target for edge in siblings))
            store.write(put_edges, update.edges, resorted=resorted, lost=update.lost)

        self.store.apply_together(publish)

    def _embed_batches(self, plan: "_Plan") -> Iterator[tuple[Batch, int]]:
        """Embed the batches of a plan, each one while the one before is published.

        Nodes that are left out are noted in the plan. An embedder that knows no other threads is
        called by this one, in between.

        Returns:
            Batches whose nodes have vectors, each with its number of nodes before.
        """

        def embed(part: Batch) -> tuple[Batch, int]:
            nodes, left_out = self.embedder.embed(part.nodes)
            plan.left_out.extend(left_out)
            return part._replace(nodes=tuple(nodes)), len(part.nodes)

        batches = self._make_batches(plan)
        has_vectors = all(node.vector is not None for node in plan.changed)
        if has_vectors or not self.embedder.embedder.has_async:
            return (embed(batch) for batch in batches)
        return compute_ahead(embed, batches, "crabpath-ingest")

    def _finish(self) -> None:
        """Carry everything staged through the remaining states; safe to repeat."""
        with self.store.open_reader() as read:
            staged = read.catalog.get_staged()
            freed = self.linking.queue_freed(read.links, read.catalog.get_staged_ids())
        vectors = self._prepare_vectors(staged) if staged else ()
        self.store.apply([*freed, *vectors, Write(publish_staged), *self.index.removal])
        self._index()
        self.linking.link()
        self._empty_trash()

    def _prepare_vectors(self, nodes: Sequence[Node]) -> tuple[Change, ...]:
        """Index vectors of nodes: now, or by the returned changes in the next transaction."""
        return self.index.prepare_upsert(
            [node.id for node in nodes],
            [np.asarray(node.vector, dtype=np.float32) for node in nodes],
            [node.content for node in nodes],
            [node.metadata for node in nodes],
        )

    def _empty_trash(self) -> None:
        ids = self.store.catalog.get_index_deletions()
        if ids:
            self.index.delete(ids)
            self.store.write(confirm_index_deletions, ids)

    def _move(self, plan: "_Plan") -> bool:
        """Store new positions of unchanged chunks, for linking; return whether there are any."""
        moved = [
            (node.id, node.position)
            for node in plan.nodes
            if node.id in plan.known and plan.known[node.id].position != node.position
        ]
        if moved:
            self.store.write(move_nodes, moved)
        return bool(moved)


def _gather_parts(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield parts of about as many chunks as are published at once."""
    gathered = Part()
    for part in parts:
        gathered.extend(part)
        if len(gathered.nodes) >= PUBLISHED_AT_ONCE:
            yield gathered
            gathered = Part()
    if gathered.documents or gathered.blank or gathered.skipped:
        yield gathered


@dataclass(frozen=True, slots=True)
class _Plan:
    nodes: list[Node]
    changed: list[Node]
    gone: list[str]
    known: dict[str, StoredChunk]
    growing: AbstractSet[str]
    report: IngestReport
    left_out: list[Node] = field(default_factory=list)

    def finish(self) -> IngestReport:
        """Return the report, corrected by the chunks that were left out."""
        report, gone = self.report, {node.id for node in self.left_out}
        old = len(gone & self.known.keys())
        report.updated -= old
        report.added -= len(gone) - old
        report.ids = [name for name in report.ids if name not in gone]
        report.left_out = [describe_chunk(node) for node in self.left_out]
        return report


def require_progress(progress: object) -> None:
    """Refuse an object that cannot show progress."""
    if progress is not None and not callable(progress):
        shown = format_value(progress)
        msg = f"progress must be a function of the number of documents, not {shown}"
        raise InvalidInputError(msg)


def show_progress(progress: Progress | None, total: int) -> AbstractContextManager[Advance]:
    """Start to show the progress of an ingest of ``total`` chunks; None shows nothing."""
    return nullcontext(lambda _: None) if progress is None else progress(total)


def _resolve_ids(
    catalog: Catalog,
    nodes: Sequence[Node],
    growing: AbstractSet[str],
    sources: AbstractSet[str],
) -> tuple[list[Node], dict[str, StoredChunk]]:
    """Return the nodes with their final ids, and the stored nodes to compare them with, by id.

    Stored nodes are those with the same ids, of documents that are not ``growing``, of ``sources``,
    and of growing documents with the same text.
    """
    known = catalog.find_replaced(
        [node.id for node in nodes], {node.document for node in nodes} - growing, sources
    )
    digests = {node.digest for node in nodes if node.document in growing}
    known |= {node.id: node for node in catalog.find_by_digest(growing, digests)}
    kept: dict[str, Node] = {}
    held = {(node.document, node.digest): node.id for node in known.values()}
    # Not stored unchanged, and the derived id is taken by another text.
    others = [
        node
        for node in nodes
        if node.id in known and not has_caller_id(node) and (node.document, node.digest) not in held
    ]
    if others:
        further = catalog.find_chunks(ids=map(make_metadata_id, others))
        known |= {node.id: node for node in further}
        names = [i for node in others for i in (node.id, make_metadata_id(node))]
        stored = [i for i in names if i in known and known[i].document in growing]
        kept = catalog.documents(stored)
    return _assign_stored_ids(nodes, known, kept), known


def _set_positions(
    catalog: Catalog,
    nodes: Sequence[Node],
    known: Mapping[str, StoredChunk],
    growing: AbstractSet[str],
) -> list[Node]:
    """Set positions: in ``growing`` documents, new chunks come after the stored ones.

    ``known`` are the stored nodes by id; an unchanged chunk keeps its position.
    """
    ends = Counter(catalog.get_next_positions(growing))
    placed: list[Node] = []
    for node in nodes:
        if node.document not in growing:
            placed.append(node)
        elif node.id in known:
            placed.append(replace(node, position=known[node.id].position))
        else:
            placed.append(replace(node, position=ends[node.document]))
            ends[node.document] += 1
    return placed


def _assign_stored_ids(
    nodes: Sequence[Node], known: Mapping[str, StoredChunk], kept: Mapping[str, Node]
) -> list[Node]:
    """Assign nodes their final ids: an unchanged chunk keeps its stored id.

    ``known`` are stored nodes with ids that the chunks have or may get, or of the same documents;
    ``kept`` are those of ``known`` that this ingest does not replace.
    """
    held = {(node.document, node.digest): node.id for node in known.values()}
    own = [
        node.id if has_caller_id(node) else held.get((node.document, node.digest)) for node in nodes
    ]
    taken = set(own)

    def is_free(name: str, node: Node) -> bool:
        if name not in known:
            return True
        if known[name].document != node.document or name in taken:
            return False
        return name not in kept or make_metadata_id(kept[name]) == make_metadata_id(node)

    def choose_id(node: Node) -> str:
        if is_free(node.id, node):
            return node.id
        other = make_metadata_id(node)
        return other if is_free(other, node) else uuid4().hex

    final = [(node, own_id or choose_id(node)) for node, own_id in zip(nodes, own, strict=True)]
    return [node if node.id == name else replace(node, id=name) for node, name in final]
