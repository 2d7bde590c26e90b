"""Learning from credited turns: reads the context of a turn and computes all changes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.settings import apply_knobs
from crabpath_retrievers.core.changes import Change, ConsumeFeedback, KeepEpisode, SettleFeedback
from crabpath_retrievers.core.changes.learned import LearnedDelta
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.core.reliability import measure_memories
from crabpath_retrievers.core.text import hash_question
from crabpath_retrievers.core.turn import Turn
from crabpath_retrievers.learning.change_set import ChangeSet
from crabpath_retrievers.learning.rules.episode_credit import (
    assign_episode_credit,
    limit_user_share,
)
from crabpath_retrievers.learning.rules.failure_credit import (
    assign_hindsight_credit,
    compute_reward_decay,
    share_blame,
)
from crabpath_retrievers.learning.rules.hebbian import infer_co_use, update_co_use
from crabpath_retrievers.learning.rules.inhibition import InhibitionUpdate, update_inhibition
from crabpath_retrievers.learning.rules.policy_gradient import (
    compute_policy_gradient,
    get_known_credit,
)
from crabpath_retrievers.learning.rules.transitions import count_turn_steps
from crabpath_retrievers.learning.turn_context import LearnedEdges, TurnRegionReader, TurnRegions
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.rerank.features import FEATURES
from crabpath_retrievers.rerank.posterior import Posterior
from crabpath_retrievers.retrieval.episodes import EpisodeMemory, EpisodeUpdate
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel
from crabpath_retrievers.retrieval.notes import NoteMemory
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.learned import NamespaceState, StoredEpisode


@dataclass(frozen=True, slots=True)
class CreditedTurn:
    """A turn with its unit query vector, and the credit that a feedback assigns to it."""

    turn: Turn
    credit: Credit
    vector: Vector | None


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What the store knows about a credited turn.

    Attributes:
        regions_of_turn: Regions of its query and documents.
        shared_credit: Its credit, with the blame of a failure shared among the documents.
        baseline: Mean credit in the region of the query, in [-1, 1].
        decays: Decay of rewards, in nats by node id.
    """

    regions_of_turn: TurnRegions
    shared_credit: Credit
    baseline: float
    decays: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FeedbackLearner:
    """Computes the changes that follow from credited turns; it writes nothing."""

    store: GraphStore
    episodes: EpisodeMemory
    notes: NoteMemory
    regions: Regions
    prior: Posterior
    settings: Settings

    def compute_changes(
        self,
        namespace: str,
        feedback_id: str,
        credited: Sequence[CreditedTurn],
        note_changes: Sequence[Change] = (),
        user: str | None = None,
    ) -> list[Change]:
        """Compute all changes that follow from one feedback about turns of one namespace.

        Args:
            namespace: The namespace.
            feedback_id: Id of the feedback.
            credited: The turns with their credit.
            note_changes: Changes of notes that follow from the feedback; undone together with it.
            user: The user who gave it; None if not known.

        Returns:
            Changes for one call of ``GraphStore.apply``, which raises ``ConflictError`` if the
            namespace has learned in the meantime.
        """
        known = self.store.learned.get_state(namespace)
        learner = replace(self, settings=apply_knobs(self.settings, known.knobs))
        return learner._collect_changes(namespace, feedback_id, credited, note_changes, known, user)  # noqa: SLF001

    def _collect_changes(
        self,
        namespace: str,
        feedback_id: str,
        credited: Sequence[CreditedTurn],
        note_changes: Sequence[Change],
        known: NamespaceState,
        user: str | None,
    ) -> list[Change]:
        before = mind = NamespaceModel.from_json(known.mind, self.prior)
        change_set = ChangeSet(note_changes=note_changes)
        mean_credit = [_compute_mean_credit(item) for item in credited]
        weighted: list[CreditedTurn] = []
        for original, credit in zip(credited, mean_credit, strict=True):
            item, context, change = self._limit_turn(
                namespace, original, known.version, mind, note_changes, user
            )
            weighted.append(item)
            self._adjust_weights(namespace, item, context, change_set)
            self._count_transitions(item, context, change_set, credit)
            if change:
                change_set.add_episode(change)
            mind = self._update_model(mind, item, credit)
        pairs = [(item.turn, item.credit) for item in weighted]
        evidence = measure_memories(pairs)
        mind = replace(mind, trust=mind.trust.plus(evidence))
        learning = self.settings.learning
        decay = math.log(2.0) / learning.half_life if learning.decay else 0.0
        consumed = ConsumeFeedback(
            namespace,
            feedback_id,
            tuple(item.turn.id for item in credited),
            known.version,
            mind.to_json(),
            decay * len(credited),
            change_set.to_effects(
                mean_credit, before.baseline.count, evidence, mind.encode_gain(before)
            ),
        )
        changes = [consumed, *change_set.to_changes(namespace, feedback_id)]
        if note := _describe_limit(credited, weighted):
            changes.append(SettleFeedback(feedback_id, note))
        return changes

    def _limit_turn(
        self,
        namespace: str,
        credited: CreditedTurn,
        version: int,
        mind: NamespaceModel,
        note_changes: Sequence[Change],
        user: str | None,
    ) -> tuple[CreditedTurn, TurnContext, EpisodeUpdate | None]:
        """Scale down the credit of a turn that contradicts the feedback of other users."""
        share = self.settings.learning.max_user_share
        corrected = bool(note_changes)
        context = self._read_context(namespace, credited, mind.baseline.mean)
        change = self._build_episode(
            namespace, credited, context, version, user, corrected=corrected
        )
        if user is None or share is None or change is None or change.known is None:
            return credited, context, change
        voices = self.store.learned.get_credit_by_user(change.known.id)
        counts = limit_user_share(change.change.documents, user, voices, share)
        if counts == 1.0:
            return credited, context, change
        weight = credited.credit.weight * counts
        credited = replace(credited, credit=replace(credited.credit, weight=weight))
        context = self._read_context(namespace, credited, mind.baseline.mean)
        change = self._build_episode(
            namespace, credited, context, version, user, corrected=corrected
        )
        return credited, context, change

    def _read_context(
        self, namespace: str, credited: CreditedTurn, mean_credit: float
    ) -> TurnContext:
        learning, turn, credit = self.settings.learning, credited.turn, credited.credit
        clock = self.store.walk.get_clock(namespace)
        reader = TurnRegionReader(self.store, self.regions, self.settings.region, clock)
        regions_of_turn = reader.locate(turn, credited.vector if learning.regions else None)
        records = reader.read_records(turn, credit)
        quality = regions_of_turn.quality(turn.task_type)
        shared_credit, baseline = credit, mean_credit
        if learning.reward_decay == "context":
            shared_credit = share_blame(credit, records, quality, turn)
        if learning.regions and learning.region_baseline:
            baseline = regions_of_turn.baseline(mean_credit)
        reward_decay = compute_reward_decay(turn, shared_credit, learning)
        return TurnContext(regions_of_turn, shared_credit, baseline, reward_decay)

    def _adjust_weights(
        self, namespace: str, credited: CreditedTurn, context: TurnContext, change_set: ChangeSet
    ) -> None:
        """Add the changes of edge weights, pair counts and document uses."""
        learning, turn, credit = self.settings.learning, credited.turn, credited.credit
        edges = LearnedEdges.load(self.store, namespace, turn, credit)
        deltas = list[LearnedDelta]()
        if learning.policy_gradient:
            stop = self.settings.policy.stop_score
            # An outcome alone credits every document alike: the share of one is 1/n.
            share = 1.0 if credit.documents else 1.0 / max(1, len(turn.returned))
            scaled = learning.replace(learning_rate=learning.learning_rate * share)
            deltas += compute_policy_gradient(
                turn, context.shared_credit, context.baseline, scaled, stop=stop
            )
        if learning.hebbian:
            counts = edges.weights, edges.co_use_counts, learning
            habitual, inhibition = self.settings.tiers.habitual, InhibitionUpdate()
            if credit.documents:
                joint_use = update_co_use(credit, *counts, habitual=habitual)
                inhibition = update_inhibition(
                    turn,
                    context.shared_credit,
                    edges.weights,
                    edges.inhibition_counts,
                    learning,
                )
            else:
                joint_use = infer_co_use(turn, credit, *counts, habitual=habitual)
            deltas += [*joint_use.deltas, *inhibition.deltas]
            pair_counts = edges.to_pair_counts(joint_use.count_changes, inhibition.count_changes)
            change_set.add_counts(pair_counts, edges.counts)
        change_set.deltas += edges.to_weight_deltas(deltas)
        if learning.usage:
            change_set.add_uses(edges.to_uses(credit, context.decays))

    def _count_transitions(
        self,
        credited: CreditedTurn,
        context: TurnContext,
        change_set: ChangeSet,
        mean_credit: float,
    ) -> None:
        """Add the transitions between regions."""
        regions_of_turn = context.regions_of_turn
        if self.settings.learning.regions and regions_of_turn.places:
            regions = regions_of_turn.places, regions_of_turn.documents
            change_set.steps += count_turn_steps(
                credited.turn, credited.credit, *regions, mean_credit
            )

    def _build_episode(
        self,
        namespace: str,
        credited: CreditedTurn,
        context: TurnContext,
        version: int,
        user: str | None,
        *,
        corrected: bool,
    ) -> EpisodeUpdate | None:
        """Build the episode that a turn creates or extends; None if it is not remembered."""
        learning, turn, vector = self.settings.learning, credited.turn, credited.vector
        if not learning.episodes or vector is None or not credited.credit.outcome:
            return None
        clock = self.store.walk.get_clock(namespace)._replace(learned=version)
        single = np.asarray(vector, dtype=np.float32)
        known = self.episodes.find_episode(namespace, clock, turn.query, single)
        followed = self._credit_followed(credited, context, known, corrected=corrected)
        everything = learning.experience == "all"
        before = known.documents if known else {}
        credit_by_node = assign_episode_credit(
            turn, credited.credit, followed, before=before, all_experience=everything
        )
        if not credit_by_node:
            return None
        # Only a success may credit documents for other questions.
        has_stated_use = credited.credit.has_stated_use and (
            credited.credit.outcome > 0 or everything
        )
        new = (hash_question(namespace, turn.query), turn.query, single)
        identity = (known.id, known.query, known.vector) if known else new
        episode = KeepEpisode(
            namespace, *identity, 1.0, float(has_stated_use), credit_by_node, user=user
        )
        return EpisodeUpdate(episode, known)

    def _credit_followed(
        self,
        credited: CreditedTurn,
        context: TurnContext,
        known: StoredEpisode | None,
        *,
        corrected: bool,
    ) -> Mapping[str, float]:
        """Return the credit, for the turn's own question, of documents that the answer followed.

        A correction states what would have been right, so nothing is inferred beside it.
        """
        credit, by_context = credited.credit, self.settings.learning.reward_decay == "context"
        if by_context and credit.outcome < 0 and credit.has_stated_use and not corrected:
            before = known.documents if known and known.labelled_turns > 0 else {}
            return assign_hindsight_credit(credited.turn, credit, context.shared_credit, before)
        return {
            node: context.shared_credit.documents[node] for node, v in credit.documents.items() if v
        }

    def _update_model(
        self, mind: NamespaceModel, credited: CreditedTurn, mean_credit: float
    ) -> NamespaceModel:
        credit = credited.credit
        updated = replace(mind, baseline=mind.baseline.with_outcome(mean_credit))
        shown = [r for r in credited.turn.returned if r.node in credit.documents]
        if not self.settings.learning.ranker or not shown:
            return updated
        matrix = np.array([[r.features.get(name, 0.0) for name in FEATURES] for r in shown])
        used = np.array([max(0.0, credit.documents[r.node]) for r in shown])
        return updated.update_ranker(matrix, used, credit.weight)


def _describe_limit(
    credited: Sequence[CreditedTurn], weighted: Sequence[CreditedTurn]
) -> str | None:
    """Return a note for a user whose feedback was scaled down; None if all of it counts."""
    pairs = zip(credited, weighted, strict=True)
    if all(before.credit.weight == after.credit.weight for before, after in pairs):
        return None
    full, left = (sum(item.credit.weight for item in items) for items in (credited, weighted))
    return f"it contradicts feedback of other users and counts {left / full:.0%} of its full weight"


def _compute_mean_credit(credited: CreditedTurn) -> float:
    """Return the mean credit of the returned documents, in [-1, 1], for the baseline."""
    known = get_known_credit(credited.turn, credited.credit).values()
    return sum(known) / len(known) if known else credited.credit.outcome
