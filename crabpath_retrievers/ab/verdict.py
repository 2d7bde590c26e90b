"""Decides what to do with a trial."""

from collections.abc import Sequence
from typing import Literal

from crabpath_retrievers.ab.comparison import Comparison
from crabpath_retrievers.ab.fail_rule import has_failed
from crabpath_retrievers.ab.state import TrialState

TrialVerdict = Literal["promote", "continue", "roll back", "too little data"]

DECIDING_METRICS = ("correction_rate", "success_rate")
"""Metrics that decide whether a treatment is promoted."""


def decide_verdict(
    state: TrialState, turns: tuple[int, int], comparisons: Sequence[Comparison]
) -> tuple[TrialVerdict, str]:
    """Return the verdict on a trial, and the reason.

    Args:
        state: State of the trial.
        turns: Number of turns of the control and of the treatment.
        comparisons: Comparisons of both arms.
    """
    if state.status != "running":
        ended: TrialVerdict = "promote" if state.status == "promoted" else "roll back"
        return ended, f"the trial has ended: {state.reason}"
    if has_failed(state.checkpoints, state.settings.fail_checkpoints):
        return "roll back", format_fail_reason(state)
    if min(turns) < state.settings.directional_turns:
        need = f"{state.settings.directional_turns} turns of each arm"
        return "too little data", f"{need} are needed, there are {turns[0]} and {turns[1]}"
    return _decide_by_comparison(
        state, min(turns), [c for c in comparisons if c.metric in DECIDING_METRICS]
    )


def _decide_by_comparison(
    state: TrialState, turns: int, deciding: Sequence[Comparison]
) -> tuple[TrialVerdict, str]:
    settings = state.settings
    if worse := [one.metric for one in deciding if one.proven == "worse"]:
        return "roll back", f"the treatment is worse in {' and '.join(worse)}"
    if better := " and ".join(one.metric for one in deciding if one.proven == "better"):
        if turns >= settings.decisive_turns:
            return "promote", f"the treatment is better in {better}, worse in neither"
        return "continue", f"better in {better}; {settings.decisive_turns} turns of each arm decide"
    if not any(one.enough for one in deciding):
        return (
            "too little data",
            f"{settings.min_sessions} sessions or users of each arm are needed",
        )
    return "continue", "no difference is proven"


def format_fail_reason(state: TrialState) -> str:
    """Describe the fail rule of a trial."""
    more = round(100 * (state.settings.fail_ratio - 1), 6)
    row = state.settings.fail_checkpoints
    return f"the treatment was corrected over {more:g} % more often at {row} checkpoints in a row"
