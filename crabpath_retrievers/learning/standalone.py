"""Learning in a process of its own, from the graph store alone.

The vector index of an embedded memory belongs to the serving process, and learning does not need
it: near-duplicate episodes are looked up among the latest ones in the graph store, and new episodes
and notes are read from there until the serving process has indexed them. There is no embedder
either: a correction recorded here gets the vector of its question.

Settings of the serving process, published in its store for learners in other processes.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.base import ValidatedSettings
from crabpath_retrievers.core.changes import PutMeta
from crabpath_retrievers.core.feedback import Feedback, Receipt
from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.learning.learner import FeedbackLearner
from crabpath_retrievers.learning.queue import AfterLesson, FeedbackQueue, LearningTally
from crabpath_retrievers.learning.recorder import Recorder
from crabpath_retrievers.learning.undo import LearningHistory
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.rerank.ranker import Ranker
from crabpath_retrievers.retrieval.episodes import EpisodeMemory
from crabpath_retrievers.retrieval.namespace_model import NamespaceModels
from crabpath_retrievers.retrieval.notes import NoteMemory
from crabpath_retrievers.storage import GraphStore

PUBLISHED_SETTINGS = "learning"
"""Key of the published settings in the store's metadata."""

# Groups that learning, health, maintenance and autotuning read.
_GROUPS = (
    *("learning", "episode", "health", "note", "policy", "region", "tiers", "maintenance"),
    "autotune",
)


def publish_settings(store: GraphStore, settings: Settings) -> None:
    """Write the settings that learning needs to the store."""
    text = json.dumps({name: getattr(settings, name).to_dict() for name in _GROUPS})
    if read_published_settings(store) != text:
        store.apply([PutMeta(((PUBLISHED_SETTINGS, text),))])


def read_published_settings(store: GraphStore) -> str | None:
    """Read the published settings as JSON text; None if there are none."""
    return store.catalog.meta().get(PUBLISHED_SETTINGS)


def parse_settings(text: str | None) -> Settings:
    """Parse published settings; missing fields get their defaults, unknown fields are dropped."""
    data = {} if text is None else json.loads(text)
    default = Settings()
    groups = {name: getattr(default, name) for name in _GROUPS}
    return default.replace(**{n: _fill(group, data.get(n, {})) for n, group in groups.items()})


def _fill(group: ValidatedSettings, data: Mapping[str, Any]) -> ValidatedSettings:
    return group.replace(**{n: v for n, v in data.items() if n in type(group).model_fields})


_log = logging.getLogger(__name__)
_SLEEP_STEP = 0.1  # seconds between two calls of should_stop


class StandaloneLearner:
    """Applies the feedback waiting in a store, with the published settings."""

    def __init__(
        self,
        store: GraphStore,
        after_lesson: Callable[[GraphStore, Settings], AfterLesson] | None = None,
    ) -> None:
        """Work on ``store``.

        Args:
            store: The store with turns and feedback.
            after_lesson: Makes what is called after each applied feedback, for these settings.
        """
        self._store, self._after_lesson = store, after_lesson
        self._cached: tuple[str | None, FeedbackQueue] | None = None

    @property
    def store(self) -> GraphStore:
        """The store with turns and feedback."""
        return self._store

    @property
    def queue(self) -> FeedbackQueue:
        """The queue of waiting feedback, with the settings published last."""
        text = read_published_settings(self._store)
        if self._cached is None or self._cached[0] != text:
            self._cached = (text, self._build_queue(text))
        return self._cached[1]

    def record(self, feedback: Feedback) -> Receipt:
        """Store feedback and apply it in this process.

        Raises:
            StoreError: The feedback could not be stored.
        """
        learner = self._build_learner(read_published_settings(self._store))
        return Recorder(self._store, learner, after_lesson=self._hook(learner)).record(feedback)

    def undo(self, feedback_id: str, *, namespace: str | None = None) -> Receipt:
        """Undo one feedback.

        Raises:
            NotFoundError: There is no such feedback in that namespace.
        """
        return self.history.undo(feedback_id, None, namespace)

    @property
    def history(self) -> LearningHistory:
        """Undo and snapshots; the serving process indexes what a restore brings back."""
        learner = self._build_learner(read_published_settings(self._store))
        return LearningHistory(self._store, None, None, learner.prior)

    def _build_queue(self, text: str | None) -> FeedbackQueue:
        learner = self._build_learner(text)
        return FeedbackQueue(self._store, learner, self._hook(learner))

    def _hook(self, learner: FeedbackLearner) -> AfterLesson | None:
        make = self._after_lesson
        return None if make is None else make(self._store, learner.settings)

    def _build_learner(self, text: str | None) -> FeedbackLearner:
        settings = parse_settings(text)
        settings = settings.replace(learning=settings.learning.replace(apply="inline"))
        episodes = EpisodeMemory(self._store, None, settings.episode)
        notes = NoteMemory(self._store, None, settings.note)
        regions = Regions(self._store, settings.region)
        minds = NamespaceModels(self._store, episodes, notes, regions, Ranker.load(), settings)
        return FeedbackLearner(self._store, episodes, notes, regions, minds.prior, settings)

    def serve(self, poll: float, should_stop: Callable[[], bool]) -> LearningTally:
        """Apply waiting and arriving feedback until ``should_stop`` returns True.

        Args:
            poll: Seconds between two checks of an empty queue, above 0.
            should_stop: Whether to end; the feedback that is being applied is finished first.
        """
        total = LearningTally()
        while not should_stop():
            tally = self._learn_once(should_stop)
            total = LearningTally(*map(sum, zip(total, tally, strict=True)))
            if not any(tally):
                _sleep(poll, should_stop)
        return total

    def _learn_once(self, should_stop: Callable[[], bool]) -> LearningTally:
        try:
            return self.queue.learn_waiting(should_stop=should_stop)
        except StoreError as error:  # the database may come back
            _log.warning("waiting feedback cannot be applied yet: %s", error)
            return LearningTally()


def _sleep(seconds: float, should_stop: Callable[[], bool]) -> None:
    """Sleep in short steps: a signal handler may not touch the locks that longer waits need."""
    until = time.monotonic() + seconds
    while not should_stop() and (remaining := until - time.monotonic()) > 0:
        time.sleep(min(_SLEEP_STEP, remaining))
