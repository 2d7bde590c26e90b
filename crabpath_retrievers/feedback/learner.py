"""Learning from judged turns: what is read, and all the changes that follow from it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crabpath_retrievers.changes import Change, ConsumeFeedback
from crabpath_retrievers.config import Settings
from crabpath_retrievers.feedback.harvest import Harvest
from crabpath_retrievers.feedback.lessons import Lessons
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.learning.blame import blame
from crabpath_retrievers.learning.delta import LearnedDelta
from crabpath_retrievers.learning.hebbian import co_use
from crabpath_retrievers.learning.policy_gradient import policy_gradient
from crabpath_retrievers.learning.remembered import remembered
from crabpath_retrievers.learning.routes import known_credit
from crabpath_retrievers.learning.trust import spoken
from crabpath_retrievers.mind import Mind
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.rerank.features import FEATURES
from crabpath_retrievers.rerank.posterior import Posterior
from crabpath_retrievers.seeds.episodes import Episodes, Remembered
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

    def changes(
        self,
        namespace: str,
        feedback_id: str,
        judged: Sequence[Judged],
        noted: Sequence[Change] = (),
    ) -> list[Change]:
        """All that follows from one feedback about turns of one namespace.

        Args:
            namespace: That.
            feedback_id: The feedback.
            judged: The turns.
            noted: What it adds to notes, to be taken back with all else.

        Returns:
            Changes for one call of ``GraphStore.apply``; it raises ``ConflictError`` when the
            namespace has learned in the meantime.
        """
        known = self.store.learned.learned(namespace)
        before = mind = Mind.from_json(known.mind, self.prior)
        harvest = Harvest(noted=noted)
        usual = [_usual(item) for item in judged]
        for item, credit in zip(judged, usual, strict=True):
            self._learn(namespace, item, mind, harvest, known.version)
            mind = self._taught(mind, item, credit)
        said = spoken((item.turn, item.credit) for item in judged)
        mind = replace(mind, trust=mind.trust.plus(said))
        learning = self.settings.learning
        decay = math.log(2.0) / learning.half_life if learning.decay else 0.0
        consumed = ConsumeFeedback(
            namespace,
            feedback_id,
            tuple(item.turn.id for item in judged),
            known.version,
            mind.to_json(),
            decay * len(judged),
            harvest.taught(usual, before.baseline.count, said, mind.gained(before)),
        )
        return [consumed, *harvest.changes(namespace, feedback_id)]

    def _learn(
        self, namespace: str, judged: Judged, mind: Mind, harvest: Harvest, version: int
    ) -> None:
        learning, credit = self.settings.learning, judged.credit
        lessons = Lessons.of(self.store, namespace, judged.turn, credit)
        deltas = list[LearnedDelta]()
        if learning.policy_gradient:
            stop = self.settings.policy.stop
            # A bare outcome says the same of every document: what one of them did is a share of it.
            share = 1.0 if credit.documents else 1.0 / max(1, len(judged.turn.returned))
            careful = replace(learning, rate=learning.rate * share)
            deltas += policy_gradient(judged.turn, credit, mind.baseline.mean, careful, stop=stop)
        if learning.hebbian and credit.documents:
            habitual = self.settings.tiers.habitual
            together = co_use(credit, lessons.weights, lessons.protos, learning, habitual=habitual)
            against = blame(judged.turn, credit, lessons.weights, lessons.blamed, learning)
            deltas += [*together.deltas, *against.deltas]
            counted = lessons.counted(together.counted, against.counted)
            harvest.count(counted, lessons.counts)
        harvest.deltas += lessons.known(deltas)
        if learning.usage:
            harvest.use(lessons.use(credit))
        said = remembered(judged.turn, credit)
        if learning.episodes and said and judged.vector is not None:
            harvest.remember(self._episode(namespace, judged, said, judged.vector, version))

    def _episode(
        self,
        namespace: str,
        judged: Judged,
        said: Mapping[str, float],
        vector: Vector,
        version: int,
    ) -> Remembered:
        clock = self.store.walk.clock(namespace)._replace(learned=version)
        single = np.asarray(vector, dtype=np.float32)
        told = judged.credit.told
        return self.episodes.change(namespace, clock, judged.turn.query, single, said, told=told)

    def _taught(self, mind: Mind, judged: Judged, usual: float) -> Mind:
        credit = judged.credit
        taught = replace(mind, baseline=mind.baseline.updated(usual))
        shown = [r for r in judged.turn.returned if r.node in credit.documents]
        if not self.settings.learning.ranker or not shown:
            return taught
        matrix = np.array([[r.features.get(name, 0.0) for name in FEATURES] for r in shown])
        used = np.array([max(0.0, credit.documents[r.node]) for r in shown])
        return taught.seen(matrix, used, credit.weight)


def _usual(judged: Judged) -> float:
    """What decisions are compared with: the mean credit of what was returned, in [-1, 1]."""
    known = known_credit(judged.turn, judged.credit).values()
    return sum(known) / len(known) if known else judged.credit.outcome
