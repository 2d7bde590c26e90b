"""Transition counts of one namespace on one level, grouped for the region MDP."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from crabpath_retrievers.changes.regions import TransitionCount
from crabpath_retrievers.regions.chances import SuccessModel
from crabpath_retrievers.regions.hubs import WHOLE_CORPUS


@dataclass(frozen=True)
class RegionCounts:
    """Transition counts at one version, grouped once."""

    version: Hashable
    steps: Sequence[TransitionCount]
    level: int
    strength: float
    _chances: dict[int, SuccessModel] = field(default_factory=dict)

    @cached_property
    def by_region(self) -> Mapping[int, Sequence[TransitionCount]]:
        """Counts of the level by key of the region."""
        steps_by_region: dict[int, list[TransitionCount]] = {}
        for step in self.steps:
            if step.level:
                steps_by_region.setdefault(step.region, []).append(step)
        return steps_by_region

    @cached_property
    def everywhere(self) -> Sequence[TransitionCount]:
        """Counts of all regions together."""
        return [step for step in self.steps if not step.level]

    @cached_property
    def actions(self) -> frozenset[str]:
        """All action types."""
        return frozenset(step.action for step in self.steps if step.action)

    def chances(self, region: int) -> SuccessModel:
        """Return the success estimates of one region."""
        if region not in self._chances:
            places = (WHOLE_CORPUS, (self.level, region))
            steps = (*self.everywhere, *self.by_region.get(region, ()))
            self._chances[region] = SuccessModel(places, steps, self.strength)
        return self._chances[region]
