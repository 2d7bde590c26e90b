"""Plans a sync: which sections were added, removed, edited, moved or restored.

Brings the store to the current state of a source, keeping what was learned about it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, Literal
from uuid import uuid4

from crabpath_retrievers.core.changes import StageNodes
from crabpath_retrievers.core.records import Node, Vector
from crabpath_retrievers.ingest.chunking import has_caller_id, make_embedding_text
from crabpath_retrievers.ingest.embedding import describe_chunk, warn_of_left_out
from crabpath_retrievers.ingest.match import match_texts
from crabpath_retrievers.ingest.pipeline import FIRST_BATCH, Ingest, Progress, show_progress
from crabpath_retrievers.ingest.roots import KnownRoots
from crabpath_retrievers.storage.read.catalog import StoredChunk
from crabpath_retrievers.storage.retired import RETIRED
from crabpath_retrievers.vectors.embedder import EmbedderFingerprint

MIN_SIMILARITY = 0.92
"""Similarity above which two texts are versions of each other."""

Fate = Literal["edited", "moved", "restored", "added", "removed"]


@dataclass(frozen=True, slots=True)
class Section:
    """A section that a sync changes.

    Attributes:
        fate: The kind of change. ``edited``, ``moved`` and ``restored`` sections keep their id,
            and so everything learned about them; ``restored`` ones had been removed before.
        now: New version; None for a removed section.
        was: Old version; None for an added section.
        similarity: Of both versions, 1 for equal texts; None if there is only one version.
    """

    fate: Fate
    now: Node | None = None
    was: Node | None = None
    similarity: float | None = None

    @property
    def node(self) -> Node:
        """The new version, or the old one of a removed section."""
        version = self.now or self.was
        assert version is not None, "a section has at least one version"  # noqa: S101
        return version

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain, JSON-safe data."""
        return {
            "fate": self.fate,
            "id": self.node.id,
            "title": self.node.title,
            "source": None if self.now is None else self.now.source,
            "was": None if self.was is None else self.was.source,
            "similarity": self.similarity,
        }


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """The changes of a sync, planned or applied.

    Attributes:
        sections: Every section that changes.
        unchanged: Number of unchanged sections.
        positions: Unchanged sections whose position in the document changed, as
            ``(id, position)``.
        skipped: Why files, and parts of files, were not read, by source and place. What the memory
            holds of such a file stays; a part counts as removed.
        left_out: Sources, places and ids of sections without a usable vector.
    """

    sections: tuple[Section, ...] = ()
    unchanged: int = 0
    positions: tuple[tuple[str, int], ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any change."""
        return bool(self.sections or self.positions)

    def sections_with(self, *fates: Fate) -> Iterator[Section]:
        """Yield the sections with one of these fates."""
        return (section for section in self.sections if section.fate in fates)

    def counts(self) -> dict[str, int]:
        """Count the sections of each fate, and the unchanged ones."""
        fates: tuple[Fate, ...] = ("added", "edited", "moved", "restored", "removed")
        return {
            **{fate: sum(1 for _ in self.sections_with(fate)) for fate in fates},
            "unchanged": self.unchanged,
        }

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain, JSON-safe data."""
        sections = [section.to_dict() for section in self.sections]
        more = {
            "shifted": len(self.positions),
            "skipped": dict(self.skipped),
            "left_out": list(self.left_out),
        }
        return {**self.counts(), **more, "sections": sections}


def compare_source(
    known: Iterable[StoredChunk], nodes: Sequence[Node]
) -> tuple[int, list[str], list[Node], tuple[tuple[str, int], ...]]:
    """Compare a source with what the store holds of it, by document and digest.

    Args:
        known: Nodes that the store holds of the source.
        nodes: Chunks that the source contains now, without vectors.

    Returns:
        The number of unchanged chunks; ids of stored nodes whose text the source no longer
        contains; chunks that the store does not hold yet; and unchanged chunks whose position in
        the document changed, as ``(id, position)``.
    """
    held = list(known)
    same = {(node.document, node.digest): node for node in held}
    kept: dict[str, Node] = {}
    appeared: list[Node] = []
    for node in nodes:
        found = same.get((node.document, node.digest))
        if found is None or (has_caller_id(node) and found.id != node.id):
            appeared.append(node)
        else:
            kept[found.id] = node
    vanished = [node.id for node in held if node.id not in kept]
    moved = [node for node in held if node.id in kept and kept[node.id].position != node.position]
    return len(kept), vanished, appeared, tuple((n.id, kept[n.id].position) for n in moved)


def plan_sync(
    old: Sequence[Node],
    new: Sequence[Node],
    vectors: Mapping[str, Vector],
    *,
    retired: Sequence[Node] = (),
    threshold: float = MIN_SIMILARITY,
    stretch: float = 1.0,
) -> tuple[Section, ...]:
    """Decide the fate of every section that vanished or appeared.

    Args:
        old: Sections that vanished.
        new: Sections that appeared.
        vectors: Unit vectors, shape ``[d]``, by embedding text, some by text without title. A
            section without a vector is matched by equal text only.
        retired: Sections that earlier syncs removed and that may be restored.
        threshold: Similarity above which different texts are versions of each other.
        stretch: Of the embedder.
    """
    # Texts that vanished now take precedence over those removed by earlier syncs.
    pairs = match_texts(old, new, vectors, threshold, stretch)
    found = {id(pair.new) for pair in pairs}
    pairs += match_texts(
        retired, [node for node in new if id(node) not in found], vectors, threshold, stretch
    )
    before = {id(pair.new): pair for pair in pairs}
    gone = {id(pair.old) for pair in pairs}
    back = {id(node) for node in retired}
    sections: list[Section] = []
    for node in new:
        now = replace(node, vector=vectors.get(make_embedding_text(node)))
        if id(node) not in before:
            sections.append(Section("added", now=now))
            continue
        was, _, similarity = before[id(node)]
        fate: Fate = "restored" if id(was) in back else _classify(was, node)
        sections.append(Section(fate, replace(now, id=was.id), was, similarity))
    removed = [Section("removed", was=node) for node in old if id(node) not in gone]
    return (*sections, *removed)


def _classify(was: Node, now: Node) -> Fate:
    return "moved" if was.content == now.content and was.document != now.document else "edited"


@dataclass(frozen=True, slots=True)
class SyncScope:
    """The part of the memory that a sync may change: other documents are never removed.

    Attributes:
        roots: Folders; all sources below one of them are in scope.
        sources: Further sources in scope.
        untouched: Sources that are not changed.
    """

    roots: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    untouched: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Sync:
    """Compares a source with the store, and applies the changes as one batch."""

    ingest: Ingest
    identity: EmbedderFingerprint
    threshold: float
    roots: KnownRoots
    progress: Progress | None = None

    def run(self, nodes: Sequence[Node], scope: SyncScope, *, dry_run: bool) -> SyncPlan:
        """Plan the sync and, unless ``dry_run``, apply it.

        Args:
            nodes: Chunks that the source contains now.
            scope: The part of the memory that may change.
            dry_run: Only plan; nothing is written.
        """
        with nullcontext() if dry_run else self.ingest.store.hold_ingest_lock():
            if not dry_run:
                self.identity.require_current()
                self.ingest.recover()
            plan = self._plan(nodes, scope, dry_run=dry_run)
            warn_of_left_out(plan.left_out)
            if not dry_run:
                self.roots.remember()
            if plan and not dry_run:
                self.ingest.publish(self._make_batch(plan))
        return plan

    def _plan(self, nodes: Sequence[Node], scope: SyncScope, *, dry_run: bool) -> SyncPlan:
        catalog = self.ingest.store.catalog
        unchanged, vanished, appeared, positions = compare_source(
            self._find_known(nodes, scope), nodes
        )
        if not (vanished or appeared):
            return SyncPlan((), unchanged, positions)
        old = sorted(
            catalog.documents(vanished).values(), key=attrgetter("source", "document", "position")
        )
        retired = catalog.find_retired(
            texts=(node.content for node in appeared),
            documents={node.document for node in appeared},
        )
        plan = partial(
            plan_sync,
            old,
            appeared,
            retired=retired,
            threshold=self.threshold,
            stretch=self.ingest.store.stretch,
        )
        vectors, left_out = self._load_vectors((*old, *retired)), list[Node]()
        if vectors or not dry_run:
            vectors |= self._embed_missing(appeared, vectors, make_embedding_text)
            left_out = [node for node in appeared if make_embedding_text(node) not in vectors]
            appeared[:] = [node for node in appeared if make_embedding_text(node) in vectors]
        sections = plan(vectors)
        if again := self._embed_missing(
            _select_sections_to_recheck(sections), vectors, attrgetter("content")
        ):
            sections = plan({**vectors, **again})
        return SyncPlan(
            sections, unchanged, positions, left_out=tuple(map(describe_chunk, left_out))
        )

    def _find_known(self, nodes: Sequence[Node], scope: SyncScope) -> list[StoredChunk]:
        """Find the stored nodes in scope, and those of the given documents."""
        catalog = self.ingest.store.catalog
        documents = {node.document for node in nodes}
        found = catalog.find_chunks(documents=documents, sources=scope.sources)
        for root in scope.roots:
            found += catalog.find_under_source(root)
        untouched = scope.untouched
        return [node for node in dict.fromkeys(found) if node.source not in untouched]

    def _load_vectors(self, nodes: Sequence[Node]) -> dict[str, Vector]:
        stored = self.ingest.store.catalog.vectors(node.id for node in nodes)
        return {make_embedding_text(node): stored[node.id] for node in nodes if node.id in stored}

    def _embed_missing(
        self, nodes: Iterable[Node], known: Collection[str], to_text: Callable[[Node], str]
    ) -> dict[str, Vector]:
        """Vectors of the texts of sections by text; those without a usable one are not among them.

        Raises:
            InvalidInputError: The embedder answers wrongly, or must have a vector for each.
        """
        wanted = {text: node for node in nodes if (text := to_text(node)) not in known}
        if not wanted:
            return {}
        self.identity.verify()
        texts, found, done = list(wanted), dict[str, Vector](), 0
        with show_progress(self.progress, len(texts)) as advance:
            size = FIRST_BATCH
            while part := texts[done : done + size]:
                found |= self.ingest.embedder.embed_texts([(t, wanted[t]) for t in part])
                done += len(part)
                advance(len(part))
                size = min(2 * size, self.ingest.batch)
        return found

    def _make_batch(self, plan: SyncPlan) -> StageNodes:
        kept = [section.node for section in plan.sections_with("edited", "moved", "restored")]
        added = [section.node for section in plan.sections_with("added")]
        catalog = self.ingest.store.catalog
        ids = [node.id for node in added]
        taken = {node.id for node in catalog.find_chunks(ids=ids, owners=(0, RETIRED))}
        fresh = [
            replace(node, id=uuid4().hex) if node.id in taken and not has_caller_id(node) else node
            for node in added
        ]
        gone = tuple(section.node.id for section in plan.sections_with("removed"))
        return StageNodes((*kept, *fresh), retired=gone, positions=plan.positions)


def _select_sections_to_recheck(sections: Sequence[Section]) -> list[Node]:
    """The added and removed sections, which may match without titles, if there are both."""
    left = [section for section in sections if section.fate in {"added", "removed"}]
    both = len({section.fate for section in left}) > 1
    return [section.node for section in left] if both else []
