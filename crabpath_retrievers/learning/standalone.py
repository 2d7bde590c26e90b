"""Learning in a process of its own, from the graph store alone.

The vector index of an embedded memory belongs to the serving process, and learning does not need
it: new episodes and notes are read from the graph store until the serving process has indexed them.
There is no embedder either: a correction recorded here gets the vector of its question. The
settings are those that the serving process has published in its store.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.base import ValidatedSettings
from crabpath_retrievers.core.feedback import Feedback, Receipt
from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.learning.lesson import FeedbackLearner
from crabpath_retrievers.learning.recorder import AfterLesson, LearningTally, Recorder
from crabpath_retrievers.regions import RegionIndex
from crabpath_retrievers.rerank import Posterior, Ranker
from crabpath_retrievers.retrieval.episodes import EpisodeMemory, NoteMemory
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.write.nodes import put_meta

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
        store.write(put_meta, {PUBLISHED_SETTINGS: text})


def read_published_settings(store: GraphStore) -> str | None:
    """Read the published settings as JSON text; None if there are none."""
    return store.catalog.meta().get(PUBLISHED_SETTINGS)


def parse_settings(text: str | None) -> Settings:
    """Parse published settings; None gives the defaults.

    Missing fields get their defaults, unknown fields are dropped.
    """
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
        after_lesson: Callable[[Settings], AfterLesson | None] | None = None,
    ) -> None:
        """Keep the store to learn in.

        ``after_lesson`` makes from settings the hook that is called after each applied feedback;
        None, for itself or as its result, calls nothing.
        """
        self.store, self._after_lesson = store, after_lesson
        self._recorder: tuple[str | None, Recorder] | None = None

    @property
    def recorder(self) -> Recorder:
        """Recorder with the settings published last, which applies feedback in this process."""
        text = read_published_settings(self.store)
        if self._recorder is None or self._recorder[0] != text:
            settings = parse_settings(text)
            hook = None if self._after_lesson is None else self._after_lesson(settings)
            settings = settings.replace(learning=settings.learning.replace(apply="inline"))
            learner = FeedbackLearner(
                EpisodeMemory(self.store, None, settings.episode),
                NoteMemory(self.store, None, settings.note),
                RegionIndex(self.store, settings.region),
                Posterior.of(Ranker.load().weights, settings.learning.prior_strength),
                settings,
            )
            self._recorder = text, Recorder(self.store, learner, after_lesson=hook)
        return self._recorder[1]

    def record(self, feedback: Feedback) -> Receipt:
        """Store feedback and apply it in this process."""
        return self.recorder.record(feedback)

    def serve(self, poll: float, should_stop: Callable[[], bool]) -> LearningTally:
        """Apply waiting and arriving feedback until ``should_stop`` returns True; return numbers.

        If the queue is empty, it is read again every ``poll`` seconds. Feedback that is being
        applied is finished first.
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
            return self.recorder.learn_waiting(should_stop)
        except StoreError as error:  # the database may come back
            _log.warning("waiting feedback cannot be applied yet: %s", error)
            return LearningTally()


def _sleep(seconds: float, should_stop: Callable[[], bool]) -> None:
    """Sleep until ``seconds`` are over or ``should_stop`` returns True.

    The steps are short: a signal handler may not touch the locks that longer waits need.
    """
    until = time.monotonic() + seconds
    while not should_stop() and (remaining := until - time.monotonic()) > 0:
        time.sleep(min(_SLEEP_STEP, remaining))
