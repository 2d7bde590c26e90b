"""``CrabPath``: the memory itself, without any framework around it."""

import json
import shutil
import tempfile
import weakref
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_text_splitters import TextSplitter
from typing_extensions import Self

from crabpath_retrievers.changes import ForgetNamespace
from crabpath_retrievers.config import Settings
from crabpath_retrievers.driver import Steps, arun, perform, run
from crabpath_retrievers.errors import (
    InvalidInputError,
    StoreUnavailableError,
)
from crabpath_retrievers.explanation import Explanation, explain, nodes_shown
from crabpath_retrievers.feedback.learner import Learner
from crabpath_retrievers.feedback.published import publish
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.feedback.recorder import Recorder
from crabpath_retrievers.ingest.chunking import Chunking
from crabpath_retrievers.ingest.linkers import Linker, default_linkers
from crabpath_retrievers.ingest.pipeline import Cleanup, Ingest, IngestReport, Progress
from crabpath_retrievers.mind import Minds
from crabpath_retrievers.opening import close_all, open_index, place_of, require_existing
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.progress import bar
from crabpath_retrievers.query import Query, namespace_of, texts_of
from crabpath_retrievers.rerank.features import Evidence
from crabpath_retrievers.rerank.ranker import Ranker
from crabpath_retrievers.retrieval import Answer, Retrieval
from crabpath_retrievers.routing.policy import Router, SoftmaxRouter
from crabpath_retrievers.seeds.embedder import Embedder, unit
from crabpath_retrievers.seeds.episodes import Episodes
from crabpath_retrievers.seeds.identity import EmbedderIdentity
from crabpath_retrievers.seeds.index import VectorIndex
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.text import storable


class CrabPath:
    """A memory: documents as a graph, search and walks over it, and the record of every turn.

    Use :meth:`open`. Safe to use from several threads. One process per embedded directory.
    """

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
    ) -> None:
        """Assemble a memory from parts; :meth:`open` chooses them."""
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
            settings.ingest.batch,
        )
        self._episodes = Episodes(store, index, settings.episode)
        self._ranker = ranker or Ranker.load(inhibition=settings.rank.inhibition)
        minds = Minds(store, self._episodes, self._ranker, settings.learning)
        self._retrieval = Retrieval(
            store, index, embedder, minds, router or SoftmaxRouter(settings.policy), settings
        )
        learner = Learner(store, self._episodes, minds.prior, settings)
        self._recorder = Recorder(store, learner)
        # Hosts never close a retriever: at the latest this runs when the process ends.
        self._release: weakref.finalize[..., Any] = weakref.finalize(
            self, close_all, self._recorder, index, store
        )
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
        router: Router | None = None,
        linkers: Sequence[Linker] | None = None,
        create: bool = True,
    ) -> Self:
        """Open a memory, or create it.

        Args:
            path: A directory; or an SQLAlchemy URL (``postgresql+psycopg://…``), then ``vectors``
                is needed; None for a temporary memory that goes when it is closed.
            embeddings: Any LangChain embedder; None for all-MiniLM-L6-v2.
            vectors: Where vectors are searched: None for an embedded Chroma in the directory; a
                directory; a Chroma client; a LangChain ``VectorStore``; or a ``VectorIndex``.
            settings: Settings of the mechanisms.
            router: Decides ambiguous pointers; None for the softmax policy.
            linkers: Read edges off the text; None for the built-in ones.
            create: False refuses to create a memory where there is none.

        Raises:
            NotFoundError: There is no memory, and ``create`` is False.
            StoreReadOnlyError: The directory cannot be written.
            StoreLockedError: Another process uses the directory.
            StoreUnavailableError: A database or server cannot be reached.
            ConfigurationError: The arguments do not fit together.
        """
        place = None if path is None else place_of(path)
        if not create:
            require_existing(place)
        with ExitStack() as undo:
            if place is None:
                place = tempfile.mkdtemp(prefix="crabpath-")
                undo.callback(shutil.rmtree, place, ignore_errors=True)
            store = undo.enter_context(closing(GraphStore(place)))
            index = undo.enter_context(closing(open_index(vectors, place)))
            memory = cls(
                store,
                index,
                Embedder(embeddings),
                settings=settings or Settings(),
                router=router,
                linkers=linkers,
            )
            memory._release.detach()
            undo.enter_context(closing(memory._recorder))
            memory._release = weakref.finalize(memory, undo.pop_all().close)
        return memory

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        ids: Sequence[str] | None = None,
        splitter: TextSplitter | None = None,
        split: bool = True,
        cleanup: Cleanup = "incremental",
        progress: Progress | None = bar,
    ) -> IngestReport:
        """Bring the memory to hold these documents as they are now.

        Adding the same again changes nothing; a changed document is updated: documents are told
        apart by id, else by ``metadata["source"]``, else by their text.

        Args:
            documents: LangChain documents; ``metadata["title"]`` and ``["aliases"]`` are used.
            ids: One id per document, instead of ``Document.id``.
            splitter: Your own splitter; None splits Markdown by heading and the rest by size.
            split: False when the documents are chunks already.
            cleanup: ``"incremental"`` removes chunks that a given source no longer has;
                ``"full"`` also removes every document that is not given; None removes nothing.
            progress: Shows progress; by default a bar on a terminal when it takes long.

        Raises:
            InvalidInputError: A document cannot be used; nothing was changed.
            EmbeddingMismatchError: The memory was built with another embedder.
            StoreError: A store failed; what was interrupted is finished by the next ingest.
        """
        chunking = Chunking(
            self.settings.ingest, splitter, split, self.settings.links.metadata_keys
        )
        self._require_open()
        given = list(documents)
        if given:
            self._identity.verify()
        return self._ingest.add(
            given, chunking=chunking, ids=ids, cleanup=cleanup, progress=progress
        )

    async def aadd_documents(self, documents: Iterable[Document], **options: Any) -> IngestReport:
        """As :meth:`add_documents`, off the event loop."""
        return await arun(perform(self.add_documents, documents, **options))

    def adopt(self, documents: Iterable[Document]) -> None:
        """Read the graph off documents that the vector index holds already, under the same ids.

        Documents that the index no longer holds go; nothing is written to the index.
        """
        self._require_open()
        given = list(documents)
        if given:
            self._identity.verify()
        chunking = Chunking(self.settings.ingest, split=False)
        self._ingest.adopt(chunking.nodes(given))

    def retrieve(self, text: str, **options: Any) -> Answer:
        """Find the documents that answer a question.

        Args:
            text: The question.
            options: Fields of :class:`~crabpath_retrievers.retrieval.Query`, and ``explore``:
                a seed (or True) samples the walk instead of following the best pointers.

        Raises:
            InvalidInputError: The query cannot be asked.
            EmbeddingMismatchError: The memory was built with another embedder.
        """
        return run(self._steps(text, **options))

    def aretrieve(self, text: str, **options: Any) -> Awaitable[Answer]:
        """As :meth:`retrieve`, without blocking the event loop."""
        return arun(self._steps(text, **options))

    def _steps(
        self, text: str, *, explore: bool | int = False, vector: Any = None, **options: Any
    ) -> Steps[Answer]:
        self._require_open()
        query = Query.of(text, vector=None if vector is None else unit(vector), **options)
        if not self._identity.fits(query.vector):
            yield from perform(self._identity.verify, query.vector)
        router = None
        if explore is not False:
            router = SoftmaxRouter(self.settings.policy, _sampler(explore))
        answer = yield from self._retrieval.steps(query, router=router)
        if self._recorder.overdue():
            yield from perform(self._recorder.look)
        return answer

    def record(self, feedback: Feedback) -> Receipt:
        """Learn from what became of a turn, now or a week later.

        The feedback is kept durably first; then it is applied as ``settings.learning.apply`` says,
        once: the same ``feedback_id`` again changes nothing and tells how it stands. Each turn is
        learned from once, by the first feedback about it.

        Args:
            feedback: What is known. Without a turn id it counts for the last turns of its
                namespace, the more the later.

        Returns:
            ``applied``; ``waiting`` while it is not learned from yet; or ``refused`` with the
            reason in ``note``, when there is no such turn in that namespace, another feedback
            consumed it, or its namespace is frozen.

        Raises:
            StoreError: It could not be kept.
        """
        self._require_open()
        return self._recorder.record(feedback)

    async def arecord(self, feedback: Feedback) -> Receipt:
        """As :meth:`record`, off the event loop."""
        return await arun(perform(self.record, feedback))

    def evidence(self, text: str, **options: Any) -> Evidence:
        """All that a query would rank with what speaks for it, for fitting and analysis.

        No turn is recorded.
        """
        return run(self._retrieval.evidence(Query.of(text, **options)))

    def forget(
        self,
        ids: Sequence[str] | str | None = None,
        *,
        source: str | None = None,
        namespace: str | None = None,
    ) -> int:
        """Delete documents, or all that a namespace has learned. Give exactly one argument.

        Args:
            ids: Ids of chunks, or of whole documents that were given ids.
            source: Every chunk of this source.
            namespace: Learned weights, turns and clock; documents stay.

        Returns:
            How many chunks were deleted.

        Raises:
            InvalidInputError: None or several arguments were given.
        """
        if sum(value is not None for value in (ids, source, namespace)) != 1:
            msg = "give exactly one of ids, source and namespace to forget"
            raise InvalidInputError(msg)
        self._require_open()
        if namespace is not None:
            self._forget_namespace(namespace_of(namespace))
            return 0
        if source is not None:
            known = self.store.catalog.known(sources=[storable(source)])
        else:
            wanted = texts_of(ids or ())
            known = self.store.catalog.known(ids=wanted, documents=wanted)
        if known:
            self._ingest.remove([node.id for node in known])
        return len(known)

    def _forget_namespace(self, namespace: str) -> None:
        clock = self.store.walk.clock(namespace)
        self.store.apply([ForgetNamespace(namespace)])
        if clock.learned:
            self._episodes.forget(clock.key)

    def explain(self, turn_id: str | UUID, *, namespace: str | None = None) -> Explanation:
        """Why each document of a turn came: seed or path, weights, tiers, probabilities.

        Args:
            turn_id: Id of the turn, or of the host's run that asked.
            namespace: Only turns of this namespace are found; None looks in all.

        Raises:
            NotFoundError: There is no such turn in that namespace.
        """
        self._require_open()
        scope = None if namespace is None else namespace_of(namespace)
        turn = self.store.turns.get(storable(str(turn_id)), namespace=scope)
        documents = self.store.catalog.documents(nodes_shown(turn))
        return explain(turn, documents, self._ranker)

    def info(self) -> dict[str, Any]:
        """What the memory holds, and where."""
        self._require_open()
        meta = self.store.catalog.meta()
        return {
            "store": self.store.name,
            "vectors": self.index.description,
            "embedder": json.loads(meta["embedder"])["model"] if "embedder" in meta else None,
            "schema": int(meta["schema"]),
            **self.store.catalog.statistics(),
        }

    def _neighbours(self, node_id: str, k: int) -> list[tuple[int, float]]:
        """Keys and cosines of a node's k nearest neighbours, nearest first."""
        (own,) = self.store.walk.heads([node_id])
        vector = np.asarray(own.vector, dtype=np.float32)
        heads = self.store.walk.heads(self.index.search(vector, k + 1))
        found = [(h.key, float(h.vector.astype(np.float32) @ vector)) for h in heads]
        others = [(key, cosine) for key, cosine in found if key != own.key]
        return sorted(others, key=lambda item: -item[1])[:k]

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


def _sampler(seed: int) -> np.random.Generator:
    """Randomness for exploring; True seeds it afresh every time."""
    if not isinstance(seed, int) or seed < 0:
        msg = f"explore must be True, False or a seed of at least 0, not {seed!r}"
        raise InvalidInputError(msg)
    return np.random.default_rng(None if seed is True else seed)
