"""Turns and feedback written straight into a store."""

import pytest
from ab_turns import turn_of

from crabpath_retrievers import Feedback
from tests.seams import make_change


@pytest.fixture
def ask(store):
    """Record turns of a session in its arm, some of them corrected; returns their ids."""

    def asked(trial, session, outcomes, *, user="ann", arm=None):
        ids = []
        for outcome in outcomes:
            turn = turn_of(**trial.options(user, session, arm=arm))
            store.record(turn)
            store.flush()
            if outcome is not None:
                store.apply([make_change("KeepFeedback", Feedback(turn.id, outcome))])
            ids.append(turn.id)
        return ids

    return asked
