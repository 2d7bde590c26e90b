"""What the words of a whole document are worth beside those of its best chunk.

No training file has long documents. So passages that are near each other are joined, without a
look at any label, and are asked for one by one as articles would be (``one_per_document``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_lab.datasets import Dataset
from crabpath_lab.scoring.measures import score_rankings
from crabpath_retrievers import CrabPath
from crabpath_retrievers.rerank import (
    FEATURES,
    Evidence,
    Ranker,
    compute_features,
    select_best_chunks,
)

PASSAGES = 8  # of one document: about 4,000 characters, four chunks
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8)
_DEPTH = 10
_KS = (5, 10)
_DOCUMENT = FEATURES.index("document")


@dataclass(frozen=True, slots=True)
class ChunkQuery:
    """The candidate chunks of one question, the document of each, and the relevant documents."""

    query: str
    evidence: Evidence
    documents: Sequence[str]
    gold: frozenset[str]


def join_passages(dataset: Dataset, embeddings: Embeddings, seed: int = 0) -> Dataset:
    """The same questions over documents of several passages each.

    A passage that is drawn takes those free ones along that are nearest to it.

    Args:
        dataset: Passages with judged questions.
        embeddings: Says which passages are near each other.
        seed: Of the order in which passages are drawn.
    """
    groups = _group_neighbours(embeddings, [d.page_content for d in dataset.documents], seed)
    home = {
        str(dataset.documents[place].id): f"document-{number}"
        for number, places in enumerate(groups)
        for place in places
    }
    documents = tuple(
        Document(
            id=f"document-{number}",
            page_content="\n\n".join(dataset.documents[place].page_content for place in places),
        )
        for number, places in enumerate(groups)
    )
    qrels = {
        query: frozenset(home.get(passage, passage) for passage in gold)
        for query, gold in dataset.qrels.items()
    }
    return Dataset(dataset.name, documents, dataset.queries, qrels, split=True)


def _group_neighbours(embeddings: Embeddings, texts: list[str], seed: int) -> list[list[int]]:
    vectors = np.array(embeddings.embed_documents(texts), dtype=np.float32)
    free = np.ones(len(texts), dtype=bool)
    groups = []
    for place in np.random.default_rng(seed).permutation(len(texts)).tolist():
        if free[place]:
            cosines = np.where(free, vectors @ vectors[place], -np.inf)
            cosines[place] = np.inf
            nearest = np.argsort(-cosines, kind="stable")[:PASSAGES]
            groups.append([int(near) for near in nearest if free[near]])
            free[groups[-1]] = False
    return groups


def collect_chunks(dataset: Dataset, embeddings: Embeddings) -> list[ChunkQuery]:
    """Candidates of every question, as retrieval itself finds them."""
    found = []
    with CrabPath.open(embeddings=embeddings) as memory:
        memory.add_documents(dataset.documents)
        for query, text in dataset.queries.items():
            evidence = memory.learning.evidence(text, k=_DEPTH, one_per_document=True)
            nodes = [hit.head.id for hit in evidence.pool]
            home = {node.id: node.document for node in memory.store.catalog.find_chunks(ids=nodes)}
            documents = [home[node] for node in nodes]
            found.append(ChunkQuery(query, evidence, documents, dataset.qrels[query]))
    return found


def choose_document_weight(ranker: Ranker, parts: Sequence[Sequence[ChunkQuery]]) -> dict[str, Any]:
    """The weight with the best mean of recall@5 and recall@10, every data set counting the same.

    Returns:
        ``{"weight": …, "recall": {weight: [{"recall@5": …, "recall@10": …} per data set]}}``.
    """
    recalls = {
        weight: [_mean_recalls(_with_weight(ranker, weight), part) for part in parts]
        for weight in WEIGHTS
    }
    best = max(WEIGHTS, key=lambda w: np.mean([list(found.values()) for found in recalls[w]]))
    return {"weight": best, "recall": {str(weight): found for weight, found in recalls.items()}}


def _with_weight(ranker: Ranker, weight: float) -> Ranker:
    weights = ranker.weights.copy()
    weights[_DOCUMENT] = weight
    return ranker.with_weights(weights)


def _mean_recalls(ranker: Ranker, part: Sequence[ChunkQuery]) -> dict[str, float]:
    qrels = {item.query: item.gold for item in part}
    run = {item.query: _rank_documents(ranker, item) for item in part}
    scores = score_rankings(qrels, run, _KS)
    return {f"recall@{k}": round(float(np.mean(scores[f"recall@{k}"])), 4) for k in _KS}


def _rank_documents(ranker: Ranker, item: ChunkQuery) -> list[str]:
    matrix = compute_features(item.evidence, ranker.sources)
    order = np.argsort(-ranker.log_odds(matrix), kind="stable").tolist()
    among = select_best_chunks(item.documents, order, item.evidence, matrix)
    chosen = ranker.order(matrix, item.evidence, _DEPTH, among)
    return [item.documents[place] for place in chosen]
