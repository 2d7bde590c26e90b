"""Generated pages in two dated versions that contradict each other, and questions about them."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_lab.scratch import open_scratch

Right = Callable[[list[str], str, str], bool]
"""Whether an answer, given by its ids, is right about an old and a new page."""

_THINGS = (
    *("parking permit", "library card", "passport", "dog licence", "fishing licence", "birth"),
    *("market stall", "garden plot", "swimming pass", "museum ticket", "hunting licence", "taxi"),
    *("building permit", "street party", "bulky waste", "wedding room", "ferry pass", "kennel"),
    *("camping place", "locker", "bicycle box", "meeting room", "music lesson", "sports hall"),
    *("school meal",),
)
_FACTS = ("fee", "waiting time", "office hours", "validity")
_OLD, _NEW, _THEN = "2019-03-01", "2023-09-01", "2021-06-30"


class VersionFigures(NamedTuple):
    """Share of questions whose right page stands above its contradicting twin, or first."""

    now: float
    now_with_recency: float
    then: float
    then_named: float
    control: float
    control_with_recency: float


def _state(fact: str, thing: str, rng: random.Random, *, is_new: bool) -> str:
    number = rng.randrange(2, 40) + (50 if is_new else 0)
    texts = {
        "fee": f"The fee for a {thing} is {number} euros. It is paid in cash or by card.",
        "waiting time": f"Whoever applies for a {thing} waits {number} days for it.",
        "office hours": f"The office for a {thing} opens at {6 + number % 5 + 4 * is_new} o'clock.",
        "validity": f"A {thing} is valid for {number} months. Then it has to be renewed.",
    }
    return texts[fact] + " Ask at the counter of the town hall if anything is unclear."


def generate_versions(seed: int = 1) -> tuple[list[Document], list[tuple[str, str, str]]]:
    """A hundred pages in two versions, pages that have one, and for each page of two a question.

    Returns:
        Documents with dates; questions with the ids of the old and the new page. Pages of one
        version have a question with twice the same id.
    """
    rng = random.Random(seed)  # noqa: S311  no secret
    documents, questions = [], []
    for thing in _THINGS:
        for fact in _FACTS:
            title, name = f"{thing.capitalize()}: {fact}", f"{thing}-{fact}".replace(" ", "-")
            for version, moment in (("old", _OLD), ("new", _NEW)):
                text = _state(fact, thing, rng, is_new=version == "new")
                metadata = {"title": title, "date": moment}
                documents.append(Document(text, id=f"{name}-{version}", metadata=metadata))
            asked = f"What is the {fact} of a {thing}?"
            questions.append((asked, f"{name}-old", f"{name}-new"))
        place = f"{thing}-place".replace(" ", "-")
        text = f"A {thing} is asked for in room {rng.randrange(100, 400)} of the town hall."
        metadata = {"title": f"{thing.capitalize()}: room", "date": _OLD}
        documents.append(Document(text, id=place, metadata=metadata))
        questions.append((f"In which room is a {thing} asked for?", place, place))
    return documents, questions


def measure_versions(embeddings: Embeddings | None = None, seed: int = 1) -> VersionFigures:
    """Ask every question as of now, with a half-life of a year, and as of a moment between."""
    documents, questions = generate_versions(seed)
    pairs = [question for question in questions if question[1] != question[2]]
    single = [question for question in questions if question[1] == question[2]]
    with open_scratch(embeddings=embeddings) as memory:
        memory.add_documents(documents, split=False)

        def share(asked: Sequence[tuple[str, str, str]], right: Right, **options: object) -> float:
            hits = 0
            for text, old, new in asked:
                answer = memory.retrieve(text, k=4, record=False, **options)  # type: ignore[arg-type]
                hits += right([found.node.id for found in answer.documents], old, new)
            return round(hits / len(asked), 3)

        return VersionFigures(
            share(pairs, _is_above),
            share(pairs, _is_above, recency=365),
            share(pairs, lambda ids, old, new: _is_above(ids, new, old), as_of=_THEN),
            share(
                [
                    (f"{text[:-1]} in {_THEN[:4]}?".replace("is", "was"), old, new)
                    for text, old, new in pairs
                ],
                lambda ids, old, new: _is_above(ids, new, old),
            ),
            share(single, lambda ids, old, _: ids[0] == old),
            share(single, lambda ids, old, _: ids[0] == old, recency=365),
        )


def _is_above(ids: list[str], lower: str, upper: str) -> bool:
    places: Mapping[str, int] = {name: place for place, name in enumerate(ids)}
    return upper in places and places[upper] < places.get(lower, len(ids))
