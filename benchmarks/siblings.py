"""What true reports on some pages do to the answers about their siblings.

Products: each page is about one; pages and questions differ in its name and in numbers. Some pages
are reported as right for a question; then the same questions are asked about all other products.

Words: two pages about a place differ in a common word and in numbers. One page is reported as
right for its question; then the question of the other one is asked.
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_retrievers import CrabPath, Feedback

_SYLLABLES = ("ba", "cor", "del", "en", "far", "gil", "hol", "is", "jun", "kal", "lor", "mer")
_KINDS = ("kettle", "drill", "lamp", "toaster", "router", "scale")
_TEMPLATES = (
    "How long is the warranty of the {name}?",
    "What does the {name} weigh?",
    "How do I reset the {name}?",
)
_PLACES = (
    *("pool", "library", "museum", "ferry", "cinema", "market", "theatre", "clinic", "zoo"),
    *("tower", "garage", "archive", "harbour", "stadium", "castle", "gallery", "bakery"),
    *("sauna", "gym", "observatory"),
)
WORDS = {
    "first/second": ("first {} office", "second {} office"),
    "one/two": ("{} zone one", "{} zone two"),
    "inside/outside": ("inside the {}", "outside the {}"),
    "old/new": ("old {}", "new {}"),
    "left/right": ("left {} entrance", "right {} entrance"),
    "day/night": ("{} by day", "{} by night"),
    "paid/unpaid": ("paid {} work", "unpaid {} work"),
    "plumbers/electricians": ("{} plumbers", "{} electricians"),
    "Mondays/Tuesdays": ("{} on Mondays", "{} on Tuesdays"),
    "Italian/French": ("Italian {}", "French {}"),
}
"""Two subjects of pages by family; the place is filled in."""
OTHER_FORMS = {
    "Mondays/Tuesdays": ("{} on Monday", "{} on Tuesday"),
    "plumbers/electricians": ("{} plumber", "{} electrician"),
    "Italian/French": ("{} of Italy", "{} of France"),
}
"""Subjects of questions whose words have other forms than in the pages, by family."""
_ASKED = ("What is the fee for the {}?", "What does one pay for the {}?")
_SHOWN = 5  # documents of an answer


class SiblingFigures(NamedTuple):
    """Questions about unreported products whose page is first, of all of them.

    Attributes:
        reports: Products that were reported.
        questions: Questions about the others.
        frozen, learned: Those whose right page is first, before any report and after them.
    """

    reports: int
    questions: int
    frozen: int
    learned: int


def generate_products(members: int, seed: int) -> dict[str, str]:
    """Texts of pages by the name of their product, which they contain once."""
    rng = random.Random(seed)  # noqa: S311  reproducible data
    pages: dict[str, str] = {}
    while len(pages) < members:
        word = "".join(rng.sample(_SYLLABLES, rng.choice((2, 3)))).capitalize()
        name = f"{word} {rng.randrange(100, 1000)}"
        pages.setdefault(
            name,
            f"The {name} is a {rng.choice(_KINDS)}. Its warranty lasts {rng.randrange(6, 60)} "
            f"months. It weighs {rng.randrange(200, 9000)} grams. To reset it, hold the "
            f"{rng.choice(('left', 'right', 'upper'))} button for {rng.randrange(2, 15)} seconds.",
        )
    return pages


def measure_siblings(
    members: int,
    reports: Sequence[int],
    embeddings: Embeddings,
    *,
    titled: bool,
    seed: int = 0,
) -> Iterator[SiblingFigures]:
    """Yield the figures after each number of reports; all products are asked about with as many.

    Args:
        members: Number of products.
        reports: Numbers of reports, ascending.
        embeddings: The embedder.
        titled: Whether the name is the title of a page, too.
        seed: Draws the products.
    """
    pages = generate_products(members, seed)
    with (
        TemporaryDirectory() as folder,
        CrabPath.open(Path(folder), embeddings=embeddings) as memory,
    ):
        documents = [
            Document(text, id=name, metadata={"title": name} if titled else {})
            for name, text in pages.items()
        ]
        memory.add_documents(documents, split=False, progress=None)
        names = list(pages)
        frozen = {ask: is_first(memory, *ask) for ask in _list_questions(names)}
        reported = 0
        for count in reports:
            for name in names[reported:count]:
                question = _TEMPLATES[0].format(name=name)
                answer = memory.retrieve(question, k=_SHOWN)
                shown = {found.node.id for found in answer.documents}
                used = [name] if name in shown else []
                memory.record(Feedback(answer.turn.id, 1.0 if used else -1.0, used=used))
            reported = count
            others = _list_questions(names[count:] or names)
            right = sum(is_first(memory, *ask) for ask in others)
            yield SiblingFigures(count, len(others), sum(frozen[ask] for ask in others), right)


def measure_words(
    family: str,
    embeddings: Embeddings,
    background: Sequence[Document],
    *,
    forms: bool,
    seed: int = 0,
) -> tuple[SiblingFigures, SiblingFigures]:
    """The figures of a family, each report alone: the same question, and one in other words.

    Args:
        family: A name of :data:`WORDS`.
        embeddings: The embedder.
        background: Documents among which the pages are.
        forms: Whether the words of the questions have other forms than those of the pages.
        seed: Draws the numbers.
    """
    rng = random.Random(seed)  # noqa: S311  reproducible data
    asked = OTHER_FORMS[family] if forms else WORDS[family]
    names = [subject.format(place) for place in _PLACES for subject in WORDS[family]]
    pages = {
        name: f"The {name}: the fee is {rng.randrange(2, 60)} euros, to be paid at desk "
        f"{rng.randrange(2, 40)} within {rng.randrange(3, 30)} days."
        for name in names
    }
    found: list[list[bool]] = []
    with (
        TemporaryDirectory() as folder,
        CrabPath.open(Path(folder), embeddings=embeddings) as memory,
    ):
        documents = [Document(text, id=name) for name, text in pages.items()]
        memory.add_documents([*documents, *background], split=False, progress=None)
        for place in _PLACES:
            (page, other), (past, now) = (
                [subject.format(place) for subject in subjects]
                for subjects in (WORDS[family], asked)
            )
            before = [is_first(memory, other, question.format(now)) for question in _ASKED]
            turn = memory.retrieve(_ASKED[0].format(past), k=_SHOWN).turn
            memory.record(Feedback(turn.id, 1.0, relevant=[page]))
            after = [is_first(memory, other, question.format(now)) for question in _ASKED]
            memory.undo(turn_id=turn.id)
            found.append(before + after)
    same, rest, same_after, rest_after = (sum(column) for column in zip(*found, strict=True))
    size = len(_PLACES)
    return SiblingFigures(1, size, same, same_after), SiblingFigures(1, size, rest, rest_after)


def _list_questions(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, template.format(name=name)) for name in names for template in _TEMPLATES]


def is_first(memory: CrabPath, name: str, question: str, k: int = _SHOWN) -> bool:
    """Tell whether a question finds the document with this id first."""
    found = memory.retrieve(question, k=k, record=False).documents
    return bool(found) and found[0].node.id == name
