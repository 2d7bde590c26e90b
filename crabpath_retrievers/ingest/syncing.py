"""Bringing the store to what a source holds now, without losing what was learned about it."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from crabpath_retrievers.changes import StageNodes
from crabpath_retrievers.graph import Node, Vector
from crabpath_retrievers.ingest.chunking import embedded_text
from crabpath_retrievers.ingest.identity import unused
from crabpath_retrievers.ingest.matching import own_text
from crabpath_retrievers.ingest.pipeline import Ingest
from crabpath_retrievers.ingest.sync_plan import Section, SyncPlan, difference, plan_sync
from crabpath_retrievers.seeds.identity import EmbedderIdentity
from crabpath_retrievers.storage.catalog import Known
from crabpath_retrievers.storage.replaced import REPLACED, WHOLES
from crabpath_retrievers.storage.retired import RETIRED


@dataclass(frozen=True, slots=True)
class Scope:
    """What of the memory a source stands for: only that may retire.

    Attributes:
        roots: Sources that begin with one of these, as a folder, are of it.
        sources: Further sources that are of it.
        untouched: Sources that are left as they are.
    """

    roots: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    untouched: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Sync:
    """Compares a source with the store, and applies the difference as one batch."""

    ingest: Ingest
    identity: EmbedderIdentity
    threshold: float

    def run(self, nodes: Sequence[Node], scope: Scope, *, dry_run: bool) -> SyncPlan:
        """Plan, and apply unless ``dry_run``: then nothing is written.

        Args:
            nodes: What the source holds now.
            scope: What it stands for.
            dry_run: Only plan.

        Raises:
            InvalidInputError: A node has the id of a note; nothing was changed.
        """
        self.ingest.refuse_notes(nodes)
        with nullcontext() if dry_run else self.ingest.store.ingesting():
            if not dry_run:
                self.ingest.recover()
            plan = self._plan(nodes, scope, dry_run=dry_run)
            if plan and not dry_run:
                self.ingest.publish(self._make_batch(plan))
        return plan

    def _plan(self, nodes: Sequence[Node], scope: Scope, *, dry_run: bool) -> SyncPlan:
        catalog = self.ingest.store.catalog
        unchanged, vanished, appeared, positions = difference(self._find_known(nodes, scope), nodes)
        if not (vanished or appeared):
            return SyncPlan((), unchanged, positions)
        old = sorted(catalog.documents(vanished, namespace=REPLACED).values(), key=_sort_key)
        retired = catalog.retired(
            texts=(node.content for node in appeared),
            documents={node.document for node in appeared},
        )
        plan = partial(plan_sync, old, appeared, retired=retired, threshold=self.threshold)
        vectors = self._load_vectors((*old, *retired))
        if vectors or not dry_run:
            vectors |= self._embed_missing(map(embedded_text, appeared), vectors)
        sections = plan(vectors)
        if again := self._embed_missing(_select_texts_to_recheck(sections), vectors):
            sections = plan({**vectors, **again})
        return SyncPlan(sections, unchanged, positions)

    def _find_known(self, nodes: Sequence[Node], scope: Scope) -> list[Known]:
        """What the store holds of the source, and of the documents that it gives."""
        catalog = self.ingest.store.catalog
        documents = {node.document for node in nodes}
        found = catalog.known(documents=documents, sources=scope.sources, owners=WHOLES)
        for root in scope.roots:
            found += catalog.under(root)
        untouched = scope.untouched
        return [node for node in dict.fromkeys(found) if node.source not in untouched]

    def _load_vectors(self, nodes: Sequence[Node]) -> dict[str, Vector]:
        stored = self.ingest.store.catalog.vectors(node.id for node in nodes)
        return {embedded_text(node): stored[node.id] for node in nodes if node.id in stored}

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
        taken = catalog.known(ids=[node.id for node in added], owners=(*WHOLES, RETIRED))
        fresh = unused(added, {node.id for node in taken})
        gone = tuple(section.node.id for section in plan.sections_with("removed"))
        return StageNodes((*kept, *fresh), retired=gone, positions=plan.positions)


def _select_texts_to_recheck(sections: Sequence[Section]) -> list[str]:
    """Texts without titles that may show that what is gone and what is new are the same."""
    left = [section for section in sections if section.fate in {"added", "removed"}]
    both = len({section.fate for section in left}) > 1
    return [own_text(section.node) for section in left] if both else []


def _sort_key(node: Node) -> tuple[str, str, int]:
    return node.source, node.document, node.position


def _require_current(section: Section) -> Node:
    assert section.now is not None, "only removed sections are no more"  # noqa: S101
    return section.now
