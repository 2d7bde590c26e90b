"""Data sets in their official formats, plain or gzipped, as documents, queries and qrels.

Labels stay in ``qrels``; documents carry a title and text and nothing else.
"""

import csv
import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from crabpath_retrievers.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Dataset:
    """A corpus with judged queries.

    Attributes:
        documents: Every passage once, with its id; text is title, newline, passage.
        queries: Text by query id.
        qrels: Ids of the relevant documents by query id.
    """

    name: str
    documents: tuple[Document, ...]
    queries: dict[str, str]
    qrels: dict[str, frozenset[str]]

    def first(self, queries: int | None) -> "Dataset":
        """The same corpus with the first queries only."""
        kept = dict(list(self.queries.items())[:queries])
        return Dataset(self.name, self.documents, kept, {q: self.qrels[q] for q in kept})


def beir(folder: Path, name: str = "") -> Dataset:
    """A folder with ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv`` (BEIR format).

    Raises:
        InvalidInputError: A file is missing or cannot be read.
    """
    documents = [
        passage(row["_id"], row.get("title", ""), row["text"]) for row in _jsonl(folder / "corpus")
    ]
    queries = {row["_id"]: row["text"] for row in _jsonl(folder / "queries")}
    with _open(folder / "qrels" / "test.tsv") as lines:
        rows = list(csv.reader(lines, delimiter="\t"))[1:]
    relevant: dict[str, set[str]] = {}
    for query, document, score in rows:
        if int(score) > 0:
            relevant.setdefault(query, set()).add(document)
    judged = {query: text for query, text in queries.items() if query in relevant}
    qrels = {query: frozenset(relevant[query]) for query in judged}
    return Dataset(name or folder.name, tuple(documents), judged, qrels)


def hotpotqa(path: Path) -> Dataset:
    """Official HotpotQA distractor or 2WikiMultihopQA JSON, all contexts pooled.

    Raises:
        InvalidInputError: The file is missing or cannot be read.
    """
    with _open(path) as stream:
        rows = json.load(stream)
    questions = (
        (
            row["_id"],
            row["question"],
            [(title, _joined(text)) for title, text in row["context"]],
            {title for title, _ in row["supporting_facts"]},
        )
        for row in rows
    )
    return _pooled(path.parent.name or path.stem, questions)


def musique(path: Path) -> Dataset:
    """Official MuSiQue JSONL, all paragraphs pooled.

    Raises:
        InvalidInputError: The file is missing or cannot be read.
    """
    questions = []
    for row in _jsonl(path):
        contexts = [(p["title"], p["paragraph_text"]) for p in row["paragraphs"]]
        gold = {n for n, p in enumerate(row["paragraphs"]) if p["is_supporting"]}
        questions.append((row["id"], row["question"], contexts, gold))
    return _pooled(path.parent.name or path.stem, questions)


def passage(document_id: str, title: str, text: str) -> Document:
    """A passage as a document; the title leads the text, as it would on a page."""
    content = f"{title}\n{text}" if title else text
    return Document(id=document_id, page_content=content, metadata={"title": title})


def _pooled(
    name: str, questions: Iterable[tuple[str, str, list[tuple[str, str]], set[Any]]]
) -> Dataset:
    """Join contexts into one corpus; gold is given by title or by place in the context."""
    ids: dict[tuple[str, str], str] = {}
    queries: dict[str, str] = {}
    qrels: dict[str, frozenset[str]] = {}
    for query_id, text, contexts, gold in questions:
        queries[query_id] = text
        relevant = set()
        for place, (title, content) in enumerate(contexts):
            document_id = ids.setdefault((title, content), f"p{len(ids)}")
            if title in gold or place in gold:
                relevant.add(document_id)
        qrels[query_id] = frozenset(relevant)
    documents = [passage(document_id, *key) for key, document_id in ids.items()]
    return Dataset(name, tuple(documents), queries, qrels)


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def _jsonl(path: Path) -> Iterator[dict[str, Any]]:
    with _open(path if path.suffix in (".jsonl", ".gz") else path.with_suffix(".jsonl")) as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def _open(path: Path) -> Any:
    """A text stream of the file, or of the same file with ``.gz`` behind its name."""
    zipped = path if path.suffix == ".gz" else path.with_name(path.name + ".gz")
    if path.suffix != ".gz" and path.exists():
        return path.open(encoding="utf-8", newline="")
    if zipped.exists():
        return gzip.open(zipped, "rt", encoding="utf-8", newline="")
    msg = f"{path} does not exist: give the folder or file of the data set, plain or .gz"
    raise InvalidInputError(msg)
