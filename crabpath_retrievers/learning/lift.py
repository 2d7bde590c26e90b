"""What learning gained, on the feedback of the memory's own users."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timezone
from typing import Literal, NamedTuple, get_args

import numpy as np

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import Turn
from crabpath_retrievers.core.text import Floats, format_value
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel
from crabpath_retrievers.storage import GraphStore, Reader
from crabpath_retrievers.storage.read.turns import JudgedTurn

LiftGrouping = Literal["namespace", "source", "week"]
"""What lift is grouped by: namespace, source of the feedback, ISO week of the turn in UTC."""

_FEWEST = 20  # turns; an interval of fewer would claim too much
_RESAMPLES = 2000


class Lift(NamedTuple):
    """Gain of learning in a group of judged turns after the first lesson.

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


class ShadowLift(NamedTuple):
    """Changes that the memory would have made in a group of judged turns of a shadow.

    The labels depend on what the present retriever showed: a document that only the memory would
    have shown is hardly ever called used, and then counts for nobody. This favours the present
    retriever, as what is ``used`` favours the memory where the memory serves (see :class:`Lift`).

    Attributes:
        group: Namespace, source of the feedback, or week.
        turns: Turns whose feedback names used or relevant documents of either ranking.
        documents: These documents.
        higher, equal, lower: How many of them the memory would have placed before, at, or after
            their place in what was shown.
        missing: How many it would not have shown among as many documents.
        share: ``higher / documents``.
        share_low, share_high: Its 95 % interval; None with fewer than 20 turns.
        gain: Mean reciprocal place by the memory, less that of what was shown; 0 counts as the
            reciprocal place of what is not there.
        low, high: Its 95 % interval; None with fewer than 20 turns.
    """

    group: str
    turns: int
    documents: int
    higher: int
    equal: int
    lower: int
    missing: int
    share: float
    share_low: float | None
    share_high: float | None
    gain: float
    low: float | None
    high: float | None


def measure_lift(store: GraphStore, namespace: str | None, by: LiftGrouping) -> list[Lift]:
    """Compare the returned ranking with the ranking before any lesson, by group of turns.

    Documents are compared, not their chunks; notes, and documents that are gone, do not count.
    ``namespace`` None takes all; ``by`` says how turns are grouped. Groups without judged turns are
    left out.
    """
    _require_grouping(by)
    judged = store.turns.find_judged(namespace)
    known = _find_judged_documents(store, judged)
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
            rankings = turn.first, turn.other
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


def measure_shadow(store: GraphStore, namespace: str | None, by: LiftGrouping) -> list[ShadowLift]:
    """Compare a present retriever's ranking with that of the memory, by group of turns.

    Arguments and errors as for :func:`measure_lift`. Notes of the memory do not count.
    """
    _require_grouping(by)
    judged = store.turns.find_judged(namespace, shadow=True)
    known = _find_judged_documents(store, judged)
    # What the memory does not have keeps its place among what was shown.
    here = known | {name: {name} for turn in judged for name in turn.first if name not in known}
    rows: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    named: dict[tuple[str, str], set[str]] = defaultdict(set)
    turns: dict[tuple[str, str], JudgedTurn] = {}
    for turn in judged:
        key = (_name_group(turn, by), turn.id)
        turns[key] = turn
        named[key].update(*(here.get(name, ()) for name in (*turn.relevant, *turn.used)))
    for key, right in named.items():
        first, other = (_rank_documents(ids, here) for ids in (turns[key].first, turns[key].other))
        row = _compare_places(first, other, right)
        if row[0]:
            rows[key[0]].append(row)
    return [_summarize_places(group, np.array(own)) for group, own in sorted(rows.items())]


def _require_grouping(by: object) -> None:
    if not isinstance(by, str) or by not in get_args(LiftGrouping):
        msg = f"by must be one of {', '.join(get_args(LiftGrouping))}, not {format_value(by)}"
        raise InvalidInputError(msg)


def compare_rankings(
    read: Reader, turns: Iterable[tuple[Turn, Credit]]
) -> Iterator[tuple[float, bool]]:
    """Yield the gain of learning on turns, and whether the label is independent of what was shown.

    A label that a document was used favours the ranking that showed the document: such a label
    counts, as dependent, if the learned ranking answered, and not at all if the other one did.
    Turns that cannot be compared, or whose rankings are equal, are left out.

    Yields:
        Differences in [-1, 1], weighted by the feedback: of nDCG, or of the shares of used
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
        known = _find_documents(read, [*rankings[0], *rankings[1], *right])
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
    """Compute the shares of used documents that the learned and the other ranking drafted.

    ``teams`` has the ranking that drafted each node, ``known`` the ids of documents by name.
    """
    drafted = {document: team for node, team in teams.items() for document in known.get(node, ())}
    found = [drafted.get(document) for document in used]
    count = max(1, len(found))
    return found.count("learned") / count, found.count("frozen") / count


def _score_rankings(
    rankings: Sequence[Sequence[str]],
    known: Mapping[str, AbstractSet[str]],
    relevant: AbstractSet[str],
) -> tuple[float, float]:
    """Compute the nDCG in [0, 1] of two rankings, at the length of the longer one.

    ``known`` has the ids of documents by name; ``relevant`` are the right documents.
    """
    k = max(map(len, rankings))
    first, second = (_compute_ndcg(ids, known, relevant, k) for ids in rankings)
    return first, second


def _name_group(turn: JudgedTurn, by: LiftGrouping) -> str:
    if by == "week":
        return datetime.fromtimestamp(turn.created, timezone.utc).strftime("%G-W%V")
    return turn.source if by == "source" else turn.namespace


def _find_judged_documents(read: Reader, judged: Sequence[JudgedTurn]) -> dict[str, set[str]]:
    lists = ((*one.relevant, *one.used, *one.first, *one.other) for one in judged)
    return _find_documents(read, [name for ids in lists for name in ids])


def _find_documents(read: Reader, names: Sequence[str]) -> dict[str, set[str]]:
    """Map ids of chunks, ids of documents, and sources to ids of documents."""
    wanted = sorted({*names})
    found: dict[str, set[str]] = defaultdict(set)
    for chunk in read.catalog.find_chunks(ids=wanted, documents=wanted, sources=wanted):
        for name in {chunk.id, chunk.document, chunk.source}:
            found[name].add(chunk.document)
    return found


def _rank_documents(ids: Sequence[str], known: Mapping[str, AbstractSet[str]]) -> list[str]:
    """List the documents of chunks, each once, in order; chunks not in ``known`` are left out."""
    ranked = (document for node in ids for document in sorted(known.get(node, ())))
    return [*dict.fromkeys(ranked)]


def _compute_ndcg(
    ids: Sequence[str], known: Mapping[str, AbstractSet[str]], relevant: AbstractSet[str], k: int
) -> float:
    """Compute nDCG at k (Järvelin & Kekäläinen 2002), in [0, 1].

    ``ids`` are ranked chunks; ``known`` has the ids of documents by name; ``relevant`` is not
    empty.
    """
    ranked = _rank_documents(ids, known)
    discounts = 1.0 / np.log2(np.arange(max(1, k)) + 2.0)
    gains = discounts[[place for place, name in enumerate(ranked[:k]) if name in relevant]]
    return float(gains.sum() / discounts[: len(relevant)].sum())


def _compare_places(
    shown: Sequence[str], other: Sequence[str], right: AbstractSet[str]
) -> tuple[float, ...]:
    """Compare the places that right documents have in what was shown and in the other ranking.

    Returns:
        Six numbers: how many right documents either ranking has; how many of these the other
        ranking places higher, equally, lower, and nowhere; and the sum of their gains in reciprocal
        places.
    """
    places = [{name: 1 / place for place, name in enumerate(of, 1)} for of in (shown, other)]
    found = [[of.get(name, 0.0) for of in places] for name in right]
    pairs = [(before, after) for before, after in found if before or after]
    return (
        len(pairs),
        sum(after > before for before, after in pairs),
        sum(after == before for before, after in pairs),
        sum(0 < after < before for before, after in pairs),
        sum(not after for _, after in pairs),
        sum(after - before for before, after in pairs),
    )


def _summarize(group: str, labels: str, scores: Floats) -> Lift:
    """Summarise one group of turns with the same kind of ``labels``."""
    differences = scores[:, 0] - scores[:, 1]
    learned, frozen = (round(float(mean), 4) for mean in scores.mean(axis=0))
    return Lift(
        group,
        labels,
        len(differences),
        int((differences > 0).sum()),
        int((differences < 0).sum()),
        frozen,
        learned,
        round(float(differences.mean()), 4),
        *_find_interval(differences, np.ones(len(differences))),
    )


def _summarize_places(group: str, rows: Floats) -> ShadowLift:
    """Summarise one group; ``rows`` are those of :func:`_compare_places`, shape ``[n, 6]``."""
    sums = rows.sum(axis=0)
    documents, higher, equal, lower, missing = (int(total) for total in sums[:5])
    intervals = [_find_interval(rows[:, of], rows[:, 0]) for of in (1, 5)]
    counts = (len(rows), documents, higher, equal, lower, missing)
    share, gain = round(higher / documents, 4), round(float(sums[5]) / documents, 4)
    return ShadowLift(group, *counts, share, *intervals[0], gain, *intervals[1])


def _find_interval(sums: Floats, counts: Floats) -> tuple[float | None, float | None]:
    """Bootstrap the 95 % interval of a mean over turns, by percentiles (Efron & Tibshirani 1993).

    The mean is the sum of ``sums`` by the sum of ``counts``, which are above 0; both have shape
    ``[n]``. With fewer than 20 turns, low and high are None.
    """
    count = len(sums)
    if count < _FEWEST:
        return None, None
    rng = np.random.default_rng(0)
    draws = [rng.integers(count, size=count) for _ in range(_RESAMPLES)]
    means = [sums[drawn].sum() / counts[drawn].sum() for drawn in draws]
    low, high = np.percentile(means, [2.5, 97.5])
    return round(float(low), 4), round(float(high), 4)
