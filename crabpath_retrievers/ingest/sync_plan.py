"""What a sync would change: which sections appear, which vanish, and which of both are the same."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from crabpath_retrievers.graph import Node, Vector
from crabpath_retrievers.ingest.chunking import embedded_text
from crabpath_retrievers.ingest.identity import is_given
from crabpath_retrievers.ingest.matching import matched
from crabpath_retrievers.storage.catalog import Known

SIMILAR = 0.92
"""Cosine above which two texts are versions of one."""

Fate = Literal["edited", "moved", "restored", "added", "removed"]


class Difference(NamedTuple):
    """How a source differs from what the store holds of it.

    Attributes:
        unchanged: How many chunks are as they were.
        vanished: Ids of nodes whose text is no longer where it was.
        appeared: Chunks that were not there before.
        positions: Unchanged chunks whose place in the document shifted, as ``(id, position)``.
    """

    unchanged: int
    vanished: tuple[str, ...]
    appeared: tuple[Node, ...]
    positions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A section that a sync touches.

    Attributes:
        fate: What becomes of it. ``edited``, ``moved`` and ``restored`` ones keep their id, and so
            all that was learned about them; a ``restored`` one had been removed before.
        now: As it will be; None for a removed one.
        was: As it was; None for an added one.
        similarity: Cosine of both texts, 1 for equal ones; None where there is one only.
    """

    fate: Fate
    now: Node | None = None
    was: Node | None = None
    similarity: float | None = None

    @property
    def node(self) -> Node:
        """As it will be, or was."""
        found = self.now or self.was
        assert found is not None, "a section was or will be"  # noqa: S101
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain, JSON-safe data."""
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
    """What a sync changes, or would change.

    Attributes:
        sections: Every section that it touches.
        unchanged: How many it leaves as they are.
        positions: Unchanged ones whose place in the document shifted, as ``(id, position)``.
        skipped: Files that are no text or too large; what the memory holds of them stays.
    """

    sections: tuple[Section, ...] = ()
    unchanged: int = 0
    positions: tuple[tuple[str, int], ...] = ()
    skipped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return bool(self.sections or self.positions)

    def sections_with(self, *fates: Fate) -> Iterator[Section]:
        """The sections with one of these fates."""
        return (section for section in self.sections if section.fate in fates)

    def counts(self) -> dict[str, int]:
        """How many sections there are of each fate, and how many unchanged ones."""
        fates: tuple[Fate, ...] = ("added", "edited", "moved", "restored", "removed")
        return {
            **{fate: sum(1 for _ in self.sections_with(fate)) for fate in fates},
            "unchanged": self.unchanged,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain, JSON-safe data."""
        sections = [section.to_dict() for section in self.sections]
        more = {"shifted": len(self.positions), "skipped": list(self.skipped)}
        return {**self.counts(), **more, "sections": sections}


def difference(known: Iterable[Known], nodes: Sequence[Node]) -> Difference:
    """Compare chunks with what the store holds, by document and fingerprint.

    Args:
        known: What the store holds of the source.
        nodes: What the source holds now, without vectors.
    """
    held = list(known)
    same = {(node.document, node.digest): node for node in held}
    kept: dict[str, Node] = {}
    appeared: list[Node] = []
    for node in nodes:
        found = same.get((node.document, node.digest))
        if found is None or (is_given(node) and found.id != node.id):
            appeared.append(node)
        else:
            kept[found.id] = node
    return Difference(
        len(kept),
        tuple(node.id for node in held if node.id not in kept),
        tuple(appeared),
        tuple(
            (node.id, kept[node.id].position)
            for node in held
            if node.id in kept and kept[node.id].position != node.position
        ),
    )


def plan_sync(
    old: Sequence[Node],
    new: Sequence[Node],
    vectors: Mapping[str, Vector],
    *,
    retired: Sequence[Node] = (),
    threshold: float = SIMILAR,
) -> tuple[Section, ...]:
    """What becomes of every section that vanished or appeared.

    Args:
        old: Sections that vanished.
        new: Sections that appeared.
        vectors: Unit vectors, shape ``[d]``, by embedded text, and of some by their text without
            title; without its vector a section is only found by its very text.
        retired: Sections that earlier syncs removed and that may come back.
        threshold: Cosine above which different texts are versions of one.
    """
    # A text that just vanished rather lives on than one that is long gone.
    pairs = matched(old, new, vectors, threshold)
    found = {id(pair.new) for pair in pairs}
    pairs += matched(retired, [node for node in new if id(node) not in found], vectors, threshold)
    before = {id(pair.new): pair for pair in pairs}
    gone = {id(pair.old) for pair in pairs}
    back = {id(node) for node in retired}
    sections: list[Section] = []
    for node in new:
        now = replace(node, vector=vectors.get(embedded_text(node)))
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
