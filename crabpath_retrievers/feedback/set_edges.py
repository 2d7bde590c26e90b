"""Weights of typed edges set by a user or by maintenance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crabpath_retrievers.changes import AdjustWeights, Change, WeightDelta
from crabpath_retrievers.changes.regions import TransitionCount
from crabpath_retrievers.feedback.at_once import learn_without_turn
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.rerank.posterior import Posterior
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.learned_queries import EdgeTriple


@dataclass(frozen=True, slots=True)
class EdgeSetter:
    """Sets edge weights; they decay and can be undone like learned ones."""

    store: GraphStore
    prior: Posterior

    def set_weights(self, feedback: Feedback, weights: Mapping[EdgeTriple, float]) -> Receipt:
        """Set the weights of edges, as changes relative to their current weights.

        Args:
            feedback: The feedback that carries the id for an undo, and the namespace.
            weights: Weights in [-1, 1], by keys of both ends and kind.

        Returns:
            As :func:`learn_without_turn`.
        """

        def compute_changes() -> tuple[Sequence[TransitionCount], Sequence[Change]]:
            namespace = str(feedback.namespace)
            current = self.store.learned.weights(namespace, sorted({edge[0] for edge in weights}))
            deltas = tuple(
                WeightDelta(*edge, weight - current.get(edge, 0.0))
                for edge, weight in weights.items()
            )
            return (), [AdjustWeights(namespace, deltas, feedback.feedback_id)]

        return learn_without_turn(self.store, self.prior, feedback, compute_changes)
