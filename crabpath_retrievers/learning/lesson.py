"""Lessons of a feedback, or of a turn by itself: the rules called with what was known."""

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crabpath_retrievers.config import LearningSettings, Settings
from crabpath_retrievers.config.settings import apply_knobs
from crabpath_retrievers.core.changes import (
    AddPairCounts,
    AddTransitions,
    AddUsage,
    AdjustWeights,
    Change,
    ConsumeFeedback,
    EdgeId,
    EpisodeContent,
    KeepEpisode,
    LearnedDelta,
    ModelEffects,
    TransitionCount,
    WeightDelta,
)
from crabpath_retrievers.core.feedback import Baseline, Credit
from crabpath_retrievers.core.records import EdgeKind, Turn
from crabpath_retrievers.core.text import hash_question, to_texts
from crabpath_retrievers.learning.credit import CreditAssignment, CreditedTurn
from crabpath_retrievers.learning.lift import compare_rankings
from crabpath_retrievers.learning.notes import learn_notes
from crabpath_retrievers.learning.rules import (
    DocumentRecord,
    assign_episode_credit,
    assign_hindsight_credit,
    compute_policy_gradient,
    compute_reward_decay,
    count_turn_steps,
    get_known_credit,
    has_proved_right,
    infer_co_use,
    limit_share,
    penalise_skips,
    share_blame,
    split_voices,
    sum_steps,
    update_co_retrieval,
    update_co_use,
    update_inhibition,
)
from crabpath_retrievers.regions import RegionIndex
from crabpath_retrievers.rerank import (
    FEATURES,
    Posterior,
    count_against,
    count_lift,
    count_log_odds,
    encode_gain,
    measure_memories,
    measure_scales,
)
from crabpath_retrievers.retrieval.episodes import EpisodeMemory, NoteMemory
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel
from crabpath_retrievers.storage import Reader, Store
from crabpath_retrievers.storage.read.learned import (
    KnownNode,
    StoredEpisode,
    StoredFeedback,
)
from crabpath_retrievers.storage.write.learned import settle_feedback, write_passive_lesson
from crabpath_retrievers.storage.write.transaction import Write

_log = logging.getLogger(__name__)

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
_LOST = (
    "namespace %r is answered by the ranking before any lesson: feedback shows that what it "
    "learned ranks worse (`crabpath lift` shows by how much; `undo` takes wrong feedback back)"
)
_REGAINED = "namespace %r is answered by what it learned again: feedback no longer shows a loss"


@dataclass(frozen=True, slots=True)
class FeedbackLearner:
    """Computes the changes that follow from credited turns; writes nothing."""

    episodes: EpisodeMemory
    notes: NoteMemory
    regions: RegionIndex
    prior: Posterior
    settings: Settings

    def learn(
        self, read: Reader, stored: StoredFeedback, assignment: CreditAssignment
    ) -> tuple[list[Change], NamespaceModel, str | None]:
        """Compute all changes that follow from one feedback about turns of one namespace.

        Returns:
            Changes for one call of ``GraphStore.apply``, which raises ``ConflictError`` if the
            namespace has learned in the meantime; the model that they lead to; and a note for the
            receipt on what is ignored or counts less, None if all counts in full.
        """
        state, credited, feedback = assignment.state, assignment.turns, stored.feedback
        note_changes, lost = list[Change](), None
        if state.clock.notes or feedback.correction or feedback.answer:
            about = (stored, assignment)
            note_changes, lost = learn_notes(read, self.notes, self.settings, *about)
        knobs, namespace = state.clock.knobs, credited[0].turn.namespace
        settings = self.settings if knobs is None else apply_knobs(self.settings, knobs)
        before = model = NamespaceModel.from_json(state.model, self.prior)
        given = (assignment, feedback.user, before.trust.room)
        lesson = Lesson(read, self, settings, *given, is_corrected=bool(note_changes))
        weighted, outcomes = list[CreditedTurn](), list[float]()
        for original in credited:
            known = get_known_credit(original.turn, original.credit).values()
            outcomes.append(sum(known) / len(known) if known else original.credit.outcome)
            weighted.append(lesson.learn_turn(original, model.baseline))
            model = replace(model, baseline=model.baseline.with_outcome(outcomes[-1]))
            if settings.learning.ranker:
                model = _update_ranker(model, weighted[-1])
        evidence = self._compare_memories(read, weighted, before, lesson.against)
        model = replace(model, trust=model.trust.plus(evidence))
        if settings.learning.gate and model.trust.has_lost is not before.trust.has_lost:
            _log.warning(_LOST if model.trust.has_lost else _REGAINED, namespace)
        is_ranked = model.posterior is not before.posterior
        gain = encode_gain(before.posterior, model.posterior) if is_ranked else None
        changes = (*lesson.to_changes(namespace, feedback.feedback_id), *note_changes)
        decay = math.log(2.0) / settings.learning.half_life if settings.learning.decay else 0.0
        consumed = ConsumeFeedback(
            namespace,
            feedback.feedback_id,
            tuple(item.turn.id for item in credited),
            state.version,
            model.to_json(),
            decay * len(credited),
            ModelEffects(tuple(outcomes), evidence, gain),
            changes,
            created=stored.created,
        )
        limited = _explain_limit(credited, weighted)
        note = "; ".join(filter(None, (assignment.note, limited, lost))) or None
        settled = [] if note is None else [Write(settle_feedback, stored.sequence, note)]
        return [consumed, *changes, *settled], model, note

    def _compare_memories(
        self,
        read: Reader,
        weighted: Sequence[CreditedTurn],
        before: NamespaceModel,
        against: Sequence[float],
    ) -> dict[str, tuple[float, float]]:
        """Collect evidence on how far past lessons, and each memory, can be trusted."""
        pairs, trust = [(item.turn, item.credit) for item in weighted], before.trust
        evidence = trust.count_lesson(count_log_odds(pairs, trust.lessons))
        evidence |= measure_memories(pairs) | count_against(against)
        evidence |= measure_scales(pairs, before.weigh_trials(), trust.calibrate())
        return evidence | count_lift(compare_rankings(read, pairs))


def _explain_limit(full: Sequence[CreditedTurn], limited: Sequence[CreditedTurn]) -> str | None:
    """Explain which share of a feedback counts that contradicts other users; None if all of it.

    Both arguments are the same turns: with their ``full`` weights, and with the ``limited`` ones.
    """
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


class Lesson:
    """Changes that one feedback teaches; reads stores and writes nothing."""

    def __init__(
        self,
        read: Reader,
        learner: FeedbackLearner,
        settings: Settings,
        assignment: CreditAssignment,
        user: str | None,
        room: float,
        *,
        is_corrected: bool,
    ) -> None:
        """Keep the reader and settings, and read the edges of the turns of ``assignment``.

        Args:
            user: Who gave the feedback; None for nobody.
            room: Number of lessons of givers who have not proved right that may still count against
                others.
            is_corrected: Whether the feedback changes notes.
        """
        self._read, self._learner = read, learner
        self._settings, self._learning = settings, settings.learning
        self._clock, self._nodes = assignment.state.clock, assignment.nodes
        self._user, self._is_corrected, self._room = user, is_corrected, room
        self.against = list[float]()
        # Learned edges that leave the nodes of turns which tell documents apart; a failure without
        # stated use moves decided edges only.
        sources = {
            node
            for item in assignment.turns
            if item.credit.documents or item.credit.outcome > 0
            for node in _list_nodes(item.turn)
        }
        namespace = assignment.turns[0].turn.namespace
        known = _read_edges(read, namespace, self._nodes, sources)
        self._known_weights, self._known_counts = known
        self._moves = defaultdict[StopOrEdge, float](float)
        self._least: dict[StopOrEdge, float] = {}
        self._created = list[LearnedDelta]()
        self._counts: dict[EdgeId, float] = {}
        self._uses: dict[str, tuple[float, float, float]] = {}
        self._steps = list[TransitionCount]()
        self._episodes: dict[str, KeepEpisode] = {}
        self._evidence = 1.0

    def learn_turn(self, credited: CreditedTurn, baseline: Baseline) -> CreditedTurn:
        """Add the changes that follow from one turn.

        Returns:
            The turn, with its credit scaled down if it contradicts other users.
        """
        turn, credit, self._evidence = credited.turn, credited.credit, baseline.evidence
        fair = self._share_blame(credited) if credit.outcome < 0 else credit
        known, episode, memory = None, None, self._learner.episodes
        if self._learning.episodes and credited.vector is not None and credit.is_informative:
            known = memory.find_episode(self._read, turn.namespace, self._clock, turn.query)
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
        """Return the share of a turn's credit that counts, in [0, 1]; below 1 against other users.

        Args:
            stated: The credit by node id that the turn would add to the episode.
            share: Greatest part of the credit of others that one user may contradict.
        """
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
        """Scale a credit that rests on the outcome alone by ``evidence``, in [0, 1].

        Credit of documents stays as it is, and so does the credit of a feedback with a correction:
        who writes one has seen what was wrong.
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
            node: frozenset(to_texts(document.metadata.get(TASK_TYPES_FIELD)))
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
        """Add the changes of edge weights and of counts towards new edges.

        ``fair`` is the credit with the blame shared out; ``baseline`` the usual credit, in [-1, 1];
        ``evidence`` in [0, 1] scales credit that rests on the outcome alone.
        """
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
        """Yield changes of existing edges between pairs; keep new edges and counts for later."""
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
        """Add successes, times unused and reward decay of the documents.

        ``fair`` is the credit with the blame shared out. A credit of 0 that was only inferred from
        an answer does not count as unused.
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
        places, found = self._learner.regions.locate(
            self._read, credited.vector, vectors, self._clock.hubs
        )
        documents = {name: found[node.key] for name, node in returned.items()}
        self._steps += count_turn_steps(turn, credited.credit, places, documents)

    def build_episode(
        self, credited: CreditedTurn, known: StoredEpisode | None, fair: Credit
    ) -> KeepEpisode | None:
        """Build the episode that the turn creates or extends; None without vector or credit.

        ``known`` is the stored episode of the question, None if there is none; ``fair`` is the
        credit with the blame shared out.
        """
        turn, credit, vector = credited.turn, credited.credit, credited.vector
        if vector is None or not credit.is_informative:
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

        ``before`` is what the episode of the question has stored; ``fair`` is the credit with the
        blame shared out. A correction states what would have been right, so nothing is inferred
        beside it.
        """
        credit = credited.credit
        if credit.outcome < 0 and credit.has_stated_use and not self._is_corrected:
            successes = before.documents if before.labelled_turns > 0 else {}
            return assign_hindsight_credit(credited.turn, credit, fair, successes)
        return {node: fair.documents[node] for node, value in credit.documents.items() if value}

    def _add_episode(self, change: KeepEpisode) -> None:
        """Keep the episode of a turn, added to that of an earlier turn with the same question."""
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

    def to_changes(self, namespace: str, cause: str) -> list[Change]:
        """Return the changes to write; those at nodes that no longer exist are left out."""
        keys = {node: known.key for node, known in self._nodes.items()}
        moves = list[LearnedDelta]()
        for edge, moved in self._moves.items():
            least = max(-MAX_MOVE, self._least.get(edge, -MAX_MOVE))
            if delta := min(MAX_MOVE, max(least, moved)):
                moves.append(LearnedDelta(*edge, delta))
        deltas = _to_deltas((*moves, *self._created), keys)
        gained = {
            edge: count - self._known_counts.get(edge, 0.0) for edge, count in self._counts.items()
        }
        pairs = _to_pairs(gained, keys)
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


def learn_from_turn(store: Store, settings: LearningSettings, turn: Turn) -> None:
    """Learn what a recorded turn teaches by itself; a frozen namespace learns nothing."""
    store.flush()  # a new namespace gets its key with its first turn
    clock = store.walk.get_clock(turn.namespace)
    skipped = list(penalise_skips(turn, settings.skip_penalty))
    ends = {end for delta in skipped for end in delta[:2] if end is not None}
    nodes = store.learned.nodes(clock.key, {*ends, *(item.node for item in turn.returned)})
    known = _read_edges(store, turn.namespace, nodes, nodes)
    update = update_co_retrieval(turn, *known, settings)
    keys = {node: one.key for node, one in nodes.items()}
    deltas, pairs = (
        _to_deltas((*update.deltas, *skipped), keys),
        _to_pairs(update.count_changes, keys),
    )
    if deltas or pairs:
        store.write(write_passive_lesson, turn.namespace, deltas, pairs, turn.id)


def _read_edges(
    read: Reader, namespace: str, nodes: Mapping[str, KnownNode], sources: Iterable[str]
) -> tuple[dict[EdgeId, float], dict[EdgeId, float]]:
    """Read learned edges from ``sources`` to ``nodes``: weights, and counts towards new edges.

    Both are by edge id, and empty if no source exists.
    """
    keys = sorted(nodes[node].key for node in sources if node in nodes)
    if not keys:
        return {}, {}
    ids = {known.key: node for node, known in nodes.items()}
    weights, counts = (
        {
            (ids[source], ids[target], kind.label): value
            for (source, target, kind), value in values.items()
            if source in ids and target in ids
        }
        for values in read.learned.edges(namespace, keys)
    )
    return weights, counts


def _to_deltas(deltas: Iterable[LearnedDelta], keys: Mapping[str, int]) -> tuple[WeightDelta, ...]:
    """Convert changes of weights from node ids to the ``keys`` of nodes.

    Changes at nodes without a key, which were deleted, are left out.
    """
    known = dict[str | None, int](keys.items())
    known[None] = _STOP
    return tuple(
        WeightDelta(known[source], known[target], _KINDS[kind], delta)
        for source, target, kind, delta in deltas
        if source in known and target in known
    )


def _to_pairs(
    gained: Mapping[EdgeId, float], keys: Mapping[str, int]
) -> tuple[tuple[int, int, EdgeKind, float], ...]:
    """Convert changes of counts (``gained``, by edge id) to the ``keys`` of nodes.

    Changes of 0, and those at nodes without a key, which were deleted, are left out.
    """
    return tuple(
        (keys[a], keys[b], _KINDS[kind], count)
        for (a, b, kind), count in gained.items()
        if count and a in keys and b in keys
    )
