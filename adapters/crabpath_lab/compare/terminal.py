"""Judging without a browser: a question and its numbered documents, a line of numbers as answer."""

from collections.abc import Callable, Sequence

from crabpath_lab.compare.answers import AskedQuestion
from crabpath_lab.compare.judgements import Judgements, measure

_MOST_SHOWN = 600  # characters of a document
_HELP = (
    "Type the numbers of the documents that answer, such as 1 3; 0 if none does; Enter to skip the "
    "question; q to end."
)


def judge_in_terminal(
    questions: Sequence[AskedQuestion],
    judgements: Judgements,
    read: Callable[[str], str],
    write: Callable[[str], object],
) -> None:
    """Ask about each question that is not finished, until all are, or the person ends it.

    Args:
        questions: The questions.
        judgements: Keeps what is said.
        read: Shows a prompt and returns the line; ``EOFError`` ends.
        write: Prints a text.
    """
    write(_HELP)
    for number, question in enumerate(questions, 1):
        if judgements.get(question).finished:
            continue
        write(f"\n{number}/{len(questions)}  {question.text}\n")
        for place, item in enumerate(question.pool, 1):
            text = " ".join(item.document.page_content.split())
            shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} …"
            name = item.document.metadata.get("title") or item.document.metadata.get("source") or ""
            write(f"  {place}. {name}\n     {shown}")
        marked = _read_numbers(len(question.pool), read, write)
        if marked is None:
            return
        if not marked:
            continue
        for place, item in enumerate(question.pool, 1):
            judgements.label(question, item.key, answers=place in marked)
        judgements.finish(question)
        write(measure(questions, judgements).describe())


def _read_numbers(
    most: int, read: Callable[[str], str], write: Callable[[str], object]
) -> set[int] | None:
    """Read numbers from 0 to ``most``; empty to skip the question, None to end."""
    while True:
        try:
            words = read("Which answer it (0: none, Enter: skip)? ").replace(",", " ").split()
        except EOFError:
            return None
        if words in (["q"], ["quit"]):
            return None
        if all(word.isascii() and word.isdigit() and int(word) <= most for word in words):
            found = {int(word) for word in words}
            if 0 not in found or len(found) == 1:
                return found
        write(f"Type numbers from 1 to {most}, or 0 alone. {_HELP}")
