"""``RegionMDP``: the process over the regions of one memory, as one namespace has lived it."""

from collections.abc import Sequence
from typing import Any, Protocol

from crabpath_retrievers.feedback.experience import Classify
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE
from crabpath_retrievers.query import namespace_of
from crabpath_retrievers.regions.mdp import RegionModel
from crabpath_retrievers.regions.models import Models


class Regional(Protocol):
    """What it needs of a memory."""

    def region_models(self) -> Models:
        """Reads regions and counts."""

    def assign_region(self, vector: str | Sequence[float], level: int | None = None) -> str:
        """The region of a text or a vector."""

    def learn_episode(self, *args: Any, **options: Any) -> Receipt:
        """Learn from an episode."""


class RegionMDP(RegionModel):
    """States are regions, actions are types of steps, the reward is the outcome of the episode.

    Document 004 A. It learns from every judged turn and from :meth:`learn_episode`, and is always
    up to date with what its namespace has learned.
    """

    def __init__(
        self, memory: Regional, level: int | None = None, *, namespace: str = DEFAULT_NAMESPACE
    ) -> None:
        """Read what a namespace of a memory knows.

        Args:
            memory: A ``CrabPath``.
            level: One of ``CrabPath.region_levels()``; None for the finest.
            namespace: Whose experience.

        Raises:
            NotFoundError: The level has no hub, or steps are not counted on it.
            InvalidInputError: The level is none.
        """
        self._memory, self.namespace = memory, namespace_of(namespace)
        super().__init__(*memory.region_models().sources(self.namespace, level))

    def assign(self, state: str | Sequence[float]) -> str:
        """The region of a text, or of a vector of shape ``[d]``: id of its hub.

        Raises:
            InvalidInputError: It cannot be used.
            EmbeddingMismatchError: The vector has another dimension.
        """
        return self._memory.assign_region(state, self.level)

    def learn_episode(
        self,
        states: Sequence[Any] | None = None,
        actions: Sequence[Any] | None = None,
        reward: float | None = None,
        *,
        texts: Sequence[str] | None = None,
        task_type: str | None = None,
        classify: Classify | None = None,
        episode_id: str | None = None,
    ) -> Receipt:
        """Learn from an episode of this namespace; as ``CrabPath.learn_episode``."""
        return self._memory.learn_episode(
            states,
            actions,
            reward,
            texts=texts,
            task_type=task_type,
            classify=classify,
            episode_id=episode_id,
            namespace=self.namespace,
        )
