"""What one namespace knows of ranking and of its usual outcome, and how it is read back."""

import json
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from crabpath_retrievers.changes.history import Taught
from crabpath_retrievers.config import Settings
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.learning.baseline import Baseline
from crabpath_retrievers.learning.trust import ADVICE, MEMORIES, Trust
from crabpath_retrievers.regions.advice import Advice, Advisor
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.rerank.features import FEATURES, Hit, Matrix
from crabpath_retrievers.rerank.posterior import Posterior, gained, without
from crabpath_retrievers.rerank.ranker import Ranker
from crabpath_retrievers.seeds.episodes import Episodes, Question, Recalled
from crabpath_retrievers.seeds.notes import Notes
from crabpath_retrievers.seeds.search import Recollection
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.walk_queries import Clock
from crabpath_retrievers.terms import Floats

_log = logging.getLogger(__name__)
_KEPT = 64  # namespaces whose ranking is kept at hand
_DRAWS = 64  # standard error of a propensity: at most .06


@dataclass(frozen=True, slots=True)
class Mind:
    """What a namespace knows.

    Attributes:
        posterior: Over the weights of the ranker.
        baseline: Of the policy gradient: the mean credit of what was returned so far.
        trust: How far its memories may be believed.
    """

    posterior: Posterior
    baseline: Baseline = field(default_factory=Baseline)
    trust: Trust = field(default_factory=Trust)

    def to_json(self) -> str:
        """As it is stored."""
        baseline = {"mean": self.baseline.mean, "count": self.baseline.count}
        trust = dict(self.trust.spoken)
        parts = {"baseline": baseline, "trust": trust, "ranker": self.posterior.to_dict()}
        return json.dumps(parts)

    @classmethod
    def from_json(cls, text: str | None, prior: Posterior) -> "Mind":
        """The inverse of :meth:`to_json`; None is a namespace that never learned."""
        if text is None:
            return cls(prior)
        data = json.loads(text)
        posterior = Posterior.from_dict(data["ranker"], prior)
        trust = Trust({memory: (a, b) for memory, (a, b) in data["trust"].items()})
        return cls(posterior, Baseline(**data["baseline"]), trust)

    def weights(self, drawn: Floats | None = None) -> Floats:
        """Of the ranker, in log-odds: the expected ones ``[F]``, or drawn ones ``[draws, F]``."""
        return self._believed(self.posterior.mean if drawn is None else drawn)

    def seen(self, matrix: Matrix, used: Floats, weight: float) -> "Mind":
        """What it knows of ranking after seeing which documents were used.

        Args:
            matrix: Features of the documents, shape ``[n, F]``.
            used: Credit of each in [0, 1], shape ``[n]``.
            weight: How much this counts, in [0, 1].
        """
        posterior = self.posterior.updated(self._believed(matrix), used, weight)
        return replace(self, posterior=posterior)

    def _believed(self, columns: Floats) -> Floats:
        """Weights or features, shape ``[..., F]``, of memories as far as they are trusted."""
        found = columns.copy()
        for memory in MEMORIES:
            found[..., FEATURES.index(memory)] *= self.trust.factor(memory)
        found[..., FEATURES.index(ADVICE)] *= self.trust.believed()
        return found

    def gained(self, before: "Mind") -> bytes | None:
        """What the ranker has learned since, packed; None for nothing."""
        if self.posterior is before.posterior:
            return None
        return gained(before.posterior, self.posterior)

    def without(self, taught: Taught, since: int) -> "Mind":
        """What it would know without what one feedback taught.

        Args:
            taught: That.
            since: How many outcomes have been learned from since, and stand.
        """
        baseline, count = self.baseline, taught.count + len(taught.outcomes)
        for outcome in reversed(taught.outcomes):
            count -= 1
            baseline = baseline.without(outcome, count, since)
        trust = self.trust.plus(taught.spoken, -1.0)
        if taught.ranker is None:
            return Mind(self.posterior, baseline, trust)
        return Mind(without(self.posterior, taught.ranker), baseline, trust)


class Minds:
    """Applies to a query what its namespace has learned."""

    def __init__(
        self,
        store: GraphStore,
        episodes: Episodes,
        notes: Notes,
        regions: Regions,
        ranker: Ranker,
        settings: Settings,
    ) -> None:
        """Read from ``store``; ``ranker`` is the shipped prior."""
        self._store, self._episodes, self._ranker = store, episodes, ranker
        self._notes = notes
        self._settings = settings.learning
        self._advisor = Advisor(store, regions, settings.region)
        self.prior = Posterior.of(ranker.weights, settings.learning.prior_strength)
        self._rankers: dict[int, tuple[int, Ranker]] = {}

    def ranker(
        self, namespace: str, clock: Clock, explore: np.random.Generator | None = None
    ) -> Ranker:
        """The ranker as this namespace has taught it, or one drawn from what it believes.

        Args:
            namespace: Whose.
            clock: Where it stands.
            explore: Draws one.
        """
        if explore is not None:
            return self._drawn(namespace, explore)
        if not clock.learned:
            return self._ranker
        version, ranker = self._rankers.get(clock.key, (0, self._ranker))
        if version != clock.learned:
            learned = self._store.learned.learned(namespace)
            mind = self._mind(namespace, learned.mind)
            ranker = self._ranker.with_weights(mind.weights())
            if len(self._rankers) >= _KEPT:
                self._rankers.pop(next(iter(self._rankers)), None)
            self._rankers[clock.key] = (learned.version, ranker)
        return ranker

    def _drawn(self, namespace: str, rng: np.random.Generator) -> Ranker:
        """One to explore with, and more draws that tell what was likely (Thompson 1933)."""
        mind = self._mind(namespace, self._store.learned.learned(namespace).mind)
        weights = mind.weights(mind.posterior.sampled(rng, 1 + _DRAWS))
        return replace(self._ranker, weights=weights[0], draws=weights[1:])

    def _mind(self, namespace: str, text: str | None) -> Mind:
        """What a namespace knows; an answer must not fail because that is damaged."""
        try:
            return Mind.from_json(text, self.prior)
        except Exception as error:
            _log.warning("what %r has learned is damaged and passed over: %r", namespace, error)
            return Mind(self.prior)

    def recall(self, question: Question, clock: Clock) -> Recollection:
        """What past turns say about documents, and the notes that are near."""
        said: dict[str, Recalled] = {}
        if (clock.learned or clock.notes) and self._settings.episodes:
            said = self._episodes.recall(question, clock)
        near = self._notes.near(question.vector, clock)
        gone = self.expired({**said, **near}, clock)
        return Recollection(
            {node: told for node, told in said.items() if node not in gone},
            tuple(node for node in near if node not in gone),
        )

    def expired(self, ids: Iterable[str], clock: Clock) -> set[str]:
        """Those of the nodes that are notes whose probation is over."""
        return self._notes.expired(ids, clock)

    def experienced(self, pool: Sequence[Hit], clock: Clock) -> list[Hit]:
        """Candidates with what past use of each of them says."""
        if not clock.learned or not self._settings.usage:
            return list(pool)
        known = self._store.learned.usage(clock.key, [hit.head.key for hit in pool])
        wins, losses = self._settings.usage_prior
        usual = wins / (wins + losses)
        return [
            hit
            if (use := known.get(hit.head.key)) is None
            else hit._replace(
                usage=(wins + use.wins) / (wins + losses + use.wins + use.losses) - usual,
                decayed=-math.expm1(-use.decay),
            )
            for hit in pool
        ]

    def advice(self, vector: Vector, clock: Clock, task: str | None) -> Advice | None:
        """What steps are worth where a query lies; None where nothing is known."""
        if not clock.learned or not self._settings.regions:
            return None
        return self._advisor.advice(vector, clock, task)
