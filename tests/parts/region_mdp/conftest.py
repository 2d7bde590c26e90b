"""Helpers of the region tests: a planted world, and the places in which it is planted."""

from typing import NamedTuple

import pytest

from crabpath_retrievers import CrabPath
from tests.seams import get_services


class Planted(NamedTuple):
    """A memory in which one namespace has gone through a few episodes.

    Regions are named by their hubs; a hub lies in its own.
    """

    memory: CrabPath
    namespace: str
    hubs: tuple[str, ...]

    def live(self, places, actions, reward, times=1, task=None):
        """Go through an episode: the numbers of the regions, the actions in them, the end."""
        for _ in range(times):
            receipt = self.memory.regions.learn_episode(
                [self.hubs[place] for place in places],
                actions,
                reward,
                task_type=task,
                namespace=self.namespace,
            )
            assert receipt.status == "applied"

    def model(self, level=None):
        return self.memory.regions.mdp(level, namespace=self.namespace)


@pytest.fixture
def planted(atlas, namespace) -> Planted:
    """Nothing lived through yet."""
    hubs = get_services(atlas).regions.hubs(1)
    assert len(hubs.ids) > 10
    return Planted(atlas, namespace, hubs.ids)
