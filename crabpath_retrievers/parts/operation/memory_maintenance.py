"""``memory.maintenance``: maintenance runs, health reports, tuned parameters, the vector index."""

from collections.abc import Sequence
from functools import partial

from langchain_core.embeddings import Embeddings

from crabpath_retrievers.config import PrefixSettings
from crabpath_retrievers.config.operation import Knobs
from crabpath_retrievers.core.calls import AsyncView, bar, count_records, off_loop, trace_memory
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE
from crabpath_retrievers.core.query import parse_namespace, parse_text, require_count, require_flags
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.pipeline import Progress, require_progress
from crabpath_retrievers.memory.services import MemoryPart
from crabpath_retrievers.parts.operation.maintenance import (
    Autotuner,
    HealthReport,
    TuneReport,
    load_past_reports,
    measure_health,
)
from crabpath_retrievers.parts.operation.maintenance.runner import (
    MAINTENANCE_STEPS,
    MaintenanceReport,
    MaintenanceRunner,
)
from crabpath_retrievers.parts.operation.reembedding import EmbedderChange
from crabpath_retrievers.parts.operation.reindexing import reindex_all, sweep_vectors
from crabpath_retrievers.vectors.embedder import Embedder


class MemoryMaintenance(MemoryPart):
    """Keep a memory small and healthy; call :meth:`run` from any scheduler."""

    @trace_memory("maintain_memory", lambda report: count_records(report.total_changed))
    def run(
        self, steps: Sequence[str] = MAINTENANCE_STEPS, *, dry_run: bool = False
    ) -> MaintenanceReport:
        """Remove what has faded, connect isolated nodes, bound the logs; in all namespaces.

        Queries, learners and other processes may continue meanwhile. A run that was killed is
        finished by the next one.

        Args:
            steps: Some of ``health`` (measure and save), ``autotune`` (see :meth:`tune`; only if
                ``settings.autotune.enabled``, or if it is the only step), ``fade`` (weights that
                decayed back to their prior), ``prune`` (faded edges that learning alone had
                created; notes on probation that no later feedback supported), ``connect`` (nodes
                without incoming edges, with their nearest neighbours) and ``compact`` (records of
                turns and rows of the journal beyond those that are kept). They run in this order.
            dry_run: Only report what would change.

        Raises:
            InvalidInputError: There is no such step.
            StoreLockedError: Maintenance, or an ingest, is running already.
        """
        require_flags(dry_run=dry_run)
        return self.runner().run(steps, dry_run=dry_run)

    def undo(self, run: str) -> None:
        """Undo what one maintenance run changed; what was learned since stays.

        Records of turns and notes that it deleted do not come back.

        Args:
            run: The ``run`` of its report.

        Raises:
            NotFoundError: The journal has no such run.
        """
        self.runner().undo(parse_text("run", run))

    def runner(self) -> MaintenanceRunner:
        """The maintenance runner, with the services of this memory."""
        services = self._services
        return MaintenanceRunner(
            services.store,
            services.settings,
            services.notes,
            services.index.find_existing,
            partial(sweep_vectors, services.reindexing),
        )

    def health(self, namespace: str = DEFAULT_NAMESPACE, *, record: bool = True) -> HealthReport:
        """Measure the eight health metrics of a namespace, from counters and bounded samples.

        Args:
            namespace: The namespace; of one that was never used only the text is measured.
            record: Whether the report is saved for :meth:`health_history`.
        """
        require_flags(record=record)
        services, name = self._services, parse_namespace(namespace)
        return measure_health(
            services.store, name, services.settings, services.index.find_existing, record=record
        )

    def health_history(
        self, namespace: str = DEFAULT_NAMESPACE, *, limit: int = 100
    ) -> list[HealthReport]:
        """The latest saved reports of a namespace, oldest first.

        Raises:
            InvalidInputError: The limit is below 1.
        """
        limit = require_count("limit", limit)
        return load_past_reports(self._services.store, parse_namespace(namespace), limit)

    def tune(self, namespace: str = DEFAULT_NAMESPACE, *, dry_run: bool = False) -> TuneReport:
        """Measure the health of a namespace, and move at most two of its four knobs by one step.

        With ``settings.autotune.enabled`` this happens by itself, after every 25 lessons and in
        maintenance.

        Args:
            namespace: The namespace.
            dry_run: Only report what would change.

        Returns:
            What was changed, and why; :meth:`undo` takes its ``run``.

        Raises:
            InvalidInputError: The settings that the knobs start from are outside their limits.
            StoreError: The stored knobs are damaged, or were changed by somebody else meanwhile.
        """
        return self._tuner().run(parse_namespace(namespace), dry_run=dry_run)

    def knobs(self, namespace: str = DEFAULT_NAMESPACE) -> Knobs:
        """The current knobs of a namespace.

        Raises:
            StoreError: They are damaged.
        """
        return self._tuner().knobs(parse_namespace(namespace))

    def set_knobs(self, /, namespace: str = DEFAULT_NAMESPACE, **values: float) -> str:
        """Set knobs of a namespace by hand.

        Args:
            namespace: The namespace.
            values: By name; knobs that are not named do not change.

        Returns:
            The run id that :meth:`undo` takes.

        Raises:
            InvalidInputError: There is no such knob, or a value is outside its limits.
            StoreError: The other knobs are damaged, or were changed by somebody else meanwhile.
        """
        return self._tuner().set_knobs(parse_namespace(namespace), values)

    def reset_knobs(self, namespace: str = DEFAULT_NAMESPACE) -> str:
        """Let the knobs of a namespace follow the settings again, and delete their history.

        Returns:
            The run id that :meth:`undo` takes.
        """
        return self._tuner().reset(parse_namespace(namespace))

    def reindex(self) -> int:
        """Rebuild the vector index from the graph store.

        Vectors that belong to no document, episode or note are deleted, but never from a
        ``VectorStore`` of yours. An interrupted rebuild is finished by the next open.

        Returns:
            How many vectors of documents it holds; -1 where the index does not say.

        Raises:
            ConfigurationError: The index holds vectors, and none of this memory.
            StoreError: A store failed.
        """
        services = self._services
        reindex_all(services.reindexing)
        services.save_vectors_place(services.store.catalog.meta())
        return services.index.count()

    def change_embedder(
        self,
        embeddings: Embeddings | str,
        *,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        progress: Progress | None = bar,
    ) -> int:
        """Embed everything again with another embedder, while the memory is used; then switch.

        Nothing that was learned is lost. A second index grows beside the first, which answers until
        one transaction switches and is deleted after that; both need room meanwhile. Documents that
        are added meanwhile are embedded by both. If the change fails or is killed before the
        switch, the old embedder stays in use. Another call with the same new embedder continues the
        change; a call with the old one gives it up. From the switch on, other processes that have
        the memory open refuse to answer: open it again there with the new embedder.

        Args:
            embeddings: The new embedder, as for :meth:`CrabPath.open`.
            query_prefix: Written before questions; None for what the model is known to need.
            document_prefix: Written before chunks and notes; None for what the model is known to
                need.
            progress: Shows progress; by default on a terminal when it takes long.

        Returns:
            How many texts were embedded; 0 for the embedder that is in use.

        Raises:
            InvalidInputError: ``embeddings`` gives a text no usable vector, or is no embedder.
            ConfigurationError: The memory wraps a vector store of yours: fill that anew.
            MissingExtraError: The package of the provider of ``embeddings`` is not installed.
            StoreLockedError: The embedder is being changed already.
            StoreError: A store failed.

        Example::

            memory.maintenance.change_embedder("openai:text-embedding-3-large")
        """
        require_progress(progress)
        if embeddings is None:
            msg = "embeddings must be the new embedder, not None"
            raise InvalidInputError(msg)
        new = Embedder(embeddings, PrefixSettings(query=query_prefix, document=document_prefix))
        return EmbedderChange(self._services).run(new, progress)

    def _tuner(self) -> Autotuner:
        return Autotuner(self._services.store, self._services.settings)


class AsyncMemoryMaintenance(AsyncView[MemoryMaintenance]):
    """``memory.aio.maintenance``: :class:`MemoryMaintenance`, awaited."""

    run = off_loop(MemoryMaintenance.run, slow=True)
    undo = off_loop(MemoryMaintenance.undo, slow=True)
    health = off_loop(MemoryMaintenance.health, slow=True)
    health_history = off_loop(MemoryMaintenance.health_history)
    tune = off_loop(MemoryMaintenance.tune, slow=True)
    knobs = off_loop(MemoryMaintenance.knobs)
    set_knobs = off_loop(MemoryMaintenance.set_knobs)
    reset_knobs = off_loop(MemoryMaintenance.reset_knobs)
    reindex = off_loop(MemoryMaintenance.reindex, slow=True)
    change_embedder = off_loop(MemoryMaintenance.change_embedder, slow=True)
