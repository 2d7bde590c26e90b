"""What learning gained, on the feedback of the memory's own users."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timezone
from typing import Literal, NamedTuple, get_args

import numpy as np

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.text import Floats, format_value
from crabpath_retrievers.core.turn import Turn
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.turns import JudgedTurn

LiftGrouping = Literal["namespace", "source", "week"]
"""What lift is grouped by: namespace, source of the feedback, ISO week of the turn in UTC."""

_FEWEST = 20  # turns; an interval of fewer would claim too much
_RESAMPLES = 2000


class Lift(NamedTuple):
    """What learning gained in a group of judged turns after the first lesson.

    Where feedback names ``relevant`` documents, scores are nDCG in [0, 1]; where both rankings
    ``drafted`` the answer, shares of the used documents that each of them drafted alone.

    Attributes:
        group: Namespace, source of the feedback, or week.
        labels: ``relevant`` or ``drafted``.
        turns: Number of turns.
        wins, losses: Of them, those that learning ranked better, and worse, than without it.
        frozen: Mean score of what the ranking before any lesson returned or would have.
        learned: Mean score of what the ranking by what was learned returned or would have.
        lift: ``learned - frozen``.
        low, high: Its 95 % interval; None with fewer than 20 turns.
        has_lost: Whether feedback shows a loss, for which the ranking before any lesson answers
            the namespace unless ``settings.learning.gate`` is off; None for other groups.
    """

    group: str
    labels: str
    turns: int
    wins: int
    losses: int
    frozen: float
    learned: float
    lift: float
    low: float | None
    high: float | None
    has_lost: bool | None = None


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
    lists = ((*one.relevant, *one.used, *one.learned, *one.frozen) for one in judged)
    known = _find_documents(store, [name for ids in lists for name in ids])
    named: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    turns: dict[tuple[str, str, str], JudgedTurn] = {}
    for turn in judged:
        key = (_name_group(turn, by), "relevant" if turn.relevant else "drafted", turn.id)
        turns[key] = turn
        named[key].update(*(known.get(name, ()) for name in turn.relevant or turn.used))
    scores: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for key, right in named.items():
        group, labels, _ = key
        if right:
            turn = turns[key]
            rankings = turn.learned, turn.frozen
            pair = (
                _score_rankings(rankings, known, right)
                if labels == "relevant"
                else _count_drafted(turn.teams, known, right)
            )
            scores[group, labels].append(pair)
    rows = [_summarize(*key, np.array(pairs)) for key, pairs in sorted(scores.items())]
    if by != "namespace":
        return rows
    models = [store.learned.get_state(row.group).model for row in rows]
    lost = [NamespaceModel.read_trust(model).has_lost for model in models]
    return [row._replace(has_lost=one) for row, one in zip(rows, lost, strict=True)]


def compare_rankings(
    store: GraphStore, turns: Iterable[tuple[Turn, Credit]]
) -> Iterator[tuple[float, bool]]:
    """Yield what learning gained on turns, and whether their labels do not depend on showing.

    Use of what one ranking showed favours that one: it counts as such where what was learned
    answered, and not at all where the ranking before any lesson did.

    Args:
        store: The store with the documents.
        turns: Turns with their credit.

    Yields:
        Differences in [-1, 1], times the weight of the feedback: of nDCG, or of the shares of used
        documents that each ranking drafted.
    """
    for turn, credit in turns:
        used = frozenset(credit.used).difference(credit.inferred, credit.added)
        shown = [item.node for item in turn.returned if item.node not in credit.added]
        rankings = shown if turn.learned is None else turn.learned, turn.frozen or ()
        right = credit.relevant or used
        is_compared = credit.relevant or turn.learned is None or turn.teams
        if turn.frozen is None or not (right and is_compared) or (*rankings[0],) == turn.frozen:
            continue
        known = _find_documents(store, [*rankings[0], *rankings[1], *right])
        wanted = {document for node in right for document in known.get(node, ())}
        if not wanted:
            continue
        if turn.teams and not credit.relevant:
            learned, frozen = _count_drafted(turn.teams, known, wanted)
        else:
            learned, frozen = _score_rankings(rankings, known, wanted)
        yield credit.weight * (learned - frozen), bool(credit.relevant or turn.teams)


def _count_drafted(
    teams: Mapping[str, str], known: Mapping[str, AbstractSet[str]], used: AbstractSet[str]
) -> tuple[float, float]:
    """Shares of the used documents that what was learned, and the other ranking, drafted."""
    drafted = {document: team for node, team in teams.items() for document in known.get(node, ())}
    found = [drafted.get(document) for document in used]
    count = max(1, len(found))
    return found.count("learned") / count, found.count("frozen") / count


def _score_rankings(
    rankings: Sequence[Sequence[str]],
    known: Mapping[str, AbstractSet[str]],
    relevant: AbstractSet[str],
) -> tuple[float, float]:
    """NDCG of both rankings, at the length of the longer one."""
    k = max(map(len, rankings))
    first, second = (_compute_ndcg(ids, known, relevant, k) for ids in rankings)
    return first, second


def _name_group(turn: JudgedTurn, by: LiftGrouping) -> str:
    if by == "week":
        return datetime.fromtimestamp(turn.created, timezone.utc).strftime("%G-W%V")
    return turn.source if by == "source" else turn.namespace


def _find_documents(store: GraphStore, names: Sequence[str]) -> dict[str, set[str]]:
    """Ids of documents by the ids of their chunks, by their own, and by their sources."""
    wanted = sorted({*names})
    found: dict[str, set[str]] = defaultdict(set)
    for chunk in store.catalog.find_chunks(ids=wanted, documents=wanted, sources=wanted):
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


def _summarize(group: str, labels: str, scores: Floats) -> Lift:
    """The figures of one group; ``scores`` has those learned and frozen, shape ``[n, 2]``."""
    differences = scores[:, 0] - scores[:, 1]
    count = len(differences)
    low = high = None
    if count >= _FEWEST:  # percentile bootstrap (Efron & Tibshirani 1993)
        rng = np.random.default_rng(0)
        means = [differences[rng.integers(count, size=count)].mean() for _ in range(_RESAMPLES)]
        low, high = (round(float(end), 4) for end in np.percentile(means, [2.5, 97.5]))
    learned, frozen = (round(float(mean), 4) for mean in scores.mean(axis=0))
    return Lift(
        group,
        labels,
        count,
        int((differences > 0).sum()),
        int((differences < 0).sum()),
        frozen,
        learned,
        round(float(differences.mean()), 4),
        low,
        high,
    )
