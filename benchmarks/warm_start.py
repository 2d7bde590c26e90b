"""Warm start: a log with what was right is replayed, then new questions are asked."""

import json
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.embeddings import Embeddings

from crabpath_lab.datasets import load_beir
from crabpath_lab.scoring.measures import score_rankings
from crabpath_lab.statistics import bootstrap_interval
from crabpath_retrievers import CrabPath

_KS, _SHOWN = (3, 5), ("full@3", "full@5", "recall@5")


def measure_warm_start(
    folder: Path, embeddings: Embeddings | None, *, taught: int | None, asked: int | None
) -> dict[str, Any]:
    """Replay training questions with their relevant documents, then ask the test questions.

    Args:
        folder: BEIR folder with ``qrels/train.tsv`` beside ``qrels/test.tsv``.
        embeddings: The embedder; None for the default one, whose time is then counted.
        taught: Most training questions; the first ones. None for all.
        asked: Most test questions, which get no feedback.

    Returns:
        Numbers of questions, the replay's counts, seconds and seconds of CPU, and each measure as
        its mean with a 95 % bootstrap interval.
    """
    log, test = load_beir(folder, part="train"), load_beir(folder)
    qrels = dict(islice(test.qrels.items(), asked))
    with TemporaryDirectory() as scratch, CrabPath.open(scratch, embeddings=embeddings) as memory:
        memory.add_documents(log.documents, split=False)
        sessions = Path(scratch) / "sessions.jsonl"
        with sessions.open("w", encoding="utf-8") as file:
            for query, text in islice(log.queries.items(), taught):
                row = {"query": text, "relevant": sorted(log.qrels[query])}
                file.write(f"{json.dumps(row)}\n")
        begun, worked = time.perf_counter(), time.process_time()
        done = memory.learning.replay(sessions)
        replayed, worked = time.perf_counter() - begun, time.process_time() - worked
        begun = time.perf_counter()
        found = {
            query: [
                item.node.document
                for item in memory.retrieve(test.queries[query], k=max(_KS), record=False).documents
            ]
            for query in qrels
        }
        answered = time.perf_counter() - begun
    scores = score_rankings(qrels, found, _KS)
    return {
        "learned": done.learned,
        "refused": len(done.refused),
        "replay_s": round(replayed, 1),
        "replay_cpu_s": round(worked, 1),
        "asked": len(qrels),
        "ms_per_question": round(1000 * answered / len(qrels), 1),
    } | {
        name: {
            "mean": round(sum(scores[name]) / len(qrels), 4),
            "ci95": bootstrap_interval(scores[name]),
        }
        for name in _SHOWN
    }
