"""BEIR folders (Thakur et al. 2021): corpus.jsonl, queries.jsonl, qrels/test.tsv."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from crabpath_lab.datasets.dataset import Dataset, make_passage, require_unique_id
from crabpath_lab.datasets.files import read_json_lines, read_text
from crabpath_retrievers.errors import InvalidInputError

_COLUMNS = 3


class _Query(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)
    id: str = Field(alias="_id")
    text: str


class _Question(_Query):
    metadata: Any = None

    @property
    def answer(self) -> str | None:
        given = self.metadata.get("answer") if isinstance(self.metadata, dict) else None
        return given if isinstance(given, str) else None


class _Document(_Query):
    title: str = ""


_DOCUMENT, _QUESTION = TypeAdapter(_Document), TypeAdapter(_Question)


def is_beir_folder(path: Path) -> bool:
    """Whether a path is a folder with a corpus in BEIR form."""
    return any((path / name).exists() for name in ("corpus.jsonl", "corpus.jsonl.gz"))


def load_beir(folder: Path, name: str = "", part: str = "test") -> Dataset:
    """Load a folder with ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv`` (BEIR format).

    ``part`` names other judgements, such as those of ``qrels/train.tsv``.

    Entries are retrieved whole, as BEIR does; empty ones are left out of the corpus, and queries
    without a relevant document are not asked. Answers come from the metadata of the queries, where
    they stand there.
    """
    documents, ids = [], set[str]()
    for entry in read_json_lines(folder / "corpus.jsonl", _DOCUMENT, "a BEIR corpus"):
        require_unique_id(entry.id, ids, "document")
        ids.add(entry.id)
        documents.append(make_passage(entry.id, entry.title, entry.text))
    relevant = _read_qrels(folder / "qrels" / f"{part}.tsv")
    queries: dict[str, str] = {}
    answers: dict[str, str] = {}
    for row in read_json_lines(folder / "queries.jsonl", _QUESTION, "a list of BEIR queries"):
        if row.id in relevant:
            require_unique_id(row.id, queries)
            queries[row.id] = row.text
            if row.answer is not None:
                answers[row.id] = row.answer
    return Dataset(
        name or folder.name,
        tuple(document for document in documents if document.page_content.strip()),
        queries,
        {query: frozenset(relevant[query]) for query in queries},
        answers=answers,
    )


def write_beir(dataset: Dataset, folder: Path) -> None:
    """Write a data set into a new or empty folder, in BEIR form; answers become metadata."""
    titles = [str(document.metadata.get("title", "")) for document in dataset.documents]
    rows = [
        {"_id": d.id, "title": title, "text": d.page_content.removeprefix(f"{title}\n")}
        for d, title in zip(dataset.documents, titles, strict=True)
    ]
    asked: list[dict[str, Any]] = [
        {"_id": query, "text": text} for query, text in dataset.queries.items()
    ]
    for row in asked:
        if row["_id"] in dataset.answers:
            row["metadata"] = {"answer": dataset.answers[row["_id"]]}
    judged = [f"{query}\t{gold}\t1" for query, ids in dataset.qrels.items() for gold in sorted(ids)]
    files = {
        "corpus.jsonl": [json.dumps(row, ensure_ascii=False) for row in rows],
        "queries.jsonl": [json.dumps(row, ensure_ascii=False) for row in asked],
        "qrels/test.tsv": ["query-id\tcorpus-id\tscore", *judged],
    }
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _read_qrels(path: Path) -> dict[str, set[str]]:
    """Read the ids of the documents with a score above 0, by query id."""
    found: dict[str, set[str]] = {}
    for number, line in enumerate(read_text(path).splitlines()):
        row = line.split("\t")
        if not line.strip() or (number == 0 and _is_header(row)):
            continue
        if len(row) != _COLUMNS or not _is_number(row[-1]):
            msg = (
                f"{path}, line {number + 1} is not a BEIR judgement: "
                "give query id, document id and a whole number, with tabs between"
            )
            raise InvalidInputError(msg)
        query, document, score = row
        if int(score) > 0:
            found.setdefault(query, set()).add(document)
    return found


def _is_header(row: Sequence[str]) -> bool:
    return len(row) == _COLUMNS and not _is_number(row[-1])


def _is_number(value: str) -> bool:
    return value.strip().lstrip("-").isdecimal()
