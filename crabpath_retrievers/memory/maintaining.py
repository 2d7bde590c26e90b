"""A memory's maintenance, for any scheduler."""

from collections.abc import Sequence

from crabpath_retrievers.driver import arun, perform
from crabpath_retrievers.maintenance import STEPS, MaintenanceReport, Upkeep
from crabpath_retrievers.maintenance.splitting import Splitting
from crabpath_retrievers.maintenance.topics import ModelTopics, no_topics
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.query import require_flags, text_of


class Maintaining(Parts):
    """How a memory sheds what is dead, and stays bounded."""

    def run_maintenance(
        self, steps: Sequence[str] = STEPS, *, dry_run: bool = False
    ) -> MaintenanceReport:
        """Shed what has faded, connect what is alone, bound the logs; in all namespaces.

        Queries, learners and other processes go on beside it. A run that was killed is finished by
        the next one.

        Args:
            steps: Some of ``health`` (measured and kept), ``autotune`` (see :meth:`tune`; only
                where ``settings.autotune.enabled``, or it is the only step), ``fade`` (weights that
                came back to what the text says), ``prune`` (edges that learning alone had made and
                that faded; notes on probation that nobody vouched for), ``merge`` (documents that
                say the same), ``split`` (those that are too broad; only where
                ``settings.maintenance.split``, or it is the only step), ``connect`` (nodes that no
                edge leads to, with their nearest) and ``compact`` (records of turns and rows of the
                journal beyond those that are kept). They run in this order.
            dry_run: Only look, change nothing.

        Raises:
            InvalidInputError: There is no such step.
            StoreLockedError: Maintenance, or an ingest, is running already.
        """
        self._require_open()
        require_flags(dry_run=dry_run)
        return self.upkeep.run(steps, dry_run=dry_run)

    async def arun_maintenance(
        self, steps: Sequence[str] = STEPS, *, dry_run: bool = False
    ) -> MaintenanceReport:
        """As :meth:`run_maintenance`, off the event loop."""
        return await arun(perform(self.run_maintenance, steps, dry_run=dry_run))

    def undo_maintenance(self, run: str) -> None:
        """Take back what one maintenance changed; what was learned since stays.

        Records of turns and notes that it deleted do not come back.

        Args:
            run: The ``run`` of its report.

        Raises:
            NotFoundError: The journal knows no such maintenance.
        """
        self._require_open()
        self.upkeep.undo(text_of("run", run))

    @property
    def upkeep(self) -> Upkeep:
        """What runs it, with all that this memory has at hand."""
        model = getattr(self._retrieval.router, "model", None)
        return Upkeep(
            self.store,
            self.settings,
            self._notes,
            getattr(self.index, "held", None),
            self._ingest.recover,
            Splitting(self._ingest, no_topics if model is None else ModelTopics(model)),
        )
