"""Learning from one turn: what is read, what follows from it, and that it is applied once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from crabpath_retrievers.changes import Change, ConsumeFeedback, CountUse
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.mind import Mind
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.rerank.features import FEATURES
from crabpath_retrievers.rerank.posterior import Posterior
from crabpath_retrievers.seeds.episodes import Episodes
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.trajectory import Turn

_SLOWEST = 200.0  # outcomes that the running mean remembers


@dataclass(frozen=True, slots=True)
class Judged:
    """A turn and what feedback says about it."""

    turn: Turn
    credit: Credit
    vector: Vector | None


@dataclass(frozen=True, slots=True)
class Learner:
    """Computes the changes that follow from judged turns; it applies nothing."""

    store: GraphStore
    episodes: Episodes
    prior: Posterior
    settings: LearningSettings

    def changes(self, namespace: str, feedback_id: str, judged: Sequence[Judged]) -> list[Change]:
        """All that follows from one feedback about turns of one namespace.

        Returns:
            Changes for one call of ``GraphStore.apply``; it raises ``ConflictError`` when the
            namespace has learned in the meantime.
        """
        known = self.store.learned.learned(namespace)
        mind = Mind.from_json(known.mind, self.prior)
        found: list[Change] = []
        for item in judged:
            found += self._of_turn(namespace, item)
            mind = _taught(mind, item, self.settings)
        decay = math.log(2.0) / self.settings.half_life if self.settings.decay else 0.0
        consumed = ConsumeFeedback(
            namespace,
            feedback_id,
            tuple(item.turn.id for item in judged),
            known.version,
            mind.to_json(),
            exponent=decay * len(judged),
        )
        return [consumed, *found]

    def _of_turn(self, namespace: str, judged: Judged) -> list[Change]:
        credit = judged.credit
        nodes = [*credit.documents]
        keys = self.store.learned.keys(nodes)
        found: list[Change] = []
        if self.settings.usage and keys:
            found.append(CountUse(namespace, _use(credit, keys)))
        if self.settings.episodes and credit.outcome > 0 and credit.used:
            found += self._episode(namespace, judged)
        return found

    def _episode(self, namespace: str, judged: Judged) -> list[Change]:
        if judged.vector is None:
            return []
        clock = self.store.walk.clock(namespace)
        used = {n: c * judged.credit.weight for n, c in judged.credit.documents.items() if c > 0}
        vector = np.asarray(judged.vector, dtype=np.float32)
        return [self.episodes.change(namespace, clock, judged.turn.query, vector, used)]


def _use(credit: Credit, keys: dict[str, int]) -> tuple[tuple[int, float, float], ...]:
    return tuple(
        (keys[node], credit.weight * max(0.0, c), credit.weight * (1.0 if c <= 0 else 0.0))
        for node, c in credit.documents.items()
        if node in keys
    )


def _taught(mind: Mind, judged: Judged, settings: LearningSettings) -> Mind:
    credit = judged.credit
    count = mind.outcomes + credit.weight
    mean = mind.outcome
    if count > 0:
        mean += (credit.outcome - mean) * credit.weight / min(count, _SLOWEST)
    taught = replace(mind, outcome=mean, outcomes=count)
    shown = [r for r in judged.turn.returned if r.node in credit.documents]
    if not settings.ranker or not shown:
        return taught
    matrix = np.array([[r.features.get(name, 0.0) for name in FEATURES] for r in shown])
    used = np.array([max(0.0, credit.documents[r.node]) for r in shown])
    return replace(taught, posterior=mind.posterior.updated(matrix, used, credit.weight))
