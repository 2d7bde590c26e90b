"""Measures the health of a namespace, and adjusts its knobs in one transaction."""

import logging
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.autotune import Knobs
from crabpath_retrievers.config.settings import dump_knobs, load_knobs
from crabpath_retrievers.core.changes import Change
from crabpath_retrievers.core.changes.history import DeleteSnapshot, RestoreSnapshot, TakeSnapshot
from crabpath_retrievers.core.changes.maintenance import SetKnobs
from crabpath_retrievers.errors import CrabPathError
from crabpath_retrievers.maintenance.autotune.decide import (
    BRAKE,
    Adjustment,
    TuningHistory,
    decide_adjustments,
)
from crabpath_retrievers.maintenance.health.measure import (
    load_past_reports,
    measure_health,
    project_dormant_share,
)
from crabpath_retrievers.maintenance.health.report import HealthReport
from crabpath_retrievers.storage import GraphStore

_log = logging.getLogger(__name__)

SNAPSHOT = "autotune: last good"
"""Name of the snapshot of the last good state, if the settings keep one."""


@dataclass(frozen=True, slots=True)
class TuneReport:
    """Result of one run of the autotuner on a namespace.

    Attributes:
        namespace: Name of the namespace.
        run: Id for undoing the run as a maintenance run; empty if no knob was changed.
        dry_run: Whether nothing was changed.
        adjustments: Changes of knobs, made or planned.
        knobs: Values of the knobs afterwards.
        snapshot: If the brake was applied: id of the snapshot of the last good state, if any.
        restored: Whether that snapshot was restored.
        note: Why the run was skipped; empty if it was not.
    """

    namespace: str
    run: str
    dry_run: bool
    adjustments: tuple[Adjustment, ...]
    knobs: Knobs
    snapshot: str | None = None
    restored: bool = False
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
    """Adjusts the knobs of the namespaces of one store."""

    store: GraphStore
    settings: Settings

    def knobs(self, namespace: str) -> Knobs:
        """Return the current knobs of a namespace.

        Raises:
            StoreError: The stored knobs are damaged.
        """
        return load_knobs(self.store.learned.get_tuning(namespace)[0], self.settings)

    def set_knobs(self, namespace: str, values: Mapping[str, Any]) -> str:
        """Set knobs by hand, and return the id for undoing the change.

        Raises:
            InvalidInputError: A knob does not exist, or a value is out of its limits.
            StoreError: The stored knobs are damaged.
        """
        known = self.store.learned.get_tuning(namespace)
        checked = self.settings.autotune.validate_knobs(values)
        knobs = load_knobs(known[0], self.settings).replace(**checked)
        return self._write(namespace, dump_knobs(knobs, self.settings), known[1], known)

    def reset(self, namespace: str) -> str:
        """Reset the knobs to the settings, and delete the tuning history."""
        return self._write(namespace, None, None, self.store.learned.get_tuning(namespace))

    def _write(
        self,
        namespace: str,
        knobs: str | None,
        tuning: str | None,
        before: tuple[str | None, str | None],
    ) -> str:
        run = uuid.uuid4().hex
        if (knobs, tuning) != before:
            self.store.apply([SetKnobs(run, namespace, knobs, tuning, before)])
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

        Raises:
            InvalidInputError: The knobs in the settings are out of their limits.
            StoreError: The stored knobs are damaged.
            ConflictError: Another process changed the knobs meanwhile.
        """
        self.settings.autotune.validate_knobs(self.settings.knobs.to_dict())
        known = self.store.learned.get_tuning(namespace)
        knobs, past = load_knobs(known[0], self.settings), TuningHistory.from_json(known[1])
        if note := self._find_skip_reason(namespace, past, asked=asked):
            return TuneReport(namespace, "", dry_run, (), knobs, note=note)
        rules, reports = (
            self.settings.autotune,
            self._collect_reports(namespace, record and not dry_run),
        )
        lessons = self.store.learned.get_state(namespace).version
        past = past.score_pending(reports[-1], rules)
        ahead = project_dormant_share(
            self.store, namespace, self.settings, reports[-1], rules.every_feedbacks
        )
        adjusted = tuple(decide_adjustments([*reports[:-1], ahead], knobs, past, rules))
        turned: dict[str, Any] = {one.knob: one.after for one in adjusted}
        after = knobs.replace(**turned)
        left = past.after(reports[-1], knobs, adjusted, lessons, rules)
        found = self._with_snapshot(TuneReport(namespace, "", dry_run, adjusted, after), past)
        if dry_run:
            return found
        found = replace(found, run=(run or uuid.uuid4().hex) if adjusted else "")
        own, why = dump_knobs(after, self.settings), tuple(asdict(one) for one in adjusted)
        change = SetKnobs(found.run, namespace, own, left.to_json(), known, why)
        self.store.apply([change, *self._make_snapshot_changes(found, past, left)])
        return found

    def run_if_due(self, namespace: str, lessons: int) -> None:
        """Run after every ``autotune.every_feedbacks``-th lesson, where autotuning is enabled.

        Errors are logged, not raised: what was learned stands, and the next run makes up for it.

        Args:
            namespace: The namespace that has learned.
            lessons: How many lessons it has learned in all, at least 1.
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
        learned, turn = (
            self.store.learned.get_state(namespace),
            self.store.walk.get_clock(namespace).turn,
        )
        if learned.frozen:
            return "the namespace is frozen"
        if (learned.version, turn) in {(0, 0), (past.learned, past.turn)}:
            return "there were no queries and no feedback since the last run"
        if (
            not asked
            and learned.version - max(0, past.learned) < self.settings.autotune.every_feedbacks
        ):
            return f"fewer than {self.settings.autotune.every_feedbacks} lessons since the last run"
        return ""

    def _collect_reports(self, namespace: str, record: bool) -> list[HealthReport]:  # noqa: FBT001
        """Load the latest health reports, and append a new one."""
        before = load_past_reports(self.store, namespace, self.settings.autotune.window_reports)
        return [*before, measure_health(self.store, namespace, self.settings, record=record)]

    def _with_snapshot(self, report: TuneReport, past: TuningHistory) -> TuneReport:
        """Add the snapshot of the last good state to a report with the brake applied."""
        if not report.brake_applied or past.good is None:
            return report
        known = self.store.history.snapshots(report.namespace)
        then = [kept.id for kept in known if kept.learned <= past.good.learned]
        if not then:
            return report
        return replace(report, snapshot=then[0], restored=self.settings.autotune.restore_snapshot)

    def _make_snapshot_changes(
        self, report: TuneReport, past: TuningHistory, left: TuningHistory
    ) -> list[Change]:
        """Make the changes that keep or restore the snapshot of the last good state."""
        namespace = report.namespace
        if not self.settings.autotune.restore_snapshot:
            return []
        if report.snapshot is not None:  # keep the current state, so that the restore can be undone
            now = TakeSnapshot(namespace, uuid.uuid4().hex)
            return [now, RestoreSnapshot(report.snapshot)]
        if left.good is None or left.good == past.good:
            return []
        known = self.store.history.snapshots(namespace)
        former = [DeleteSnapshot(kept.id) for kept in known if kept.name == SNAPSHOT]
        return [*former, TakeSnapshot(namespace, uuid.uuid4().hex, SNAPSHOT)]
