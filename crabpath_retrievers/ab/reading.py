"""Reads the turns of a trial and their feedback from the store."""

from functools import partial

from crabpath_retrievers.ab.arms import ARMS, Arm, make_suffix
from crabpath_retrievers.ab.observed import TrialTurn, attach_feedback, parse_turn
from crabpath_retrievers.ab.state import TrialState
from crabpath_retrievers.storage import GraphStore


def load_turns_by_arm(
    store: GraphStore, state: TrialState, *, since: float, until: float
) -> dict[Arm, list[TrialTurn]]:
    """Load the turns of each arm in ``(since, until]``, oldest first."""
    # Without control namespaces, only labelled turns belong to the trial in both arms.
    suffixes = [make_suffix(state.name, arm, fresh=True) for arm in ARMS] if state.fresh else []
    parse = partial(parse_turn, name=state.name)
    found = store.trials.turns(state.name, suffixes, parse, since=since, until=until)
    turns = attach_feedback(found, store.trials.get_feedback(since))
    return {arm: [turn for turn in turns if turn.arm == arm] for arm in ARMS}
