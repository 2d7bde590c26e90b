"""What a trial sees: its turns, and what was said of each."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crabpath_retrievers.ab.arms import Arm, suffix_of
from crabpath_retrievers.storage.trial_queries import Said


@dataclass(frozen=True, slots=True)
class Observed:
    """A turn of a trial.

    Attributes:
        session: Of the user; where none is recorded, all turns of a user in an arm are one.
        question: What was asked, without regard to case and blanks.
        returned: Ids, best first.
        fired: Nodes that were entered by a pointer.
        steps: Nodes whose pointers were considered.
        reflexes: Pointers that were followed at once.
        inhibited: Nodes that pointers advised against.
        inhibition: How strongly they advised against what was returned, as a sum.
        calls, failures: Requests to a chat model, and those without a usable answer.
        latency: Milliseconds of the retrieval.
        outcome: What was said of it, in [-1, 1]; None when nothing was.
        corrected: Whether that was a correction, or below 0.
        lag: Later turns of its session that the correction came after.
        blamed: Documents that the correction speaks against.
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


def observed(record: Mapping[str, Any], name: str) -> Observed:
    """A turn record of trial ``name``, of which nothing was said yet."""
    namespace = str(record["namespace"])
    arm = _read_arm(record, name)
    user = namespace.removesuffix(suffix_of(name, arm, fresh=True))
    steps, returned = record["steps"], record["returned"]
    return Observed(
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


def judged(turns: Sequence[Observed], said: Iterable[Said]) -> list[Observed]:
    """The turns with what was said of them.

    Feedback counts for the turn that it names by id or run, else for the last turn that its
    namespace had then: for one turn, whether or not anything was learned from it. Of several about
    one turn the last of a person counts, else the last.

    Args:
        turns: Oldest first.
        said: In the order in which it came.
    """
    named = {turn.run_id: place for place, turn in enumerate(turns) if turn.run_id is not None}
    named |= {turn.id: place for place, turn in enumerate(turns)}
    asked, sessions = _index_times(turns, "namespace"), _index_times(turns, "session")
    chosen: dict[int, Said] = {}
    for one in said:
        place = _find_place(one, named, asked)
        if place is not None and (_is_by_person(one) or not _is_by_person(chosen.get(place))):
            chosen[place] = one
    return [
        _apply_feedback(turn, chosen[place], sessions) if place in chosen else turn
        for place, turn in enumerate(turns)
    ]


_Times = dict[str, tuple[list[float], list[int]]]
"""When the turns of each were asked, and their places."""


def _index_times(turns: Sequence[Observed], of: str) -> _Times:
    found: _Times = defaultdict(lambda: ([], []))
    for place, turn in enumerate(turns):
        times, places = found[_make_key(turn, of)]
        times.append(turn.created)
        places.append(place)
    return found


def _make_key(turn: Observed, of: str) -> str:
    return turn.namespace if of == "namespace" else f"{turn.arm}:{turn.session}"


def _find_place(one: Said, named: Mapping[str, int], asked: _Times) -> int | None:
    turn = one.payload["turn_id"]
    if turn is not None:
        return named.get(turn)
    times, places = asked.get(one.namespace or "", ([], []))
    before = bisect_right(times, one.created)
    return places[before - 1] if before else None


def _is_by_person(one: Said | None) -> bool:
    return one is not None and one.payload.get("source") == "human"


def _apply_feedback(turn: Observed, one: Said, sessions: _Times) -> Observed:
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
