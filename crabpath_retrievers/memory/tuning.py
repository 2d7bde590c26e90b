"""A memory that tunes itself, and knobs that are set by hand."""

from crabpath_retrievers.autotune import Autotuner, TuneReport
from crabpath_retrievers.config.autotune import Knobs
from crabpath_retrievers.driver import arun, perform
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE
from crabpath_retrievers.query import namespace_of


class Tuning(Parts):
    """How a memory keeps itself in health (document 000 §5.2 to §5.4)."""

    def tune(self, namespace: str = DEFAULT_NAMESPACE, *, dry_run: bool = False) -> TuneReport:
        """Measure the health of a namespace, and turn at most two of its four knobs by one step.

        With ``settings.autotune.enabled`` this is done unasked, after every 25 lessons and in a
        maintenance.

        Args:
            namespace: Whose.
            dry_run: Only look.

        Returns:
            What was turned, and why; :meth:`undo_maintenance` takes its ``run`` back.

        Raises:
            InvalidInputError: The settings that knobs start from are beyond their rails.
            StoreError: The stored knobs are damaged, or somebody else has turned them just now.
        """
        self._require_open()
        return self._tuner.look(namespace_of(namespace), dry_run=dry_run)

    async def atune(
        self, namespace: str = DEFAULT_NAMESPACE, *, dry_run: bool = False
    ) -> TuneReport:
        """As :meth:`tune`, off the event loop."""
        return await arun(perform(self.tune, namespace, dry_run=dry_run))

    def knobs(self, namespace: str = DEFAULT_NAMESPACE) -> Knobs:
        """The knobs of a namespace as they stand.

        Raises:
            StoreError: They are damaged.
        """
        self._require_open()
        return self._tuner.knobs(namespace_of(namespace))

    def set_knobs(self, namespace: str = DEFAULT_NAMESPACE, **values: float) -> str:
        """Set knobs of a namespace by hand.

        Args:
            namespace: Whose.
            values: By name; the others stay as they are.

        Returns:
            The id by which :meth:`undo_maintenance` takes it back.

        Raises:
            InvalidInputError: There is no such knob, or a value is beyond its rails.
            StoreError: The others are damaged, or somebody else has turned them just now.
        """
        self._require_open()
        return self._tuner.set(namespace_of(namespace), values)

    def reset_knobs(self, namespace: str = DEFAULT_NAMESPACE) -> str:
        """Have the knobs of a namespace follow the settings again; forget what is known of turns.

        Returns:
            The id by which :meth:`undo_maintenance` takes it back.
        """
        self._require_open()
        return self._tuner.reset(namespace_of(namespace))

    @property
    def _tuner(self) -> Autotuner:
        return Autotuner(self.store, self.settings)
