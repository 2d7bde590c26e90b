"""``crabpath demo``: real passages, a real embedder, plain Chroma and CrabPath side by side."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from langchain_core.documents import Document

from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.retrieval.explain import Explanation

_K = 5


class Sample(NamedTuple):
    """Sixty HotpotQA questions over six hundred paragraphs (CC BY-SA 4.0).

    Attributes:
        documents: Paragraphs; each text is title, newline, paragraph.
        queries: Text by query id.
        qrels: Ids of the relevant documents by query id.
    """

    documents: Sequence[Document]
    queries: Mapping[str, str]
    qrels: Mapping[str, set[str]]


def find_sample() -> Path:
    """The folder of the sample, in BEIR format: of the package, or of a checkout."""
    package = Path(str(files("crabpath_retrievers")))
    packaged = package / "demo_data"
    return packaged if packaged.exists() else package.parent / "examples" / "hotpotqa_sample"


def read_sample() -> Sample:
    """Read the sample that ships with the package."""
    folder = find_sample()
    documents = [
        Document(f"{row['title']}\n{row['text']}", id=row["_id"], metadata={"title": row["title"]})
        for row in _read_rows(folder / "corpus.jsonl")
    ]
    queries = {row["_id"]: row["text"] for row in _read_rows(folder / "queries.jsonl")}
    qrels: dict[str, set[str]] = {query: set() for query in queries}
    for line in (folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, _score = line.split("\t")
        qrels[query].add(document)
    return Sample(documents, queries, qrels)


def _read_rows(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Figures of the demo.

    Attributes:
        passages, questions: Size of the sample.
        plain, crabpath: Share of questions whose gold passages all stand in the first five.
        seconds: Time for indexing.
        example: A question that only the walk answers in full, with the titles both returned.
        route: Why its documents came.
    """

    passages: int
    questions: int
    plain: float
    crabpath: float
    seconds: float
    example: tuple[str, list[str], list[str], list[str]] | None
    route: Explanation | None

    def to_dict(self) -> dict[str, Any]:
        """The result for programs."""
        return {
            "passages": self.passages,
            "questions": self.questions,
            "full@5": {"plain_chroma": self.plain, "crabpath": self.crabpath},
            "indexing_seconds": self.seconds,
            "route": self.route.to_dict() if self.route else None,
        }


def run_demo(store: str, say: Callable[[str], None]) -> DemoResult:
    """Index the sample and answer its questions both ways.

    Args:
        store: Directory of the memory, which stays there; it may exist already.
        say: Receives one line per stage.
    """
    data = read_sample()
    titles = {str(d.id): str(d.metadata["title"]) for d in data.documents}
    say(f"Indexing {len(data.documents)} Wikipedia paragraphs (embedder: all-MiniLM-L6-v2) …")
    begun = time.perf_counter()
    with CrabPath.open(store) as memory:
        memory.add_documents(data.documents, split=False)
        seconds = time.perf_counter() - begun
        say(f"Asking {len(data.queries)} questions that need two paragraphs each …")
        full = {"plain": 0, "crabpath": 0}
        example = route = None
        lowest = _K  # place of the last gold passage of the example
        for query_id, text in data.queries.items():
            gold = data.qrels[query_id]
            vector = memory.embedder.query(text)
            plain = memory.index.search(np.asarray(vector), _K)
            answer = memory.retrieve(text, k=_K, vector=vector)
            walked = [item.node.id for item in answer.documents]
            full["plain"] += gold <= set(plain)
            full["crabpath"] += gold <= set(walked)
            place = max(map(walked.index, gold)) if gold <= set(walked) else _K
            if place < lowest and not gold <= set(plain):
                lowest = place
                route = memory.explain(answer.turn.id)
                named = ([titles[i] for i in found] for found in (sorted(gold), plain, walked))
                example = (text, *named)
    n = len(data.queries)
    return DemoResult(
        len(data.documents),
        n,
        full["plain"] / n,
        full["crabpath"] / n,
        round(seconds, 1),
        example,  # type: ignore[arg-type]
        route,
    )
