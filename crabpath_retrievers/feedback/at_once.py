"""Learning without a turn: agent episodes and edge weights set by hand.

What is learned is stored as feedback, so that it can be undone by its id.
"""

from collections.abc import Callable, Sequence

from crabpath_retrievers.changes import Change, ConsumeFeedback, KeepFeedback
from crabpath_retrievers.changes.history import Taught
from crabpath_retrievers.changes.regions import CountSteps, Step
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.feedback.meeting import repeated
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.mind import Mind
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE, Feedback
from crabpath_retrievers.rerank.posterior import Posterior
from crabpath_retrievers.storage import GraphStore


@repeated
def learn_at_once(
    store: GraphStore,
    prior: Posterior,
    kept: Feedback,
    work: Callable[[], tuple[Sequence[Step], Sequence[Change]]],
) -> Receipt:
    """Store feedback about no turn and the changes that follow from it, in one transaction.

    Args:
        store: The graph store.
        prior: Posterior of the ranker before any feedback.
        kept: The feedback; recording the same id again changes nothing.
        work: Computes the transitions to count and further changes; called again if the namespace
            learned in the meantime.

    Returns:
        A receipt: ``applied``; ``refused`` if the namespace is frozen; for an id that was recorded
            before, its stored status.

    Raises:
        InvalidInputError: The id belongs to feedback of another namespace.
    """
    name, namespace = kept.feedback_id, kept.namespace or DEFAULT_NAMESPACE
    stands = store.history.feedback(name)
    if stands is not None:
        if stands.namespace != namespace:
            msg = f"the id {name!r:.250} is taken: give another one, or none"
            raise InvalidInputError(msg)
        return Receipt(name, stands.status)
    known = store.learned.learned(namespace)
    if known.frozen:
        return Receipt(name, "refused", f"namespace {namespace!r} is frozen: it learns nothing")
    steps, changes = work()
    mind = Mind.from_json(known.mind, prior)
    lesson = Taught(count=mind.baseline.count, steps=tuple(steps))
    consumed = ConsumeFeedback(namespace, name, (), known.version, mind.to_json(), taught=lesson)
    counted = [CountSteps(namespace, tuple(steps))] if steps else []
    store.apply([KeepFeedback(kept), consumed, *counted, *changes])
    return Receipt(name, "applied")
