"""Measures the health of a namespace, and adjusts its knobs in one transaction."""

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.operation import Knobs
from crabpath_retrievers.config.settings import dump_knobs, load_knobs
from crabpath_retrievers.errors import CrabPathError
from crabpath_retrievers.parts.operation.maintenance.autotune.decide import (
    BRAKE,
    Adjustment,
    TuningHistory,
    decide_adjustments,
)
from crabpath_retrievers.parts.operation.maintenance.changes import Tuning, set_knobs
from crabpath_retrievers.parts.operation.maintenance.health.measure import (
    load_past_reports,
    measure_health,
    project_dormant_share,
)
from crabpath_retrievers.storage import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TuneReport:
    """Result of one run of the autotuner on a namespace.

    Attributes:
        namespace: Name of the namespace.
        run: Id for undoing the run as a maintenance run; empty if no knob was changed.
        dry_run: Whether nothing was changed.
        adjustments: Changes of knobs, made or planned.
        knobs: Values of the knobs afterwards.
        note: Why the run was skipped; empty if it was not.
    """

    namespace: str
    run: str
    dry_run: bool
    adjustments: tuple[Adjustment, ...]
    knobs: Knobs
    note: str = ""

    @property
    def brake_applied(self) -> bool:
        """Whether the knobs went back to the last good state."""
        return any(one.metric == BRAKE for one in self.adjustments)

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain, JSON-safe data."""
        return {**asdict(self), "knobs": self.knobs.to_dict(), "braked": self.brake_applied}


@dataclass(frozen=True, slots=True)
class Autotuner:
    """Adjusts the knobs of the namespaces of one store.

    Raises:
        InvalidInputError: A knob does not exist, or a value is out of its limits.
        StoreError: The stored knobs are damaged.
        ConflictError: Another process changed the knobs meanwhile.
    """

    store: Store
    settings: Settings

    def knobs(self, namespace: str) -> Knobs:
        """Return the current knobs of a namespace."""
        return load_knobs(self.store.learned.get_tuning(namespace)[0], self.settings)

    def set_knobs(self, namespace: str, values: Mapping[str, Any]) -> str:
        """Set knobs by hand, and return the id for undoing the change."""
        known = self.store.learned.get_tuning(namespace)
        checked = self.settings.autotune.validate_knobs(values)
        knobs = load_knobs(known[0], self.settings).replace(**checked)
        return self._write(namespace, (dump_knobs(knobs, self.settings), known[1]), known)

    def reset(self, namespace: str) -> str:
        """Reset the knobs to the settings, and delete the tuning history."""
        return self._write(namespace, (None, None), self.store.learned.get_tuning(namespace))

    def _write(self, namespace: str, after: Tuning, before: Tuning) -> str:
        run = uuid.uuid4().hex
        if after != before:
            self.store.write(set_knobs, run, namespace, after, before)
        return run

    def run(
        self,
        namespace: str,
        *,
        asked: bool = True,
        dry_run: bool = False,
        record: bool = True,
        run: str = "",
    ) -> TuneReport:
        """Measure the health of a namespace, and adjust its knobs if a metric is out of range.

        Args:
            namespace: Name of the namespace.
            asked: Whether a user asked for the run; else it waits for ``every`` lessons.
            dry_run: Report what would change, and change nothing.
            record: Whether to store the health report.
            run: Id of the maintenance run that this belongs to; empty for none.
        """
        self.settings.autotune.validate_knobs(self.settings.knobs.to_dict())
        known = self.store.learned.get_tuning(namespace)
        knobs, past = load_knobs(known[0], self.settings), TuningHistory.from_json(known[1])
        if note := self._find_skip_reason(namespace, past, asked=asked):
            return TuneReport(namespace, "", dry_run, (), knobs, note=note)
        store, rules = self.store, self.settings.autotune
        before = load_past_reports(store, namespace, rules.window_reports)
        report = measure_health(store, namespace, self.settings, record=record and not dry_run)
        ahead = project_dormant_share(
            store, namespace, self.settings, report, rules.every_feedbacks
        )
        past = past.score_pending(report, rules)
        adjusted = tuple(decide_adjustments([*before, ahead], knobs, past, rules))
        turned: dict[str, Any] = {one.knob: one.after for one in adjusted}
        after = knobs.replace(**turned)
        if dry_run:
            return TuneReport(namespace, "", dry_run, adjusted, after)
        lessons = store.learned.get_state(namespace).version
        left = past.after(report, knobs, adjusted, lessons, rules).to_json()
        run = (run or uuid.uuid4().hex) if adjusted else ""
        own, why = dump_knobs(after, self.settings), tuple(asdict(one) for one in adjusted)
        store.write(set_knobs, run, namespace, (own, left), known, why)
        return TuneReport(namespace, run, dry_run, adjusted, after)

    def run_if_due(self, namespace: str, lessons: int) -> None:
        """Run after every ``autotune.every_feedbacks``-th lesson, where autotuning is enabled.

        Errors are logged, not raised: what was learned stands, and the next run makes up for it.
        """
        rules = self.settings.autotune
        if not rules.enabled or lessons % rules.every_feedbacks:
            return
        try:
            self.run(namespace, asked=False)
        except CrabPathError as error:
            _log.warning("the knobs of %r were not tuned: %s", namespace, error)

    def _find_skip_reason(self, namespace: str, past: TuningHistory, *, asked: bool) -> str:
        """Return the reason to skip the run; empty for none."""
        self.store.flush()
        learned = self.store.learned.get_state(namespace)
        turn = self.store.walk.get_clock(namespace).turn
        if learned.frozen:
            return "the namespace is frozen"
        if (learned.version, turn) in {(0, 0), (past.learned, past.turn)}:
            return "there were no queries and no feedback since the last run"
        every = self.settings.autotune.every_feedbacks
        if not asked and learned.version - max(0, past.learned) < every:
            return f"fewer than {every} lessons since the last run"
        return ""


def tune_after_lesson(settings: Settings) -> Callable[[Store, str, int], None]:
    """Make what runs the autotuner after a lesson when it is due."""
    return lambda store, namespace, lessons: Autotuner(store, settings).run_if_due(
        namespace, lessons
    )
