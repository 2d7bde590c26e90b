"""``python -m benchmarks replica``: queries that read a standby, and how far it is behind."""

import time
from collections.abc import Iterator

import numpy as np
from langchain_core.documents import Document

from benchmarks.scale import make_documents
from benchmarks.soak.stores import Hashed
from benchmarks.speed.timing import K, bootstrap_median, time_pairs
from benchmarks.standby import serve_pair
from crabpath_retrievers import CrabPath

_EMBEDDINGS = Hashed(384)
_PATIENCE = 10.0  # seconds until an added document must be found


def measure_replica(
    *, documents: int = 3000, questions: int = 200, additions: int = 30
) -> Iterator[str]:
    """The lines of the report.

    Args:
        documents: Number of synthetic documents.
        questions: Number of questions, each asked on both in turns.
        additions: Documents that another process adds, one after the other.
    """
    with serve_pair() as (url, standby):
        replica = standby.url_of(url)
        with (
            CrabPath.open(url, vectors="pgvector", embeddings=_EMBEDDINGS) as primary,
            CrabPath.open(url, embeddings=_EMBEDDINGS) as other,
        ):
            primary.add_documents(make_documents(documents), split=False, progress=None)
            with CrabPath.open(url, embeddings=_EMBEDDINGS, replica=replica) as reader:
                _wait_until_fresh(reader)
                texts = [
                    f"Which passage on topic{n % 97} mentions Chapter {n * 13 % documents}?"
                    for n in range(questions)
                ]
                pairs = time_pairs(
                    lambda text: reader.retrieve(text, k=K, record=False),
                    lambda text: primary.retrieve(text, k=K, record=False),
                    texts,
                    before=lambda: None,
                )
                ratio, low, high = bootstrap_median([own / plain for own, plain in pairs])
                waits = [_time_addition(other, reader, number) for number in range(additions)]
                state = reader.ready().reason
    late, latest = np.percentile(waits, (50, 95))
    yield "| read replica, on the machine of the primary | measured |"
    yield "|---|---|"
    asked = f"{ratio:.2f} ({low:.2f} to {high:.2f})"
    yield f"| a query that reads it / one that reads the primary | {asked} |"
    waited = f"{late:.0f} ms ({latest:.0f})"
    yield f"| a document of another process is found after, p50 (p95) | {waited} |"
    yield f"| at the end | {state} |"


def _wait_until_fresh(reader: CrabPath) -> None:
    """Wait until queries read the standby."""
    while (state := reader.store.replica) is None or state.problem is not None:
        time.sleep(0.05)


def _time_addition(writer: CrabPath, reader: CrabPath, number: int) -> float:
    """Milliseconds until the reader finds a document that another memory has added."""
    name, text = f"new {number}", f"Quixotic zebra number {number} crosses the road."
    writer.add_documents([Document(text, id=name)], split=False, progress=None)
    begun = time.perf_counter()
    while time.perf_counter() - begun < _PATIENCE:
        found = reader.retrieve(text, k=1, record=False).documents
        if found and found[0].node.id == name:
            return (time.perf_counter() - begun) * 1000
    return float("inf")
