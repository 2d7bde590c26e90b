"""Learning from one feedback: from its credited turns to the changes, which it does not write."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.settings import apply_knobs
from crabpath_retrievers.core.changes import Change, ConsumeFeedback
from crabpath_retrievers.core.changes.learned import ModelEffects
from crabpath_retrievers.core.reliability import (
    count_against,
    count_lift,
    count_log_odds,
    measure_memories,
    measure_scales,
)
from crabpath_retrievers.learning.credit import CreditAssignment, CreditedTurn
from crabpath_retrievers.learning.lesson import Lesson
from crabpath_retrievers.learning.lift import compare_rankings
from crabpath_retrievers.learning.rules.policy_gradient import get_known_credit
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.rerank.features import FEATURES
from crabpath_retrievers.rerank.posterior import Posterior, encode_gain
from crabpath_retrievers.retrieval.episodes import EpisodeMemory
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel
from crabpath_retrievers.retrieval.notes import NoteMemory
from crabpath_retrievers.storage import Reader

_log = logging.getLogger(__name__)
_LOST = (
    "namespace %r is answered by the ranking before any lesson: feedback shows that what it "
    "learned ranks worse (`crabpath lift` shows by how much; `undo` takes wrong feedback back)"
)
_REGAINED = "namespace %r is answered by what it learned again: feedback no longer shows a loss"


@dataclass(frozen=True, slots=True)
class FeedbackLearner:
    """Computes the changes that follow from credited turns; it writes nothing."""

    episodes: EpisodeMemory
    notes: NoteMemory
    regions: Regions
    prior: Posterior
    settings: Settings

    def learn(
        self,
        read: Reader,
        feedback_id: str,
        assignment: CreditAssignment,
        note_changes: Sequence[Change] = (),
        user: str | None = None,
    ) -> tuple[list[Change], str | None]:
        """Compute all changes that follow from one feedback about turns of one namespace.

        Args:
            read: Reader of the store.
            feedback_id: Id of the feedback.
            assignment: The turns with their credit, at least one.
            note_changes: Changes of notes that follow from the feedback; undone together with it.
            user: The user who gave it; None if not known.

        Returns:
            Changes for one call of ``GraphStore.apply``, which raises ``ConflictError`` if the
            namespace has learned in the meantime; and a note if not all of the feedback counts.
        """
        state, credited = assignment.state, assignment.turns
        knobs, namespace = state.clock.knobs, credited[0].turn.namespace
        settings = self.settings if knobs is None else apply_knobs(self.settings, knobs)
        before = model = NamespaceModel.from_json(state.model, self.prior)
        lesson = Lesson(
            read,
            self.episodes,
            self.regions,
            settings,
            assignment,
            user=user,
            is_corrected=bool(note_changes),
            room=before.trust.room,
        )
        weighted, outcomes = list[CreditedTurn](), list[float]()
        for original in credited:
            known = get_known_credit(original.turn, original.credit).values()
            outcomes.append(sum(known) / len(known) if known else original.credit.outcome)
            weighted.append(lesson.learn_turn(original, model.baseline))
            model = replace(model, baseline=model.baseline.with_outcome(outcomes[-1]))
            if settings.learning.ranker:
                model = _update_ranker(model, weighted[-1])
        pairs = [(item.turn, item.credit) for item in weighted]
        trust = before.trust
        evidence = trust.count_lesson(count_log_odds(pairs, trust.lessons))
        evidence |= measure_memories(pairs) | count_against(lesson.against)
        evidence |= measure_scales(pairs, before.weigh_trials(), trust.calibrate())
        evidence |= count_lift(compare_rankings(read, pairs))
        model = replace(model, trust=model.trust.plus(evidence))
        if settings.learning.gate and model.trust.has_lost is not trust.has_lost:
            _log.warning(_LOST if model.trust.has_lost else _REGAINED, namespace)
        is_ranked = model.posterior is not before.posterior
        gain = encode_gain(before.posterior, model.posterior) if is_ranked else None
        changes = (*lesson.to_changes(namespace, feedback_id), *note_changes)
        decay = math.log(2.0) / settings.learning.half_life if settings.learning.decay else 0.0
        consumed = ConsumeFeedback(
            namespace,
            feedback_id,
            tuple(item.turn.id for item in credited),
            state.version,
            model.to_json(),
            decay * len(credited),
            ModelEffects(tuple(outcomes), evidence, gain),
            changes,
        )
        return [consumed, *changes], _explain_limit(credited, weighted)


def _explain_limit(full: Sequence[CreditedTurn], limited: Sequence[CreditedTurn]) -> str | None:
    """How much of a feedback counts that contradicts other users; None if all of it does."""
    given, counted = (sum(item.credit.weight for item in items) for items in (full, limited))
    if given == counted:
        return None
    share = counted / given
    return f"it contradicts feedback of other users and counts {share:.0%} of its full weight"


def _update_ranker(model: NamespaceModel, credited: CreditedTurn) -> NamespaceModel:
    documents = credited.credit.documents
    shown = [item for item in credited.turn.returned if item.node in documents]
    if not shown:
        return model
    matrix = np.array([[item.features.get(name, 0.0) for name in FEATURES] for item in shown])
    used = np.array([max(0.0, documents[item.node]) for item in shown])
    return model.update_ranker(matrix, used, credited.credit.weight)
