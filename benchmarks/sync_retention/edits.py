"""A tree of Markdown files, and seeded edits that record the fate of every section."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from crabpath_retrievers.ingest.chunking import split_sections

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NumberedSection:
    """A section with a number that stays the same through all edits."""

    number: int
    text: str


SectionTree = Mapping[str, Sequence[NumberedSection]]
"""The sections of each file, in order, by path."""


@dataclass(frozen=True, slots=True)
class EditRates:
    """How much is edited, each as a share.

    Attributes:
        renamed: Of files.
        moved, reworded, deleted, added: Of sections.
        words: Of the words of a reworded section.
    """

    renamed: float = 0.2
    moved: float = 0.15
    reworded: float = 0.3
    deleted: float = 0.08
    added: float = 0.08
    words: float = 0.04


@dataclass(frozen=True, slots=True)
class EditedTree:
    """A tree after its edits.

    Attributes:
        tree: As it is now.
        touched: Numbers of the sections that were moved, reworded, or whose file was renamed.
        deleted: Numbers of those that are gone.
    """

    tree: SectionTree
    touched: frozenset[int]
    deleted: frozenset[int]


def read_tree(folder: Path) -> SectionTree:
    """The Markdown files of a folder, cut at their headings; empty sections are left out."""
    found: dict[str, list[NumberedSection]] = {}
    number = 0
    for file in sorted(folder.rglob("*.md")):
        pieces = []
        for _, text in split_sections(file.read_text(encoding="utf-8")):
            if text.strip():
                pieces.append(NumberedSection(number, text))
                number += 1
        found[file.relative_to(folder).as_posix()] = pieces
    return found


def write_tree(tree: SectionTree, folder: Path) -> None:
    """Make a folder hold these files."""
    for name, pieces in tree.items():
        if pieces:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(piece.text for piece in pieces), encoding="utf-8")


def edit_tree(tree: SectionTree, rates: EditRates, seed: int) -> EditedTree:
    """Rename files; move, reword, delete and add sections.

    Args:
        tree: Before.
        rates: How much of each.
        seed: Equal seeds give equal edits.
    """
    rng = random.Random(seed)  # noqa: S311  nothing is kept secret
    numbers = [piece.number for piece in _all_sections(tree)]
    deleted = _draw_share(numbers, rates.deleted, rng)
    left = [number for number in numbers if number not in deleted]
    moved, reworded = _draw_share(left, rates.moved, rng), _draw_share(left, rates.reworded, rng)
    renamed = _draw_share(sorted(tree), rates.renamed, rng)
    words = [word for piece in _all_sections(tree) for word in piece.text.split() if word.isalpha()]
    files: dict[str, list[NumberedSection]] = {_rename(name, renamed): [] for name in tree}
    names = list(files)
    touched: set[int] = set(reworded)
    for name, pieces in tree.items():
        for piece in pieces:
            if piece.number in deleted:
                continue
            text = piece.text
            if piece.number in reworded:
                text = _reword(text, rates.words, words, rng)
            home = _rename(name, renamed)
            others = [other for other in names if other != home]
            place = rng.choice(others) if piece.number in moved and others else home
            files[place].append(NumberedSection(piece.number, text))
            if place != name:
                touched.add(piece.number)
    for number in range(round(rates.added * len(numbers))):
        new = NumberedSection(len(numbers) + number, _invent_section(number, words, rng))
        files[rng.choice(names)].append(new)
    return EditedTree(files, frozenset(touched), frozenset(deleted))


def _all_sections(tree: SectionTree) -> Iterator[NumberedSection]:
    return (piece for pieces in tree.values() for piece in pieces)


def _draw_share(values: Iterable[T], share: float, rng: random.Random) -> set[T]:
    listed = list(values)
    return set(rng.sample(listed, round(share * len(listed))))


def _rename(name: str, renamed: set[str]) -> str:
    return f"renamed/{name}" if name in renamed else name


def _reword(text: str, share: float, words: Sequence[str], rng: random.Random) -> str:
    """The text with some of its plain words, at least one, exchanged; headings stay."""
    parts = text.split(" ")
    plain = [n for n, part in enumerate(parts) if part.isalpha() and n]
    for n in rng.sample(plain, min(len(plain), max(1, round(share * len(plain))))):
        parts[n] = rng.choice(words)
    return " ".join(parts)


def _invent_section(number: int, words: Sequence[str], rng: random.Random) -> str:
    """A section of words of the tree in an order that means nothing."""
    return f"## New section {number}\n\n{' '.join(rng.sample(words, min(60, len(words))))}.\n"
