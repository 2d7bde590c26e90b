"""Reads the turns of a trial and their feedback from the store."""

from functools import partial

from crabpath_retrievers.ab.arms import ARMS, Arm, suffix_of
from crabpath_retrievers.ab.observed import Observed, judged, observed
from crabpath_retrievers.ab.state import TrialState
from crabpath_retrievers.storage import GraphStore


def arms_of(
    store: GraphStore, state: TrialState, *, since: float, until: float
) -> dict[Arm, list[Observed]]:
    """Load the turns of each arm in ``(since, until]``, oldest first."""
    # Without control namespaces, only labelled turns belong to the trial in both arms.
    suffixes = [suffix_of(state.name, arm, fresh=True) for arm in ARMS] if state.fresh else []
    parse = partial(observed, name=state.name)
    found = store.trials.turns(state.name, suffixes, parse, since=since, until=until)
    turns = judged(found, store.trials.said(since))
    return {arm: [turn for turn in turns if turn.arm == arm] for arm in ARMS}
