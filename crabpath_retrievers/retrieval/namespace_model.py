"""What a namespace has learned: ranker weights, usual outcome, reliability of memories."""

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.changes import (
    AddPairCounts,
    AddTransitions,
    AddUsage,
    AdjustWeights,
    Change,
    ConsumeFeedback,
    KeepEpisode,
    ModelEffects,
)
from crabpath_retrievers.core.feedback import Baseline
from crabpath_retrievers.core.processes import raise_interruption
from crabpath_retrievers.core.records import Candidate, Vector
from crabpath_retrievers.core.text import Floats
from crabpath_retrievers.regions import RegionIndex, list_tried_actions
from crabpath_retrievers.rerank import (
    FEATURES,
    PASSES,
    SCALED_FEATURES,
    USES,
    Matrix,
    Posterior,
    Ranker,
    Reliability,
    remove_gain,
)
from crabpath_retrievers.retrieval.episodes import (
    EpisodeMemory,
    EpisodeQuery,
    NoteMemory,
    PastTurns,
)
from crabpath_retrievers.routing import ActionStatistics
from crabpath_retrievers.storage import Reader, Store
from crabpath_retrievers.storage.read.learned import UsageCounts
from crabpath_retrievers.storage.read.walk import Clock, VersionCache
from crabpath_retrievers.storage.write.transaction import Write

_log = logging.getLogger(__name__)
_CACHED = 64  # namespaces with a cached ranker
_TRIED = dict.fromkeys((*USES, *PASSES))
_TRIALS = [FEATURES.index(name) for name in _TRIED]
_FOLLOWED = (
    *(AddPairCounts, AddTransitions, AddUsage, AdjustWeights, ConsumeFeedback, KeepEpisode, Write),
)
_DRAWS = 64  # for propensities: standard error at most .06


@dataclass(frozen=True, slots=True)
class NamespaceModel:
    """Ranking model of a namespace.

    Attributes:
        posterior: Distribution of the ranker's weights.
        baseline: Baseline of the policy gradient: mean credit of the documents returned so far
            (Williams 1992).
        trust: Reliability of its memories.
    """

    posterior: Posterior
    baseline: Baseline = field(default_factory=Baseline)
    trust: Reliability = field(default_factory=Reliability)

    def to_json(self) -> str:
        """Write the model as JSON."""
        baseline = {"mean": self.baseline.mean, "count": self.baseline.count}
        trust = dict(self.trust.spoken)
        parts = {"baseline": baseline, "trust": trust, "ranker": self.posterior.to_dict()}
        return json.dumps(parts)

    @classmethod
    def from_json(cls, text: str | None, prior: Posterior) -> "NamespaceModel":
        """Read the model from text of :meth:`to_json`; None gives the model before any feedback."""
        if text is None:
            return cls(prior)
        data = json.loads(text)
        posterior = Posterior.from_dict(data["ranker"], prior)
        return cls(posterior, Baseline(**data["baseline"]), _parse_trust(data))

    @staticmethod
    def read_trust(text: str | None) -> Reliability:
        """Read the reliability of memories from a model as JSON; None is before any feedback."""
        return Reliability() if text is None else _parse_trust(json.loads(text))

    def weights(self, drawn: Floats | None = None) -> Floats:
        """Compute the ranker's weights in log-odds: the mean ``[F]``, or draws ``[draws, F]``."""
        return self._scale_memories(self.posterior.mean if drawn is None else drawn)

    def update_ranker(self, matrix: Matrix, used: Floats, weight: float) -> "NamespaceModel":
        """Update the model by one feedback on returned documents."""
        scaled = self._scale_memories(matrix)
        trials = scaled[:, _TRIALS] @ self.posterior.mean[_TRIALS]
        scaled[:, _TRIALS] = 0.0
        # The model is responsible for its share of the trials.
        posterior = self.posterior.update(scaled, used, weight / (1.0 + trials))
        return replace(self, posterior=posterior)

    def _scale_memories(self, columns: Floats) -> Floats:
        """Scale memories and trials in weights or features, ``[..., F]``, by their reliability."""
        scaled = columns.copy()
        for name, memory in SCALED_FEATURES.items():
            scaled[..., FEATURES.index(name)] *= self.trust.factor(memory)
        scaled[..., _TRIALS] *= self.trust.scale_trials()
        return scaled

    def weigh_trials(self) -> dict[str, float]:
        """Compute how many trials one unit of each feature of past uses is, before scaling."""
        weights = {name: float(self.posterior.mean[FEATURES.index(name)]) for name in _TRIED}
        for name in _TRIED.keys() & SCALED_FEATURES.keys():
            weights[name] *= self.trust.factor(SCALED_FEATURES[name])
        return weights

    def without(self, effects: ModelEffects, later: Sequence[float]) -> "NamespaceModel":
        """Return the model without the ``effects`` of one feedback.

        ``later`` are the outcomes learned after that feedback that are still in effect.
        """
        baseline = self.baseline
        for outcome in reversed(effects.outcomes):
            baseline = baseline.without(outcome, later)
        trust = self.trust.plus(effects.reliability, -1.0)
        if effects.ranker is None:
            return NamespaceModel(self.posterior, baseline, trust)
        return NamespaceModel(remove_gain(self.posterior, effects.ranker), baseline, trust)


def _parse_trust(data: Mapping[str, Any]) -> Reliability:
    return Reliability({memory: (a, b) for memory, (a, b) in data["trust"].items()})


class NamespaceModels:
    """Applies the learned models of namespaces to queries."""

    def __init__(
        self,
        episodes: EpisodeMemory,
        notes: NoteMemory,
        regions: RegionIndex,
        ranker: Ranker,
        settings: Settings,
    ) -> None:
        """Keep the memories of namespaces, and ``ranker``, the shipped prior."""
        self._episodes, self._ranker = episodes, ranker
        self._notes = notes
        self._settings = settings.learning
        self._regions, self._region_settings = regions, settings.region
        self.prior = Posterior.of(ranker.weights, settings.learning.prior_strength)
        self._rankers: dict[int, tuple[int, Ranker, bool]] = {}
        self._usage = VersionCache[int, UsageCounts]()

    def ranker(
        self,
        read: Reader,
        namespace: str,
        clock: Clock,
        explore: np.random.Generator | None = None,
    ) -> Ranker:
        """Make the ranker with the weights that a namespace has learned.

        ``explore`` draws weights from their distribution; None takes their mean.
        """
        if explore is not None:
            return self._draw_ranker(read, namespace, explore)
        return self._get(read, namespace, clock)[1]

    def has_lost(self, read: Reader, namespace: str, clock: Clock) -> bool:
        """Whether feedback shows that what a namespace has learned ranks worse.

        The ranking before any lesson then answers. False if the settings turn the gate off.
        """
        return self._settings.gate and self._get(read, namespace, clock)[2]

    def _get(self, read: Reader, namespace: str, clock: Clock) -> tuple[int, Ranker, bool]:
        """Return a namespace's version, its learned ranker, and whether learning has lost there."""
        found = self._rankers.get(clock.key, (0, self._ranker, False))
        if found[0] != clock.learned:
            learned = read.learned.get_state(namespace)
            model = self._load(namespace, learned.model)
            found = self._keep_ranker(clock.key, learned.version, model)
        return found

    def _keep_ranker(
        self, key: int, version: int, model: NamespaceModel
    ) -> tuple[int, Ranker, bool]:
        """Make and cache the ranker of a version of a namespace's model; return as :meth:`_get`."""
        calibration = model.trust.calibrate()
        ranker = replace(self._ranker, weights=model.weights(), calibration=calibration)
        if len(self._rankers) >= _CACHED:
            self._rankers.pop(next(iter(self._rankers)), None)
        found = self._rankers[key] = version, ranker, model.trust.has_lost
        return found

    def follow_lesson(
        self, store: Store, before: Clock, model: NamespaceModel, changes: Sequence[Change]
    ) -> None:
        """Keep what is cached of a namespace, of which this process has written a lesson.

        Args:
            before: Its clock when the lesson was computed; another lesson since would have failed.
            model: What it knows now.
            changes: All changes of the lesson. Where others than those of edges, uses and episodes
                are among them, everything is read again.
        """
        if not before.key or not all(isinstance(change, _FOLLOWED) for change in changes):
            return
        moved = [delta for one in changes if isinstance(one, AdjustWeights) for delta in one.deltas]
        used = [key for one in changes if isinstance(one, AddUsage) for key, *_ in one.counts]
        self._keep_ranker(before.key, before.learned + 1, model)
        self._usage.follow_lesson(before, used)
        kept = [change for change in changes if isinstance(change, KeepEpisode)]
        self._episodes.follow_lesson(before, kept)
        store.walk.follow_lesson(before, {delta.source for delta in moved})

    def reopen(self) -> None:
        """Empty all caches, since a transaction with lessons was not committed."""
        self._rankers, self._usage = {}, VersionCache[int, UsageCounts]()
        self._episodes.reopen()

    def _draw_ranker(self, read: Reader, namespace: str, rng: np.random.Generator) -> Ranker:
        """Draw a ranker for exploration (Thompson 1933) by ``rng``, with draws for propensities."""
        model = self._load(namespace, read.learned.get_state(namespace).model)
        weights = model.weights(model.posterior.sample(rng, 1 + _DRAWS))
        calibration = model.trust.calibrate()
        return replace(self._ranker, weights=weights[0], draws=weights[1:], calibration=calibration)

    def _load(self, namespace: str, text: str | None) -> NamespaceModel:
        """Read the model of a namespace from JSON; None or a damaged one gives the prior."""
        try:
            return NamespaceModel.from_json(text, self.prior)
        except Exception as error:
            raise_interruption(error)
            _log.warning("the learned model of %r is damaged and ignored: %r", namespace, error)
            return NamespaceModel(self.prior)

    def search_ahead(
        self, read: Reader, namespace: str, vectors: Sequence[Vector]
    ) -> AbstractContextManager[object]:
        """Search at once for the past turns of several questions, given by vector.

        Questions asked in the block use the results.
        """
        return self._episodes.search_ahead(read, read.walk.get_clock(namespace), vectors)

    def recall(
        self, read: Reader, question: EpisodeQuery, clock: Clock
    ) -> tuple[list[PastTurns], list[str]]:
        """Recall turns of past queries with the documents used, and ids of the nearest notes.

        Notes whose probation has ended are left out of both.
        """
        recalled = self._episodes.recall(read, question, clock) if self._settings.episodes else []
        if not clock.notes:
            return recalled, []
        near = self._notes.near(read, question.vector, clock)
        known = {node for turns in recalled for node in turns.documents}
        expired = self.find_expired(read, {*known, *near}, clock)
        kept = [
            turns._replace(documents={n: c for n, c in turns.documents.items() if n not in expired})
            for turns in recalled
        ]
        return kept if expired else recalled, [node for node in near if node not in expired]

    def find_expired(self, read: Reader, ids: Iterable[str], clock: Clock) -> set[str]:
        """Select those of ``ids`` that are notes whose probation has ended without a use."""
        return self._notes.find_expired(read, ids, clock)

    def add_usage(self, read: Reader, pool: Sequence[Candidate], clock: Clock) -> list[Candidate]:
        """Copy the candidates in ``pool``, with ``usage``, ``decayed`` and ``shown`` set.

        The three are counted from past turns; documents without any keep their values.
        """
        if not self._settings.usage:
            return list(pool)
        known = self._usage.get_rows(
            clock,
            [hit.head.key for hit in pool],
            lambda new: read.learned.usage(clock.key, new),
        )
        wins, losses = self._settings.usage_prior
        usual = wins / (wins + losses)
        found = list(pool)
        for place, hit in enumerate(pool):
            if (counts := known.get(hit.head.key)) is not None:
                won, lost, decay = counts
                share = (wins + won) / (wins + losses + won + lost)
                decayed = -math.expm1(-decay) if decay else 0.0
                # All fields at once: twice as fast as _replace.
                found[place] = Candidate(*hit[:-3], share - usual, decayed, won + lost)
        return found

    def list_tried_actions(
        self, read: Reader, vector: Vector, clock: Clock, task: str | None
    ) -> Sequence[ActionStatistics]:
        """List the success of actions in a query's region; empty if nothing was learned."""
        if not clock.learned or not self._settings.regions:
            return ()
        own = self._regions, self._region_settings
        return list_tried_actions(read, *own, vector, clock, task)
