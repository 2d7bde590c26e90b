"""What one feedback teaches, summed over its turns: calls the rules with what was known."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.baseline import Baseline
from crabpath_retrievers.core.changes import (
    AddPairCounts,
    AddUsage,
    AdjustWeights,
    Change,
    KeepEpisode,
    WeightDelta,
)
from crabpath_retrievers.core.changes.history import AddTransitions, TransitionCount
from crabpath_retrievers.core.changes.learned import EdgeId, EpisodeContent, LearnedDelta
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.core.text import hash_question
from crabpath_retrievers.core.turn import Turn
from crabpath_retrievers.learning.credit import CreditAssignment, CreditedTurn
from crabpath_retrievers.learning.rules.episode_credit import (
    assign_episode_credit,
    has_proved_right,
    limit_share,
    split_voices,
)
from crabpath_retrievers.learning.rules.failure_credit import (
    DocumentRecord,
    assign_hindsight_credit,
    compute_reward_decay,
    share_blame,
)
from crabpath_retrievers.learning.rules.hebbian import infer_co_use, update_co_use
from crabpath_retrievers.learning.rules.inhibition import update_inhibition
from crabpath_retrievers.learning.rules.policy_gradient import compute_policy_gradient
from crabpath_retrievers.learning.rules.transitions import count_turn_steps, sum_steps
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.retrieval.episodes import EpisodeMemory
from crabpath_retrievers.storage import Reader
from crabpath_retrievers.storage.read.learned import StoredEpisode

TASK_TYPES_FIELD = "task_type"
"""Metadata field with the types of task a document is meant for: a text or a list of texts."""

MAX_MOVE = 0.2
"""Greatest change of the weight of an edge that existed, and of STOP, by one feedback."""

StopOrEdge = tuple[str, str | None, str]
"""An edge, or STOP as one without target."""

_KINDS = {kind.label: kind for kind in EdgeKind}
_STOP = 0  # key of STOP as a target
_NO_TASK = frozenset[str]()
_RECENT = 32  # feedbacks of a giver that tell whether they have proved right


class Lesson:
    """Changes that one feedback teaches; it reads stores and writes nothing."""

    def __init__(
        self,
        read: Reader,
        episodes: EpisodeMemory,
        regions: Regions,
        settings: Settings,
        assignment: CreditAssignment,
        *,
        user: str | None,
        is_corrected: bool,
        room: float,
    ) -> None:
        """Begin a lesson about the turns of ``assignment``.

        Args:
            read: Reader of the graph store.
            episodes: Finds the episodes that turns extend.
            regions: Regions of the corpus.
            settings: Settings of the namespace.
            assignment: The turns of the feedback.
            user: The user who gave the feedback; None if not known.
            is_corrected: Whether the feedback changes notes.
            room: What may count against other givers of one who has not proved right, in lessons.
        """
        self._read, self._episode_memory, self._regions = read, episodes, regions
        self._settings, self._learning = settings, settings.learning
        self._clock, self._nodes = assignment.state.clock, assignment.nodes
        self._user, self._is_corrected, self._room = user, is_corrected, room
        self.against = list[float]()
        self._known_weights: dict[EdgeId, float] = {}
        self._known_counts: dict[EdgeId, float] = {}
        self._read_edges(assignment)
        self._moves = defaultdict[StopOrEdge, float](float)
        self._least: dict[StopOrEdge, float] = {}
        self._created = list[LearnedDelta]()
        self._counts: dict[EdgeId, float] = {}
        self._uses: dict[str, tuple[float, float, float]] = {}
        self._steps = list[TransitionCount]()
        self._episodes: dict[str, KeepEpisode] = {}
        self._evidence = 1.0

    def _read_edges(self, assignment: CreditAssignment) -> None:
        """Read the learned edges that leave the nodes of turns which tell documents apart."""
        sources = {
            self._nodes[node].key
            for item in assignment.turns
            # A failure without stated use moves decided edges only.
            if item.credit.documents or item.credit.outcome > 0
            for node in _list_nodes(item.turn)
            if node in self._nodes
        }
        if not sources:
            return
        ids = {known.key: node for node, known in self._nodes.items()}
        learned = self._read.learned.edges(assignment.turns[0].turn.namespace, sorted(sources))
        for found, known in (
            (learned.weights, self._known_weights),
            (learned.counts, self._known_counts),
        ):
            for (source, target, kind), value in found.items():
                if source in ids and target in ids:
                    known[ids[source], ids[target], kind.label] = value

    def learn_turn(self, credited: CreditedTurn, baseline: Baseline) -> CreditedTurn:
        """Add what follows from one turn.

        Args:
            credited: The turn.
            baseline: Mean credit so far.

        Returns:
            The turn; credit that contradicts the feedback of other users is scaled down.
        """
        credit, self._evidence = credited.credit, baseline.evidence
        fair = self._share_blame(credited) if credit.outcome < 0 else credit
        known = self._find_episode(credited)
        episode = self.build_episode(credited, known, fair)
        share = self._learning.max_user_share
        if share is not None and known is not None and episode is not None:
            counted = self._limit(credited, known, episode.documents, share)
            if counted < 1.0:
                weight = credit.weight * counted
                credited = replace(credited, credit=replace(credit, weight=weight))
                fair = replace(fair, weight=weight)
                episode = self.build_episode(credited, known, fair)
        if episode is not None:
            self._add_episode(episode)
        # An outcome tells more about a question that returns, however seldom others succeed.
        evidence = baseline.evidence if known is None else 1.0
        self._adjust_weights(credited, fair, baseline.mean, evidence)
        if self._learning.usage:
            self._count_uses(credited.credit, fair)
        self._count_transitions(credited)
        return credited

    def _limit(
        self,
        credited: CreditedTurn,
        known: StoredEpisode,
        stated: Mapping[str, float],
        share: float,
    ) -> float:
        """Share of a turn's credit that counts, in [0, 1], as far as it contradicts others."""
        voices = split_voices(known.documents, known.credit_by_user)
        allowed = limit_share(stated, self._user, voices, share, proven=True)
        if allowed == math.inf or self._has_proved_right(credited.turn.namespace):
            return min(1.0, allowed)
        weight = credited.credit.weight
        pooled = limit_share(stated, self._user, voices, share, proven=False)
        allowed = min(1.0, pooled, self._room / weight)
        self._room -= allowed * weight
        self.against.append(allowed * weight)
        return allowed

    def _has_proved_right(self, namespace: str) -> bool:
        if self._user is None:
            return False
        own = self._read.learned.recent_episodes_of(self._user, namespace, _RECENT)
        return has_proved_right(self._user, [episode.credit_by_user for episode in own])

    def _weigh_outcome(self, credit: Credit, evidence: float) -> Credit:
        """Return a credit, times what outcomes tell, in [0, 1], if it is no more than an outcome.

        Whoever writes a correction has seen what was wrong.
        """
        if credit.documents or self._is_corrected:
            return credit
        return replace(credit, weight=credit.weight * evidence)

    def _share_blame(self, credited: CreditedTurn) -> Credit:
        """Share out the blame of a failed turn, by uses and types of task of its documents."""
        turn, credit = credited.turn, credited.credit
        blamed = [node for node, value in credit.documents.items() if value < 0]
        described = blamed if turn.task_type else []
        documents = self._read.catalog.documents(described, namespace=self._clock.key)
        tasks = {
            node: _to_texts(document.metadata.get(TASK_TYPES_FIELD))
            for node, document in documents.items()
        }
        wins = {node: self._nodes[node].wins for node in blamed if node in self._nodes}
        records = {
            node: DocumentRecord(wins.get(node, 0.0), tasks.get(node, _NO_TASK)) for node in blamed
        }
        return share_blame(credit, records, turn)

    def _adjust_weights(
        self, credited: CreditedTurn, fair: Credit, baseline: float, evidence: float
    ) -> None:
        """Add the changes of edge weights and of counts towards new edges."""
        learning, turn = self._learning, credited.turn
        credit, fair = (self._weigh_outcome(each, evidence) for each in (credited.credit, fair))
        moves = list[LearnedDelta]()
        if learning.policy_gradient:
            # An outcome alone credits every document alike: the share of one is 1/n.
            share = 1.0 if credit.documents else 1.0 / max(1, len(turn.returned))
            stop = self._settings.policy.stop_score
            moves += compute_policy_gradient(turn, fair, baseline, learning, stop=stop, share=share)
        if learning.hebbian:
            moves += self._learn_pairs(turn, credit, fair)
        for delta in moves:
            self._moves[delta[:3]] += delta.delta
        if credit.outcome > 0:
            self._least |= {
                edge: -max(0.0, self._known_weights.get(edge, candidate.weight))
                for step in turn.steps
                for candidate in step.candidates
                if (edge := (step.node, candidate.target, candidate.kind)) in self._moves
            }

    def _learn_pairs(self, turn: Turn, credit: Credit, fair: Credit) -> Iterator[LearnedDelta]:
        """Yield the changes of edges between pairs; new ones and counts are added."""
        learning = self._learning
        known = self._known_weights, self._known_counts, learning
        habitual = self._settings.tiers.habitual
        if credit.documents:
            updates = [
                update_co_use(credit, *known, habitual=habitual),
                update_inhibition(turn, fair, *known),
            ]
        else:
            updates = [infer_co_use(turn, credit, *known, habitual=habitual)]
        for update in updates:
            for delta in update.deltas:
                if delta[:3] in self._known_weights:
                    yield delta
                else:
                    self._created.append(delta)
            for edge, count in update.count_changes.items():
                before = self._counts.get(edge, self._known_counts.get(edge, 0.0))
                self._counts[edge] = max(0.0, before + count)

    def _count_uses(self, credit: Credit, fair: Credit) -> None:
        """Add successes, passes and reward decay of the documents.

        A credit of 0 that was only inferred from an answer is not counted as a pass.
        """
        decays = compute_reward_decay(fair) if credit.outcome < 0 else {}
        for node, value in credit.documents.items():
            if value or node not in credit.inferred:
                won, lost, decay = self._uses.get(node, (0.0, 0.0, 0.0))
                self._uses[node] = (
                    won + credit.weight * max(0.0, value),
                    lost + credit.weight * float(value <= 0),
                    decay + decays.get(node, 0.0),
                )

    def _count_transitions(self, credited: CreditedTurn) -> None:
        """Add the transitions between the regions of the query and those of the documents."""
        turn = credited.turn
        if not (self._learning.regions and credited.vector is not None and self._clock.hubs):
            return
        returned = {
            item.node: self._nodes[item.node]
            for item in turn.returned
            if item.node in self._nodes and self._nodes[item.node].vector is not None
        }
        vectors = {node.key: node.vector for node in returned.values() if node.vector is not None}
        places, found = self._regions.locate(self._read, credited.vector, vectors, self._clock.hubs)
        documents = {name: found[node.key] for name, node in returned.items()}
        self._steps += count_turn_steps(turn, credited.credit, places, documents)

    def _find_episode(self, credited: CreditedTurn) -> StoredEpisode | None:
        """Find the episode that the turn extends."""
        turn, vector = credited.turn, credited.vector
        if not self._learning.episodes or vector is None or not credited.credit.is_informative:
            return None
        return self._episode_memory.find_episode(
            self._read, turn.namespace, self._clock, turn.query
        )

    def build_episode(
        self, credited: CreditedTurn, known: StoredEpisode | None, fair: Credit
    ) -> KeepEpisode | None:
        """Build the episode that the turn creates or extends; None if it is not remembered."""
        turn, credit, vector = credited.turn, credited.credit, credited.vector
        if not self._learning.episodes or vector is None or not credit.is_informative:
            return None
        before = EpisodeContent() if known is None else known.content
        followed = self.credit_followed(credited, before, fair)
        # A success still counts in full for its own question.
        counted = self._weigh_outcome(credit, self._evidence) if credit.outcome < 0 else credit
        documents = assign_episode_credit(turn, counted, followed, before=before.documents)
        if not documents:
            return None
        if known is None:
            single = np.asarray(vector, dtype=np.float32)
            identity = hash_question(turn.namespace, turn.query), turn.query, single
        else:
            identity = known.id, known.query, known.vector
        # Only use that was stated may count for other questions.
        labelled = float(credit.has_stated_use)
        return KeepEpisode(
            turn.namespace, *identity, 1.0, labelled, documents, user=self._user, before=before
        )

    def credit_followed(
        self, credited: CreditedTurn, before: EpisodeContent, fair: Credit
    ) -> Mapping[str, float]:
        """Return the credit, for the turn's own question, of documents that the answer followed.

        A correction states what would have been right, so nothing is inferred beside it.
        """
        credit = credited.credit
        if credit.outcome < 0 and credit.has_stated_use and not self._is_corrected:
            successes = before.documents if before.labelled_turns > 0 else {}
            return assign_hindsight_credit(credited.turn, credit, fair, successes)
        return {node: fair.documents[node] for node, value in credit.documents.items() if value}

    def _add_episode(self, change: KeepEpisode) -> None:
        """Add a turn to its episode; turns that extend one episode are merged."""
        first = self._episodes.get(change.id)
        if first is not None:
            documents = dict(first.documents)
            for node, credit in change.documents.items():
                documents[node] = documents.get(node, 0.0) + credit
            change = replace(
                first,
                turns=first.turns + change.turns,
                labelled_turns=first.labelled_turns + change.labelled_turns,
                documents=documents,
            )
        self._episodes[change.id] = change

    def _bound_moves(self) -> Iterator[LearnedDelta]:
        """Yield the sum of what edges that existed are moved by, within what one feedback may."""
        for edge, moved in self._moves.items():
            least = max(-MAX_MOVE, self._least.get(edge, -MAX_MOVE))
            if delta := min(MAX_MOVE, max(least, moved)):
                yield LearnedDelta(*edge, delta)

    def to_changes(self, namespace: str, cause: str) -> list[Change]:
        """Return the changes to write; those at nodes that no longer exist are left out.

        Args:
            namespace: Name of the namespace.
            cause: Id of the feedback.
        """
        keys: dict[str | None, int] = {node: known.key for node, known in self._nodes.items()}
        keys[None] = _STOP
        deltas = tuple(
            WeightDelta(keys[source], keys[target], _KINDS[kind], delta)
            for source, target, kind, delta in (*self._bound_moves(), *self._created)
            if source in keys and target in keys
        )
        pairs = tuple(
            (keys[a], keys[b], _KINDS[kind], gained)
            for (a, b, kind), count in self._counts.items()
            if a in keys and b in keys
            if (gained := count - self._known_counts.get((a, b, kind), 0.0))
        )
        uses = tuple(
            (keys[node], *use) for node, use in self._uses.items() if node in keys and any(use)
        )
        changes: list[Change] = []
        if pairs:
            changes.append(AddPairCounts(namespace, pairs))
        if deltas:
            changes.append(AdjustWeights(namespace, deltas, cause))
        if uses:
            changes.append(AddUsage(namespace, uses))
        if self._steps:
            changes.append(AddTransitions(namespace, tuple(sum_steps(self._steps))))
        return [*changes, *self._episodes.values()]


def _list_nodes(turn: Turn) -> set[str]:
    """Return every node of which a weight or a count may change."""
    return (
        {returned.node for returned in turn.returned}
        | {seed.node for seed in turn.seeds}
        | {step.node for step in turn.steps}
        | {candidate.target for step in turn.steps for candidate in step.candidates}
    )


def _to_texts(value: object) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset({value})
    return frozenset(map(str, value)) if isinstance(value, (list, tuple)) else _NO_TASK
