"""How much learned knowledge is kept when a tree of documents is edited and synced."""

import json
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from langchain_core.embeddings import Embeddings

from benchmarks.sync_retention.edits import (
    EditedTree,
    EditRates,
    SectionTree,
    edit_tree,
    read_tree,
    write_tree,
)
from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.core.records import Node
from crabpath_retrievers.core.text import is_blank
from crabpath_retrievers.parts.source_files import read_documents
from crabpath_retrievers.storage import schema as s

_K = 5
_NAMESPACES = ("one", "two")
_QUESTION_WORDS = 12  # words of a section that a question has


class SectionQuestion(NamedTuple):
    """Words of a section, and its number."""

    text: str
    number: int


def measure_retention(
    docs: Path, seed: int, embeddings: Embeddings, questions: int
) -> dict[str, Any]:
    """Sync against delete and add, after one and the same learning and one and the same edit.

    Args:
        docs: A folder of Markdown files.
        seed: Of questions and edits.
        embeddings: Embeds.
        questions: Turns that each namespace learns from.

    Returns:
        By way: the shares of learned weights, of use and of episodes that are kept, of those of
        sections that still exist; the share of returned sections that are returned again; how
        often the section that a question is about is returned, before and after.
    """
    before = read_tree(docs)
    after = edit_tree(before, EditRates(), seed)
    folder = Path(tempfile.mkdtemp(prefix="crabpath-sync-"))
    try:
        write_tree(before, folder / "docs")
        write_tree(after.tree, folder / "edited")
        asked = _draw_questions(before, questions, random.Random(seed))  # noqa: S311
        figures = {
            way: _measure_way(folder, way, embeddings, asked, before, after)
            for way in ("sync", "delete_and_add")
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    size = {"files": len(before), "sections": sum(map(len, before.values()))}
    counts = {"touched": len(after.touched), "deleted": len(after.deleted)}
    return {"seed": seed, **size, **counts, **figures}


def _draw_questions(tree: SectionTree, count: int, rng: random.Random) -> list[SectionQuestion]:
    pieces = [piece for pieces in tree.values() for piece in pieces if len(piece.text.split()) > 20]  # noqa: PLR2004
    chosen = [rng.choice(pieces) for _ in range(count)]
    found = []
    for piece in chosen:
        words = piece.text.split()
        start = rng.randrange(max(1, len(words) - _QUESTION_WORDS))
        found.append(
            SectionQuestion(" ".join(words[start : start + _QUESTION_WORDS]), piece.number)
        )
    return found


def _measure_way(
    folder: Path,
    way: str,
    embeddings: Embeddings,
    asked: Sequence[SectionQuestion],
    before: SectionTree,
    after: EditedTree,
) -> dict[str, Any]:
    docs = folder / "tree"
    shutil.copytree(folder / "docs", docs)
    with CrabPath.open(folder / way, embeddings=embeddings) as memory:
        memory.sync(docs)
        numbers = _section_numbers(memory, before)
        _learn(memory, asked, numbers)
        gone = {node for node, number in numbers.items() if number in after.deleted}
        old, learned = _returned_sections(memory, asked, numbers), _learned_totals(memory, gone)
        shutil.rmtree(docs)
        shutil.copytree(folder / "edited", docs)
        report = memory.sync(docs).counts() if way == "sync" else _delete_and_add(memory, docs)
        now = _section_numbers(memory, after.tree)
        kept, new = _learned_totals(memory, gone), _returned_sections(memory, asked, now)
    shutil.rmtree(docs)
    wrong = sum(node in numbers and numbers[node] != number for node, number in now.items())
    return {
        "report": report,
        "kept": {  # None where nothing was learned
            name: round(kept[name] / learned[name], 3) if learned[name] else None
            for name in learned
        },
        "carried_to_another_section": wrong,
        "returned_again": _share_returned_again(old, new, after.deleted),
        "asked_section_returned_before": _hit_rate(old, asked, after.deleted),
        "asked_section_returned_after": _hit_rate(new, asked, after.deleted),
    }


def _delete_and_add(memory: CrabPath, docs: Path) -> dict[str, int]:
    """Forget files that are gone, add all others: what a user does without ``sync``."""
    documents = [one for one in read_documents([docs])[0] if not is_blank(one.page_content)]
    present = {document.metadata["source"] for document in documents}
    held = {node.source for node in memory.store.catalog.find_under_source(docs.as_posix())}
    removed = sum(memory.forget(source=source) for source in sorted(held - present))
    report = memory.add_documents(documents, cleanup="incremental")
    return {"added": report.added, "updated": report.updated, "removed": removed + report.removed}


def _section_numbers(memory: CrabPath, tree: SectionTree) -> dict[str, int]:
    """The section of each node, matched by text; nodes of long sections hold a part of one."""
    nodes = memory.store.catalog.documents(memory.store.catalog.all_ids())
    pieces = {name: pieces for name, pieces in tree.items() if pieces}
    found = {}
    for node in nodes.values():
        name = next(name for name in pieces if node.source.endswith(f"/tree/{name}"))
        number = next((p.number for p in pieces[name] if node.content.strip() in p.text), None)
        if number is not None:
            found[node.id] = number
    return found


def _learn(memory: CrabPath, asked: Sequence[SectionQuestion], numbers: Mapping[str, int]) -> None:
    """Give each namespace feedback: which returned sections belong to the question."""
    for namespace in _NAMESPACES:
        for question in asked:
            answer = memory.retrieve(question.text, k=_K, namespace=namespace)
            nodes = [document.node for document in answer.documents]
            used = _used_nodes(nodes, question.number, numbers)
            outcome = 1.0 if used else -1.0
            memory.record(Feedback(answer.turn.id, outcome, used=used, namespace=namespace))


def _used_nodes(nodes: Sequence[Node], number: int, numbers: Mapping[str, int]) -> list[str]:
    """Nodes of the section and, with them, other nodes of the same file."""
    own = [node for node in nodes if numbers.get(node.id) == number]
    files = {node.source for node in own}
    return [node.id for node in nodes if node in own or node.source in files]


def _returned_sections(
    memory: CrabPath, asked: Sequence[SectionQuestion], numbers: Mapping[str, int]
) -> list[set[int]]:
    """Numbers of the sections that each question returns."""
    return [
        {
            numbers[document.node.id]
            for document in memory.retrieve(
                question.text, k=_K, namespace=_NAMESPACES[0], record=False
            ).documents
            if document.node.id in numbers
        }
        for question in asked
    ]


def _learned_totals(memory: CrabPath, gone: set[str]) -> dict[str, float]:
    """Totals of learned values on nodes that queries can find, deleted sections excluded."""
    with memory.store.connect() as connection:
        seen = {
            key: node
            for key, node in connection.execute(
                sa.select(s.nodes.c.key, s.nodes.c.id).where(s.nodes.c.owner == 0)
            )
            if node not in gone
        }
        weights = connection.execute(
            sa.select(s.overlay.c.source, s.overlay.c.target, s.overlay.c.weight)
        ).all()
        usage = connection.execute(sa.select(s.usage)).all()
        episodes = connection.scalars(sa.select(s.episodes.c.documents)).all()
    ids = set(seen.values())
    return {
        "weights": sum(abs(w) for a, b, w in weights if a in seen and (b in seen or b == 0)),
        "use": sum(row.wins + row.losses for row in usage if row.node in seen),
        "episodes": sum(
            abs(credit)
            for documents in episodes
            for node, credit in json.loads(documents).items()
            if node in ids
        ),
    }


def _share_returned_again(
    old: Sequence[set[int]], new: Sequence[set[int]], deleted: frozenset[int]
) -> float:
    both = sum(len((a - deleted) & b) for a, b in zip(old, new, strict=True))
    return round(both / max(1, sum(len(a - deleted) for a in old)), 3)


def _hit_rate(
    found: Sequence[set[int]], asked: Sequence[SectionQuestion], deleted: frozenset[int]
) -> float:
    """Share of questions that return their section, over those with an existing section."""
    of = [question.number in one for question, one in zip(asked, found, strict=True)]
    left = [hit for question, hit in zip(asked, of, strict=True) if question.number not in deleted]
    return round(sum(left) / max(1, len(left)), 3)
