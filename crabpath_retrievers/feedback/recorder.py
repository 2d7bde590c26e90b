"""Recording feedback: kept first, then applied, each once."""

from typing import NamedTuple

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from crabpath_retrievers.changes import KeepFeedback, RefuseFeedback
from crabpath_retrievers.errors import ConflictError, NotFoundError
from crabpath_retrievers.feedback.learner import Judged, Learner
from crabpath_retrievers.outcome import Credit, Feedback
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.learned_queries import Kept
from crabpath_retrievers.trajectory import Turn


class Receipt(NamedTuple):
    """What became of feedback: its id, ``waiting``, ``applied`` or ``refused``, and why."""

    feedback_id: str
    status: str
    note: str | None = None


class Recorder:
    """Keeps feedback and learns from it."""

    def __init__(self, store: GraphStore, learner: Learner) -> None:
        """Keep in ``store``, learn with ``learner``."""
        self._store, self._learner = store, learner

    def record(self, feedback: Feedback) -> Receipt:
        """Keep feedback durably, then learn from it; the same id again changes nothing."""
        self._store.apply([KeepFeedback(feedback)])
        return self.learn(feedback.feedback_id)

    def learn(self, feedback_id: str) -> Receipt:
        """Apply feedback that is kept, unless it was applied before."""
        kept = self._store.learned.feedback(feedback_id)
        if kept.status == "waiting":
            self._apply(kept)
            kept = self._store.learned.feedback(feedback_id)
        return Receipt(feedback_id, kept.status, kept.note)

    @retry(
        retry=retry_if_exception_type(ConflictError),
        wait=wait_random_exponential(multiplier=0.01, max=0.5),
        stop=stop_after_attempt(8),
        reraise=True,
    )
    def _apply(self, kept: Kept) -> None:
        feedback = kept.feedback
        if self._store.learned.feedback(feedback.feedback_id).status != "waiting":
            return
        try:
            judged = self._judged(feedback)
        except NotFoundError as error:
            self._store.apply([RefuseFeedback(feedback.feedback_id, str(error))])
            return
        namespace = judged.turn.namespace
        self._store.apply(self._learner.changes(namespace, feedback.feedback_id, [judged]))
        self._learner.episodes.catch_up()

    def _judged(self, feedback: Feedback) -> Judged:
        turn = self._store.turns.get(str(feedback.turn_id), namespace=feedback.namespace)
        return Judged(turn, _credit(turn, feedback), self._store.turns.vector(turn.id))


def _credit(turn: Turn, feedback: Feedback) -> Credit:
    if feedback.used is None:
        return Credit(feedback.outcome)
    used = set(feedback.used)
    return Credit(
        feedback.outcome,
        1.0,
        {r.node: feedback.outcome if r.node in used else 0.0 for r in turn.returned},
    )
