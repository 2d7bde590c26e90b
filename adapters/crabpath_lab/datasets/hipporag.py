"""The files of HippoRAG's experiments (Gutiérrez et al. 2025): a corpus, and its questions."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import AliasChoices, BaseModel, Field, TypeAdapter

from crabpath_lab.datasets.dataset import (
    Dataset,
    make_passage,
    require_unique_id,
    unmapped_id,
)
from crabpath_lab.datasets.files import find_file, read_json

_CORPUS = "_corpus.json"


class _Passage(BaseModel):
    title: str
    text: str = Field(validation_alias=AliasChoices("text", "paragraph_text"))
    is_supporting: bool = False


class _Row(BaseModel):
    id: str = Field(validation_alias=AliasChoices("_id", "id"))
    question: str
    context: list[tuple[str, list[str] | str]] = []  # as in HotpotQA and 2WikiMultihopQA
    supporting_facts: list[tuple[str, int]] = []
    # as in MuSiQue, and in single-hop sets
    paragraphs: list[_Passage] = Field(
        default=[], validation_alias=AliasChoices("paragraphs", "contexts")
    )


_PASSAGES, _ROWS = TypeAdapter(list[_Passage]), TypeAdapter(list[_Row])


class _Names(NamedTuple):
    """Ids of the passages by title and text, and by title."""

    by_content: Mapping[tuple[str, str], str]
    by_title: Mapping[str, list[str]]

    def find(self, title: str, text: str) -> str:
        exact = self.by_content.get((title, _normalise(text)))
        same_title = self.by_title.get(title, [])
        return exact or (same_title[0] if len(same_title) == 1 else unmapped_id(title))


def load_hipporag(path: Path) -> Dataset:
    """Load a folder with ``NAME_corpus.json`` and ``NAME.json``, or the former file."""
    corpus = find_file(path, _CORPUS)
    name = corpus.name.removesuffix(".gz").removesuffix(_CORPUS)
    passages = read_json(corpus, _PASSAGES, "a corpus of HippoRAG")
    rows = read_json(corpus.with_name(f"{name}.json"), _ROWS, "questions of HippoRAG")
    documents = [make_passage(f"p{n}", p.title, p.text) for n, p in enumerate(passages)]
    by_content = {(p.title, _normalise(p.text)): f"p{n}" for n, p in enumerate(passages)}
    by_title: dict[str, list[str]] = {}
    for number, passage in enumerate(passages):
        by_title.setdefault(passage.title, []).append(f"p{number}")
    names = _Names(by_content, by_title)
    queries: dict[str, str] = {}
    qrels: dict[str, frozenset[str]] = {}
    for row in rows:
        require_unique_id(row.id, queries)
        gold = frozenset(names.find(title, text) for title, text in _list_gold(row))
        if gold:
            queries[row.id], qrels[row.id] = row.question, gold
    return Dataset(name, tuple(documents), queries, qrels, left_out=len(rows) - len(queries))


def _list_gold(row: _Row) -> Iterator[tuple[str, str]]:
    """Yield title and text of the passages that support the answer."""
    titles = {title for title, _ in row.supporting_facts}
    for title, sentences in row.context:
        if title in titles:
            yield title, sentences if isinstance(sentences, str) else " ".join(sentences)
    for passage in row.paragraphs:
        if passage.is_supporting:
            yield passage.title, passage.text


def _normalise(text: str) -> str:
    """Remove white space, which differs between corpus and questions, from a text."""
    return "".join(text.split())
