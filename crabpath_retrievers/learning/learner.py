"""Learning from credited turns: calls the rules with what is known, and computes all changes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.settings import apply_knobs
from crabpath_retrievers.core.changes import Change, ConsumeFeedback, KeepEpisode
from crabpath_retrievers.core.changes.learned import EdgeUpdate, EpisodeContent, LearnedDelta
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.core.reliability import measure_memories
from crabpath_retrievers.core.text import hash_question
from crabpath_retrievers.learning.change_set import ChangeSet, describe_effects
from crabpath_retrievers.learning.credit import CreditAssignment, CreditedTurn
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
from crabpath_retrievers.learning.rules.inhibition import update_inhibition
from crabpath_retrievers.learning.rules.policy_gradient import (
    compute_policy_gradient,
    get_known_credit,
)
from crabpath_retrievers.learning.rules.transitions import count_turn_steps
from crabpath_retrievers.learning.turn_context import (
    TurnEdges,
    list_nodes,
    locate_turn,
    read_records,
)
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.rerank.features import FEATURES
from crabpath_retrievers.rerank.posterior import Posterior
from crabpath_retrievers.retrieval.episodes import EpisodeMemory
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel
from crabpath_retrievers.retrieval.notes import NoteMemory
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.learned import LearnedEdges, StoredEpisode


class Lesson(NamedTuple):
    """What follows from a feedback: the changes, and a note if not all of it counts."""

    changes: list[Change]
    note: str | None = None


@dataclass(frozen=True, slots=True)
class FeedbackLearner:
    """Computes the changes that follow from credited turns; it writes nothing."""

    store: GraphStore
    episodes: EpisodeMemory
    notes: NoteMemory
    regions: Regions
    prior: Posterior
    settings: Settings

    def learn(
        self,
        feedback_id: str,
        assignment: CreditAssignment,
        note_changes: Sequence[Change] = (),
        user: str | None = None,
    ) -> Lesson:
        """Compute all changes that follow from one feedback about turns of one namespace.

        Args:
            feedback_id: Id of the feedback.
            assignment: The turns with their credit, at least one.
            note_changes: Changes of notes that follow from the feedback; undone together with it.
            user: The user who gave it; None if not known.

        Returns:
            Changes for one call of ``GraphStore.apply``, which raises ``ConflictError`` if the
            namespace has learned in the meantime.
        """
        state, credited = assignment.state, assignment.turns
        knobs = state.clock.knobs
        settings = self.settings if knobs is None else apply_knobs(self.settings, knobs)
        learning, namespace = settings.learning, credited[0].turn.namespace
        before = mind = NamespaceModel.from_json(state.mind, self.prior)
        edges = self._read_edges(assignment)
        change_set, weighted, outcomes = ChangeSet(edges.counts), list[CreditedTurn](), []
        for original in credited:
            outcomes.append(_compute_mean_credit(original))
            turn = TurnLearner(
                self, settings, assignment, original, user, is_corrected=bool(note_changes)
            )
            turn.learn(edges, mind.baseline.mean, change_set)
            weighted.append(turn.credited)
            mind = _update_model(mind, turn.credited, outcomes[-1], ranker=learning.ranker)
        evidence = measure_memories((item.turn, item.credit) for item in weighted)
        mind = replace(mind, trust=mind.trust.plus(evidence))
        changes = [*change_set.to_changes(namespace, feedback_id), *note_changes]
        decay = math.log(2.0) / learning.half_life if learning.decay else 0.0
        consumed = ConsumeFeedback(
            namespace,
            feedback_id,
            tuple(item.turn.id for item in credited),
            state.version,
            mind.to_json(),
            decay * len(credited),
            describe_effects(
                changes, outcomes, before.baseline.count, evidence, mind.encode_gain(before)
            ),
        )
        return Lesson([consumed, *changes], _describe_limit(credited, weighted))

    def _read_edges(self, assignment: CreditAssignment) -> LearnedEdges:
        """Read the learned edges that leave the nodes of turns which tell documents apart."""
        sources = {
            assignment.nodes[node].key
            for item in assignment.turns
            # A failure without stated use moves decided edges only.
            if item.credit.documents or item.credit.outcome > 0
            for node in list_nodes(item.turn)
            if node in assignment.nodes
        }
        if not sources:
            return LearnedEdges({}, {})
        return self.store.learned.edges(assignment.turns[0].turn.namespace, sorted(sources))


class TurnLearner:
    """Learns from one credited turn."""

    def __init__(
        self,
        learner: FeedbackLearner,
        settings: Settings,
        assignment: CreditAssignment,
        credited: CreditedTurn,
        user: str | None,
        *,
        is_corrected: bool,
    ) -> None:
        """Learn as one of the turns of ``assignment``, from feedback of ``user``.

        Args:
            learner: Its stores and services are read.
            settings: Settings of the namespace.
            assignment: The turns of the feedback.
            credited: The turn.
            user: The user who gave the feedback; None if not known.
            is_corrected: Whether the feedback changes notes.
        """
        self._learner, self._settings, self._learning = learner, settings, settings.learning
        self._clock, self._nodes = assignment.state.clock, assignment.nodes
        self._user, self._is_corrected = user, is_corrected
        self.credited = credited

    def learn(self, edges: LearnedEdges, baseline: float, change_set: ChangeSet) -> None:
        """Add what follows from the turn.

        Credit that contradicts the feedback of other users is scaled down first, in ``credited``.

        Args:
            edges: Learned edges that leave the nodes of all turns of the feedback.
            baseline: Mean credit so far, in [-1, 1].
            change_set: Gets the changes.
        """
        turn, credit = self.credited.turn, self.credited.credit
        if credit.outcome < 0:
            namespace = self._clock.key
            records = read_records(self._learner.store, namespace, turn, credit, self._nodes)
            fair = share_blame(credit, records, turn)
        else:
            fair = credit
        known = self._find_episode()
        episode = self.build_episode(known, fair)
        share = self._limit_share(known, episode)
        if share < 1.0:
            weight = credit.weight * share
            credit, fair = replace(credit, weight=weight), replace(fair, weight=weight)
            self.credited = replace(self.credited, credit=credit)
            episode = self.build_episode(known, fair)
        if episode is not None:
            change_set.add_episode(episode)
        self._adjust_weights(TurnEdges(turn, self._nodes, edges), fair, baseline, change_set)
        self._count_transitions(change_set)

    def _adjust_weights(
        self, edges: TurnEdges, fair: Credit, baseline: float, change_set: ChangeSet
    ) -> None:
        """Add the changes of edge weights, pair counts and document uses."""
        learning, turn, credit = self._learning, self.credited.turn, self.credited.credit
        deltas = list[LearnedDelta]()
        if learning.policy_gradient and any(step.chosen or step.stopped for step in turn.steps):
            # An outcome alone credits every document alike: the share of one is 1/n.
            share = 1.0 if credit.documents else 1.0 / max(1, len(turn.returned))
            stop = self._settings.policy.stop_score
            deltas += compute_policy_gradient(
                turn, fair, baseline, learning, stop=stop, share=share
            )
        if learning.hebbian:
            counts = edges.weights, edges.co_use_counts, learning
            habitual, inhibition = self._settings.tiers.habitual, EdgeUpdate()
            if credit.documents:
                joint_use = update_co_use(credit, *counts, habitual=habitual)
                blame = edges.weights, edges.inhibition_counts, learning
                inhibition = update_inhibition(turn, fair, *blame)
            else:
                joint_use = infer_co_use(turn, credit, *counts, habitual=habitual)
            deltas += [*joint_use.deltas, *inhibition.deltas]
            pairs = edges.map_pairs(joint_use.count_changes, EdgeKind.CO_USED)
            pairs |= edges.map_pairs(inhibition.count_changes, EdgeKind.INHIBITS)
            for edge, count in pairs.items():
                change_set.add_count(edge, count)
        change_set.deltas += edges.map_deltas(deltas)
        if learning.usage:
            decays = compute_reward_decay(fair) if credit.outcome < 0 else {}
            self._count_uses(edges, decays, change_set)

    def _count_uses(
        self, edges: TurnEdges, decays: Mapping[str, float], change_set: ChangeSet
    ) -> None:
        """Add successes, passes and reward decay of the documents.

        A credit of 0 that was only inferred from an answer is not counted as a pass.
        """
        credit = self.credited.credit
        for node, value in credit.documents.items():
            key = edges.get_key(node)
            if key is not None and (value or node not in credit.inferred):
                won, lost = max(0.0, value), float(value <= 0)
                decay = decays.get(node, 0.0)
                change_set.add_use(key, credit.weight * won, credit.weight * lost, decay)

    def _count_transitions(self, change_set: ChangeSet) -> None:
        """Add the transitions between regions."""
        turn, vector = self.credited.turn, self.credited.vector
        if self._learning.regions and vector is not None and self._clock.hubs:
            nodes = [self._nodes[r.node] for r in turn.returned if r.node in self._nodes]
            places, documents = locate_turn(self._learner.regions, self._clock, vector, nodes)
            change_set.steps += count_turn_steps(turn, self.credited.credit, places, documents)

    def _find_episode(self) -> StoredEpisode | None:
        """Find the episode that the turn extends."""
        turn, vector = self.credited.turn, self.credited.vector
        if not self._learning.episodes or vector is None or not self.credited.credit.outcome:
            return None
        single = np.asarray(vector, dtype=np.float32)
        return self._learner.episodes.find_episode(turn.namespace, self._clock, turn.query, single)

    def build_episode(self, known: StoredEpisode | None, fair: Credit) -> KeepEpisode | None:
        """Build the episode that the turn creates or extends; None if it is not remembered."""
        turn, credit, vector = self.credited.turn, self.credited.credit, self.credited.vector
        if not self._learning.episodes or vector is None or not credit.outcome:
            return None
        followed = self.credit_followed(known, fair)
        documents = assign_episode_credit(
            turn, credit, followed, before=known.documents if known else {}
        )
        if not documents:
            return None
        if known is None:
            single = np.asarray(vector, dtype=np.float32)
            identity = hash_question(turn.namespace, turn.query), turn.query, single
            before = EpisodeContent()
        else:
            identity = known.id, known.query, known.vector
            before = EpisodeContent(
                known.turns,
                known.labelled_turns,
                known.documents,
                known.credit_by_user,
                known.clock,
            )
        # Only a success may credit documents for other questions.
        labelled = float(credit.has_stated_use and credit.outcome > 0)
        return KeepEpisode(
            turn.namespace, *identity, 1.0, labelled, documents, user=self._user, before=before
        )

    def credit_followed(self, known: StoredEpisode | None, fair: Credit) -> Mapping[str, float]:
        """Return the credit, for the turn's own question, of documents that the answer followed.

        A correction states what would have been right, so nothing is inferred beside it.
        """
        turn, credit = self.credited.turn, self.credited.credit
        if credit.outcome < 0 and credit.has_stated_use and not self._is_corrected:
            before = known.documents if known and known.labelled_turns > 0 else {}
            return assign_hindsight_credit(turn, credit, fair, before)
        return {node: fair.documents[node] for node, value in credit.documents.items() if value}

    def _limit_share(self, known: StoredEpisode | None, episode: KeepEpisode | None) -> float:
        """Return the share of the credit that counts beside that of other users, in [0, 1]."""
        share = self._learning.max_user_share
        if self._user is None or share is None or known is None or episode is None:
            return 1.0
        return limit_user_share(episode.documents, self._user, known.credit_by_user, share)


def _update_model(
    mind: NamespaceModel, credited: CreditedTurn, mean_credit: float, *, ranker: bool
) -> NamespaceModel:
    credit = credited.credit
    updated = replace(mind, baseline=mind.baseline.with_outcome(mean_credit))
    shown = [r for r in credited.turn.returned if r.node in credit.documents]
    if not ranker or not shown:
        return updated
    matrix = np.array([[r.features.get(name, 0.0) for name in FEATURES] for r in shown])
    used = np.array([max(0.0, credit.documents[r.node]) for r in shown])
    return updated.update_ranker(matrix, used, credit.weight)


def _describe_limit(
    credited: Sequence[CreditedTurn], weighted: Sequence[CreditedTurn]
) -> str | None:
    """Return a note for a user whose feedback was scaled down; None if all of it counts."""
    full, left = (sum(item.credit.weight for item in items) for items in (credited, weighted))
    if full == left:
        return None
    return f"it contradicts feedback of other users and counts {left / full:.0%} of its full weight"


def _compute_mean_credit(credited: CreditedTurn) -> float:
    """Return the mean credit of the returned documents, in [-1, 1], for the baseline."""
    known = get_known_credit(credited.turn, credited.credit).values()
    return sum(known) / len(known) if known else credited.credit.outcome
