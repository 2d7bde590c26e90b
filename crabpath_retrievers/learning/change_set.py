"""The changes that follow from one feedback, accumulated over all its turns."""

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
from crabpath_retrievers.core.changes.notes import KeepNote, UseNotes
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.learning.rules.transitions import sum_steps
from crabpath_retrievers.retrieval.episodes import EpisodeUpdate
from crabpath_retrievers.storage.read.learned import EdgeTriple, StoredEpisode
from crabpath_retrievers.storage.write.learned import add_credit


@dataclass(slots=True)
class ChangeSet:
    """Changes of one feedback, merged by kind, with what each adds to the stored state.

    Attributes:
        deltas: Weight changes, in the order in which they are applied.
        uses: Successes, passes and reward decay by node key.
        counts: Pair counts by edge, after all turns so far.
        counts_before: Pair counts by edge, before this feedback.
        episodes: Episode changes by id, each with the stored episode that it extends, if any.
        note_changes: Changes of notes, written as they are.
        steps: Transitions between regions to count.
    """

    deltas: list[WeightDelta] = field(default_factory=list)
    uses: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    counts: dict[EdgeTriple, float] = field(default_factory=dict)
    counts_before: dict[EdgeTriple, float] = field(default_factory=dict)
    episodes: dict[str, tuple[KeepEpisode, StoredEpisode | None]] = field(default_factory=dict)
    note_changes: Sequence[Change] = ()
    steps: list[TransitionCount] = field(default_factory=list)

    def add_uses(self, uses: Iterable[tuple[int, float, float, float]]) -> None:
        """Add successes, passes and reward decay of nodes."""
        for key, wins, losses, decay in uses:
            won, lost, decayed = self.uses.get(key, (0.0, 0.0, 0.0))
            if wins or losses or decay:
                self.uses[key] = (won + wins, lost + losses, decayed + decay)

    def add_counts(
        self, pairs: Iterable[tuple[int, int, EdgeKind, float]], known: Mapping[EdgeTriple, float]
    ) -> None:
        """Add to pair counts, none of which falls below 0."""
        for source, target, kind, count in pairs:
            edge = (source, target, kind)
            before = self.counts_before.setdefault(edge, known.get(edge, 0.0))
            self.counts[edge] = max(0.0, self.counts.get(edge, before) + count)

    def add_episode(self, turn: EpisodeUpdate) -> None:
        """Add a turn; an episode that several turns extend is merged."""
        change, known = turn
        if change.id in self.episodes:
            first, known = self.episodes[change.id]
            documents = dict(first.documents)
            for node, credit in change.documents.items():
                documents[node] = documents.get(node, 0.0) + credit
            turns, labelled = (
                first.turns + change.turns,
                first.labelled_turns + change.labelled_turns,
            )
            change = replace(first, turns=turns, labelled_turns=labelled, documents=documents)
        self.episodes[change.id] = (change, known)

    def to_changes(self, namespace: str, cause: str) -> list[Change]:
        """Return the changes to write."""
        changes: list[Change] = []
        if count_changes := self._list_counts():
            changes.append(AddPairCounts(namespace, count_changes))
        if self.deltas:
            changes.append(AdjustWeights(namespace, tuple(self.deltas), cause))
        if self.uses:
            changes.append(AddUsage(namespace, self._list_uses()))
        if self.steps:
            changes.append(AddTransitions(namespace, tuple(sum_steps(self.steps))))
        return [*changes, *(change for change, _ in self.episodes.values()), *self.note_changes]

    def to_effects(
        self,
        outcomes: Sequence[float],
        count: int,
        spoken: Mapping[str, tuple[float, float]],
        ranker: bytes | None,
    ) -> FeedbackEffects:
        """Return what the changes add, as stored for an undo.

        Args:
            outcomes: Credits that entered the baseline.
            count: Count of the baseline before.
            spoken: Evidence that entered the reliability of memories.
            ranker: Gain of the ranker's posterior, encoded.
        """
        episodes = tuple(_describe_episode(*item) for item in self.episodes.values())
        return FeedbackEffects(
            self._list_uses(),
            self._list_counts(),
            episodes,
            tuple(outcomes),
            count,
            spoken,
            ranker,
            tuple(
                _describe_note(change)
                for change in self.note_changes
                if isinstance(change, KeepNote)
            ),
            tuple(
                n
                for change in self.note_changes
                if isinstance(change, UseNotes)
                for n in change.used
            ),
            tuple(sum_steps(self.steps)),
        )

    def _list_uses(self) -> tuple[tuple[int, float, float, float], ...]:
        return tuple((key, *use) for key, use in self.uses.items())

    def _list_counts(self) -> tuple[tuple[int, int, EdgeKind, float], ...]:
        return tuple(
            (*edge, count - self.counts_before[edge])
            for edge, count in self.counts.items()
            if count != self.counts_before[edge]
        )


def _describe_note(change: KeepNote) -> tuple[str, str | None]:
    """Return the id of a note and the query that recalls it, if any."""
    return change.node.id, change.query if change.query_vector is not None else None


def _describe_episode(change: KeepEpisode, known: StoredEpisode | None) -> EpisodeEffect:
    """Return what a turn adds to an episode, including credit that it displaces."""
    before = known.documents if known else {}
    stored_credit = add_credit(before, change.documents)
    nodes = dict.fromkeys((*before, *change.documents))
    added = {node: stored_credit.get(node, 0.0) - before.get(node, 0.0) for node in nodes}
    clock = known.clock if known else None
    return EpisodeEffect(
        change.id,
        change.turns,
        change.labelled_turns,
        {n: credit for n, credit in added.items() if credit},
        clock,
        change.user,
    )
