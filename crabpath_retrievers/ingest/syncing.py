"""Brings the store to the current state of a source, keeping what was learned about it."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from crabpath_retrievers.changes import StageNodes
from crabpath_retrievers.graph import Node, Vector
from crabpath_retrievers.ingest.chunking import make_embedding_text
from crabpath_retrievers.ingest.identity import replace_taken_ids
from crabpath_retrievers.ingest.matching import get_untitled_text
from crabpath_retrievers.ingest.pipeline import Ingest
from crabpath_retrievers.ingest.sync_plan import Section, SyncPlan, compare_source, plan_sync
from crabpath_retrievers.seeds.identity import EmbedderFingerprint
from crabpath_retrievers.storage.catalog import StoredChunk
from crabpath_retrievers.storage.replaced import REPLACED, SOURCE_OWNERS
from crabpath_retrievers.storage.retired import RETIRED


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

    def run(self, nodes: Sequence[Node], scope: SyncScope, *, dry_run: bool) -> SyncPlan:
        """Plan the sync and, unless ``dry_run``, apply it.

        Args:
            nodes: Chunks that the source contains now.
            scope: The part of the memory that may change.
            dry_run: Only plan; nothing is written.

        Raises:
            InvalidInputError: A node has the id of a note; nothing was changed.
        """
        self.ingest.refuse_notes(nodes)
        with nullcontext() if dry_run else self.ingest.store.hold_ingest_lock():
            if not dry_run:
                self.ingest.recover()
            plan = self._plan(nodes, scope, dry_run=dry_run)
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
        old = sorted(catalog.documents(vanished, namespace=REPLACED).values(), key=_sort_key)
        retired = catalog.find_retired(
            texts=(node.content for node in appeared),
            documents={node.document for node in appeared},
        )
        plan = partial(plan_sync, old, appeared, retired=retired, threshold=self.threshold)
        vectors = self._load_vectors((*old, *retired))
        if vectors or not dry_run:
            vectors |= self._embed_missing(map(make_embedding_text, appeared), vectors)
        sections = plan(vectors)
        if again := self._embed_missing(_select_texts_to_recheck(sections), vectors):
            sections = plan({**vectors, **again})
        return SyncPlan(sections, unchanged, positions)

    def _find_known(self, nodes: Sequence[Node], scope: SyncScope) -> list[StoredChunk]:
        """Find the stored nodes in scope, and those of the given documents."""
        catalog = self.ingest.store.catalog
        documents = {node.document for node in nodes}
        found = catalog.find_chunks(
            documents=documents, sources=scope.sources, owners=SOURCE_OWNERS
        )
        for root in scope.roots:
            found += catalog.find_under_source(root)
        untouched = scope.untouched
        return [node for node in dict.fromkeys(found) if node.source not in untouched]

    def _load_vectors(self, nodes: Sequence[Node]) -> dict[str, Vector]:
        stored = self.ingest.store.catalog.vectors(node.id for node in nodes)
        return {make_embedding_text(node): stored[node.id] for node in nodes if node.id in stored}

    def _embed_missing(self, given: Iterable[str], known: Collection[str]) -> dict[str, Vector]:
        texts = [text for text in dict.fromkeys(given) if text not in known]
        if not texts:
            return {}
        self.identity.verify()
        found: dict[str, Vector] = {}
        for start in range(0, len(texts), self.ingest.batch):
            part = texts[start : start + self.ingest.batch]
            found |= zip(part, self.ingest.embedder.documents(part), strict=True)
        return found

    def _make_batch(self, plan: SyncPlan) -> StageNodes:
        kept = [
            _require_current(section)
            for section in plan.sections_with("edited", "moved", "restored")
        ]
        added = [_require_current(section) for section in plan.sections_with("added")]
        catalog = self.ingest.store.catalog
        taken = catalog.find_chunks(
            ids=[node.id for node in added], owners=(*SOURCE_OWNERS, RETIRED)
        )
        fresh = replace_taken_ids(added, {node.id for node in taken})
        gone = tuple(section.node.id for section in plan.sections_with("removed"))
        return StageNodes((*kept, *fresh), retired=gone, positions=plan.positions)


def _select_texts_to_recheck(sections: Sequence[Section]) -> list[str]:
    """Return the untitled texts of added and removed sections, if there are both."""
    left = [section for section in sections if section.fate in {"added", "removed"}]
    both = len({section.fate for section in left}) > 1
    return [get_untitled_text(section.node) for section in left] if both else []


def _sort_key(node: Node) -> tuple[str, str, int]:
    return node.source, node.document, node.position


def _require_current(section: Section) -> Node:
    assert section.now is not None, "only removed sections have no new version"  # noqa: S101
    return section.now
