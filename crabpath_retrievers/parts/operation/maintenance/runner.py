"""Runs the steps of maintenance; each batch of a step is one transaction.

A step starts from the stored state, so the next run finishes what a killed run left, and a dry run
can be repeated with the same result.

Reports of maintenance runs.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.settings import apply_knobs
from crabpath_retrievers.core.calls import elapsed_ms
from crabpath_retrievers.core.query import parse_texts
from crabpath_retrievers.core.records import EdgeKind
from crabpath_retrievers.errors import InvalidInputError, NotFoundError, StoreLockedError
from crabpath_retrievers.parts.operation.maintenance.autotune import Autotuner, TuneReport
from crabpath_retrievers.parts.operation.maintenance.changes import (
    compact_episodes,
    compact_journal,
    compact_turns,
    connect_nodes,
    drop_weights,
    sweep_orphans,
    undo_maintenance,
)
from crabpath_retrievers.parts.operation.maintenance.health import measure_health
from crabpath_retrievers.parts.operation.maintenance.queries import MaintenanceQueries
from crabpath_retrievers.parts.operation.maintenance.rules import (
    find_faded_weights,
    find_neighbours,
    is_expired,
    make_similar_edges,
)
from crabpath_retrievers.retrieval.episodes import NoteMemory
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.sql_tools import split_batches
from crabpath_retrievers.storage.write.notes import remove_notes
from crabpath_retrievers.vectors.base import FindExisting


@dataclass(frozen=True, slots=True)
class StepReport:
    """Result of one maintenance step.

    Attributes:
        step: Name of the step.
        looked: Number of items that it examined.
        changed: Number of items that it changed, or would change in a dry run.
        seconds: Duration.
        detail: Further counts by name.
    """

    step: str
    looked: int
    changed: int
    seconds: float
    detail: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """Result of a maintenance run.

    Attributes:
        run: Id for undoing the run; empty for a dry run, and where there is nothing to undo.
        dry_run: Whether nothing was changed.
        steps: Results of the steps, in the order in which they ran.
    """

    run: str
    dry_run: bool
    steps: Sequence[StepReport]

    @property
    def total_changed(self) -> int:
        """Number of items that all steps changed, or would change in a dry run."""
        return sum(step.changed for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain, JSON-safe data."""
        return {**asdict(self), "changed": self.total_changed}


StepCounts = tuple[int, int, dict[str, int]]
"""How many items a step looked at, how many it changed, and further counts by name."""

_log = logging.getLogger(__name__)

MAINTENANCE_STEPS = ("health", "autotune", "fade", "prune", "connect", "compact")
"""In the order in which they run."""


def _do_nothing() -> None:
    """Do nothing: without an index at hand, the next open of the memory updates it."""


@dataclass(frozen=True, slots=True)
class MaintenanceRunner:
    """Runs maintenance on a graph store.

    ``notes`` and ``held``, which asks the vector index which of some nodes it holds, are None in a
    process without the index. ``sync_index`` brings the index in line with the store; safe to
    repeat.
    """

    store: GraphStore
    settings: Settings
    notes: NoteMemory | None = None
    held: FindExisting | None = None
    sync_index: Callable[[], object] = _do_nothing

    def run(
        self, steps: Sequence[str] = MAINTENANCE_STEPS, *, dry_run: bool = False
    ) -> MaintenanceReport:
        """Run steps, in the order of ``MAINTENANCE_STEPS``.

        Queries and learning continue meanwhile; a learner with a conflicting write retries. If
        ``dry_run``, nothing is changed.
        """
        steps = parse_texts(steps, name="steps")
        unknown = [step for step in steps if step not in MAINTENANCE_STEPS]
        if unknown or not steps:
            what = f"no step {unknown[0]!r:.250}" if unknown else "nothing to do"
            msg = f"there is {what}: choose among {', '.join(MAINTENANCE_STEPS)}"
            raise InvalidInputError(msg)
        begun = time.perf_counter()
        with self.store.hold_ingest_lock(wait=False) as held:
            if not held:
                msg = "maintenance or an ingest is running on this memory: try again later"
                raise StoreLockedError(msg)
            run = "" if dry_run else uuid.uuid4().hex
            if run:
                self.sync_index()
            wanted = [step for step in MAINTENANCE_STEPS if step in steps]
            done = [self._run_step(step, run, alone=len(wanted) == 1) for step in wanted]
        # Only what the journal holds can be undone.
        kept = run if run and self._reads.has_run(run) else ""
        report = MaintenanceReport(kept, dry_run, done)
        changed = ", ".join(f"{step.step} {step.changed}" for step in done)
        what = "maintenance (dry run)" if dry_run else "maintenance"
        _log.info("%s changed %s in %.0f ms", what, changed, elapsed_ms(begun))
        return report

    def undo(self, run: str) -> None:
        """Undo the changes of a maintenance run; what was learned since stays.

        An empty id, which a run without changes has, does nothing. Deleted turn records and notes
        are not restored.
        """
        if not run:
            return
        if not self._reads.has_run(run):
            msg = f"the journal has no maintenance run {run!r:.250}: check the id in its report"
            raise NotFoundError(msg)
        with self.store.hold_ingest_lock():
            self.store.write(undo_maintenance, run)
            self.sync_index()

    @property
    def _reads(self) -> MaintenanceQueries:
        return MaintenanceQueries(self.store)

    def _run_step(self, step: str, run: str, *, alone: bool) -> StepReport:
        work: dict[str, Callable[[str], StepCounts]] = {
            "health": self._check_health,
            "autotune": partial(self._run_autotuner, asked=alone),
            "fade": self._fade,
            "prune": self._prune,
            "connect": self._connect,
            "compact": self._compact,
        }
        begun = time.perf_counter()
        looked, changed, detail = work[step](run)
        return StepReport(step, looked, changed, round(time.perf_counter() - begun, 3), detail)

    def _check_health(self, run: str) -> StepCounts:
        """Measure the health of every namespace, and store the reports."""
        names, ill = self._reads.namespaces(), 0
        for name in names:
            report = measure_health(self.store, name, self.settings, self.held, record=bool(run))
            ill += not report.healthy
        return len(names), 0, {"out of range": ill}

    def _run_autotuner(self, run: str, *, asked: bool) -> StepCounts:
        """Tune the knobs of every namespace, if the settings enable it or a user ``asked`` for it.

        ``run`` is the id of the maintenance run.
        """
        if not (asked or self.settings.autotune.enabled):
            return 0, 0, {"off": 1}
        tuner, turned = Autotuner(self.store, self.settings), list[TuneReport]()
        for name in self._reads.namespaces():
            dry = not run
            turned.append(tuner.run(name, asked=asked, dry_run=dry, record=asked, run=run))
        braked = sum(report.brake_applied for report in turned)
        return len(turned), sum(len(report.adjustments) for report in turned), {"braked": braked}

    def _fade(self, run: str) -> StepCounts:
        """Drop learned weights that have decayed to their prior."""
        return self._drop_weights(run, of_text=True)

    def _prune(self, run: str) -> StepCounts:
        """Drop edges made by learning that have decayed, and expired automatic notes."""
        looked, changed, _ = self._drop_weights(run, of_text=False)
        notes, died = self._remove_notes(run)
        return looked + notes, changed + died, {"edges": changed, "notes": died}

    def _drop_weights(self, run: str, *, of_text: bool) -> StepCounts:
        looked = changed = 0
        rules = self.settings.maintenance
        for name in self._reads.namespaces():
            clock = self.store.walk.get_clock(name)
            half_life = apply_knobs(self.settings, clock.knobs).learning.half_life
            for block in self._reads.iterate_weights(clock.key, rules.batch_size):
                found = find_faded_weights(block, clock.exponent, half_life, rules)
                gone = found[0] if of_text else found[1]
                looked, changed = looked + len(block), changed + len(gone)
                if run and gone:
                    self.store.write(drop_weights, run, name, gone)
        return looked, changed, {}

    def _remove_notes(self, run: str) -> tuple[int, int]:
        looked = changed = 0
        probation, strong = self.settings.note.probation_turns, self.settings.tiers.habitual
        for name in self._reads.namespaces():
            clock = self.store.walk.get_clock(name)
            if not clock.notes:
                continue
            found, rules = (
                self._reads.get_auto_notes(clock.key),
                self.settings.maintenance,
            )
            gone = [
                note.id
                for note in found
                if is_expired(note, clock.turn - note.last, probation, strong, rules)
            ]
            looked, changed = looked + len(found), changed + len(gone)
            if run and gone:
                self.store.write(remove_notes, name, gone)
                if self.notes is not None:
                    self.notes.delete(self.store, clock.key, gone)
        return looked, changed

    def _connect(self, run: str) -> StepCounts:
        """Connect isolated nodes with their nearest neighbours."""
        rules = self.settings.maintenance
        prior = self.settings.links.priors[EdgeKind.SIMILAR]
        looked = connected = made = 0
        for block in self._reads.iterate_isolated(rules.batch_size):
            keys = [key for key, _ in block]
            wanted = np.stack([vector for _, vector in block]).astype(np.float32)
            near = find_neighbours(
                wanted,
                self._iterate_vectors(),
                keys,
                rules.connect_neighbours,
                rules.connect_similarity,
                self.store.stretch,
            )
            edges = list(make_similar_edges(keys, near, prior))
            looked, connected = looked + len(keys), connected + sum(map(bool, near))
            made += len(edges)
            for part in split_batches(edges, rules.batch_size) if run else ():
                self.store.write(connect_nodes, run, part)
        return looked, connected, {"edges": made}

    def _iterate_vectors(self) -> Iterator[tuple[list[int], list[np.ndarray]]]:
        for block in self.store.regions.iterate_nodes():
            yield [node.key for node in block], [node.vector for node in block]

    def _compact(self, run: str) -> StepCounts:
        """Delete the oldest turn records, episodes and journal rows, and what has no owner."""
        rules, reads = self.settings.maintenance, self._reads
        looked = old = forgotten = 0
        for name in reads.namespaces():
            key = self.store.walk.get_clock(name).key
            (beyond, until), kept = (
                reads.count_old_turns(key, rules.max_turns),
                reads.count_turns(key),
            )
            looked, old = looked + kept, old + beyond
            if run and beyond and until is not None:
                self.store.write(compact_turns, run, name, until)
            if gone := reads.count_old_episodes(key, rules.max_feedback):
                forgotten += gone
                if run:
                    self.store.write(compact_episodes, run, name, rules.max_feedback)
        rows = reads.count_journal_rows()
        beyond = max(0, rows - rules.max_journal_rows)
        if run and beyond:
            self.store.write(compact_journal, rules.max_journal_rows)
        orphans = reads.count_orphans()
        if run and orphans:
            self.store.write(sweep_orphans, run)
        detail = {"turns": old, "episodes": forgotten, "journal": beyond, "orphans": orphans}
        return looked + rows, sum(detail.values()), detail
