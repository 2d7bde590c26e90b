"""One schedule, of which each batch is one transaction.

A step begins with what it finds, so a run that was killed is finished by the next one, and a
second dry run finds what the first has found.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from crabpath_retrievers.autotune import Autotuner, TuneReport
from crabpath_retrievers.changes.maintenance import (
    CompactJournal,
    CompactTurns,
    ConnectNodes,
    Dropped,
    DropWeights,
    UndoMaintenance,
)
from crabpath_retrievers.changes.notes import RemoveNotes
from crabpath_retrievers.config import Settings
from crabpath_retrievers.errors import InvalidInputError, NotFoundError, StoreLockedError
from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.health.checkup import checkup
from crabpath_retrievers.knobs import tuned
from crabpath_retrievers.logs import elapsed_ms
from crabpath_retrievers.maintenance.dying import Candidate, dying
from crabpath_retrievers.maintenance.fading import Fading, faded
from crabpath_retrievers.maintenance.lonely import connecting, nearest
from crabpath_retrievers.maintenance.report import MaintenanceReport, StepReport
from crabpath_retrievers.maintenance.splitting import Splitting
from crabpath_retrievers.maintenance.standing import merge, split
from crabpath_retrievers.query import texts_of
from crabpath_retrievers.seeds.index import Held
from crabpath_retrievers.seeds.notes import Notes
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.batching import parts

_log = logging.getLogger(__name__)

STEPS = ("health", "autotune", "fade", "prune", "merge", "split", "connect", "compact")
"""In the order in which they run."""

Found = tuple[int, int, dict[str, int]]
"""At how many a step looked, how many it changed, more numbers."""


def _nothing() -> None:
    """There is no index at hand; whoever opens the memory next lets it catch up."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Runs maintenance on a graph store.

    Attributes:
        store: Whose.
        settings: What goes, what stays.
        notes: Whose vectors go with them; None beside the process that has the index.
        held: Asks that index which nodes it holds.
        settled: Has that index catch up with the store; safe to repeat.
        splitting: What splits texts; None where there is no embedder.
    """

    store: GraphStore
    settings: Settings
    notes: Notes | None = None
    held: Held | None = None
    settled: Callable[[], None] = _nothing
    splitting: Splitting | None = None

    def run(self, steps: Sequence[str] = STEPS, *, dry_run: bool = False) -> MaintenanceReport:
        """Run steps, in the order of ``STEPS``.

        Queries and learners go on beside it; a learner that meets it repeats its work.

        Args:
            steps: Which.
            dry_run: Only look.

        Raises:
            InvalidInputError: There is no such step.
            StoreLockedError: Maintenance, or an ingest, is running already.
        """
        steps = texts_of(steps, name="steps")
        unknown = [step for step in steps if step not in STEPS]
        if unknown or not steps:
            what = f"no step {unknown[0]!r:.250}" if unknown else "nothing to do"
            msg = f"there is {what}: choose among {', '.join(STEPS)}"
            raise InvalidInputError(msg)
        begun = time.perf_counter()
        with self.store.ingesting(wait=False) as held:
            if not held:
                msg = "maintenance or an ingest is running on this memory: try again later"
                raise StoreLockedError(msg)
            run = "" if dry_run else uuid.uuid4().hex
            if run:
                self.settled()
            wanted = [step for step in STEPS if step in steps]
            done = [self._step(step, run, alone=len(wanted) == 1) for step in wanted]
        report = MaintenanceReport(run, dry_run, done)
        changed = ", ".join(f"{step.step} {step.changed}" for step in done)
        what = "maintenance (dry run)" if dry_run else "maintenance"
        _log.info("%s changed %s in %.0f ms", what, changed, elapsed_ms(begun))
        return report

    def undo(self, run: str) -> None:
        """Take back what a maintenance changed; what was learned since stays.

        Records of turns and notes that were deleted do not come back.

        Raises:
            NotFoundError: The journal knows no such maintenance.
        """
        if not self.store.upkeep.knows(run):
            msg = f"the journal knows no maintenance {run!r:.250}: check the id that it reported"
            raise NotFoundError(msg)
        with self.store.ingesting():
            self.store.apply([UndoMaintenance(run)])
            self.settled()

    def _step(self, step: str, run: str, *, alone: bool) -> StepReport:
        work: dict[str, Callable[[str], Found]] = {
            "health": self._health,
            "autotune": partial(self._autotune, asked=alone),
            "fade": self._fade,
            "prune": self._prune,
            "merge": partial(self._merge, asked=alone),
            "split": partial(self._split, asked=alone),
            "connect": self._connect,
            "compact": self._compact,
        }
        begun = time.perf_counter()
        looked, changed, detail = work[step](run)
        return StepReport(step, looked, changed, round(time.perf_counter() - begun, 3), detail)

    def _health(self, run: str) -> Found:
        """The health of every namespace, kept for its history."""
        names, ill = self.store.upkeep.namespaces(), 0
        for name in names:
            report = checkup(self.store, name, self.settings, self.held, record=bool(run))
            ill += not report.healthy
        return len(names), 0, {"out of range": ill}

    def _autotune(self, run: str, *, asked: bool) -> Found:
        """The knobs of every namespace, where that is switched on or nothing else is asked for."""
        if not (asked or self.settings.autotune.enabled):
            return 0, 0, {"off": 1}
        tuner, turned = Autotuner(self.store, self.settings), list[TuneReport]()
        for name in self.store.upkeep.namespaces():
            dry = not run
            turned.append(tuner.look(name, asked=asked, dry_run=dry, record=asked, run=run))
        braked = sum(report.braked for report in turned)
        return len(turned), sum(len(report.adjustments) for report in turned), {"braked": braked}

    def _fade(self, run: str) -> Found:
        """Weights that have come back to what the text says."""
        return self._weights(run, lambda found: found.settled)

    def _prune(self, run: str) -> Found:
        """Edges that learning alone had made, and notes that nobody vouched for."""
        looked, changed, _ = self._weights(run, lambda found: found.pruned)
        notes, died = self._notes(run)
        return looked + notes, changed + died, {"edges": changed, "notes": died}

    def _weights(self, run: str, which: Callable[[Fading], list[Dropped]]) -> Found:
        looked = changed = 0
        rules = self.settings.maintenance
        for name in self.store.upkeep.namespaces():
            clock = self.store.walk.clock(name)
            half_life = tuned(self.settings, clock.knobs).learning.half_life
            for block in self.store.upkeep.weights(clock.key, rules.batch_size):
                gone = which(faded(block, clock.exponent, half_life, rules))
                looked, changed = looked + len(block), changed + len(gone)
                if run and gone:
                    self.store.apply([DropWeights(run, name, tuple(gone))])
        return looked, changed, {}

    def _notes(self, run: str) -> tuple[int, int]:
        looked = changed = 0
        probation, strong = self.settings.note.probation_turns, self.settings.tiers.habitual
        for name in self.store.upkeep.namespaces():
            clock = self.store.walk.clock(name)
            if not clock.notes:
                continue
            found = [
                Candidate(
                    note.id,
                    note.degree,
                    note.uses,
                    note.passes,
                    clock.turn - note.last,
                    note.authority,
                    note.strongest,
                )
                for note in self.store.upkeep.answers(clock.key)
            ]
            gone = dying(found, probation, strong, self.settings.maintenance)
            looked, changed = looked + len(found), changed + len(gone)
            if run and gone:
                self.store.apply([RemoveNotes(tuple(gone))])
                if self.notes is not None:
                    self.notes.remove(clock.key, gone)
        return looked, changed

    def _merge(self, run: str, *, asked: bool) -> Found:
        """Near-duplicates, where that is switched on or nothing else is asked for."""
        if not (asked or self.settings.maintenance.merge):
            return 0, 0, {"off": 1}
        found = merge(self.store, self.settings.maintenance, run)
        if run:
            self.settled()
        return found

    def _split(self, run: str, *, asked: bool) -> Found:
        """Texts that are too broad, where that is switched on or nothing else is asked for."""
        if not (asked or self.settings.maintenance.split):
            return 0, 0, {"off": 1}
        return split(self.store, self.settings.maintenance, self.splitting, run)

    def _connect(self, run: str) -> Found:
        """Nodes that no edge leads to, with those nearest to them."""
        rules = self.settings.maintenance
        prior = self.settings.links.priors[EdgeKind.SIMILAR]
        looked = connected = made = 0
        for block in self.store.upkeep.lonely(rules.batch_size):
            keys = [one.key for one in block]
            wanted = np.stack([one.vector for one in block]).astype(np.float32)
            near = nearest(
                wanted, self._placed(), keys, rules.connect_neighbours, rules.connect_similarity
            )
            edges = list(connecting(keys, near, prior))
            looked, connected = looked + len(keys), connected + sum(map(bool, near))
            made += len(edges)
            for part in parts(edges, rules.batch_size) if run else ():
                self.store.apply([ConnectNodes(run, tuple(part))])
        return looked, connected, {"edges": made}

    def _placed(self) -> Iterator[tuple[list[int], list[np.ndarray]]]:
        for block in self.store.regions.placed():
            yield [node.key for node in block], [node.vector for node in block]

    def _compact(self, run: str) -> Found:
        """Records of turns, and rows of the journal, beyond those that are kept."""
        rules, reads = self.settings.maintenance, self.store.upkeep
        looked = old = 0
        for name in reads.namespaces():
            key = self.store.walk.clock(name).key
            (beyond, until), kept = reads.old_turns(key, rules.max_turns), reads.turns(key)
            looked, old = looked + kept, old + beyond
            if run and beyond and until is not None:
                self.store.apply([CompactTurns(run, name, until)])
        rows = reads.journal()
        beyond = max(0, rows - rules.max_journal_rows)
        if run and beyond:
            self.store.apply([CompactJournal(run, rules.max_journal_rows)])
        return looked + rows, old + beyond, {"turns": old, "journal": beyond}
