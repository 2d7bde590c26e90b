"""The parts of a memory, opened and closed together."""

import logging
import shutil
import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from typing_extensions import Self

from crabpath_retrievers.changes import PutMeta
from crabpath_retrievers.config import Settings
from crabpath_retrievers.errors import InvalidInputError, StoreUnavailableError
from crabpath_retrievers.feedback.learner import Learner
from crabpath_retrievers.feedback.published import publish
from crabpath_retrievers.feedback.recorder import Recorder
from crabpath_retrievers.feedback.undoing import Undoing
from crabpath_retrievers.ingest.linkers import Linker, default_linkers
from crabpath_retrievers.ingest.pipeline import Ingest
from crabpath_retrievers.ingest.reindexing import Reindexing
from crabpath_retrievers.logs import elapsed_ms, quiet_foreign_loggers
from crabpath_retrievers.mind import Minds
from crabpath_retrievers.opening import (
    OWN,
    close_all,
    open_index,
    place_of,
    require_existing,
    require_graph,
    require_vectors,
    router_of,
    vectors_place,
    wrapped_store,
)
from crabpath_retrievers.progress import bar
from crabpath_retrievers.query import listed, require_flags
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.rerank.ranker import Ranker
from crabpath_retrievers.retrieval import Retrieval
from crabpath_retrievers.routing.policy import Router, SoftmaxRouter
from crabpath_retrievers.seeds.embedder import Embedder
from crabpath_retrievers.seeds.episodes import Episodes
from crabpath_retrievers.seeds.identity import EmbedderIdentity
from crabpath_retrievers.seeds.index import VectorIndex
from crabpath_retrievers.seeds.notes import Notes
from crabpath_retrievers.seeds.search import nearest
from crabpath_retrievers.seeds.vectorstore import VectorStoreIndex
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.walk_queries import Clock
from crabpath_retrievers.text import shown
from crabpath_retrievers.time_limit import limited

_log = logging.getLogger(__name__)
_REBUILDING = partial(bar, description="indexing again")


class Parts:
    """What a memory consists of."""

    def __init__(
        self,
        store: GraphStore,
        index: VectorIndex,
        embedder: Embedder,
        *,
        settings: Settings,
        router: Router | None = None,
        linkers: Sequence[Linker] | None = None,
        ranker: Ranker | None = None,
        reindex: bool = False,
    ) -> None:
        """Assemble a memory from parts; :meth:`open` chooses them."""
        quiet_foreign_loggers()
        self.store, self.index, self.embedder = store, index, embedder
        self.settings = settings
        self._identity = EmbedderIdentity(store, embedder)
        self._ingest = Ingest(
            store,
            index,
            embedder,
            tuple(linkers)
            if linkers is not None
            else default_linkers(settings.links, self._neighbours),
            settings.ingest.batch_size,
        )
        self._episodes = Episodes(store, index, settings.episode)
        self._notes = Notes(store, index, settings.note)
        self._ranker = ranker or Ranker.load(inhibition=settings.rank.max_inhibition)
        self._regions = Regions(store, settings.region)
        minds = Minds(store, self._episodes, self._notes, self._regions, self._ranker, settings)
        self._retrieval = Retrieval(
            store, index, embedder, minds, router or SoftmaxRouter(settings.policy), settings
        )
        learner = Learner(store, self._episodes, self._notes, self._regions, minds.prior, settings)
        self._recorder = Recorder(store, learner, self._identity.embedded)
        self._undoing = Undoing(store, self._episodes, self._notes, minds.prior)
        # Hosts never close a retriever: at the latest this runs when the process ends.
        self._release: weakref.finalize[..., Any] = weakref.finalize(
            self, close_all, self._recorder, index, store
        )
        self._reindexing = Reindexing(
            store, index, self._ingest, self._episodes, self._notes, _REBUILDING
        )
        if hasattr(index, "refill"):
            index.refill = self._reindexing.refill
        if reindex:
            self._reindexing.everything()
        else:
            self._reindexing.check()
        self._ingest.recover()
        if settings.learning.apply == "external":
            publish(store, settings)
        self._recorder.resume()

    @classmethod
    def open(
        cls,
        path: str | Path | None = None,
        *,
        embeddings: Embeddings | None = None,
        vectors: Any = None,
        settings: Settings | None = None,
        router: Router | BaseChatModel | None = None,
        linkers: Sequence[Linker] | None = None,
        create: bool = True,
        reindex: bool = False,
    ) -> Self:
        """Open a memory, or create it.

        An embedded index that is damaged or has lost vectors is filled again from the graph store.

        Args:
            path: A directory; or an SQLAlchemy URL (``postgresql+psycopg://…``), then ``vectors``
                is needed; None for a temporary memory that goes when it is closed.
            embeddings: Any LangChain embedder; None for all-MiniLM-L6-v2.
            vectors: Where vectors are searched: None for an embedded Chroma in the directory; a
                directory; the URL of a Chroma server (``http://host:8000``, with a path for another
                collection than ``crabpath``); a Chroma client; a LangChain ``VectorStore``; or a
                ``VectorIndex``.
            settings: Settings of the mechanisms, and how long a call may wait for servers.
            router: Decides ambiguous pointers: a chat model, a ``ChatModelRouter`` over one, or any
                ``Router``; None for the softmax policy.
            linkers: Read edges off the text; None for the built-in ones.
            create: False refuses to create a memory where there is none.
            reindex: True has the index hold what the graph store does, first: for an index that is
                new, or a server that has lost its data; see :meth:`CrabPath.reindex`.

        Raises:
            NotFoundError: There is no memory, and ``create`` is False.
            StoreReadOnlyError: The directory cannot be written.
            StoreLockedError: Another process uses the directory.
            StoreUnavailableError: A database or server cannot be reached.
            ConfigurationError: The arguments do not fit together; the vectors are not those of this
                memory; or it wraps a vector store, and ``vectors`` is missing.
            InvalidInputError: An argument is of a wrong kind; or the database is empty, and the
                vectors are not.
            StoreError: The database was lost, and the vectors beside it were not.
        """
        begun = time.perf_counter()
        settings = Settings() if settings is None else settings
        if not isinstance(settings, Settings):
            msg = f"settings must be Settings(...), not {shown(settings)}"
            raise InvalidInputError(msg)
        require_flags(create=create, reindex=reindex)
        given = None if linkers is None else listed("linkers", linkers)
        chosen = None if router is None else router_of(router)
        place = None if path is None else place_of(path)
        if not create:
            require_existing(place)
        if place is not None and vectors is None:
            require_graph(place)
        with ExitStack() as undo:
            if place is None:
                place = tempfile.mkdtemp(prefix="crabpath-")
                undo.callback(shutil.rmtree, place, ignore_errors=True)
            limit = settings.time_limit
            store = undo.enter_context(closing(GraphStore(place, time_limit=limit)))
            with limited(limit):
                meta = store.catalog.meta()
                if vectors is None:
                    require_vectors(meta, store.name if "://" in place else place)
                index = undo.enter_context(closing(open_index(vectors, place)))
            memory = cls(
                store,
                index,
                Embedder(embeddings),
                settings=settings,
                router=chosen,
                linkers=given,
                reindex=reindex,
            )
            empty = int(meta.get("nodes", 0)) == 0
            if empty or reindex or (wrapped_store(meta) and isinstance(index, VectorStoreIndex)):
                memory._remember_vectors()
            memory._release.detach()
            undo.enter_context(closing(memory._recorder))
            memory._release = weakref.finalize(memory, _close_within, limit, undo.pop_all())
        if _log.isEnabledFor(logging.INFO):
            chunks = store.catalog.meta().get("nodes", 0)
            _log.info("opened %s with %s chunks in %.0f ms", store.name, chunks, elapsed_ms(begun))
        return memory

    def _remember_vectors(self) -> None:
        """Let the graph store say whose the vectors are, for whoever opens it next."""
        known, place = self.store.catalog.meta().get("vectors", OWN), vectors_place(self.index)
        if place != known:
            self.store.apply([PutMeta((("vectors", place),))])

    def _neighbours(self, node_id: str, k: int) -> list[tuple[int, float]]:
        """Keys and cosines of a node's k nearest neighbours, nearest first."""
        (own,) = self.store.walk.heads([node_id])
        vector = np.asarray(own.vector, dtype=np.float32)
        heads = nearest(self.store, self.index, vector, k + 1)
        found = [(h.key, float(h.vector.astype(np.float32) @ vector)) for h in heads]
        others = [(key, cosine) for key, cosine in found if key != own.key]
        return sorted(others, key=lambda item: -item[1])[:k]

    def _forget_vectors(self, clock: Clock) -> None:
        """Delete what the index holds of a namespace that is gone, and stood there."""
        if clock.learned or clock.notes:
            self._episodes.forget(clock.key)
        if clock.notes:
            self._notes.forget(clock.key)

    def close(self) -> None:
        """Release files and connections; a temporary memory is deleted. Safe to repeat."""
        self._release()

    def _require_open(self) -> None:
        if not self._release.alive:
            msg = "this memory was closed: open it again with CrabPath.open or from_existing"
            raise StoreUnavailableError(msg)

    def __enter__(self) -> Self:
        """Use the memory in a ``with`` block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


def _close_within(seconds: float, stack: ExitStack) -> None:
    """Close parts; all their waiting for servers takes no longer than a time limit."""
    with limited(seconds):
        stack.close()
