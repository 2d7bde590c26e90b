"""Metrics of the turns of one arm, as far as a memory can measure them; see docs/ab.md."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crabpath_retrievers.ab.observed import TrialTurn
from crabpath_retrievers.storage.trial_queries import TrialWeightChange

LAGS = (1, 5, 10)

UNMEASURED: Mapping[str, str] = {
    "tool_sequence_precision": "a memory sees neither tool calls nor their expected order",
    "end_to_end_latency": "the host produces the answer; latency_ms is that of the retrieval",
    "spectral_gap": "needs the whole graph, which is not read",
    "learning_half_life": "needs the same failure repeatedly, which traffic does not provide",
}
"""Metrics that a memory cannot measure, and why."""


@dataclass(frozen=True, slots=True)
class ArmMetrics:
    """Metrics of the turns of one arm; None if there is nothing to compute a metric from.

    Attributes:
        turns, sessions, users: Numbers of each.
        judged: Number of turns with feedback.
        corrected: Number of turns with a correction or an outcome below 0.
        correction_rate: Corrected turns per 100 turns.
        correction_rate_by_lag: Per 100 turns, those corrected within so many later turns of the
            session.
        success_rate: Share of the judged turns with an outcome above 0.
        known_bad: Number of turns that repeat a query corrected before in their namespace.
        known_bad_avoided: Share of the documents blamed then that were not returned now.
        first_correction_turn: Mean number, from 1, of the first corrected turn of a session.
        sessions_corrected: Share of the sessions with a corrected turn.
        context_characters: Mean length of the returned documents, in characters.
        context_tokens: The same in tokens, estimated.
        latency_ms: ``p50`` and ``p95`` of the retrieval.
        steps: Mean number of nodes whose edges were considered.
        fired: Mean number of nodes entered by an edge.
        reflexes: Mean number of edges followed without a decision.
        router_calls: Total number of requests to a chat model.
        router_fallback_rate: Share of the requests without a usable answer.
        inhibited: Mean number of inhibited nodes.
        inhibition: Mean strength of inhibition against the returned documents.
        edges_moved: Number of edges whose weight changed more than once.
        sign_stability: Share of these edges whose sum of changes kept its sign.
    """

    turns: int
    sessions: int
    users: int
    judged: int
    corrected: int
    correction_rate: float | None
    correction_rate_by_lag: Mapping[str, float | None]
    success_rate: float | None
    known_bad: int
    known_bad_avoided: float | None
    first_correction_turn: float | None
    sessions_corrected: float | None
    context_characters: float | None
    context_tokens: float | None
    latency_ms: Mapping[str, float | None]
    steps: float | None
    fired: float | None
    reflexes: float | None
    router_calls: int
    router_fallback_rate: float | None
    inhibited: float | None
    inhibition: float | None
    edges_moved: int
    sign_stability: float | None


def compute_arm_metrics(
    turns: Sequence[TrialTurn],
    characters: Mapping[str, int],
    moves: Iterable[TrialWeightChange],
    characters_per_token: float,
) -> ArmMetrics:
    """Compute the metrics of one arm.

    Args:
        turns: Turns of the arm, oldest first.
        characters: Lengths of documents by id, in characters.
        moves: Weight changes in its namespaces, oldest first.
        characters_per_token: Mean length of a token, to estimate tokens.
    """
    sessions, corrected = group_by_session(turns), [turn for turn in turns if turn.corrected]
    outcomes = [turn.outcome for turn in turns if turn.outcome is not None]
    length = mean([count_characters(turn, characters) for turn in turns])
    firsts = [
        first for own in sessions.values() if (first := _find_first_corrected(own)) is not None
    ]
    bad, avoided = _count_known_bad(turns)
    moved, stable = _count_stable_signs(moves)
    calls, failures = sum(t.calls for t in turns), sum(t.failures for t in turns)
    return ArmMetrics(
        turns=len(turns),
        sessions=len(sessions),
        users=len({turn.user for turn in turns}),
        judged=len(outcomes),
        corrected=len(corrected),
        correction_rate=_rate_per_100(len(corrected), turns),
        correction_rate_by_lag={
            str(lag): _rate_per_100(sum((t.lag or 0) <= lag for t in corrected), turns)
            for lag in LAGS
        },
        success_rate=mean([outcome > 0 for outcome in outcomes]),
        known_bad=bad,
        known_bad_avoided=mean(avoided),
        first_correction_turn=mean(firsts),
        sessions_corrected=len(firsts) / len(sessions) if sessions else None,
        context_characters=length,
        context_tokens=None if length is None else length / characters_per_token,
        latency_ms=_compute_percentiles([turn.latency for turn in turns]),
        steps=mean([turn.steps for turn in turns]),
        fired=mean([turn.fired for turn in turns]),
        reflexes=mean([turn.reflexes for turn in turns]),
        router_calls=calls,
        router_fallback_rate=failures / calls if calls else None,
        inhibited=mean([turn.inhibited for turn in turns]),
        inhibition=mean([turn.inhibition for turn in turns]),
        edges_moved=moved,
        sign_stability=stable / moved if moved else None,
    )


def group_by_session(turns: Iterable[TrialTurn]) -> dict[str, list[TrialTurn]]:
    """Group turns by session, in order."""
    found: dict[str, list[TrialTurn]] = defaultdict(list)
    for turn in turns:
        found[turn.session].append(turn)
    return dict(found)


def count_characters(turn: TrialTurn, characters: Mapping[str, int]) -> int:
    """Count the characters that a turn returned; documents forgotten since count 0."""
    return sum(characters.get(node, 0) for node in turn.returned)


def mean(values: Sequence[float]) -> float | None:
    """Return the mean; None without values."""
    return sum(values) / len(values) if values else None


def _rate_per_100(number: int, turns: Sequence[TrialTurn]) -> float | None:
    return 100.0 * number / len(turns) if turns else None


def _compute_percentiles(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"p50": None, "p95": None}
    p50, p95 = np.percentile(values, [50, 95]).tolist()
    return {"p50": round(p50, 3), "p95": round(p95, 3)}


def _find_first_corrected(turns: Sequence[TrialTurn]) -> int | None:
    """Return the number, from 1, of the first corrected turn."""
    return next((number for number, turn in enumerate(turns, 1) if turn.corrected), None)


def _count_known_bad(turns: Sequence[TrialTurn]) -> tuple[int, list[bool]]:
    """Count repeats of corrected queries; for each blamed document, whether it was avoided."""
    blamed: dict[tuple[str, str], set[str]] = defaultdict(set)
    number, avoided = 0, []
    for turn in turns:
        known = blamed[turn.namespace, turn.question]
        if known:
            number += 1
            avoided += [node not in turn.returned for node in sorted(known)]
        known.update(turn.blamed)
    return number, avoided


def _count_stable_signs(moves: Iterable[TrialWeightChange]) -> tuple[int, int]:
    """Count edges whose weight changed more than once, and those whose sum kept its sign."""
    sums: dict[tuple[int, ...], float] = defaultdict(float)
    seen: dict[tuple[int, ...], int] = defaultdict(int)
    changed = set()
    for move in moves:
        before = sums[move.edge]
        sums[move.edge] += move.delta
        seen[move.edge] += 1
        if before * sums[move.edge] < 0:
            changed.add(move.edge)
    again = {edge for edge, number in seen.items() if number > 1}
    return len(again), len(again - changed)
