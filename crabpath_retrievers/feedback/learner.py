"""Learning from judged turns: what is read, and all the changes that follow from it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from crabpath_retrievers.changes import (
    AdjustWeights,
    Change,
    ConsumeFeedback,
    CountTogether,
    CountUse,
)
from crabpath_retrievers.config import Settings
from crabpath_retrievers.feedback.lessons import Lessons
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.learning.blame import blame
from crabpath_retrievers.learning.delta import LearnedDelta
from crabpath_retrievers.learning.hebbian import co_use
from crabpath_retrievers.learning.policy_gradient import policy_gradient
from crabpath_retrievers.mind import Mind
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.rerank.features import FEATURES
from crabpath_retrievers.rerank.posterior import Posterior
from crabpath_retrievers.seeds.episodes import Episodes
from crabpath_retrievers.seeds.notes import Notes
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.trajectory import Turn


@dataclass(frozen=True, slots=True)
class Judged:
    """A turn with its unit query vector, and what feedback says about it."""

    turn: Turn
    credit: Credit
    vector: Vector | None


@dataclass(frozen=True, slots=True)
class Learner:
    """Computes the changes that follow from judged turns; it applies nothing."""

    store: GraphStore
    episodes: Episodes
    notes: Notes
    prior: Posterior
    settings: Settings

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
            found += self._of_turn(namespace, feedback_id, item, mind)
            mind = self._taught(mind, item)
        learning = self.settings.learning
        decay = math.log(2.0) / learning.half_life if learning.decay else 0.0
        turns = tuple(item.turn.id for item in judged)
        consumed = ConsumeFeedback(
            namespace, feedback_id, turns, known.version, mind.to_json(), decay * len(turns)
        )
        return [consumed, *found]

    def _of_turn(
        self, namespace: str, feedback_id: str, judged: Judged, mind: Mind
    ) -> list[Change]:
        learning, credit = self.settings.learning, judged.credit
        lessons = Lessons.of(self.store, namespace, judged.turn, credit)
        deltas = list[LearnedDelta]()
        found: list[Change] = []
        if learning.policy_gradient:
            stop = self.settings.policy.stop
            deltas += policy_gradient(judged.turn, credit, mind.baseline.mean, learning, stop=stop)
        if learning.hebbian and credit.documents:
            habitual = self.settings.tiers.habitual
            together = co_use(credit, lessons.weights, lessons.protos, learning, habitual=habitual)
            against = blame(judged.turn, credit, lessons.weights, lessons.blamed, learning)
            deltas += [*together.deltas, *against.deltas]
            counted = lessons.counted(together.counted, against.counted)
            found += [CountTogether(namespace, counted)] if counted else []
        weights = lessons.known(deltas)
        found += [AdjustWeights(namespace, weights, feedback_id)] if weights else []
        if learning.usage and (use := lessons.use(credit)):
            found.append(CountUse(namespace, use))
        if learning.episodes and credit.outcome > 0 and credit.used:
            found += self._episode(namespace, judged)
        return found

    def _episode(self, namespace: str, judged: Judged) -> list[Change]:
        if judged.vector is None:
            return []
        clock = self.store.walk.clock(namespace)
        used = {n: c * judged.credit.weight for n, c in judged.credit.documents.items() if c > 0}
        vector = np.asarray(judged.vector, dtype=np.float32)
        return [self.episodes.change(namespace, clock, judged.turn.query, vector, used)]

    def _taught(self, mind: Mind, judged: Judged) -> Mind:
        credit = judged.credit
        taught = replace(mind, baseline=mind.baseline.updated(credit.outcome))
        shown = [r for r in judged.turn.returned if r.node in credit.documents]
        if not self.settings.learning.ranker or not shown:
            return taught
        matrix = np.array([[r.features.get(name, 0.0) for name in FEATURES] for r in shown])
        used = np.array([max(0.0, credit.documents[r.node]) for r in shown])
        return replace(taught, posterior=mind.posterior.updated(matrix, used, credit.weight))
