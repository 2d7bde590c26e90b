"""What a namespace knows of the region in which a query lies, while it is answered."""

from collections.abc import Sequence
from dataclasses import dataclass

from crabpath_retrievers.changes.regions import Place
from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.regions.chances import ANY_TASK, Chances, log_odds
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.routing.experience import Tried
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.walk_queries import Clock

_ENOUGH = 8.0  # trials from which an action is named


@dataclass(frozen=True, slots=True)
class Advice:
    """What steps are worth where a query lies.

    Attributes:
        places: The regions of the query, everything first.
        chances: How likely steps succeed there.
        task: Type of the task; empty where none is given.
    """

    places: Sequence[Place]
    chances: Chances
    task: str

    def of_action(self, action: str) -> float:
        """How much better an action does here than elsewhere, in log-odds; 0 where not known.

        Beside the other actions: what a region does to all of them says nothing of one.
        """
        here = self._odds(action, self.task) - self._odds("", self.task)
        return here - self._odds(action, ANY_TASK, 0) + self._odds("", ANY_TASK, 0)

    def _odds(self, action: str, task: str, depth: int | None = None) -> float:
        return log_odds(self.chances.success(action, task, depth))

    def tried(self) -> list[Tried]:
        """Actions that were taken here often enough to speak of, each in the finest such region."""
        return [
            Tried(action, self.chances.success(action, self.task, depth), trials)
            for action in self.chances.actions
            for depth, trials in self._often(action)
        ]

    def _often(self, action: str) -> list[tuple[int, float]]:
        """The finest region, by depth, in which an action has enough trials, and their number."""
        finest_first = range(len(self.places) - 1, 0, -1)
        trials = ((depth, self.chances.trials(action, depth=depth)) for depth in finest_first)
        return [one for one in trials if one[1] >= _ENOUGH][:1]


@dataclass(frozen=True, slots=True)
class Advisor:
    """Reads it: one product with the hubs, one query."""

    store: GraphStore
    regions: Regions
    settings: RegionSettings

    def advice(self, vector: Vector, clock: Clock, task: str | None) -> Advice | None:
        """For a query in a namespace; None where the corpus has no regions.

        Args:
            vector: Unit query vector, shape ``[d]``.
            clock: Where the namespace stands.
            task: Type of the task.
        """
        if not clock.hubs:
            return None
        places = self.regions.places(vector, clock.hubs)
        steps = self.store.regions.steps(clock.key, places)
        if not steps:
            return None
        return Advice(places, Chances(places, steps, self.settings.prior_trials), task or ANY_TASK)
