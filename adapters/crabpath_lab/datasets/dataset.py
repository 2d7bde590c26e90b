"""A corpus with judged queries."""

import random
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from langchain_core.documents import Document

from crabpath_retrievers.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Dataset:
    """A corpus with judged queries.

    Attributes:
        documents: Every passage once, with its id; text is title, newline, passage.
        queries: Text by query id.
        qrels: Ids of the relevant documents by query id.
        candidates: Ids of a question's own paragraphs by query id, where the format has them.
        facts: Gold sentences by query id, where the format has them.
        answers: What a chain should answer by query id, where the format has it; a label.
        left_out: Questions without any gold, which are not asked.
        split: Whether documents are cut into chunks; False for passages.
    """

    name: str
    documents: tuple[Document, ...]
    queries: dict[str, str]
    qrels: dict[str, frozenset[str]]
    candidates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    facts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    left_out: int = 0
    split: bool = False

    @property
    def unmapped_gold(self) -> dict[str, tuple[str, ...]]:
        """Gold ids of no document of the corpus, by query id; they count as misses."""
        known = {document.id for document in self.documents}
        lost = {query: tuple(sorted(gold - known)) for query, gold in self.qrels.items()}
        return {query: gold for query, gold in lost.items() if gold}

    def head(self, queries: int | None) -> "Dataset":
        """Copy the data set with the first queries only."""
        return self._with_queries(list(self.queries)[:queries])

    def sample(self, limit: int | None, seed: int | None = None) -> "Dataset":
        """Draw fewer questions and, of pooled contexts, those that belong to them.

        A seed draws them at random, None takes the first; a limit of None keeps all. One below 1
        raises InvalidInputError.
        """
        if limit is None:
            return self
        if limit < 1:
            msg = f"--limit must be at least 1, not {limit}: leave it out to ask every question"
            raise InvalidInputError(msg)
        asked = list(self.queries)
        if seed is not None and limit < len(asked):
            chosen = set(random.Random(seed).sample(asked, limit))  # noqa: S311  no secret
            asked = [query for query in asked if query in chosen]
        return self.choose(asked[:limit])

    def choose(self, queries: Iterable[str]) -> "Dataset":
        """Copy the data set with some questions, in their order, and their contexts."""
        fewer = self._with_queries(queries)
        if not self.candidates:
            return fewer
        kept = {document for own in fewer.candidates.values() for document in own}
        return replace(fewer, documents=tuple(d for d in self.documents if d.id in kept))

    def _with_queries(self, queries: Iterable[str]) -> "Dataset":
        kept = list(queries)
        return replace(
            self,
            queries={query: self.queries[query] for query in kept},
            qrels={query: self.qrels[query] for query in kept},
            candidates={q: self.candidates[q] for q in kept if q in self.candidates},
            facts={q: self.facts[q] for q in kept if q in self.facts},
            answers={q: self.answers[q] for q in kept if q in self.answers},
        )


class ContextQuestion(NamedTuple):
    """One question of a format that gives each its own paragraphs.

    Attributes:
        contexts: Title and text of its paragraphs.
        gold: Places of the relevant paragraphs in ``contexts``.
        lost: Names of gold that is in none of them.
        answer: What a chain should answer; None where the file does not say.
    """

    id: str
    text: str
    contexts: list[tuple[str, str]]
    gold: set[int]
    lost: tuple[str, ...] = ()
    answer: str | None = None


def make_passage(document_id: str, title: str, text: str, **metadata: str) -> Document:
    """Make a document of a passage; the title leads the text, as it would on a page."""
    content = f"{title}\n{text}" if title else text
    return Document(id=document_id, page_content=content, metadata={"title": title, **metadata})


def unmapped_id(name: str) -> str:
    """Make an id for gold that no document has."""
    return f"unmapped:{name}"


def pool_questions(name: str, questions: Iterable[ContextQuestion]) -> Dataset:
    """Join the paragraphs of all questions into one corpus, equal ones once."""
    ids: dict[tuple[str, str], str] = {}
    queries: dict[str, str] = {}
    qrels: dict[str, frozenset[str]] = {}
    candidates: dict[str, tuple[str, ...]] = {}
    answers: dict[str, str] = {}
    left_out = 0
    for question in questions:
        own = [ids.setdefault(context, f"p{len(ids)}") for context in question.contexts]
        gold = {own[place] for place in question.gold} | set(map(unmapped_id, question.lost))
        if not gold:
            left_out += 1
            continue
        require_unique_id(question.id, queries)
        queries[question.id] = question.text
        qrels[question.id] = frozenset(gold)
        candidates[question.id] = tuple(dict.fromkeys(own))
        if question.answer is not None:
            answers[question.id] = question.answer
    documents = tuple(make_passage(document_id, *key) for key, document_id in ids.items())
    return Dataset(name, documents, queries, qrels, candidates, answers=answers, left_out=left_out)


def require_unique_id(new: str, known: Container[str], what: str = "question") -> None:
    """Refuse an id that occurs twice in a file: one of its items would be lost."""
    if new in known:
        msg = f"the {what} id {new!r} stands twice in the file: give each its own id"
        raise InvalidInputError(msg)
