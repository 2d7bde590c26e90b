"""How well a memory is."""

from crabpath_retrievers.driver import arun, perform
from crabpath_retrievers.health.checkup import checkup, past_reports
from crabpath_retrievers.health.report import HealthReport
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE
from crabpath_retrievers.query import namespace_of, require_count, require_flags


class Health(Parts):
    """How a memory tells how well it is (document 000 §5.1)."""

    def health(self, namespace: str = DEFAULT_NAMESPACE, *, record: bool = True) -> HealthReport:
        """Measure the eight metrics of a namespace, on counters and bounded samples.

        Args:
            namespace: Whose. Of one that was never used the text alone is measured.
            record: Whether the report is kept for :meth:`health_history`.
        """
        self._require_open()
        require_flags(record=record)
        whose, held = namespace_of(namespace), getattr(self.index, "held", None)
        return checkup(self.store, whose, self.settings, held, record=record)

    async def ahealth(
        self, namespace: str = DEFAULT_NAMESPACE, *, record: bool = True
    ) -> HealthReport:
        """As :meth:`health`, off the event loop."""
        return await arun(perform(self.health, namespace, record=record))

    def health_history(
        self, namespace: str = DEFAULT_NAMESPACE, *, limit: int = 100
    ) -> list[HealthReport]:
        """The latest reports that were kept of a namespace, oldest first.

        Raises:
            InvalidInputError: The limit is below 1.
        """
        self._require_open()
        require_count("limit", limit)
        return past_reports(self.store, namespace_of(namespace), limit)
