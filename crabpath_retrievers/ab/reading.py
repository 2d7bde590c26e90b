"""The turns of a trial, read from the store, with what was said of them."""

from functools import partial

from crabpath_retrievers.ab.arms import ARMS, Arm, suffix_of
from crabpath_retrievers.ab.observed import Observed, judged, observed
from crabpath_retrievers.ab.state import TrialState
from crabpath_retrievers.storage import GraphStore


def arms_of(
    store: GraphStore, state: TrialState, *, since: float, until: float
) -> dict[Arm, list[Observed]]:
    """Turns by arm, asked in ``(since, until]``, oldest first."""
    # Without control namespaces of its own, only labelled turns are known in both arms alike.
    suffixes = [suffix_of(state.name, arm, fresh=True) for arm in ARMS] if state.fresh else []
    told = partial(observed, name=state.name)
    found = store.trials.turns(state.name, suffixes, told, since=since, until=until)
    turns = judged(found, store.trials.said(since))
    return {arm: [turn for turn in turns if turn.arm == arm] for arm in ARMS}
