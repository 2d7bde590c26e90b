"""Agent episodes: states, actions and a reward, recorded without a retrieval turn.

The counts and typed edges that follow from an episode are those of [CVX RFC-013]
(docs/bibliography.md).
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from crabpath_retrievers.core.changes import (
    STATES,
    AddTransitions,
    AdjustWeights,
    Change,
    KeepNote,
    RegionKey,
    TransitionCount,
    WeightDelta,
)
from crabpath_retrievers.core.feedback import (
    DEFAULT_NAMESPACE,
    MAX_NOTE_CHARS,
    Feedback,
    Receipt,
    validate_outcome,
)
from crabpath_retrievers.core.query import parse_label, parse_namespace, parse_text, require_list
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.core.text import to_storable
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.learning.notes import NoteContent, build_note, make_note_id
from crabpath_retrievers.learning.recorder import Recorder
from crabpath_retrievers.learning.rules import count_step, sum_steps, to_success
from crabpath_retrievers.parts.region_mdp.mdp import find_whole
from crabpath_retrievers.regions import RegionIndex
from crabpath_retrievers.storage import Reader

_MAX_ID_CHARS = 200
_MAX_TITLE = 80

ActionClassifier = Callable[[Any], str]
"""Returns the type of an action, for example ``lambda call: call["name"]``."""


class EpisodeState(NamedTuple):
    """A state of an episode.

    Attributes:
        vector: Unit vector, shape ``[d]``.
        node: Id of the document that the state is; None if it is none.
        text: What the agent saw, where it said so in words.
    """

    vector: Vector
    node: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEpisode:
    """A sequence of states and actions with its reward.

    Attributes:
        states: The states in order, at least one; all of them in words, or none.
        actions: The type of the action taken in each state, in order: as many as states, or one
            fewer if the last state ended the episode.
        reward: From -1 (failure) to 1 (success).
        task_type: Type of the task; None if it has none.
        namespace: The namespace that learns from the episode.
        id: Recording the same id again changes nothing.
    """

    states: Sequence[EpisodeState]
    actions: Sequence[str]
    reward: float
    task_type: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        """Validate the fields.

        Raises:
            InvalidInputError: No state or no action, numbers of states and actions that do not fit,
                a reward out of range, or a text that cannot be stored.
        """
        set_ = object.__setattr__
        for name in ("states", "actions"):
            set_(self, name, tuple(require_list(name, getattr(self, name))))
        if not self.states or not self.actions:
            msg = "an episode needs at least one state and one action"
            raise InvalidInputError(msg)
        if not 0 <= len(self.states) - len(self.actions) <= 1:
            msg = (
                f"an episode of {len(self.states)} states has as many actions, or one fewer if "
                f"its last state ended it, not {len(self.actions)}"
            )
            raise InvalidInputError(msg)
        set_(self, "reward", validate_outcome(self.reward, name="reward"))
        set_(self, "actions", tuple(parse_label("an action", action) for action in self.actions))
        set_(self, "namespace", parse_namespace(self.namespace))
        name = parse_text("episode_id", self.id)
        if not 1 <= len(name) <= _MAX_ID_CHARS:
            msg = f"episode_id must have 1 to {_MAX_ID_CHARS} characters, not {len(name)}"
            raise InvalidInputError(msg)
        set_(self, "id", name)
        if self.task_type is not None:
            set_(self, "task_type", parse_label("task_type", self.task_type))


def require_regions(regions: RegionIndex) -> None:
    """Raise if a memory has no regions.

    Raises:
        NotFoundError: The memory is too small for regions.
    """
    if not regions.levels():
        msg = "this memory is too small for regions: add documents first, some hundreds or more"
        raise NotFoundError(msg)


def learn_from_episode(
    recorder: Recorder,
    regions: RegionIndex,
    episode: AgentEpisode,
    compute_edges: Callable[[Reader, AgentEpisode], Sequence[WeightDelta]],
) -> Receipt:
    """Count the transitions of an episode and learn its typed edges, in one transaction.

    States in words are an agent's own: they are stored, as notes that no query finds, and are
    regions of their own. Other states lie in the regions of the documents. The episode can be
    undone by its id. ``compute_edges`` computes the changes of typed edges that follow from the
    episode.

    Returns:
        A receipt: ``applied``, or ``refused`` if the namespace is frozen.
    """
    notes, name = build_states(episode), episode.namespace

    def compute_changes(read: Reader) -> list[Change]:
        if notes:
            places = _place_states(read, name, [note.node.id for note in notes])
            return [AddTransitions(name, count_transitions(episode, places))]
        version = read.regions.version()  # read once for all states
        places = [regions.places(state.vector, version, read) for state in episode.states]
        edges = AdjustWeights(name, tuple(compute_edges(read, episode)), episode.id)
        return [AddTransitions(name, count_transitions(episode, places)), edges]

    feedback = Feedback(None, episode.reward, feedback_id=episode.id, namespace=name)
    first = tuple({note.node.id: note for note in notes}.values())
    return recorder.learn_without_turn(feedback, compute_changes, first)


def _place_states(
    read: Reader, namespace: str, states: Sequence[str]
) -> list[tuple[RegionKey, ...]]:
    """Return the regions of states with these ids: all states together, and each by itself."""
    clock = read.walk.get_clock(namespace)
    keys = read.learned.keys(states, clock.key)
    return [(find_whole(STATES), (STATES, keys[state])) for state in states]


def make_state_id(namespace: str, text: str) -> str:
    """Return the id of what an agent saw; the same text in one namespace is the same state."""
    return make_note_id("state", namespace, to_storable(text)[:MAX_NOTE_CHARS])


def build_states(episode: AgentEpisode) -> list[KeepNote]:
    """Build the notes of states in words, in order."""
    return [
        build_note(
            episode.namespace,
            "state",
            NoteContent(state.text[:MAX_NOTE_CHARS], title=state.text[:_MAX_TITLE]),
            np.asarray(state.vector, dtype=np.float32),
            feedback=episode.id,
        )
        for state in episode.states
        if state.text is not None
    ]


def count_transitions(
    episode: AgentEpisode, places: Sequence[Sequence[RegionKey]]
) -> tuple[TransitionCount, ...]:
    """Compute the transitions that an episode adds to the counts.

    Every action gets the success of the whole episode, the last one too.

    Args:
        episode: The episode.
        places: The regions of each of its states, all regions together first.
    """
    task, success = episode.task_type, to_success(episode.reward)
    visited = sorted({place for state_places in places for place in state_places})
    steps = count_step(visited, task, success, 1.0)
    if episode.reward > 0 and episode.states[0].text is not None:
        steps = [step._replace(ends=1.0) for step in steps]
    last = len(episode.actions) - 1
    for number, action in enumerate(episode.actions):
        following = places[number + 1] if number + 1 < len(places) else ()
        led = {level: region for level, region in following if level}
        steps += count_step(places[number], task, success, 1.0, action, led, is_last=number == last)
    return tuple(sum_steps(steps))
