"""Turns of a trial with their feedback, and the metrics of one arm; see docs/how-to/ab-test.md."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from crabpath_lab.ab.state import (
    ARMS,
    Arm,
    TrialFeedback,
    TrialQueries,
    TrialState,
    TrialWeightChange,
    make_suffix,
)
from crabpath_retrievers.storage import GraphStore

Characters = Mapping[tuple[str | None, str], int]
"""Lengths of texts by namespace, which is None for documents, and id."""


@dataclass(frozen=True, slots=True)
class TrialTurn:
    """A turn of a trial.

    Attributes:
        id, run_id: Ids of the turn and of the host's run.
        arm: Arm of the trial.
        session: Session of the user; without one, all turns of a user in an arm are one session.
        user: Name of the user's own namespace.
        namespace: Namespace of the turn.
        created: Time of the query, in seconds since the epoch.
        question: The query, in lower case with single spaces.
        returned: Ids of the returned documents, best first.
        fired: Number of nodes entered by an edge.
        steps: Number of nodes whose edges were considered.
        reflexes: Number of edges followed without a decision.
        inhibited: Number of inhibited nodes.
        inhibition: Sum of the inhibition against the returned documents.
        calls, failures: Requests to a chat model, and those without a usable answer.
        latency: Duration of the retrieval, in milliseconds.
        outcome: Outcome of its feedback, in [-1, 1]; None without feedback.
        corrected: Whether the feedback is a correction or its outcome is below 0.
        lag: Number of later turns of the session before the correction.
        blamed: Ids of the documents that the correction blames.
    """

    id: str
    run_id: str | None
    arm: Arm
    session: str
    user: str
    namespace: str
    created: float
    question: str
    returned: tuple[str, ...]
    fired: int
    steps: int
    reflexes: int
    inhibited: int
    inhibition: float
    calls: int
    failures: int
    latency: float
    outcome: float | None = None
    corrected: bool = False
    lag: int | None = None
    blamed: tuple[str, ...] = ()


def parse_turn(record: Mapping[str, Any], name: str) -> TrialTurn:
    """Parse a turn record of trial ``name``, without feedback."""
    namespace = str(record["namespace"])
    arm = _read_arm(record, name)
    user = namespace.removesuffix(make_suffix(name, arm, fresh=True))
    steps, returned = record["steps"], record["returned"]
    return TrialTurn(
        id=record["id"],
        run_id=record["run_id"],
        arm=arm,
        session=f"{user}\x00{record.get('session') or ''}",
        user=user,
        namespace=namespace,
        created=record["created"],
        question=" ".join(record["query"].casefold().split()),
        returned=tuple(item["node"] for item in returned),
        fired=len(record["visited"]) - len(record["seeds"]),
        steps=len(steps),
        reflexes=sum(len(step["reflexes"]) for step in steps),
        inhibited=len(record["guardrails"]),
        inhibition=sum(abs(item["features"].get("inhibition", 0.0)) for item in returned),
        calls=record["llm_calls"],
        failures=record["llm_failures"],
        latency=sum(record["latency_ms"].values()),
    )


def _read_arm(record: Mapping[str, Any], name: str) -> Arm:
    label = record.get("arm") or ""
    if label.startswith(f"{name}:"):
        return "treatment" if label == f"{name}:treatment" else "control"
    return "treatment" if record["namespace"].endswith(f"#{name}") else "control"


def attach_feedback(turns: Sequence[TrialTurn], said: Iterable[TrialFeedback]) -> list[TrialTurn]:
    """Add feedback to turns, both oldest first.

    Feedback is added to the turn that it names by id or run, else to the last turn of its
    namespace before it, whether or not it was learned from. Of several feedbacks for one turn,
    the last one of a person counts, else the last one.
    """
    places = {turn.run_id: at for at, turn in enumerate(turns) if turn.run_id is not None}
    places |= {turn.id: at for at, turn in enumerate(turns)}
    asked: dict[str, list[int]] = defaultdict(list)  # places of the turns of a namespace
    sessions: dict[tuple[Arm, str], list[float]] = defaultdict(list)  # times of their turns
    for at, turn in enumerate(turns):
        asked[turn.namespace].append(at)
        sessions[turn.arm, turn.session].append(turn.created)
    chosen: dict[int, TrialFeedback] = {}
    for one in said:
        place: int | None = places.get(one.payload["turn_id"])
        if one.payload["turn_id"] is None:
            own = asked.get(one.namespace or "", [])
            before = bisect_right(own, one.created, key=lambda at: turns[at].created)
            place = own[before - 1] if before else None
        if place is not None and (_is_by_person(one) or not _is_by_person(chosen.get(place))):
            chosen[place] = one
    return [
        _apply_feedback(turn, chosen[at], sessions[turn.arm, turn.session])
        if at in chosen
        else turn
        for at, turn in enumerate(turns)
    ]


def _is_by_person(one: TrialFeedback | None) -> bool:
    return one is not None and one.payload.get("source") == "human"


def _apply_feedback(turn: TrialTurn, one: TrialFeedback, times: Sequence[float]) -> TrialTurn:
    """Add a feedback to its turn; ``times`` are the times of all turns of its session."""
    said = one.payload
    if not (said.get("correction") or said["outcome"] < 0):
        return replace(turn, outcome=said["outcome"])
    used = said.get("used")
    return replace(
        turn,
        outcome=said["outcome"],
        corrected=True,
        lag=max(0, bisect_right(times, one.created) - bisect_right(times, turn.created)),
        blamed=turn.returned[:1] if used is None else tuple(used),
    )


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
    characters: Characters,
    moves: Iterable[TrialWeightChange],
    characters_per_token: float,
) -> ArmMetrics:
    """Compute the metrics of one arm, whose turns and weight changes come oldest first."""
    corrected = [turn for turn in turns if turn.corrected]
    outcomes = [turn.outcome for turn in turns if turn.outcome is not None]
    length = mean([count_characters(turn, characters) for turn in turns])
    sessions, firsts = group_by_session(turns), _find_first_corrections(turns)
    bad, avoided = _count_known_bad(turns)
    moved, stable = _count_stable_signs(moves)
    calls, failures = sum(t.calls for t in turns), sum(t.failures for t in turns)
    average = partial(_average, turns)
    return ArmMetrics(
        turns=len(turns),
        sessions=len(sessions),
        users=len({turn.user for turn in turns}),
        judged=len(outcomes),
        corrected=len(corrected),
        correction_rate=_divide(100.0 * len(corrected), len(turns)),
        correction_rate_by_lag=_compute_rates_by_lag(corrected, len(turns)),
        success_rate=mean([outcome > 0 for outcome in outcomes]),
        known_bad=bad,
        known_bad_avoided=mean(avoided),
        first_correction_turn=mean(firsts),
        sessions_corrected=_divide(len(firsts), len(sessions)),
        context_characters=length,
        context_tokens=None if length is None else length / characters_per_token,
        latency_ms=_compute_percentiles([turn.latency for turn in turns]),
        steps=average("steps"),
        fired=average("fired"),
        reflexes=average("reflexes"),
        router_calls=calls,
        router_fallback_rate=_divide(failures, calls),
        inhibited=average("inhibited"),
        inhibition=average("inhibition"),
        edges_moved=moved,
        sign_stability=_divide(stable, moved),
    )


def group_by_session(turns: Iterable[TrialTurn]) -> dict[str, list[TrialTurn]]:
    """Group turns by session, in order."""
    found: dict[str, list[TrialTurn]] = defaultdict(list)
    for turn in turns:
        found[turn.session].append(turn)
    return dict(found)


def count_characters(turn: TrialTurn, characters: Characters) -> int:
    """Count the characters that a turn returned; documents forgotten since count 0."""
    # A document hides a note with its id.
    places = [[(space, node) for space in (None, turn.namespace)] for node in turn.returned]
    return sum(next((characters[p] for p in own if p in characters), 0) for own in places)


def mean(values: Sequence[float]) -> float | None:
    """Return the mean; None without values."""
    return sum(values) / len(values) if values else None


def _average(turns: Sequence[TrialTurn], name: str) -> float | None:
    return mean([getattr(turn, name) for turn in turns])


def _compute_rates_by_lag(corrected: Sequence[TrialTurn], number: int) -> dict[str, float | None]:
    lags = [turn.lag or 0 for turn in corrected]
    return {str(most): _divide(100.0 * sum(lag <= most for lag in lags), number) for most in LAGS}


def _divide(number: float, whole: int) -> float | None:
    return number / whole if whole else None


def _find_first_corrections(turns: Sequence[TrialTurn]) -> list[int]:
    """Return the number, from 1, of the first corrected turn of each session that has one."""
    corrections = (
        [number for number, turn in enumerate(own, 1) if turn.corrected]
        for own in group_by_session(turns).values()
    )
    return [own[0] for own in corrections if own]


def _compute_percentiles(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"p50": None, "p95": None}
    p50, p95 = np.percentile(values, [50, 95]).tolist()
    return {"p50": round(p50, 3), "p95": round(p95, 3)}


def _count_known_bad(turns: Sequence[TrialTurn]) -> tuple[int, list[bool]]:
    """Count repeats of corrected queries; also list, by blamed document, if it was avoided."""
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
    sums: dict[tuple[int, ...], list[float]] = defaultdict(list)  # after each change
    for move in moves:
        own = sums[move.edge]
        own.append((own[-1] if own else 0.0) + move.delta)
    again = [own for own in sums.values() if len(own) > 1]
    return len(again), sum(all(a * b >= 0 for a, b in pairwise(own)) for own in again)


def load_turns_by_arm(
    store: GraphStore, state: TrialState, *, since: float, until: float
) -> dict[Arm, list[TrialTurn]]:
    """Load the turns of each arm in ``(since, until]``, oldest first."""
    # Without control namespaces, only labelled turns belong to the trial in both arms.
    suffixes = [make_suffix(state.name, arm, fresh=True) for arm in ARMS] if state.fresh else []
    parse = partial(parse_turn, name=state.name)
    reads = TrialQueries(store)
    found = reads.turns(state.name, suffixes, parse, since=since, until=until)
    turns = attach_feedback(found, reads.get_feedback(since))
    return {arm: [turn for turn in turns if turn.arm == arm] for arm in ARMS}
