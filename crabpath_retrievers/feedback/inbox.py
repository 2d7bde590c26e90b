"""Kept feedback that is learned from: one at a time, each in one transaction, each once."""

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from crabpath_retrievers.autotune import Autotuner
from crabpath_retrievers.changes import Change, ConsumeFeedback, NoteFeedback, RefuseFeedback
from crabpath_retrievers.errors import CrabPathError, NotFoundError, StoreError
from crabpath_retrievers.feedback.learner import Learner
from crabpath_retrievers.feedback.meeting import repeated
from crabpath_retrievers.feedback.noted import Noted
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.feedback.verdict import Judge
from crabpath_retrievers.logs import elapsed_ms
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.learned_queries import Kept, Unreadable
from crabpath_retrievers.time_limit import limited

_log = logging.getLogger(__name__)
_BATCH = 64


class Tally(NamedTuple):
    """What one pass made of the feedback that it found waiting."""

    applied: int = 0
    refused: int = 0
    failed: int = 0


class Inbox:
    """Feedback that waits in a store, and how it is applied.

    Several processes may work on one store: what they do at the same time for one namespace
    meets in the store, which lets one of them through; the others look again.
    """

    def __init__(self, store: GraphStore, learner: Learner) -> None:
        """Learn with ``learner`` from what waits in ``store``."""
        self._store, self._learner = store, learner
        self._judge = Judge(store, learner.settings.learning)
        self._noted = Noted(store, learner.notes, learner.settings)
        # Threads of one process take turns here; otherwise they would all meet in the store.
        self._alone = threading.Lock()
        self._failed: set[int] = set()

    def learn(self, kept: Kept) -> Receipt:
        """Apply one feedback that is kept, unless it was applied before.

        Raises:
            StoreError: The store failed; the feedback goes on waiting.
        """
        with self._alone:
            return self._learned(kept)

    def learn_waiting(
        self, most: int | None = None, ended: Callable[[], bool] = lambda: False
    ) -> Tally:
        """Apply what waits, oldest first.

        Args:
            most: How many at most; None for all.
            ended: Asked before each; True leaves the rest waiting.

        Raises:
            StoreError: The store failed; what is left goes on waiting.
        """
        found: list[str] = []
        last = 0
        while not ended():
            size = _BATCH if most is None else min(_BATCH, most - len(found))
            batch = self._store.learned.waiting(size, after=last) if size else []
            if not batch:
                break
            found += self._batch(batch, ended)
            last = batch[-1].sequence
        return Tally(*(found.count(status) for status in ("applied", "refused", "waiting")))

    def _batch(self, batch: list[Kept | Unreadable], ended: Callable[[], bool]) -> list[str]:
        found: list[str] = []
        for kept in batch:
            if ended():
                break
            if isinstance(kept, Unreadable):
                found.append(self._refused(kept))
            elif kept.sequence not in self._failed:
                with self._alone:
                    found.append(self._learned(kept).status)
        return found

    def _refused(self, kept: Unreadable) -> str:
        """Refuse what cannot be read, so that nobody meets it again."""
        _log.warning("feedback %r is refused: it %s", kept.id, kept.why)
        self._store.apply([RefuseFeedback(kept.id, f"it {kept.why}")])
        return "refused"

    def _learned(self, kept: Kept) -> Receipt:
        """What one feedback came to; none that is odd may stop the others."""
        feedback_id = kept.feedback.feedback_id
        try:
            with limited(self._learner.settings.time_limit):
                return self._applied(kept)
        except StoreError:
            raise
        except NotFoundError:
            return Receipt(feedback_id, "refused", "it was forgotten in the meantime")
        except Exception as error:
            # It waits for a program that can learn from it; this one tries it no more.
            self._failed.add(kept.sequence)
            _log.exception("feedback %r cannot be learned from", feedback_id)
            return Receipt(feedback_id, "waiting", f"it cannot be learned from: {error!r}")

    @repeated
    def _applied(self, kept: Kept) -> Receipt:
        feedback_id, begun = kept.feedback.feedback_id, time.perf_counter()
        with self._store.reading():
            now = self._standing(feedback_id)
            if now.status != "waiting":
                return now
            changes, receipt = self._consequences(kept)
        self._store.apply(changes)
        if receipt.status == "refused":
            # Between the reads another process may have applied this very feedback.
            return self._standing(feedback_id)
        self._tune(changes)
        if receipt.status == "applied":
            message = "learned from feedback %r: %d changes in %.1f ms"
            _log.info(message, feedback_id, len(changes), elapsed_ms(begun))
        return receipt

    def _standing(self, feedback_id: str) -> Receipt:
        now = self._store.learned.feedback(feedback_id)
        return Receipt(feedback_id, now.status, now.note)

    def _tune(self, changes: list[Change]) -> None:
        """Look after the health of a namespace, every so many lessons, where that is wanted."""
        rules, lesson = self._learner.settings.autotune, changes[0]
        if not rules.enabled or not isinstance(lesson, ConsumeFeedback):
            return
        if (lesson.version + 1) % rules.every_feedbacks:
            return
        try:
            Autotuner(self._store, self._learner.settings).look(lesson.namespace, asked=False)
        except CrabPathError as error:  # the lesson stands; the next look will do
            _log.warning("knobs of %r are not tuned: %s", lesson.namespace, error)

    def _consequences(self, kept: Kept) -> tuple[list[Change], Receipt]:
        feedback_id = kept.feedback.feedback_id
        verdict = self._judge.verdict(kept)
        note = verdict.note
        if not verdict.judged:
            return [RefuseFeedback(feedback_id, str(note))], Receipt(feedback_id, "refused", note)
        namespace = verdict.judged[0].turn.namespace
        noted = self._noted.changes(kept, verdict.judged)
        user = kept.feedback.user
        changes = self._learner.changes(namespace, feedback_id, verdict.judged, noted, user)
        last = changes[-1]
        if isinstance(last, NoteFeedback):
            note = "; ".join(filter(None, (note, last.note)))
        if note is not None:
            changes.append(NoteFeedback(feedback_id, note))
        return changes, Receipt(feedback_id, "applied", note)
