"""Learning without a turn: agent episodes, and edge weights set by hand or by maintenance.

What is learned is stored as feedback, so that it can be undone by its id.
"""

from collections.abc import Callable, Mapping, Sequence

from crabpath_retrievers.core.changes import (
    AdjustWeights,
    Change,
    ConsumeFeedback,
    KeepFeedback,
    WeightDelta,
)
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, Feedback, Receipt
from crabpath_retrievers.learning.credit import make_frozen
from crabpath_retrievers.learning.undo import retry_on_conflict
from crabpath_retrievers.rerank.posterior import Posterior
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel
from crabpath_retrievers.storage import GraphStore, Reader, Store
from crabpath_retrievers.storage.read.learned import EdgeTriple


@retry_on_conflict
def learn_without_turn(
    store: GraphStore,
    prior: Posterior,
    feedback: Feedback,
    compute: Callable[[Reader], Sequence[Change]],
    first: Sequence[Change] = (),
) -> Receipt:
    """Store feedback about no turn and the changes that follow from it, in one transaction.

    Args:
        store: The graph store.
        prior: Posterior of the ranker before any feedback.
        feedback: The feedback; recording the same id again changes nothing.
        compute: Computes the changes; called again if the namespace learned in the meantime.
        first: Changes that must be applied before the others can be computed.

    Returns:
        A receipt: ``applied``; ``refused`` if the namespace is frozen; for an id that was recorded
            before, its stored status.
    """
    name, namespace = feedback.feedback_id, feedback.namespace or DEFAULT_NAMESPACE
    stored = store.history.get_feedback_state(name, namespace)
    if stored is not None:
        return Receipt(name, stored.status, repeated=True)
    known = store.learned.get_state(namespace)
    if known.frozen:
        why = make_frozen(namespace)
        return Receipt(name, "refused", why.note, why.reason)

    def learn(store: Store) -> None:
        store.apply(first)
        changes = compute(store)
        model = NamespaceModel.from_json(known.model, prior).to_json()
        done = (*first, *changes)
        consume = ConsumeFeedback(namespace, name, (), known.version, model, changes=done)
        store.apply([KeepFeedback(feedback), consume, *changes])

    store.apply_together(learn)
    return Receipt(name, "applied")


def set_weights(
    store: GraphStore, prior: Posterior, feedback: Feedback, weights: Mapping[EdgeTriple, float]
) -> Receipt:
    """Set the weights of edges; they decay and can be undone like learned ones.

    Args:
        store: The graph store.
        prior: Posterior of the ranker before any feedback.
        feedback: The feedback that carries the id for an undo, and the namespace.
        weights: Weights in [-1, 1], by keys of both ends and kind.

    Returns:
        As :func:`learn_without_turn`.
    """
    namespace = str(feedback.namespace)

    def compute_changes(read: Reader) -> list[Change]:
        current = read.learned.weights(namespace, sorted({edge[0] for edge in weights}))
        deltas = [
            WeightDelta(*edge, weight - current.get(edge, 0.0)) for edge, weight in weights.items()
        ]
        return [AdjustWeights(namespace, tuple(deltas), feedback.feedback_id)]

    return learn_without_turn(store, prior, feedback, compute_changes)
