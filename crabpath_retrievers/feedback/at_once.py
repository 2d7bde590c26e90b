"""Learning without a turn: agent episodes and edge weights set by hand.

What is learned is stored as feedback, so that it can be undone by its id.
"""

from collections.abc import Callable, Sequence

from crabpath_retrievers.changes import Change, ConsumeFeedback, KeepFeedback
from crabpath_retrievers.changes.history import FeedbackEffects
from crabpath_retrievers.changes.regions import AddTransitions, TransitionCount
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.feedback.meeting import retry_on_conflict
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.mind import NamespaceModel
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE, Feedback
from crabpath_retrievers.rerank.posterior import Posterior
from crabpath_retrievers.storage import GraphStore


@retry_on_conflict
def learn_without_turn(
    store: GraphStore,
    prior: Posterior,
    feedback: Feedback,
    compute: Callable[[], tuple[Sequence[TransitionCount], Sequence[Change]]],
) -> Receipt:
    """Store feedback about no turn and the changes that follow from it, in one transaction.

    Args:
        store: The graph store.
        prior: Posterior of the ranker before any feedback.
        feedback: The feedback; recording the same id again changes nothing.
        compute: Computes the transitions to count and further changes; called again if the
            namespace learned in the meantime.

    Returns:
        A receipt: ``applied``; ``refused`` if the namespace is frozen; for an id that was recorded
            before, its stored status.

    Raises:
        InvalidInputError: The id belongs to feedback of another namespace.
    """
    name, namespace = feedback.feedback_id, feedback.namespace or DEFAULT_NAMESPACE
    stored = store.history.get_feedback_state(name)
    if stored is not None:
        if stored.namespace != namespace:
            msg = f"the id {name!r:.250} is taken: give another one, or none"
            raise InvalidInputError(msg)
        return Receipt(name, stored.status)
    known = store.learned.get_state(namespace)
    if known.frozen:
        return Receipt(name, "refused", f"namespace {namespace!r} is frozen: it learns nothing")
    steps, changes = compute()
    mind = NamespaceModel.from_json(known.mind, prior)
    effects = FeedbackEffects(count=mind.baseline.count, steps=tuple(steps))
    consume = ConsumeFeedback(namespace, name, (), known.version, mind.to_json(), taught=effects)
    count_changes = [AddTransitions(namespace, tuple(steps))] if steps else []
    store.apply([KeepFeedback(feedback), consume, *count_changes, *changes])
    return Receipt(name, "applied")
