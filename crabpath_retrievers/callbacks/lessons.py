"""Makes feedback about the turns of a chain from its most specific signal."""

from collections.abc import Iterable, Sequence

from crabpath_retrievers.callbacks.found import RetrievedTurn
from crabpath_retrievers.callbacks.runs import ChainRun
from crabpath_retrievers.callbacks.signals import FeedbackSignal
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.outcome_policy import rank_kind


def select_most_specific(signals: Iterable[FeedbackSignal]) -> FeedbackSignal | None:
    """Return the most specific signal, the last one of several; None without signals."""
    found = None
    for signal in signals:
        if found is None or rank_kind(signal.kind) <= rank_kind(found.kind):
            found = signal
    return found


def make_feedback(
    root: ChainRun, signal: FeedbackSignal | None, only: str | None = None
) -> list[Feedback]:
    """Make feedback about every turn of a chain.

    A correction becomes a note of the latest turn; the other turns get the outcome only.

    Args:
        root: The chain.
        signal: The signal that counts; None for no feedback.
        only: Id of a turn or of its retriever run; None for all turns.
    """
    turns = [t for t in root.turns.values() if only in {None, t.turn_id, t.run_id}]
    if signal is None:
        return []
    return [_make_turn_feedback(turn, turns, signal, root) for turn in turns]


def _make_turn_feedback(
    turn: RetrievedTurn, turns: Sequence[RetrievedTurn], signal: FeedbackSignal, root: ChainRun
) -> Feedback:
    alone = len(turns) == 1
    used, answer = signal.used, signal.answer
    if signal.explicit or signal.kind == "silent_success":
        used = turn.select_used(root.answered.cited, places=alone) if used is None else used
        answer = root.answered.text if answer is None else answer
    return Feedback(
        turn.turn_id,
        signal.outcome,
        used=used,
        unused=signal.unused,
        answer=answer,
        correction=signal.correction if turn is turns[-1] else None,
        source=signal.source,
        feedback_id=signal.feedback_id(turn.turn_id, turn.namespace),
        namespace=signal.namespace or turn.namespace,
        user=signal.user,
    )
