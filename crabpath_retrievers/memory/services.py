"""What a memory consists of: its stores and the services over them, opened and closed together.

Probes of a host ask whether the database and the vector store of an open memory answer.
"""

import logging
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

import numpy as np
from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from typing_extensions import Self, TypedDict, Unpack

from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.calls import (
    bar,
    elapsed_ms,
    limit_waiting,
    observe_memory,
    quiet_foreign_loggers,
    run_with_timeout,
    shorten_waiting,
)
from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.processes import register_owner
from crabpath_retrievers.core.query import is_url, require_flags, require_list
from crabpath_retrievers.core.records import Vector, compare_vectors
from crabpath_retrievers.core.text import describe_type, format_value, to_storable
from crabpath_retrievers.errors import ForkedError, InvalidInputError, StoreUnavailableError
from crabpath_retrievers.ingest.linkers import Linker, make_linkers
from crabpath_retrievers.ingest.linking import Linking
from crabpath_retrievers.ingest.pipeline import ChunkEmbedder, Ingest
from crabpath_retrievers.ingest.reindex import Reindexer
from crabpath_retrievers.learning.lesson import FeedbackLearner
from crabpath_retrievers.learning.recorder import AfterLesson, Recorder
from crabpath_retrievers.learning.standalone import publish_settings
from crabpath_retrievers.regions import RegionIndex
from crabpath_retrievers.rerank import Ranker
from crabpath_retrievers.retrieval.chooser import DocumentChooser
from crabpath_retrievers.retrieval.episodes import EpisodeMemory, NoteMemory
from crabpath_retrievers.retrieval.namespace_model import NamespaceModels
from crabpath_retrievers.retrieval.pipeline import Reranker, RetrievalPipeline
from crabpath_retrievers.retrieval.search import SeedSearch, find_nearest
from crabpath_retrievers.routing import Router, SoftmaxRouter
from crabpath_retrievers.storage import GraphStore, Reader
from crabpath_retrievers.storage.database import require_writable
from crabpath_retrievers.storage.read.catalog import LinkQueries
from crabpath_retrievers.storage.read.walk import Clock
from crabpath_retrievers.storage.write.nodes import put_meta
from crabpath_retrievers.vectors.base import VectorIndex
from crabpath_retrievers.vectors.chroma import ChromaIndex
from crabpath_retrievers.vectors.embedder import (
    Embedder,
    EmbedderFingerprint,
    read_identity,
    to_unit_vector,
)
from crabpath_retrievers.vectors.opening import (
    OWN,
    VectorPlace,
    open_index,
    place_of,
    prepare_vectors,
    require_existing,
    require_graph,
    require_known_vectors,
    require_replica,
    require_vectors,
    vectors_place,
    wrapped_store,
)

if TYPE_CHECKING:
    from crabpath_retrievers.parts.replica import ReplicaState

T = TypeVar("T")
_log = logging.getLogger(__name__)
_PATIENCE = 1.0  # seconds that a repr may wait for a database
_REBUILDING = partial(bar, description="indexing again")
HostReranker = BaseCrossEncoder | BaseDocumentCompressor
"""What a host may give as ``reranker=``."""
NAMED_OPTIONS = ("vectors", "embeddings", "replica")
"""Arguments of ``CrabPath.open`` that a text can say, from the shell or the environment."""


class OpenOptions(TypedDict, total=False):
    """Arguments of ``CrabPath.open`` that every constructor of every host takes.

    Each has its own way to say which memory is meant: path, embedder, vectors, and whether it may
    be created.
    """

    settings: Settings | None
    """Settings of the mechanisms, and how long a call may wait for servers; None for the
    defaults."""
    router: Router | BaseChatModel | None
    """Decides ambiguous edges: a chat model, a ``ChatModelRouter`` over one, or any ``Router``;
    None for the softmax policy."""
    reranker: HostReranker | None
    """Orders the best candidates: a LangChain cross-encoder or document compressor; None for the
    order of the ranker. Where it fails, the ranker's order stays."""
    linkers: Sequence[Linker] | None
    """Create edges from the text; None for the built-in ones."""
    replica: str | None
    """URL of a streaming standby of the database at ``path``, which queries read while it is at
    most ``settings.max_replica_lag`` seconds behind; None for none."""
    reindex: bool
    """True rebuilds the vector index from the graph store first: for an index that is new, or a
    server that has lost its data; see :meth:`MemoryMaintenance.reindex`."""


class Settling(Protocol):
    """Memory that answers beside another retriever."""

    def settle(self, seconds: float) -> None:
        """Wait at most ``seconds`` for the work that waits now."""


class Services:
    """The stores of a memory, and the services that read and write them.

    ``CrabPath`` and its components share one of these.
    """

    def __init__(
        self,
        store: GraphStore,
        index: VectorIndex,
        embedder: Embedder,
        *,
        settings: Settings,
        router: Router | None = None,
        reranker: Reranker | None = None,
        linkers: Sequence[Linker] | None = None,
        reindex: bool = False,
    ) -> None:
        """Build the services over two open stores; see :meth:`open` for the arguments."""
        quiet_foreign_loggers()
        self.store, self.index, self.embedder = store, index, embedder
        self.settings, self.data_source = settings, store.name
        self.identity = EmbedderFingerprint(store, embedder)
        if linkers is None:
            linkers = make_linkers(settings.links, self._neighbours)
        chunks = ChunkEmbedder(embedder, settings.ingest.unusable_vectors == "raise")
        batch = settings.ingest.batch_size
        linking = Linking(store, linkers, index)
        self.ingest = Ingest(store, index, chunks, linking, batch, self.identity)
        self.episodes = EpisodeMemory(store, index, settings.episode)
        self.notes = NoteMemory(store, index, settings.note)
        self.ranker = Ranker.load(inhibition=settings.rank.max_inhibition)
        self.regions = RegionIndex(store, settings.region)
        models = NamespaceModels(self.episodes, self.notes, self.regions, self.ranker, settings)
        chosen_router = router or SoftmaxRouter(settings.policy)
        self.retrieval = self._make_retrieval(models, chosen_router, reranker)
        self.recorder = self._make_recorder(models)
        self.history = self.recorder.history
        # Hosts never close a retriever: at the latest this runs when the process ends.
        self._release: weakref.finalize[..., Any] = weakref.finalize(
            self, _close_all, self.recorder, index, store
        )
        self.reindexing = Reindexer(
            store, index, self.ingest, self.episodes, self.notes, _REBUILDING
        )
        self.shadows = weakref.WeakSet[Settling]()
        self._is_temporary = self._is_forked = False
        register_owner(self)
        self._finish_what_was_interrupted(reindex=reindex)
        observe_memory(self)

    def _make_retrieval(
        self, models: NamespaceModels, router: Router, reranker: Reranker | None
    ) -> RetrievalPipeline:
        store, index, settings = self.store, self.index, self.settings
        return RetrievalPipeline(
            store,
            index,
            self.embedder,
            self.identity,
            models,
            SeedSearch(index, settings, models),
            DocumentChooser(index, self.ranker, models, settings),
            router,
            settings,
            reranker,
        )

    def _make_recorder(self, models: NamespaceModels) -> Recorder:
        store, settings = self.store, self.settings
        learner = FeedbackLearner(self.episodes, self.notes, self.regions, models.prior, settings)
        tune, rank = make_lesson_hook(settings), self.retrieval.rank_stated
        return Recorder(store, learner, self.identity.embed_text, tune, rank, models)

    def _finish_what_was_interrupted(self, *, reindex: bool) -> None:
        """Fill the index, finish an ingest or a change of the embedder, and learn what waits.

        If ``reindex``, all vectors are indexed again; otherwise only those that are missing.
        """
        if self.index.read_only:
            return
        if self.store.catalog.holds_new_vectors():  # a change of the embedder was interrupted
            load_part("crabpath_retrievers.parts.operation.reembedding").resume_change(self)
        if self.settings.language is not None:
            self.store.set_language(self.settings.language)
        self.index.refill = self.reindexing.fill
        if reindex:
            part = load_part("crabpath_retrievers.parts.operation.reindexing")
            part.reindex_all(self.reindexing)
        else:
            self.reindexing.check()
        self.ingest.recover(link_bulk=False)
        if self.settings.learning.apply == "external":
            publish_settings(self.store, self.settings)
        self.recorder.resume()

    @classmethod
    def open(
        cls,
        path: str | Path | None,
        *,
        embeddings: Embeddings | str | None,
        vectors: VectorPlace,
        create: bool,
        **options: Unpack[OpenOptions],
    ) -> Self:
        """Open both stores and build the services; arguments and errors as ``CrabPath.open``."""
        begun = time.perf_counter()
        settings = options.get("settings")
        settings = Settings() if settings is None else settings
        if not isinstance(settings, Settings):
            msg = f"settings must be Settings(...), not {format_value(settings)}"
            raise InvalidInputError(msg)
        reindex = options.get("reindex", False)
        require_flags(create=create, reindex=reindex)
        if (linkers := options.get("linkers")) is not None:
            linkers = [*map(_require_linker, require_list("linkers", linkers))]
        router = None if (given := options.get("router")) is None else _router_of(given)
        model, timeout = options.get("reranker"), settings.rank.reranker_timeout
        reranker: Reranker | None = None
        if model is not None:
            reranker = load_part("crabpath_retrievers.parts.reranker").ModelReranker(model, timeout)
        place, replica = _require_place(path, vectors, create=create), options.get("replica")
        require_replica(replica, place)
        limit, embedder = (
            settings.time_limit,
            Embedder(embeddings, settings.prefix),
        )
        with ExitStack() as undo:
            opened = _open_graph(place, vectors, replica, settings, undo)
            store, index, meta = _open_stores(opened, vectors, limit, undo)
            is_plain = index.place["kind"] == "wrapped"  # it embeds documents by itself
            embedder.use_by_default(read_identity(meta), plain=is_plain)
            services = cls(
                store,
                index,
                embedder,
                settings=settings,
                router=router,
                reranker=reranker,
                linkers=linkers,
                reindex=reindex,
            )
            wraps = wrapped_store(meta) and is_plain
            if reindex or wraps or int(meta.get("nodes", 0)) == 0:
                services.save_vectors_place(meta)
            # From here on one finalizer closes everything, the temporary directory included.
            services._release.detach()
            undo.enter_context(closing(services.recorder))
            services._release = weakref.finalize(services, _close_within, limit, undo.pop_all())
        services._is_temporary = place is None
        if _log.isEnabledFor(logging.INFO):
            chunks = store.catalog.meta().get("nodes", 0)
            _log.info("opened %s with %s chunks in %.0f ms", store.name, chunks, elapsed_ms(begun))
        return services

    def close(self) -> None:
        """Release files and connections; a temporary memory is deleted. Safe to repeat."""
        if self.is_open:
            self.settle_shadows()
        self._release()

    def settle_shadows(self) -> None:
        """Wait for the turns of shadows, which feedback may be about, as long as a call may."""
        for shadow in list(self.shadows):
            shadow.settle(self.settings.time_limit)

    @property
    def is_open(self) -> bool:
        """Whether the services have not been closed."""
        return self._release.alive

    def require_open(self) -> None:
        """Refuse use after closing, or in a forked process.

        Raises:
            StoreUnavailableError: They were closed.
            ForkedError: They were open when this process was forked.
        """
        if self._is_forked:
            raise ForkedError
        if not self._release.alive:
            msg = "this memory was closed: open it again with CrabPath.open or from_existing"
            raise StoreUnavailableError(msg)

    def leave_to_parent(self) -> None:
        """Become unusable in a forked process, and release nothing: the parent goes on."""
        self._is_forked = self.is_open
        self._release.detach()

    def count_waiting(self) -> int:
        """Count the feedback that waits to be learned from: one look-up in an index."""
        return self.store.learned.count_waiting_feedback()

    def measure_lag(self) -> float:
        """Measure for how many seconds the oldest waiting feedback has waited; 0 without any."""
        oldest = self.store.learned.find_oldest_waiting()
        return 0.0 if oldest is None else max(0.0, time.time() - oldest)

    def warn_if_temporary(self) -> None:
        """Warn once that what a memory without a path has learned is lost when it closes."""
        if self._is_temporary:
            self._is_temporary = False
            _log.warning(
                "this memory is temporary: what it learns is deleted when it is closed; give a "
                "path to keep it"
            )

    def query_vector(self, query: str | Sequence[float]) -> Vector:
        """Make the unit vector ``[d]`` of a text, or of a vector."""
        if isinstance(query, str):
            self.identity.verify()
            return self.embedder.query(to_storable(query))
        vector = to_unit_vector(query)
        if not self.identity.fits(vector):
            self.identity.verify(vector)
        return vector

    def save_vectors_place(self, meta: Mapping[str, str]) -> None:
        """Store where the vectors are kept, unless the metadata ``meta`` of the store say so."""
        place = vectors_place(self.index)
        if place != meta.get("vectors", OWN):
            self.store.write(put_meta, {"vectors": place})

    def delete_namespace_vectors(self, clock: Clock) -> None:
        """Delete the vectors of a deleted namespace; its last ``clock`` tells which it had."""
        if clock.learned or clock.notes:
            self.episodes.forget(clock.key)
        if clock.notes:
            self.notes.forget(clock.key)

    def _neighbours(self, links: LinkQueries, node_id: str, k: int) -> list[tuple[int, float]]:
        """Find the k nodes nearest to a node, nearest first: keys and similarities."""
        read = cast("Reader", links.source)
        (own,) = read.walk.get_nodes([node_id])
        vector = np.asarray(own.vector, dtype=np.float32)
        heads = find_nearest(read, self.index, vector, k + 1)
        near = compare_vectors([head.vector for head in heads], vector, read.stretch)
        pairs = zip(heads, near, strict=True)
        others = [(head.key, similarity) for head, similarity in pairs if head.key != own.key]
        return sorted(others, key=lambda item: -item[1])[:k]


def make_lesson_hook(settings: Settings) -> AfterLesson | None:
    """Return the hook that runs the autotuner when it is due; None if the settings turn it off."""
    if not settings.autotune.enabled:
        return None
    part = load_part("crabpath_retrievers.parts.operation.maintenance.autotune")
    hook: AfterLesson = part.tune_after_lesson(settings)
    return hook


def describe_briefly(services: Services) -> str:
    """Describe place and size of a memory for ``repr``: never fails, and hardly ever waits."""
    if not services.is_open:
        return f"<CrabPath {services.store.name}, closed>"
    size = ""
    try:
        with shorten_waiting(_PATIENCE):
            size = f", {int(services.store.catalog.meta().get('nodes', 0)):,} chunks"
    except Exception:
        _log.debug("the size of the memory is not known", exc_info=True)
    return f"<CrabPath {services.store.name}{size}>"


class MemoryPart:
    """Methods of a memory over its services."""

    def __init__(self, services: Services) -> None:
        """Keep the services of the memory."""
        self._all_services = services

    @property
    def _services(self) -> Services:
        """The services of the memory."""
        self._all_services.require_open()
        return self._all_services

    def get_source(self, part: str) -> object:  # noqa: ARG002  others give one a part
        """Return the object from which the component of an optional part is made."""
        return self._all_services


class OptionalPart(Generic[T]):
    """An attribute of a memory that an optional part brings; it is imported at first use."""

    def __init__(self, place: str) -> None:
        """Keep ``place``, as ``module:Class``: a module below ``crabpath_retrievers.parts``."""
        self._place = place

    def __set_name__(self, owner: type, name: str) -> None:
        """Keep the name of the attribute: each memory stores its own component under it."""
        self._name = name

    @overload
    def __get__(self, memory: None, owner: type) -> "OptionalPart[T]": ...
    @overload
    def __get__(self, memory: MemoryPart, owner: type) -> T: ...
    def __get__(self, memory: MemoryPart | None, owner: type) -> "T | OptionalPart[T]":
        """Return the component of a memory, which is made at first use.

        ``memory`` is None on the class: the result is then this attribute itself.
        """
        if memory is None:
            return self
        module, _, name = self._place.partition(":")
        make = getattr(load_part(f"crabpath_retrievers.parts.{module}"), name)
        component: T = make(memory.get_source(self._name))
        memory.__dict__[self._name] = component
        return component


def _require_place(path: str | Path | None, vectors: VectorPlace, *, create: bool) -> str | None:
    """Check where a memory is to be; return its place, None for a temporary one.

    ``create`` False refuses a place without a memory; ``vectors`` must have a place, too.
    """
    place = None if path is None else place_of(path)
    require_known_vectors(vectors, place)
    if not create:
        require_existing(place)
    if place is not None and vectors is None:
        require_graph(place)
    return place


def _open_graph(
    place: str | None,
    vectors: VectorPlace,
    replica: str | None,
    settings: Settings,
    undo: ExitStack,
) -> tuple[str, GraphStore]:
    """Open the graph store of a memory, in a new directory if ``place`` is None.

    ``undo`` closes the store, and deletes the directory.
    """
    if place is None:
        place = tempfile.mkdtemp(prefix="crabpath-")
        undo.callback(shutil.rmtree, place, ignore_errors=True)
    names = ("time_limit", "max_replica_lag", "max_connections")
    limits = {name: getattr(settings, name) for name in names}
    prepare = partial(prepare_vectors, vectors=vectors, location=place)
    store = GraphStore(place, replica=replica, prepare=prepare, **limits)
    return place, undo.enter_context(closing(store))


def _open_stores(
    opened: tuple[str, GraphStore], vectors: VectorPlace, time_limit: float, undo: ExitStack
) -> tuple[GraphStore, VectorIndex, Mapping[str, str]]:
    """Open the vector index that belongs to a graph store.

    ``opened`` is the place and the store; ``undo`` closes the index.
    """
    place, store = opened
    with limit_waiting(time_limit):
        meta = store.catalog.meta()
        if vectors is None:
            require_vectors(meta, store.name if is_url(place) else place)
        return store, undo.enter_context(closing(open_index(vectors, place, store, meta))), meta


def _close_within(seconds: float, stack: ExitStack) -> None:
    """Close the parts on ``stack``; their waiting for servers takes at most ``seconds`` in all."""
    with limit_waiting(seconds):
        stack.close()


def _router_of(router: Any) -> Router:
    """Make a router of the argument ``router``: a router itself, or a chat model."""
    is_router = all(callable(getattr(router, name, None)) for name in ("route", "aroute"))
    if is_router and not isinstance(router, type):
        ready: Router = router
        return ready
    made: Router = load_part("crabpath_retrievers.parts.chat_router.chat_model").ChatModelRouter(
        router
    )
    return made


def _require_linker(linker: Any) -> Linker:
    if isinstance(linker, type) or not callable(getattr(linker, "link", None)):
        kind = describe_type(linker)
        msg = f"linkers must be a list of objects with the method link, without {kind}"
        raise InvalidInputError(msg)
    found: Linker = linker
    return found


def _close_all(*parts: Recorder | VectorIndex | GraphStore) -> None:
    """Close every part in order, even if closing one of them fails."""
    with ExitStack() as stack:
        for part in reversed(parts):
            stack.callback(part.close)


PATIENCE = 1.0  # seconds for all answers together; the usual limit of a probe
ABSENT = "crabpath-ready"  # an id to ask for; whether there is one does not matter


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a memory can serve.

    Attributes:
        ready: Whether the database and the vector store answer.
        reason: What answers or does not, in one sentence.
    """

    ready: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Convert it to plain, JSON-safe data."""
        return asdict(self)


def check_open_memory(
    store: GraphStore, index: VectorIndex, identity: EmbedderFingerprint
) -> Readiness:
    """Check whether both stores of an open memory answer within a second; never raises.

    A memory whose embedder another process has changed is not ready: it refuses all questions.
    ``identity`` compares the embedders.
    """

    def ask_database() -> None:
        store.require_in_place()
        with store.connect() as connection:
            require_writable(connection)
        identity.require_current()

    def ask_vectors() -> None:
        index.find_existing([ABSENT])
        if isinstance(index, ChromaIndex) and index.local:
            index.count_and_find([ABSENT])  # reads the files that are there now

    asked = {"database": ask_database, "vector store": ask_vectors}
    return add_replica(ask_parts(asked, "the database and the vector store answer"), store.replica)


def add_replica(found: Readiness, replica: "ReplicaState | None") -> Readiness:
    """Add the state of the read replica, which may fail without stopping queries."""
    if not found.ready or replica is None:
        return found
    return replace(found, reason=f"{found.reason}; {replica.describe()}")


def ask_parts(
    parts: Mapping[str, Callable[[], object]], good: str, seconds: float = PATIENCE
) -> Readiness:
    """Call the functions ``parts``, by name, one after the other, within ``seconds`` in all."""
    until = monotonic() + seconds
    for name, ask in parts.items():
        try:
            _wait_for(ask, until - monotonic())
        except TimeoutError:
            reason = f"the {name} gave no answer within {seconds:g} s"
            return Readiness(ready=False, reason=reason)
        except Exception as error:
            reason = " ".join(str(error).split()) or f"the {name} failed"
            return Readiness(ready=False, reason=reason)
    return Readiness(ready=True, reason=good)


def _wait_for(ask: Callable[[], object], seconds: float) -> None:
    """Call ``ask`` in a thread, for at most ``seconds``: some drivers exceed short limits."""

    def ask_briefly() -> None:
        with shorten_waiting(seconds):
            ask()

    run_with_timeout(ask_briefly, max(0.0, seconds))
