"""The demo: real passages, asked with plain Chroma and with CrabPath, and judged by people."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from langchain_core.documents import Document

from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.parts.explain import Explanation

_K = 5
_MEASURED = "before-learning"  # namespace of the demo in which nobody teaches
_PEOPLE, _BAD_GIVER = ("ann", "ben", "cleo"), "mallory"
_EVERY, _CORRECTED = 10, 12  # each tenth verdict is wrong; number of the corrected answer


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
    """Index the sample and answer its questions both ways."""
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
            # Elsewhere than what people teach below, so that a second run measures the same.
            answer = memory.retrieve(text, k=_K, vector=vector, namespace=_MEASURED)
            walked = [item.node.id for item in answer.documents]
            full["plain"] += gold <= set(plain)
            full["crabpath"] += gold <= set(walked)
            place = max(map(walked.index, gold)) if gold <= set(walked) else _K
            if place < lowest and not gold <= set(plain):
                lowest = place
                route = memory.explain(answer.turn.id)
                named = ([titles[i] for i in found] for found in (sorted(gold), plain, walked))
                example = (text, *named)
        if not memory.learning.feedback(namespace=DEFAULT_NAMESPACE, limit=1):
            say("Four people say which answers were right …")
            _teach_demo(memory, data)
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


def _teach_demo(memory: CrabPath, data: Sample) -> None:
    """Let three people judge each question, and the first third again; a fourth judges wrongly.

    They judge by the gold passages; one answer is corrected, too. The memory then has something
    to show in each view of its page.
    """
    asked = list(data.queries.items())
    for number, (query_id, text) in enumerate([*asked, *asked[: len(asked) // 3]]):
        gold, answer = data.qrels[query_id], memory.retrieve(text, k=_K)
        found = [item.node.id for item in answer.documents]
        right, wrong = (
            [name for name in found if (name in gold) == is_gold] for is_gold in (True, False)
        )
        said: dict[str, Any] = {"used": right, "user": _PEOPLE[number % len(_PEOPLE)]}
        outcome = 1.0 if right else -1.0
        if number % _EVERY == _EVERY - 1 and wrong:
            outcome, said = 1.0, {"used": wrong[:1], "unused": right, "user": _BAD_GIVER}
        elif number == _CORRECTED and right:
            titles = (item.node.title for item in answer.documents if item.node.id in gold)
            words = f"Read {' and '.join(titles)}: nothing else is needed here."
            outcome, said = -1.0, {"irrelevant": wrong[:1], "correction": words, "user": "ben"}
        elif number % len(_PEOPLE) == 0 or number >= len(asked):
            said["relevant"] = sorted(gold)
        memory.record(answer.turn.id, outcome, **said)
