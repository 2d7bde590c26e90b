"""Answers and learned weights on the demo's passages, compared with a committed record.

The 60 questions of the HotpotQA sample are asked with all-MiniLM-L6-v2, feedback of six kinds is
given, and they are asked again. A change that is meant to alter answers renews the record with
``python tests/golden/test_golden_record.py`` and says so in its commit.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import sqlalchemy as sa

from crabpath_lab import load_sample
from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.storage import schema
from crabpath_retrievers.vectors import embedder

RECORD = Path(__file__).with_name("record.json")
K = 5
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # minutes of computation on a busy machine
]
TOLERANCE = 1e-4


def observe(folder: Path) -> dict[str, Any]:
    """What a new memory in ``folder`` answers and learns; plain data for JSON."""
    data = load_sample()
    with CrabPath.open(folder) as memory:
        memory.add_documents(data.documents, split=False, progress=None)
        texts = {str(document.id): document.page_content for document in data.documents}
        turns = [memory.retrieve(text, k=K).turn for text in data.queries.values()]
        cold = [_describe(turn) for turn in turns]
        for number, (query, turn) in enumerate(zip(data.queries, turns, strict=True)):
            shown = [document.node for document in turn.returned]
            relevant = set(data.qrels[query])
            fields = _feedback(number, shown, relevant, texts)
            receipt = memory.record(Feedback(turn.id, feedback_id=f"golden-{number}", **fields))
            assert receipt.status == "applied", receipt
        learned = [_describe(memory.retrieve(text, k=K).turn) for text in data.queries.values()]
    return {"cold": cold, "learned": learned, "weights": _weights(folder)}


def _feedback(
    number: int, shown: list[str], relevant: set[str], texts: dict[str, str]
) -> dict[str, Any]:
    """Six kinds of feedback in turn, from labels of every document to a mere outcome."""
    used = [document for document in shown if document in relevant]
    unused = [document for document in shown if document not in relevant]
    outcome = 1.0 if relevant <= set(shown) else -0.5
    kinds: list[dict[str, Any]] = [
        {"outcome": outcome, "used": used},
        {"outcome": outcome},
        {"outcome": outcome, "used": used, "unused": unused[:2]},
        {"outcome": outcome, "answer": " ".join(texts[document] for document in used)},
        {"outcome": -1.0, "used": shown[:1], "correction": f"The right answer is {number}."},
        {"outcome": outcome, "used": used, "source": "self", "user": f"user {number % 3}"},
    ]
    return kinds[number % len(kinds)]


def _describe(turn: Any) -> list[dict[str, Any]]:
    return [
        {
            "id": document.node,
            "score": round(document.probability, 6),
            "path": [[edge.source, edge.target, edge.kind] for edge in document.path],
        }
        for document in turn.returned
    ]


def _weights(folder: Path) -> list[list[Any]]:
    """``[source, target, kind, weight]`` of every edge whose weight was learned."""
    source, target, learned = schema.nodes.alias(), schema.nodes.alias(), schema.overlay.c
    query = (
        sa.select(source.c.id, target.c.id, learned.kind, learned.weight)
        .outerjoin(source, source.c.key == learned.source)
        .outerjoin(target, target.c.key == learned.target)
        .select_from(schema.overlay)
    )
    engine = sa.create_engine(f"sqlite:///{folder / 'graph.sqlite'}")
    with engine.connect() as connection:
        rows = [[a, b, kind, round(weight, 6)] for a, b, kind, weight in connection.execute(query)]
    engine.dispose()
    return sorted(rows, key=repr)


def _without_numbers(observed: dict[str, Any]) -> dict[str, Any]:
    answers = {
        phase: [[(d["id"], d["path"]) for d in answer] for answer in observed[phase]]
        for phase in ("cold", "learned")
    }
    return {**answers, "weights": [row[:3] for row in observed["weights"]]}


def _numbers(observed: dict[str, Any]) -> list[float]:
    scores = [d["score"] for phase in ("cold", "learned") for a in observed[phase] for d in a]
    return [*scores, *(row[3] for row in observed["weights"])]


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What this checkout answers and learns, as it is read from JSON."""
    import minilm  # only pytest knows where it is; this file is also a program

    with pytest.MonkeyPatch.context() as patch:
        # Vectors that other tests had computed in other batches differ in their last digits.
        patch.setattr(embedder, "load_default_embeddings", minilm.load)
        found: dict[str, Any] = json.loads(json.dumps(observe(tmp_path_factory.mktemp("golden"))))
    return found


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """The committed record."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def test_ids_and_paths_are_those_of_the_record(observed, recorded):
    """The same documents by the same paths in the same order, and the same learned edges."""
    assert _without_numbers(observed) == _without_numbers(recorded)


def test_scores_and_weights_are_those_of_the_record(observed, recorded):
    """Scores and learned weights differ by less than 1e-4."""
    assert _numbers(observed) == pytest.approx(_numbers(recorded), abs=TOLERANCE)


def test_the_record_shows_learning(recorded):
    """The record can tell a difference: weights were learned and answers changed."""
    assert len(recorded["weights"]) > 30
    assert recorded["cold"] != recorded["learned"]


if __name__ == "__main__":
    with TemporaryDirectory() as base:
        text = json.dumps(observe(Path(base)), indent=None, separators=(",", ":"))
    RECORD.write_text(text.replace("],[", "],\n[") + "\n", encoding="utf-8")
    sys.stdout.write(f"written: {RECORD.name}\n")
