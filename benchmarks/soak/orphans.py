"""A graph that is older than its vectors, as after a backup of it alone: no answer is empty."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_core.documents import Document

from benchmarks.soak.figures import Budget, Row
from benchmarks.soak.stores import Words
from crabpath_retrievers import CrabPath
from crabpath_retrievers.parts.operation.maintenance.doctor import examine

_TOPICS, _PARTS, _KEPT = 40, 5, 50


def check_orphans(budget: Budget, seed: int) -> Row:
    """Questions about what only the vectors still know, before and after ``reindex``."""
    row = Row("orphaned vectors: graph older than vectors")
    with TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as base:
        place = Path(base, "memory")
        kept = [Document(f"Unrelated text {n}", id=f"u{n}") for n in range(_KEPT)]
        gone = [
            Document(f"The topic{t} runbook says press button b{t} of part{p}", id=f"{t}-{p}")
            for t in range(_TOPICS)
            for p in range(_PARTS)
        ]
        with CrabPath.open(place, embeddings=Words()) as memory:
            memory.add_documents(kept, progress=None)
        shutil.copy(place / "graph.sqlite", Path(base, "backup"))
        with CrabPath.open(place, embeddings=Words()) as memory:
            memory.add_documents(gone, progress=None)
        for file in place.glob("graph.sqlite*"):
            file.unlink()
        shutil.copy(Path(base, "backup"), place / "graph.sqlite")
        with CrabPath.open(place, embeddings=Words()) as memory:
            for run in budget:
                if budget.runs is None and run >= _TOPICS * 2:
                    break
                row.runs += 1
                question = f"which button of topic{run % _TOPICS} part{run % _PARTS}?"
                found = len(memory.retrieve(question, k=4).documents)
                if found != 4:
                    row.blame("other", f"{found} documents instead of 4")
            memory.maintenance.reindex()
            if (vectors := memory.index.count()) != _KEPT:
                row.blame("other", f"{vectors} vectors of {_KEPT} documents after reindex")
        for one in examine(place, embeddings=Words()).findings:
            if one.severity != "info":
                row.blame("other", f"doctor after reindex: {one.message}")
    return row
