"""The changes that follow from one feedback, and what undo needs to reverse them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from crabpath_retrievers.core.changes import (
    AddPairCounts,
    AddUsage,
    AdjustWeights,
    Change,
    KeepEpisode,
    WeightDelta,
)
from crabpath_retrievers.core.changes.history import (
    AddTransitions,
    EpisodeEffect,
    FeedbackEffects,
    TransitionCount,
)
from crabpath_retrievers.core.changes.learned import EpisodeContent
from crabpath_retrievers.core.changes.notes import KeepNote, UseNotes
from crabpath_retrievers.learning.rules.transitions import sum_steps
from crabpath_retrievers.storage.read.learned import EdgeTriple
from crabpath_retrievers.storage.write.learned import add_credit

UseCount = tuple[float, float, float]
"""Successes, passes and reward decay in nats of one document."""


@dataclass(slots=True)
class ChangeSet:
    """What several turns of one feedback add, summed.

    Attributes:
        known_counts: Pair counts by edge, before this feedback.
        deltas: Weight changes, in the order in which they are applied.
        uses: Uses by node key.
        counts: Pair counts by edge, after all turns so far.
        steps: Transitions between regions.
        episodes: Changes of episodes, by id.
    """

    known_counts: Mapping[EdgeTriple, float]
    deltas: list[WeightDelta] = field(default_factory=list)
    uses: dict[int, UseCount] = field(default_factory=dict)
    counts: dict[EdgeTriple, float] = field(default_factory=dict)
    steps: list[TransitionCount] = field(default_factory=list)
    episodes: dict[str, KeepEpisode] = field(default_factory=dict)

    def add_use(self, key: int, wins: float, losses: float, decay: float = 0.0) -> None:
        """Add to the uses of a node."""
        if wins or losses or decay:
            won, lost, decayed = self.uses.get(key, (0.0, 0.0, 0.0))
            self.uses[key] = (won + wins, lost + losses, decayed + decay)

    def add_count(self, edge: EdgeTriple, count: float) -> None:
        """Add to a pair count, which does not fall below 0."""
        before = self.counts.get(edge, self.known_counts.get(edge, 0.0))
        self.counts[edge] = max(0.0, before + count)

    def add_episode(self, change: KeepEpisode) -> None:
        """Add a turn; turns that extend one episode are merged."""
        first = self.episodes.get(change.id)
        if first is not None:
            documents = dict(first.documents)
            for node, credit in change.documents.items():
                documents[node] = documents.get(node, 0.0) + credit
            turns, labelled = first.turns + change.turns, change.labelled_turns
            change = replace(
                first,
                turns=turns,
                labelled_turns=first.labelled_turns + labelled,
                documents=documents,
            )
        self.episodes[change.id] = change

    def to_changes(self, namespace: str, cause: str) -> list[Change]:
        """Return the changes to write; ``cause`` is the id of the feedback."""
        known = self.known_counts
        gained = [(edge, count - known.get(edge, 0.0)) for edge, count in self.counts.items()]
        pairs = tuple((*edge, count) for edge, count in gained if count)
        changes: list[Change] = []
        if pairs:
            changes.append(AddPairCounts(namespace, pairs))
        if self.deltas:
            changes.append(AdjustWeights(namespace, tuple(self.deltas), cause))
        if self.uses:
            uses = tuple((key, *use) for key, use in self.uses.items())
            changes.append(AddUsage(namespace, uses))
        if self.steps:
            changes.append(AddTransitions(namespace, tuple(sum_steps(self.steps))))
        return [*changes, *self.episodes.values()]


def describe_effects(
    changes: Iterable[Change],
    outcomes: Sequence[float] = (),
    count: int = 0,
    spoken: Mapping[str, tuple[float, float]] | None = None,
    ranker: bytes | None = None,
) -> FeedbackEffects:
    """Return what changes add, as stored for an undo.

    Args:
        changes: All changes of a feedback; weight changes are stored by themselves.
        outcomes: Credits that entered the baseline.
        count: Count of the baseline before.
        spoken: Evidence that entered the reliability of memories.
        ranker: Gain of the ranker's posterior, encoded.
    """
    effects = FeedbackEffects(
        outcomes=tuple(outcomes), count=count, spoken=spoken or {}, ranker=ranker
    )
    for change in changes:
        match change:
            case AddPairCounts():
                effects = replace(effects, together=change.pairs)
            case AddUsage():
                effects = replace(effects, usage=change.counts)
            case AddTransitions():
                effects = replace(effects, steps=change.steps)
            case KeepEpisode():
                added = _describe_episode(change)
                effects = replace(effects, episodes=(*effects.episodes, added))
            case KeepNote():
                # A note is found by its query only if that has a vector.
                query = None if change.query_vector is None else change.query
                effects = replace(effects, notes=(*effects.notes, (change.node.id, query)))
            case UseNotes():
                effects = replace(effects, used=(*effects.used, *change.used))
    return effects


def _describe_episode(change: KeepEpisode) -> EpisodeEffect:
    """Return what a change adds to an episode, including credit that it displaces."""
    content = change.before or EpisodeContent()
    before = content.documents
    after = add_credit(before, change.documents)
    added = {
        node: after.get(node, 0.0) - before.get(node, 0.0)
        for node in dict.fromkeys((*before, *change.documents))
    }
    return EpisodeEffect(
        change.id,
        change.turns,
        change.labelled_turns,
        {node: credit for node, credit in added.items() if credit},
        content.clock,
        change.user,
    )
