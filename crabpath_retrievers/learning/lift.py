"""What learning gained, on the feedback of the memory's own users."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timezone
from typing import Literal, NamedTuple, get_args

import numpy as np

from crabpath_retrievers.core.text import Floats, format_value
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.turns import JudgedTurn

LiftGrouping = Literal["namespace", "source", "week"]
"""What lift is grouped by: namespace, source of the feedback, ISO week of the turn in UTC."""

_FEWEST = 20  # turns; an interval of fewer would claim too much
_RESAMPLES = 2000


class Lift(NamedTuple):
    """What learning gained in a group of judged turns, as nDCG in [0, 1].

    Attributes:
        group: Namespace, source of the feedback, or week.
        turns: Turns after the first lesson whose feedback names relevant documents.
        wins, losses: Of them, those that learning ranked better, and worse, than without it.
        frozen: Mean nDCG of what would have been returned before any lesson.
        learned: Mean nDCG of what was returned.
        lift: ``learned - frozen``.
        low, high: Its 95 % interval; None with fewer than 20 turns.
    """

    group: str
    turns: int
    wins: int
    losses: int
    frozen: float
    learned: float
    lift: float
    low: float | None
    high: float | None


def measure_lift(store: GraphStore, namespace: str | None, by: LiftGrouping) -> list[Lift]:
    """Compare what was returned with what would have been before any lesson, by group.

    Documents are compared, not their chunks; notes, and documents that are gone, do not count.

    Args:
        store: The store with turns and feedback.
        namespace: Name of a namespace; None for all.
        by: What the groups are.

    Raises:
        InvalidInputError: There is no such grouping.
    """
    if not isinstance(by, str) or by not in get_args(LiftGrouping):
        msg = f"by must be one of {', '.join(get_args(LiftGrouping))}, not {format_value(by)}"
        raise InvalidInputError(msg)
    judged = store.turns.find_judged(namespace)
    known = _find_documents(store, judged)
    relevant: dict[tuple[str, str], set[str]] = defaultdict(set)
    turns: dict[tuple[str, str], JudgedTurn] = {}
    for turn in judged:
        key = (_name_group(turn, by), turn.id)
        turns[key] = turn
        relevant[key].update(*(known.get(name, ()) for name in turn.relevant))
    scores: dict[str, list[list[float]]] = defaultdict(list)
    for key, right in relevant.items():
        if right:
            lists = (turns[key].frozen, turns[key].returned)
            k = max(map(len, lists))
            scores[key[0]].append([_compute_ndcg(ids, known, right, k) for ids in lists])
    return [_summarize(group, np.array(pairs)) for group, pairs in sorted(scores.items())]


def _name_group(turn: JudgedTurn, by: LiftGrouping) -> str:
    if by == "week":
        return datetime.fromtimestamp(turn.created, timezone.utc).strftime("%G-W%V")
    return turn.source if by == "source" else turn.namespace


def _find_documents(store: GraphStore, judged: Sequence[JudgedTurn]) -> dict[str, set[str]]:
    """Ids of documents by the ids of their chunks, by their own, and by their sources."""
    stated = sorted({name for turn in judged for name in turn.relevant})
    ids = {*stated, *(node for turn in judged for node in (*turn.returned, *turn.frozen))}
    found: dict[str, set[str]] = defaultdict(set)
    for chunk in store.catalog.find_chunks(ids=sorted(ids), documents=stated, sources=stated):
        for name in {chunk.id, chunk.document, chunk.source}:
            found[name].add(chunk.document)
    return found


def _compute_ndcg(
    ids: Sequence[str], known: Mapping[str, AbstractSet[str]], relevant: AbstractSet[str], k: int
) -> float:
    """Normalised discounted cumulative gain at k (Järvelin & Kekäläinen 2002), in [0, 1]."""
    ranked = dict.fromkeys(document for node in ids for document in sorted(known.get(node, ())))
    discounts = 1.0 / np.log2(np.arange(max(1, k)) + 2.0)
    gains = discounts[[place for place, name in enumerate([*ranked][:k]) if name in relevant]]
    return float(gains.sum() / discounts[: len(relevant)].sum())


def _summarize(group: str, scores: Floats) -> Lift:
    """The figures of one group; ``scores`` has frozen and learned nDCG, shape ``[n, 2]``."""
    differences = scores[:, 1] - scores[:, 0]
    count = len(differences)
    low = high = None
    if count >= _FEWEST:  # percentile bootstrap (Efron & Tibshirani 1993)
        rng = np.random.default_rng(0)
        means = [differences[rng.integers(count, size=count)].mean() for _ in range(_RESAMPLES)]
        low, high = (round(float(end), 4) for end in np.percentile(means, [2.5, 97.5]))
    frozen, learned = (round(float(mean), 4) for mean in scores.mean(axis=0))
    return Lift(
        group,
        count,
        int((differences > 0).sum()),
        int((differences < 0).sum()),
        frozen,
        learned,
        round(float(differences.mean()), 4),
        low,
        high,
    )
