"""MultiHop-RAG's own chunk-level measures, for comparison with its published table.

Source: the retrieval evaluator of the data set (Tang & Yang 2024, §4.1). They differ from the
field's: any one gold fact is a hit, and "MAP" counts facts found at a rank, not those up to it.
"""

from collections.abc import Mapping, Sequence

from crabpath_lab.scoring.measures import DEPTH, PerQuery

_HITS = (4, 10)


def score_chunks(facts: Mapping[str, Sequence[str]], run: Mapping[str, Sequence[str]]) -> PerQuery:
    """Compute hits@4, hits@10, map@10 and mrr@10 per query, in the order of ``facts``.

    ``facts`` has at least one gold sentence per query, ``run`` the texts of its chunks, best first.
    """
    rows = [_score_query(gold, run.get(query, ())) for query, gold in facts.items()]
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _score_query(facts: Sequence[str], texts: Sequence[str]) -> dict[str, float]:
    """Compute the measures of one query.

    ``map@10 = Σ_r new(r) / r / min(|facts|, 10)`` with ``new(r)`` the facts that stand in the
    chunk at rank r and in none before.
    """
    gold = [_strip_whitespace(fact) for fact in facts]
    ranks: list[int] = []
    seen: set[str] = set()
    precision = 0.0
    for rank, text in enumerate(map(_strip_whitespace, texts[:DEPTH]), start=1):
        inside = {fact for fact in gold if fact in text}
        if inside:
            ranks.append(rank)
        precision += len(inside - seen) / rank
        seen |= inside
    first = min(ranks, default=0)
    return {f"hits@{k}": float(0 < first <= k) for k in _HITS} | {
        f"map@{DEPTH}": precision / min(len(gold), DEPTH),
        f"mrr@{DEPTH}": 1 / first if first else 0.0,
    }


def _strip_whitespace(text: str) -> str:
    """Remove spaces and line breaks from a text: chunking moves them."""
    return text.replace(" ", "").replace("\n", "")
