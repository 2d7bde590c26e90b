"""Whether feedback about some products tells which page answers about products never judged.

Each product has a page of each kind, in the words of its maker. Questions are in the words of those
who ask, and the words of other pages are often nearer. Each need of some products is taught in one
phrasing; then both phrasings are asked about all other products.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from benchmarks.siblings import generate_products, is_first
from crabpath_lab.scratch import open_scratch
from crabpath_retrievers import CrabPath, Feedback

_PAGES = {
    "Terms": "Claims about the {name} are accepted within {few} months from the date on the "
    "invoice. The invoice must be shown. Misuse ends all claims.",
    "Care": "Wipe the {name} with a soft damp cloth. Once in {few} weeks run a cycle with citric "
    "acid. Never put it under water.",
    "Specifications": "{name}: {many} grams, {more} millimetres high, a cord of {few} decimetres.",
    "Set-up": "Unpack the {name}, remove the tape, let it stand for {few} minutes, then press the "
    "main key until the lamp is green.",
    "Spare parts": "For the {name} order seals under number {many}, filters under {more}. They "
    "arrive in {few} days.",
    "Signals": "The lamp of the {name} blinks twice when it is too warm, {few} times when a seal "
    "sits badly, and stays red when the board must be replaced.",
    "Disposal": "The {name} must not go to household rubbish. Collection points take it; the "
    "battery is taken out with {few} screws.",
    "Use": "Fill the {name} to the mark, close it, choose programme {few} and wait for the tone. "
    "Do not open it before.",
}
_QUESTIONS = {
    "Terms": ("Who pays if my {name} breaks next year?", "Can I get money back for a bad {name}?"),
    "Care": ("My {name} smells funny, what now?", "There is a white crust inside the {name}"),
    "Specifications": ("Does the {name} fit a small cupboard?", "Can I carry the {name} easily?"),
    "Set-up": ("I just got the {name}, where do I begin?", "First steps with the {name}"),
    "Spare parts": ("The ring of my {name} is torn, where now?", "I lost a piece of the {name}"),
    "Signals": ("Why does the {name} flash?", "The {name} shows something in red"),
    "Disposal": ("How do I throw the {name} away?", "My {name} is dead, where does it go?"),
    "Use": ("How do I make something with the {name}?", "What is the {name} for, day by day?"),
}
_K = 4


class KindFigures(NamedTuple):
    """Right first answers to questions about products that were never judged.

    Attributes:
        taught: Products of which each need was reported once.
        questions: Questions in each phrasing.
        same, other: Right first, in the phrasing that was taught and in the other one.
    """

    taught: int
    questions: int
    same: int
    other: int


def measure_kinds(
    embeddings: Embeddings,
    *,
    titled: bool,
    taught: int = 5,
    asked: int = 10,
    seed: int = 0,
) -> Iterator[KindFigures]:
    """Yield the figures before any report, and after those on each product.

    Args:
        embeddings: The embedder.
        titled: Whether a page has the name of its product as title.
        taught: Products whose pages are reported.
        asked: Products that are asked about.
        seed: Draws the products.
    """
    names = list(generate_products(taught + asked, seed))
    rng = random.Random(seed)  # noqa: S311  reproducible data
    with open_scratch(embeddings=embeddings) as memory:
        memory.add_documents(
            [
                Document(
                    text.format(
                        name=name,
                        few=rng.randrange(2, 40),
                        many=rng.randrange(200, 9000),
                        more=rng.randrange(50, 900),
                    ),
                    id=f"{name}: {kind}",
                    metadata={"title": name} if titled else {},
                )
                for name in names
                for kind, text in _PAGES.items()
            ],
            split=False,
            progress=None,
        )
        others = names[taught:]
        yield KindFigures(0, *_count_right(memory, others))
        for count, name in enumerate(names[:taught], 1):
            for kind, (question, _) in _QUESTIONS.items():
                answer = memory.retrieve(question.format(name=name), k=_K)
                memory.record(Feedback(answer.turn.id, 1.0, relevant=[f"{name}: {kind}"]))
            yield KindFigures(count, *_count_right(memory, others))


def _count_right(memory: CrabPath, names: list[str]) -> tuple[int, int, int]:
    """Questions of each phrasing, and right first answers to the first and to the second one."""
    right = [0, 0]
    for name in names:
        for kind, phrasings in _QUESTIONS.items():
            for phrasing, question in enumerate(phrasings):
                page = f"{name}: {kind}"
                right[phrasing] += is_first(memory, page, question.format(name=name), _K)
    return len(names) * len(_QUESTIONS), right[0], right[1]
