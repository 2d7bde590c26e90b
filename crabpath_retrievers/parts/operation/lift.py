"""What learning gained, on the feedback of the memory's own users."""

from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timezone
from typing import Literal, NamedTuple, get_args

import numpy as np
import sqlalchemy as sa
from pydantic_core import from_json

from crabpath_retrievers.core.feedback import Feedback
from crabpath_retrievers.core.records import DRAFT_ARM
from crabpath_retrievers.core.text import Floats, format_value
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.learning.lift import (
    count_drafted,
    find_documents,
    rank_documents,
    score_both,
)
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel
from crabpath_retrievers.storage import GraphStore, Reader
from crabpath_retrievers.storage.read.turns import VERDICTS
from crabpath_retrievers.storage.schema import namespaces, turns
from crabpath_retrievers.storage.sql_tools import Queries, split_batches

LiftGrouping = Literal["namespace", "source", "week"]
"""What lift is grouped by: namespace, source of the feedback, ISO week of the turn in UTC."""

_AT_ONCE = 200  # turn records in memory
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


class JudgedTurn(NamedTuple):
    """A turn with two rankings, and one feedback that tells which of them is better.

    Attributes:
        id, namespace: Of the turn; the name of the namespace.
        created: Seconds since the epoch.
        source: Who gave the feedback.
        relevant: What the feedback calls relevant: ids of chunks or documents, or sources.
        used: The same, of what it says was used.
        first: Ids of what the ranking by what was learned returned or would have, best first; of
            a shadow, of what was shown.
        other: Ids of what the ranking before any lesson returned or would have, best first; of a
            shadow, of what the memory would have returned.
        teams: Which ranking drafted each document, where both answered, as in ``Turn.teams``.
    """

    id: str
    namespace: str
    created: float
    source: str
    relevant: tuple[str, ...]
    used: tuple[str, ...]
    first: tuple[str, ...]
    other: tuple[str, ...]
    teams: dict[str, str]


class _JudgedTurns(Queries):
    """Reads of the turns whose feedback compares two rankings."""

    def find(self, namespace: str | None, *, shadow: bool = False) -> list[JudgedTurn]:
        """Find the turns whose feedback compares two rankings, each with that feedback.

        A turn with several such feedbacks is listed for each; undone feedback does not count. The
        turns are those after a lesson whose labels are independent of what was shown; if
        ``shadow``, those of a shadow, where documents ``used`` in a success count as labels.
        """
        self._store.flush()
        query = VERDICTS if namespace is None else VERDICTS.where(namespaces.c.name == namespace)
        given: dict[str, list[tuple[str, Feedback]]] = {}
        for turn, arm, name, payload in self._rows(query):
            said = Feedback.from_record(payload)
            is_told = (shadow or arm == DRAFT_ARM) and said.outcome > 0 and said.used
            if said.relevant or is_told:
                given.setdefault(turn, []).append((name, said))
        found: list[JudgedTurn] = []
        select = sa.select(turns.c.id, turns.c.created, turns.c.record)
        for part in split_batches(given, _AT_ONCE):
            for turn, created, text in self._rows_in(select, turns.c.id, part):
                record = from_json(text)
                if (other := record.get("shadow" if shadow else "frozen")) is None:
                    continue
                shown = record.get("shown") or {}
                first = shown.values() or [item["node"] for item in record["returned"]]
                if record.get("learned") is not None:
                    first = record["learned"]
                rankings, teams = (tuple(first), tuple(other)), record.get("teams") or {}
                for name, said in given[turn]:
                    told = (said.relevant or (), said.used or () if said.outcome > 0 else ())
                    relevant, used = (tuple(shown.get(one, one) for one in ids) for ids in told)
                    named = relevant, used, *rankings
                    found.append(JudgedTurn(turn, name, created, said.source, *named, teams))
        return found


def measure_lift(store: GraphStore, namespace: str | None, by: LiftGrouping) -> list[Lift]:
    """Compare the returned ranking with the ranking before any lesson, by group of turns.

    Documents are compared, not their chunks; notes, and documents that are gone, do not count.
    ``namespace`` None takes all; ``by`` says how turns are grouped. Groups without judged turns are
    left out.

    Raises:
        InvalidInputError: There is no such grouping.
    """
    _require_grouping(by)
    judged = _JudgedTurns(store).find(namespace)
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
                score_both(rankings, known, right)
                if labels == "relevant"
                else count_drafted(turn.teams, known, right)
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
    judged = _JudgedTurns(store).find(namespace, shadow=True)
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
        first, other = (rank_documents(ids, here) for ids in (turns[key].first, turns[key].other))
        row = _compare_places(first, other, right)
        if row[0]:
            rows[key[0]].append(row)
    return [_summarize_places(group, np.array(own)) for group, own in sorted(rows.items())]


def _require_grouping(by: object) -> None:
    if not isinstance(by, str) or by not in get_args(LiftGrouping):
        msg = f"by must be one of {', '.join(get_args(LiftGrouping))}, not {format_value(by)}"
        raise InvalidInputError(msg)


def _name_group(turn: JudgedTurn, by: LiftGrouping) -> str:
    if by == "week":
        return datetime.fromtimestamp(turn.created, timezone.utc).strftime("%G-W%V")
    return turn.source if by == "source" else turn.namespace


def _find_judged_documents(read: Reader, judged: Sequence[JudgedTurn]) -> dict[str, set[str]]:
    lists = ((*one.relevant, *one.used, *one.first, *one.other) for one in judged)
    return find_documents(read, [name for ids in lists for name in ids])


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
