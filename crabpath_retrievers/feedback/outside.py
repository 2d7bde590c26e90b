"""Learning in a process of its own, from the graph store alone.

The vector index of an embedded memory belongs to the process that serves it, and learning does not
need it: near-duplicate episodes are looked up among the latest ones in the graph store, and new
ones are read from there until the serving process has indexed them; so are notes. There is no
embedder either: a correction that is recorded here stands at the vector of the question.
"""

import logging
import time
from collections.abc import Callable

from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.feedback.inbox import Inbox, Tally
from crabpath_retrievers.feedback.learner import Learner
from crabpath_retrievers.feedback.published import published, settings_of
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.feedback.recorder import Recorder
from crabpath_retrievers.feedback.undoing import Undoing
from crabpath_retrievers.mind import Minds
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.rerank.ranker import Ranker
from crabpath_retrievers.seeds.episodes import Episodes
from crabpath_retrievers.seeds.notes import Notes
from crabpath_retrievers.storage import GraphStore

_log = logging.getLogger(__name__)
_NAP = 0.1  # seconds between looks at whether to end


class Outside:
    """Learns from what waits in a store, as the process that serves it has published."""

    def __init__(self, store: GraphStore) -> None:
        """Learn from what waits in ``store``."""
        self._store = store
        self._made: tuple[str | None, Inbox] | None = None

    @property
    def store(self) -> GraphStore:
        """Where turns and feedback are kept."""
        return self._store

    @property
    def inbox(self) -> Inbox:
        """What waits; it is learned from with the settings that are published now."""
        text = published(self._store)
        if self._made is None or self._made[0] != text:
            self._made = (text, Inbox(self._store, self._learner(text)))
        return self._made[1]

    def record(self, feedback: Feedback) -> Receipt:
        """Keep feedback and learn from it, without the process that serves.

        Raises:
            StoreError: It could not be kept.
        """
        learner = self._learner(published(self._store))
        return Recorder(self._store, learner).record(feedback)

    def undo(self, feedback_id: str, *, namespace: str | None = None) -> Receipt:
        """Take back what one feedback taught.

        Raises:
            NotFoundError: There is no such feedback in that namespace.
        """
        return self.undoing.undo(feedback_id, None, namespace)

    @property
    def undoing(self) -> Undoing:
        """Takes back what was learned; the process that serves indexes what comes back."""
        learner = self._learner(published(self._store))
        return Undoing(self._store, None, None, learner.prior)

    def _learner(self, text: str | None) -> Learner:
        settings = settings_of(text)
        settings = settings.replace(learning=settings.learning.replace(apply="inline"))
        episodes = Episodes(self._store, None, settings.episode)
        notes = Notes(self._store, None, settings.note)
        regions = Regions(self._store, settings.region)
        minds = Minds(self._store, episodes, notes, regions, Ranker.load(), settings)
        return Learner(self._store, episodes, notes, regions, minds.prior, settings)

    def serve(self, poll: float, ended: Callable[[], bool]) -> Tally:
        """Learn from what waits and from what comes, until it is time to end.

        Args:
            poll: Seconds between looks while nothing waits, above 0.
            ended: Whether to end; the feedback that is being applied is finished first.
        """
        total = Tally()
        while not ended():
            found = self._look(ended)
            total = Tally(*map(sum, zip(total, found, strict=True)))
            if not any(found):
                _nap(poll, ended)
        return total

    def _look(self, ended: Callable[[], bool]) -> Tally:
        try:
            return self.inbox.learn_waiting(ended=ended)
        except StoreError as error:  # the database may come back
            _log.warning("what waits cannot be learned from yet: %s", error)
            return Tally()


def _nap(seconds: float, ended: Callable[[], bool]) -> None:
    """Sleep in short naps: a signal handler may not touch the locks that longer waits need."""
    until = time.monotonic() + seconds
    while not ended() and (left := until - time.monotonic()) > 0:
        time.sleep(min(_NAP, left))
