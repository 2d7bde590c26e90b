"""Plans a sync: which sections were added, removed, edited, moved or restored.

Brings the store to the current state of a source, keeping what was learned about it.

Removed texts are matched with added ones, one to one: first by equal text, then by similarity.
Pairs in the same file and under the same heading are preferred. A document whose texts moved to
another document has that one as its successor, so a renamed file counts as the same file.
"""

import logging
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from crabpath_retrievers.core.extras import require_extra
from crabpath_retrievers.core.query import parse_path, parse_texts, require_list
from crabpath_retrievers.core.records import Node, Vector, stretch_cosine
from crabpath_retrievers.core.text import is_blank
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.chunking import Chunking, has_caller_id, make_embedding_text
from crabpath_retrievers.ingest.pipeline import (
    FIRST_BATCH,
    Batch,
    Ingest,
    Progress,
    describe_chunk,
    show_progress,
    warn_of_left_out,
)
from crabpath_retrievers.memory.documents import SourcePath
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.parts.source_files import (
    KnownRoots,
    SourceFolder,
    describe_skipped,
    read_folder,
)
from crabpath_retrievers.storage.read.catalog import StoredChunk
from crabpath_retrievers.storage.schema import RETIRED
from crabpath_retrievers.vectors.embedder import EmbedderFingerprint

Sources = SourcePath | Iterable[SourcePath] | Iterable[Document]
"""What a sync follows."""

_log = logging.getLogger(__name__)
# More than the similarity lost by rewording a sentence.
_SAME_FILE_BONUS, _SAME_HEADING_BONUS = 0.04, 0.02
_UNMATCHED_SCORE = 0.01  # below the score of any match
_MAX_CANDIDATES = 32  # per new text: templates have thousands of near copies
_BLOCK_ROWS = 1024  # new texts compared in one matrix product


class TextMatch(NamedTuple):
    """An old text, its new version, and their similarity."""

    old: Node
    new: Node
    similarity: float


def match_texts(
    old: Sequence[Node],
    new: Sequence[Node],
    vectors: Mapping[str, Vector],
    threshold: float,
    stretch: float,
) -> list[TextMatch]:
    """Match old with new texts; each text is in at most one pair.

    Args:
        old: Nodes whose text the source no longer contains at that place.
        new: Nodes whose text was not there before.
        vectors: Unit vectors, shape ``[d]``, by text, with or without title. Texts without a vector
            are compared by equality only.
        threshold: Similarity above which two different texts are versions of each other.
    """
    pairs = _pair_by_id(old, new, vectors, stretch)
    successors = _find_successors(old, new)
    old, new = _remove_paired(old, new, pairs)
    pairs += _pair_by_text(old, new, successors)
    # Without titles, a section still matches after its file was renamed.
    for text in (make_embedding_text, attrgetter("content")):
        old, new = _remove_paired(old, new, pairs)
        known = {id(n): vectors[text(n)] for n in (*old, *new) if text(n) in vectors}
        pairs += _pair_similar(old, new, known, successors, threshold, stretch)
    return pairs


def _remove_paired(
    old: Sequence[Node], new: Sequence[Node], pairs: Iterable[TextMatch]
) -> tuple[list[Node], list[Node]]:
    """Return old and new nodes that are in none of the ``pairs`` yet.

    New nodes with an id of the caller's are left out, as only their id may pair them.
    """
    taken = {id(node) for pair in pairs for node in pair[:2]}
    left = [node for node in old if id(node) not in taken]
    return left, [node for node in new if id(node) not in taken and not has_caller_id(node)]


def _pair_by_id(
    old: Sequence[Node], new: Sequence[Node], vectors: Mapping[str, Vector], stretch: float
) -> list[TextMatch]:
    """Pair documents by the id that the caller chose, whatever their text.

    ``vectors`` are by text to embed; ``stretch`` is that of the embedder's distances.
    """
    by_id = {node.id: node for node in old}
    given = [(by_id[node.id], node) for node in new if has_caller_id(node) and node.id in by_id]
    return [
        TextMatch(
            a,
            b,
            1.0 if a.content == b.content else stretch_cosine(_cosine(a, b, vectors), stretch),
        )
        for a, b in given
    ]


def _cosine(old: Node, new: Node, vectors: Mapping[str, Vector]) -> float:
    a, b = (np.asarray(vectors[make_embedding_text(node)], dtype=np.float32) for node in (old, new))
    return float(a @ b)


def _find_successors(old: Sequence[Node], new: Sequence[Node]) -> dict[str, str]:
    """Map each old document to the new one that most of its unique texts moved to.

    Documents without such texts are left out.
    """
    before, after = _group_by_text(old), _group_by_text(new)
    moved = Counter(
        (before[text][0].document, after[text][0].document)
        for text in before.keys() & after.keys()
        if len(before[text]) == len(after[text]) == 1
    )
    return {
        source: successor for (source, successor), _ in sorted(moved.items(), key=lambda m: m[1])
    }


def _group_by_text(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        found[node.content].append(node)
    return found


def _pair_by_text(
    old: Sequence[Node], new: Sequence[Node], successors: Mapping[str, str]
) -> list[TextMatch]:
    """Pair equal texts, those of the same document first: a licence may be in a thousand files.

    ``successors`` has, by document, the one that its texts moved to; it comes second.
    """

    def successor(node: Node) -> str:
        return successors.get(node.document, node.document)

    def same_document(node: Node) -> str:
        return node.document

    def any_document(_: Node) -> str:
        return ""

    pairs: list[TextMatch] = []
    for of_old, of_new in (
        (same_document, same_document),
        (successor, same_document),
        (any_document, any_document),
    ):
        for headed in (True, False):
            left, right = _remove_paired(old, new, pairs)
            if of_old is not same_document:
                left = [node for node in left if not has_caller_id(node)]
            pairs += _pair_equal(left, right, _make_key(of_old, headed), _make_key(of_new, headed))
    return pairs


def _make_key(place: Callable[[Node], str], headed: bool) -> Callable[[Node], Hashable]:  # noqa: FBT001
    return lambda node: (node.content, place(node), node.title if headed else "")


def _pair_equal(
    old: Sequence[Node],
    new: Sequence[Node],
    of_old: Callable[[Node], Hashable],
    of_new: Callable[[Node], Hashable],
) -> list[TextMatch]:
    """Pair nodes with equal keys, in order; ``of_old`` and ``of_new`` make the keys."""
    waiting: dict[Hashable, list[Node]] = defaultdict(list)
    for node in reversed(old):
        waiting[of_old(node)].append(node)
    return [TextMatch(found.pop(), node, 1.0) for node in new if (found := waiting[of_new(node)])]


def _pair_similar(
    old: Sequence[Node],
    new: Sequence[Node],
    vectors: Mapping[int, Vector],
    successors: Mapping[str, str],
    threshold: float,
    stretch: float,
) -> list[TextMatch]:
    """Pair similar texts: the assignment with the largest sum of scores.

    ``vectors`` are by Python's ``id()`` of the node, ``successors`` by document. Pairs of a
    similarity up to ``threshold`` are not considered.
    """
    old = [node for node in old if id(node) in vectors]
    new = [node for node in new if id(node) in vectors]
    rows, columns, similarities = _find_candidates(
        _stack_vectors(old, vectors), _stack_vectors(new, vectors), threshold, stretch
    )
    allowed = [
        (row, column, near)
        for row, column, near in zip(rows, columns, similarities, strict=True)
        if not has_caller_id(old[column]) or old[column].document == new[row].document
    ]
    scores = [
        near
        + _SAME_FILE_BONUS
        * (new[row].document in {old[c].document, successors.get(old[c].document)})
        + _SAME_HEADING_BONUS * (new[row].title == old[c].title)
        for row, c, near in allowed
    ]
    return [
        TextMatch(old[allowed[n][1]], new[allowed[n][0]], allowed[n][2])
        for n in _solve_assignment(
            [pair[0] for pair in allowed], [pair[1] for pair in allowed], scores
        )
    ]


def _stack_vectors(nodes: Sequence[Node], vectors: Mapping[int, Vector]) -> NDArray[np.float32]:
    """Stack the vectors of nodes, shape ``[n, d]``."""
    return np.array([vectors[id(node)] for node in nodes], dtype=np.float32)


def _find_candidates(
    old: NDArray[np.float32], new: NDArray[np.float32], threshold: float, stretch: float
) -> tuple[list[int], list[int], list[float]]:
    """Return rows of ``new``, rows of ``old`` and similarities of the pairs above the threshold."""
    rows: list[int] = []
    columns: list[int] = []
    found: list[float] = []
    if not (len(old) and len(new)):
        return rows, columns, found
    for start in range(0, len(new), _BLOCK_ROWS):
        near = stretch_cosine(new[start : start + _BLOCK_ROWS] @ old.T, stretch)
        for row, line in enumerate(near, start):
            best = np.argsort(-line, kind="stable")[:_MAX_CANDIDATES]
            best = best[line[best] > threshold]
            rows += [row] * len(best)
            columns += best.tolist()
            found += line[best].tolist()
    return rows, columns, found


def _solve_assignment(
    rows: Sequence[int], columns: Sequence[int], scores: Sequence[float]
) -> list[int]:
    """Solve the assignment problem: indices of the chosen pairs, each row and column once.

    Pair ``i`` has ``rows[i]``, ``columns[i]`` and ``scores[i]``; the sum of scores is largest.
    """
    if not rows:
        return []
    require_extra("sync", "recognising edited texts")
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    own, row = np.unique(rows, return_inverse=True)
    others, column = np.unique(columns, return_inverse=True)
    # The solver matches every row, so each row gets a dummy column that means "no match".
    none = np.arange(len(own))
    weights = np.concatenate([scores, np.full(len(own), _UNMATCHED_SCORE)])
    at = (np.concatenate([row, none]), np.concatenate([column, len(others) + none]))
    shape = (len(own), len(others) + len(own))
    graph = coo_array((weights, at), shape=shape).tocsr()
    taken, to = min_weight_full_bipartite_matching(graph, maximize=True)
    chosen = set(zip(taken.tolist(), to.tolist(), strict=True))
    found = enumerate(zip(row.tolist(), column.tolist(), strict=True))
    return [number for number, pair in found if pair in chosen]


MIN_SIMILARITY = 0.92
"""Similarity above which two texts are versions of each other."""

Fate = Literal["edited", "moved", "restored", "added", "removed"]


@dataclass(frozen=True, slots=True)
class Section:
    """A section that a sync changes.

    Attributes:
        fate: The kind of change. ``edited``, ``moved`` and ``restored`` sections keep their id, and
            so everything learned about them; ``restored`` ones had been removed before.
        now: New version; None for a removed section.
        was: Old version; None for an added section.
        similarity: Similarity of both versions, 1 for equal texts; None if there is only one
            version.
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
    """Compare the chunks of a source with the stored ones, by document and digest.

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

    Arguments are as for :func:`match_texts`; ``retired`` are sections that earlier syncs removed
    and that may be restored.
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
        is_moved = was.content == node.content and was.document != node.document
        fate: Fate = "restored" if id(was) in back else "moved" if is_moved else "edited"
        sections.append(Section(fate, replace(now, id=was.id), was, similarity))
    removed = [Section("removed", was=node) for node in old if id(node) not in gone]
    return (*sections, *removed)


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
        """Plan the sync and, unless ``dry_run``, apply it."""
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
        """Find the stored nodes in scope, and those of the documents that ``nodes`` are of."""
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
        """Embed the texts of sections that ``known`` does not have; return vectors by text.

        ``to_text`` makes the text of a section. Texts without a usable vector are left out.

        Raises:
            InvalidInputError: The embedder answers wrongly; or it must give each text a vector, and
                does not.
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

    def _make_batch(self, plan: SyncPlan) -> Batch:
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
        return Batch((*kept, *fresh), retired=gone, positions=plan.positions)


def _select_sections_to_recheck(sections: Sequence[Section]) -> list[Node]:
    """Select added and removed sections, which may match without titles."""
    left = [section for section in sections if section.fate in {"added", "removed"}]
    both = len({section.fate for section in left}) > 1
    return [section.node for section in left] if both else []


def sync_sources(
    services: Services,
    sources: Sources,
    roots: Sequence[str],
    chunking: Chunking,
    *,
    allow_empty: bool,
    dry_run: bool,
    progress: Progress | None,
) -> SyncPlan:
    """Bring a memory in line with files, folders or loaders; as ``CrabPath.sync``."""
    known = KnownRoots(services.store)
    documents, scope, skipped = _read_sources(
        services, known, sources, roots, allow_empty=allow_empty
    )
    nodes = chunking.nodes(chunking.clean(documents))
    similarity = services.settings.sync.new_version_similarity
    sync = Sync(services.ingest, services.identity, similarity, known, progress)
    return replace(sync.run(nodes, scope, dry_run=dry_run), skipped=skipped)


def _read_sources(
    services: Services,
    known: KnownRoots,
    sources: Sources,
    roots: Sequence[str],
    *,
    allow_empty: bool,
) -> tuple[Iterable[Document], SyncScope, dict[str, str]]:
    """Read the documents of files, folders or loaders; arguments and errors as ``CrabPath.sync``.

    Returns:
        The documents; the sources whose missing documents the sync removes; and the reason
        why each skipped file or part was skipped.
    """
    documents, paths = _documents_and_paths(sources)
    if paths and roots:
        msg = "roots are for documents: a path is its own root, leave them out"
        raise InvalidInputError(msg)
    has_text = paths or not all(is_blank(document.page_content) for document in documents)
    if not (has_text or (roots and allow_empty)):
        msg = "nothing was given to sync: give files, directories or documents with text"
        raise InvalidInputError(msg)
    prefixes = parse_texts(roots, name="roots")
    if not all(map(str.strip, prefixes)):
        msg = "a root is empty, and would stand for every source: give what sources begin with"
        raise InvalidInputError(msg)
    folders = [_read_folder(services, known, path) for path in paths]
    if not allow_empty:
        require_documents(folders)
    reasons = {name: why for folder in folders for name, why in folder.skipped.items()}
    unparsed = {name: why for name, why in reasons.items() if "pip install" in why}
    for line in describe_skipped(unparsed):
        _log.warning("not read: %s", line)
    single = list[str]()
    for folder in folders:
        root = folder.root
        prefixes += [root.name, *root.inner.values(), *root.former]
        single += root.list_unprefixed(one.metadata["source"] for one in folder.documents)
    scope = SyncScope(tuple(parse_texts(prefixes)), tuple(single), frozenset(reasons))
    return chain(documents, *(folder.documents for folder in folders)), scope, reasons


def _read_folder(services: Services, known: KnownRoots, given: SourcePath) -> SourceFolder:
    path, largest = parse_path("what to sync", given), services.settings.sync.max_file_bytes
    folder = read_folder(path, root=known.choose(path, follow=True), largest=largest)
    if path.is_file() and folder.skipped and not folder.documents:
        (why,) = folder.skipped.values()
        msg = f"{path} was not read: {why}"
        raise InvalidInputError(msg)
    return folder


def _documents_and_paths(sources: Sources) -> tuple[list[Document], list[SourcePath]]:
    """Split the arguments of a sync into documents and paths."""
    single = isinstance(sources, (str, os.PathLike))
    items = [sources] if single else require_list("what to sync", sources)
    documents = [item for item in items if isinstance(item, Document)]
    paths = [item for item in items if isinstance(item, (str, os.PathLike))]
    if len(documents) + len(paths) != len(items) or (documents and paths):
        msg = "sync takes files and directories, or LangChain documents, not both and nothing else"
        raise InvalidInputError(msg)
    return documents, paths


def require_documents(folders: Iterable[SourceFolder]) -> None:
    """Refuse folders without documents: a wrong path is more likely than an emptied source."""
    for folder in folders:
        if all(is_blank(document.page_content) for document in folder.documents):
            unread = "; ".join(describe_skipped(folder.skipped))
            but = f" (not read: {unread})" if unread else ""
            msg = (
                f"{folder.root.name} contains no documents{but}: check the path, or pass "
                "--allow-empty (allow_empty=True) to remove what the memory holds of it"
            )
            raise InvalidInputError(msg)
