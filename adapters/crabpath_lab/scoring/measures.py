"""Scores per query of ranked documents, by ir-measures."""

from collections.abc import Mapping, Sequence

import ir_measures
from ir_measures import RR, Measure, R, nDCG

DEPTH = 10  # cut-off of the reciprocal rank and of nDCG
_WHOLE = 1.0 - 1e-9

Qrels = Mapping[str, frozenset[str]]
"""Relevant documents by query, at least one each, all equally relevant."""

PerQuery = dict[str, list[float]]
"""Scores in [0, 1] by name of the measure, one per query, in the order of the qrels."""


def score_rankings(qrels: Qrels, run: Mapping[str, Sequence[str]], ks: Sequence[int]) -> PerQuery:
    """Compute recall@K, full@K (all gold among the first K), mrr@10 and ndcg@10 per query.

    ``run`` has documents by query, best first, each once; a query without any scores 0.
    """
    found = _score_queries(
        {f"recall@{k}": R @ k for k in ks}
        | {f"mrr@{DEPTH}": RR @ DEPTH, f"ndcg@{DEPTH}": nDCG @ DEPTH},
        qrels,
        run,
    )
    return found | {f"full@{k}": _full_evidence(found[f"recall@{k}"]) for k in ks}


def _score_queries(
    measures: Mapping[str, Measure], qrels: Qrels, run: Mapping[str, Sequence[str]]
) -> PerQuery:
    """Compute scores of ir-measures by name, as :func:`score_rankings`."""
    judged = {query: dict.fromkeys(relevant, 1) for query, relevant in qrels.items()}
    ranked = {
        query: {document: float(-place) for place, document in enumerate(run.get(query, ()))}
        for query in qrels
    }
    values = {
        (score.measure, score.query_id): float(score.value)
        for score in ir_measures.iter_calc(list(measures.values()), judged, ranked)
    }
    return {
        name: [values.get((measure, query), 0.0) for query in qrels]
        for name, measure in measures.items()
    }


def _full_evidence(recall: Sequence[float]) -> list[float]:
    """Return 1 where all gold was found, else 0."""
    return [float(value > _WHOLE) for value in recall]
