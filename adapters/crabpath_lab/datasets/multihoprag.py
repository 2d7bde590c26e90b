"""MultiHop-RAG (Tang & Yang 2024): news articles, and questions with the evidence they need."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from crabpath_lab.datasets.dataset import Dataset, make_passage, unmapped_id
from crabpath_lab.datasets.files import read_json
from crabpath_retrievers.errors import InvalidInputError


class _Article(BaseModel):
    title: str
    body: str
    url: str = ""


class _Evidence(BaseModel):
    title: str
    fact: str
    url: str = ""


class _Row(BaseModel):
    query: str
    evidence_list: list[_Evidence]
    answer: str | None = None


_ARTICLES, _ROWS = TypeAdapter(list[_Article]), TypeAdapter(list[_Row])


def load_multihoprag(folder: Path) -> Dataset:
    """Load a folder with the official ``corpus.json`` and ``MultiHopRAG.json``.

    Null queries, which have no evidence, are left out. Of an article only title, body and, when
    every article has one, the address are kept: known for cited articles alone it would be a label.
    """
    if not folder.is_dir():
        msg = f"{folder} is not a folder: give the folder with corpus.json and MultiHopRAG.json"
        raise InvalidInputError(msg)
    articles = read_json(folder / "corpus.json", _ARTICLES, "the corpus of MultiHop-RAG")
    rows = read_json(folder / "MultiHopRAG.json", _ROWS, "the list of questions of MultiHop-RAG")
    addressed = all(article.url for article in articles)
    documents = tuple(
        make_passage(
            f"a{n}", article.title, article.body, **({"url": article.url} if addressed else {})
        )
        for n, article in enumerate(articles)
    )
    evidence = _EvidenceIndex(articles, by_url=addressed)
    asked = {f"q{n}": row for n, row in enumerate(rows) if row.evidence_list}
    return Dataset(
        folder.name,
        documents,
        {query: row.query for query, row in asked.items()},
        {query: evidence.documents_of(row.evidence_list) for query, row in asked.items()},
        facts={q: tuple(item.fact for item in row.evidence_list) for q, row in asked.items()},
        answers={q: row.answer for q, row in asked.items() if row.answer is not None},
        left_out=len(rows) - len(asked),
        split=True,
    )


class _EvidenceIndex:
    """Finds the article of a piece of evidence: by address, else by a unique title."""

    def __init__(self, articles: Sequence[_Article], *, by_url: bool) -> None:
        self._by_url = {a.url: f"a{n}" for n, a in enumerate(articles)} if by_url else {}
        self._by_title: dict[str, list[str]] = {}
        for number, article in enumerate(articles):
            self._by_title.setdefault(article.title, []).append(f"a{number}")

    def documents_of(self, evidence: Iterable[_Evidence]) -> frozenset[str]:
        return frozenset(map(self._document, evidence))

    def _document(self, evidence: _Evidence) -> str:
        if evidence.url in self._by_url:
            return self._by_url[evidence.url]
        titled = self._by_title.get(evidence.title, [])
        return titled[0] if len(titled) == 1 else unmapped_id(evidence.title)
