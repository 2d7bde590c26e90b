"""The two answers to each question, and the pool of documents that a person judges."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import perf_counter

from langchain_core.documents import Document

from crabpath_retrievers.core.text import clean_text
from crabpath_retrievers.errors import CrabPathError, InvalidInputError, ServiceError
from crabpath_retrievers.parts.file_formats import decode_text

_log = logging.getLogger(__name__)

SYSTEMS = ("present", "memory")
"""The retriever that is there, and the memory that may replace it."""

MOST_SHOWN = 10
"""Most documents of one answer: a person reads the pool of both."""

_MOST_QUESTIONS = 1_000
_MOST_CHARACTERS = 2_000  # of a question

Search = Callable[[str, int], Sequence[Document]]


@dataclass(frozen=True, slots=True)
class Pooled:
    """A document of a pool. Equal texts are one document, whichever id they have."""

    key: str
    document: Document


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question with both answers.

    Attributes:
        text: The question.
        answers: Keys of the documents of each system, best first.
        pool: All documents of both answers, in an order that tells nothing of them.
        milliseconds: Wall time of each answer.
    """

    text: str
    answers: Mapping[str, tuple[str, ...]]
    pool: tuple[Pooled, ...]
    milliseconds: Mapping[str, float]

    @property
    def sides(self) -> tuple[str, str]:
        """Systems whose lists are on the left and on the right, by a hash of the question."""
        first = sha256(self.text.encode(errors="replace")).digest()[0] % 2
        return SYSTEMS[first], SYSTEMS[1 - first]


def read_questions(path: Path) -> list[str]:
    """Read the questions of a text file, one a line; blank and repeated lines are left out.

    Raises:
        InvalidInputError: The file cannot be read, holds no question, or too many or too long ones.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        msg = f"{path} cannot be read ({error.strerror}): give a text file, one question a line"
        raise InvalidInputError(msg) from error
    lines = (" ".join(clean_text(line).split()) for line in _decode(raw).splitlines())
    questions = list(dict.fromkeys(line for line in lines if line))
    if not questions:
        msg = f"{path} holds no question: write one question a line"
        raise InvalidInputError(msg)
    if len(questions) > _MOST_QUESTIONS:
        msg = f"{path} holds {len(questions):,} questions: give at most {_MOST_QUESTIONS:,}"
        raise InvalidInputError(msg)
    if long := next((q for q in questions if len(q) > _MOST_CHARACTERS), None):
        msg = (
            f"{path} holds a question of {len(long):,} characters ({long[:40]!r}…): write one "
            f"question a line, of at most {_MOST_CHARACTERS:,} characters"
        )
        raise InvalidInputError(msg)
    return questions


def _decode(raw: bytes) -> str:
    """Decode a file in UTF-8, UTF-16 with its mark, or else Latin-1."""
    try:
        return decode_text(raw)
    except InvalidInputError:
        return raw.decode("latin-1")


def ask_all(
    questions: Iterable[str], searches: Mapping[str, Search], k: int
) -> Iterator[AskedQuestion]:
    """Ask both systems each question, in turns; the first question is asked twice to load models.

    Questions at which a search fails are left out, with a warning.

    Args:
        questions: The questions.
        searches: A search by the name of its system.
        k: Most documents of one answer, from 1 to ``MOST_SHOWN``.

    Raises:
        InvalidInputError: ``k`` is out of range, or a search returns no documents.
        ServiceError: A search failed at every question; the message names the system.
    """
    if not 1 <= k <= MOST_SHOWN:
        msg = f"k must be from 1 to {MOST_SHOWN}, not {k}: a person reads both answers"
        raise InvalidInputError(msg)
    failure: ServiceError | None = None
    answered = 0
    for place, text in enumerate(questions):
        if place == 0:
            for search in searches.values():
                with suppress(Exception):  # it is asked again, and fails again
                    search(text, k)
        order = [*searches] if place % 2 else [*reversed([*searches])]
        try:
            found = _ask(text, {name: searches[name] for name in order}, k)
        except ServiceError as error:
            failure = failure or error
            _log.warning("%s", error)
        else:
            answered += 1
            yield found
    if failure is not None and not answered:
        raise failure


def _ask(text: str, searches: Mapping[str, Search], k: int) -> AskedQuestion:
    answers: dict[str, tuple[str, ...]] = {}
    pool: dict[str, Pooled] = {}
    spent: dict[str, float] = {}
    for name, search in searches.items():
        started = perf_counter()
        found = _search(name, search, text, k)
        spent[name] = (perf_counter() - started) * 1_000
        named = {make_key(document): document for document in found}
        answers[name] = tuple(named)
        for key, document in named.items():
            pool.setdefault(key, Pooled(key, document))
    # By hashes of their texts: the order tells nothing of system and place.
    return AskedQuestion(text, answers, tuple(pool[key] for key in sorted(pool)), spent)


def _search(name: str, search: Search, text: str, k: int) -> list[Document]:
    """Search for at most k documents; those without a text are left out."""
    try:
        given = search(text, k)
    except CrabPathError:
        raise
    except Exception as error:
        msg = f"the {name} retriever failed at {text!r}: {error or type(error).__name__}"
        raise ServiceError(msg) from error
    if not isinstance(given, Iterable):
        msg = f"the {name} retriever returned {type(given).__name__}, not a list of documents"
        raise InvalidInputError(msg)
    found = []
    for document in given:
        if not isinstance(document, Document):
            msg = f"the {name} retriever returned a {type(document).__name__}, not a Document"
            raise InvalidInputError(msg)
        if document.page_content.strip():
            found.append(document)
    return found[:k]


def make_key(document: Document) -> str:
    """Make a key that documents with equal texts share."""
    return sha256(" ".join(document.page_content.split()).encode(errors="replace")).hexdigest()[:16]
