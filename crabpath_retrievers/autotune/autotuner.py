"""Looking at a namespace and turning its knobs: what is read, decided, and written at once."""

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from crabpath_retrievers.autotune.deciding import tune
from crabpath_retrievers.autotune.past import BRAKE, Adjustment, Past
from crabpath_retrievers.changes import Change
from crabpath_retrievers.changes.autotune import SetKnobs
from crabpath_retrievers.changes.history import DeleteSnapshot, RestoreSnapshot, TakeSnapshot
from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.autotune import Knobs
from crabpath_retrievers.health.checkup import checkup, foreseen, past_reports
from crabpath_retrievers.health.report import HealthReport
from crabpath_retrievers.knobs import knobs_of, stored
from crabpath_retrievers.storage import GraphStore

SNAPSHOT = "autotune: last good"
"""Name of the snapshot that is kept of the last good state, where one is."""


@dataclass(frozen=True, slots=True)
class TuneReport:
    """What a look at a namespace came to.

    Attributes:
        run: Id by which it can be undone, as a maintenance; empty where no knob was turned.
        dry_run: Whether nothing was changed.
        adjustments: What was turned, or would be.
        knobs: As they stand afterwards.
        snapshot: The one that the last good state is in, where the brake was applied and there is
            one.
        restored: Whether the namespace knows again what it knew then.
        note: Why nothing was looked at; empty where it was.
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
    def braked(self) -> bool:
        """Whether the last good state was gone back to."""
        return any(one.metric == BRAKE for one in self.adjustments)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain, JSON-safe data."""
        return {**asdict(self), "knobs": self.knobs.to_dict(), "braked": self.braked}


@dataclass(frozen=True, slots=True)
class Autotuner:
    """Turns the knobs of namespaces of one store."""

    store: GraphStore
    settings: Settings

    def knobs(self, namespace: str) -> Knobs:
        """As they stand.

        Raises:
            StoreError: They are damaged.
        """
        return knobs_of(self.store.learned.tuning(namespace)[0], self.settings)

    def set(self, namespace: str, values: Mapping[str, Any]) -> str:
        """Set knobs by hand; returns the id by which it is taken back.

        Raises:
            InvalidInputError: There is no such knob, or a value is beyond its rails.
            StoreError: The others are damaged.
        """
        known = self.store.learned.tuning(namespace)
        checked = self.settings.autotune.validate_knobs(values)
        knobs = knobs_of(known[0], self.settings).replace(**checked)
        return self._write(namespace, stored(knobs, self.settings), known[1], known)

    def reset(self, namespace: str) -> str:
        """Have the knobs follow the settings again, and forget what is known of turning them."""
        return self._write(namespace, None, None, self.store.learned.tuning(namespace))

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

    def look(
        self,
        namespace: str,
        *,
        asked: bool = True,
        dry_run: bool = False,
        record: bool = True,
        run: str = "",
    ) -> TuneReport:
        """Measure the health of a namespace, and turn its knobs where that may mend it.

        Args:
            namespace: By name.
            asked: Whether somebody asked for it; else it waits for ``every`` lessons.
            dry_run: Only look.
            record: Whether the report on its health is kept.
            run: Id of the maintenance that this is part of.

        Raises:
            InvalidInputError: The settings that knobs start from are beyond their rails.
            StoreError: The stored knobs are damaged.
            ConflictError: Somebody else has turned them in the meantime.
        """
        self.settings.autotune.validate_knobs(self.settings.knobs.to_dict())
        known = self.store.learned.tuning(namespace)
        knobs, past = knobs_of(known[0], self.settings), Past.from_json(known[1])
        if note := self._idle(namespace, past, asked=asked):
            return TuneReport(namespace, "", dry_run, (), knobs, note=note)
        rules, reports = self.settings.autotune, self._reports(namespace, record and not dry_run)
        lessons = self.store.learned.learned(namespace).version
        past = past.judged(reports[-1], rules)
        ahead = foreseen(self.store, namespace, self.settings, reports[-1], rules.every_feedbacks)
        adjusted = tuple(tune([*reports[:-1], ahead], knobs, past, rules))
        turned: dict[str, Any] = {one.knob: one.after for one in adjusted}
        after = knobs.replace(**turned)
        left = past.after(reports[-1], knobs, adjusted, lessons, rules)
        found = self._seen(TuneReport(namespace, "", dry_run, adjusted, after), past)
        if dry_run:
            return found
        found = replace(found, run=(run or uuid.uuid4().hex) if adjusted else "")
        own, why = stored(after, self.settings), tuple(asdict(one) for one in adjusted)
        change = SetKnobs(found.run, namespace, own, left.to_json(), known, why)
        self.store.apply([change, *self._keeping(found, past, left)])
        return found

    def _idle(self, namespace: str, past: Past, *, asked: bool) -> str:
        """Why there is nothing to look at; empty where there is."""
        self.store.settle()
        learned, turn = self.store.learned.learned(namespace), self.store.walk.clock(namespace).turn
        if learned.frozen:
            return "it is frozen"
        if (learned.version, turn) in {(0, 0), (past.learned, past.turn)}:
            return "nothing was asked or learned since the last look"
        if (
            not asked
            and learned.version - max(0, past.learned) < self.settings.autotune.every_feedbacks
        ):
            return (
                f"fewer than {self.settings.autotune.every_feedbacks} lessons since the last look"
            )
        return ""

    def _reports(self, namespace: str, record: bool) -> list[HealthReport]:  # noqa: FBT001
        """On its health: those of late, and how it is now."""
        before = past_reports(self.store, namespace, self.settings.autotune.window_reports)
        return [*before, checkup(self.store, namespace, self.settings, record=record)]

    def _seen(self, report: TuneReport, past: Past) -> TuneReport:
        """With the snapshot that the last good state is in, where the brake is applied."""
        if not report.braked or past.good is None:
            return report
        known = self.store.history.snapshots(report.namespace)
        then = [kept.id for kept in known if kept.learned <= past.good.learned]
        if not then:
            return report
        return replace(report, snapshot=then[0], restored=self.settings.autotune.restore_snapshot)

    def _keeping(self, report: TuneReport, past: Past, left: Past) -> list[Change]:
        """Snapshots: the last good state is kept, and gone back to, where settings say so."""
        namespace = report.namespace
        if not self.settings.autotune.restore_snapshot:
            return []
        if report.snapshot is not None:  # what it knows now is kept, so that this can be undone
            now = TakeSnapshot(namespace, uuid.uuid4().hex)
            return [now, RestoreSnapshot(report.snapshot)]
        if left.good is None or left.good == past.good:
            return []
        known = self.store.history.snapshots(namespace)
        former = [DeleteSnapshot(kept.id) for kept in known if kept.name == SNAPSHOT]
        return [*former, TakeSnapshot(namespace, uuid.uuid4().hex, SNAPSHOT)]
