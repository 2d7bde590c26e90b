"""Turns of a trial, with their feedback."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crabpath_retrievers.ab.arms import Arm, make_suffix
from crabpath_retrievers.storage.trial_queries import TrialFeedback


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
    """Add feedback to turns.

    Feedback is added to the turn that it names by id or run, else to the last turn of its
    namespace before it, whether or not it was learned from. Of several feedbacks for one turn,
    the last one of a person counts, else the last one.

    Args:
        turns: Turns, oldest first.
        said: Feedback, oldest first.
    """
    named = {turn.run_id: place for place, turn in enumerate(turns) if turn.run_id is not None}
    named |= {turn.id: place for place, turn in enumerate(turns)}
    asked, sessions = _index_times(turns, "namespace"), _index_times(turns, "session")
    chosen: dict[int, TrialFeedback] = {}
    for one in said:
        place = _find_place(one, named, asked)
        if place is not None and (_is_by_person(one) or not _is_by_person(chosen.get(place))):
            chosen[place] = one
    return [
        _apply_feedback(turn, chosen[place], sessions) if place in chosen else turn
        for place, turn in enumerate(turns)
    ]


_Times = dict[str, tuple[list[float], list[int]]]
"""Times of turns by key, and their places in the list of turns."""


def _index_times(turns: Sequence[TrialTurn], of: str) -> _Times:
    found: _Times = defaultdict(lambda: ([], []))
    for place, turn in enumerate(turns):
        times, places = found[_make_key(turn, of)]
        times.append(turn.created)
        places.append(place)
    return found


def _make_key(turn: TrialTurn, of: str) -> str:
    return turn.namespace if of == "namespace" else f"{turn.arm}:{turn.session}"


def _find_place(one: TrialFeedback, named: Mapping[str, int], asked: _Times) -> int | None:
    turn = one.payload["turn_id"]
    if turn is not None:
        return named.get(turn)
    times, places = asked.get(one.namespace or "", ([], []))
    before = bisect_right(times, one.created)
    return places[before - 1] if before else None


def _is_by_person(one: TrialFeedback | None) -> bool:
    return one is not None and one.payload.get("source") == "human"


def _apply_feedback(turn: TrialTurn, one: TrialFeedback, sessions: _Times) -> TrialTurn:
    said = one.payload
    if not (said.get("correction") or said["outcome"] < 0):
        return replace(turn, outcome=said["outcome"])
    times, _ = sessions[_make_key(turn, "session")]
    used = said.get("used")
    return replace(
        turn,
        outcome=said["outcome"],
        corrected=True,
        lag=max(0, bisect_right(times, one.created) - bisect_right(times, turn.created)),
        blamed=turn.returned[:1] if used is None else tuple(used),
    )
