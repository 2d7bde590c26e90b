"""``CrabPath``: a memory of documents that is searched, walked and learns from outcomes."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload
from uuid import UUID

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_text_splitters import TextSplitter
from typing_extensions import Self, Unpack

from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.calls import (
    AsyncView,
    apply_time_limit,
    arun,
    arun_with_timeout,
    bar,
    count_records,
    describe_memory,
    describe_receipt,
    describe_turn,
    name_record,
    off_loop,
    perform,
    run,
    trace_memory,
    trace_operation,
    trace_retrieval,
)
from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, Feedback, FeedbackFields, Receipt
from crabpath_retrievers.core.query import (
    QueryOptions,
    parse_text,
    require_count,
    require_flags,
    require_list,
    require_splitter,
)
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.errors import CrabPathError, InvalidInputError
from crabpath_retrievers.ingest.chunking import Chunking
from crabpath_retrievers.ingest.linkers import Linker
from crabpath_retrievers.ingest.pipeline import Cleanup, IngestReport, Progress, require_progress
from crabpath_retrievers.learning.notes import NoteQuestion
from crabpath_retrievers.learning.outcomes import Outcome, record_said
from crabpath_retrievers.memory.documents import (
    Forgotten,
    SourcePath,
    find_similar,
    forget_documents,
    get_documents,
    to_unit_vectors,
)
from crabpath_retrievers.memory.learning import (
    AsyncMemoryLearning,
    AsyncMemoryNamespaces,
    MemoryLearning,
    MemoryNamespaces,
)
from crabpath_retrievers.memory.notes import (
    NoteFields,
    find_turn,
    find_wrong,
    make_content,
    make_question,
    require_taught_kind,
    save_note,
)
from crabpath_retrievers.memory.services import (
    HostReranker,
    MemoryPart,
    OptionalPart,
    Readiness,
    Services,
    check_open_memory,
    describe_briefly,
)
from crabpath_retrievers.retrieval.pipeline import Answer
from crabpath_retrievers.routing import Router
from crabpath_retrievers.vectors.opening import MemoryInfo, VectorPlace, describe

if TYPE_CHECKING:
    from ray.data import Dataset

    from crabpath_lab.shadow import PresentRetriever, ShadowRetriever
    from crabpath_retrievers.parts.bulk import BulkReport
    from crabpath_retrievers.parts.explain import Explanation
    from crabpath_retrievers.parts.listing import NoteRecord, TurnRecord
    from crabpath_retrievers.parts.operation.memory_maintenance import (
        AsyncMemoryMaintenance,
        MemoryMaintenance,
    )
    from crabpath_retrievers.parts.operation.memory_transfer import (
        AsyncMemoryTransfer,
        MemoryTransfer,
    )
    from crabpath_retrievers.parts.region_mdp.memory_regions import (
        AsyncMemoryRegions,
        MemoryRegions,
    )
    from crabpath_retrievers.parts.sync import SyncPlan
    from crabpath_retrievers.parts.typed_graph.memory_graph import AsyncMemoryGraph, MemoryGraph
    from crabpath_retrievers.retriever import CrabPathRetriever, RetrieverFields

_BULK = "crabpath_retrievers.parts.bulk"
_LISTING = "crabpath_retrievers.parts.listing"


class CrabPath(MemoryPart):
    """A memory: documents as a graph, search and walks over it, and a record of every turn.

    Open one with :meth:`open`. Thread-safe; one process per embedded directory. What is needed
    less often is grouped in components; :attr:`aio` has the asynchronous form of every method,
    under the same name.

    Attributes:
        namespaces: Snapshots of what a namespace has learned; freezing it.
        regions: Regions of the embedding space, episodes of agents, and the region MDP.
        graph: Typed edges, their neighbours and paths, and three searches that use them.
        maintenance: Maintenance runs, health reports, tuned parameters, and the vector index.
        learning: Feedback that waits or was given, its undo by user, replays, anchored nodes.
        transfer: Archives of the memory or of one namespace.
        store: The graph store: documents, edges, turns and all that was learned.
        index: The vector index.
        embedder: Turns texts into unit vectors.
        settings: The settings it was opened with.
    """

    regions: "OptionalPart[MemoryRegions]" = OptionalPart("region_mdp.memory_regions:MemoryRegions")
    graph: "OptionalPart[MemoryGraph]" = OptionalPart("typed_graph.memory_graph:MemoryGraph")
    maintenance: "OptionalPart[MemoryMaintenance]" = OptionalPart(
        "operation.memory_maintenance:MemoryMaintenance"
    )
    transfer: "OptionalPart[MemoryTransfer]" = OptionalPart(
        "operation.memory_transfer:MemoryTransfer"
    )

    def __init__(self, services: Services) -> None:
        """Wrap open services; :meth:`open` opens them."""
        super().__init__(services)
        self.store, self.index = services.store, services.index
        self.embedder, self.settings = services.embedder, services.settings
        self.namespaces = MemoryNamespaces(services)
        self.learning = MemoryLearning(services)

    @classmethod
    def open(  # noqa: PLR0913  each is a part that a host may bring
        cls,
        path: str | Path | None = None,
        *,
        embeddings: Embeddings | str | None = None,
        vectors: VectorPlace = None,
        settings: Settings | None = None,
        router: Router | BaseChatModel | None = None,
        reranker: HostReranker | None = None,
        linkers: Sequence[Linker] | None = None,
        replica: str | None = None,
        create: bool = True,
        reindex: bool = False,
    ) -> Self:
        """Open a memory, or create it.

        An embedded index that is damaged or has lost vectors is filled again from the graph store.

        Args:
            path: A directory; or an SQLAlchemy URL (``postgresql+psycopg://…``), then a new memory
                needs ``vectors``; None for a temporary memory that is deleted when it is closed.
            embeddings: Any LangChain embedder; or ``"provider:model"``, such as
                ``"openai:text-embedding-3-small"``, which LangChain's ``init_embeddings`` makes and
                the memory remembers; None for the remembered one, else for all-MiniLM-L6-v2.
            vectors: Where vectors are searched: None for an embedded Chroma in the directory; a
                directory; the URL of a Chroma server (``http://host:8000``, with a path for another
                collection than ``crabpath``); ``"pgvector"`` for the PostgreSQL database at
                ``path``, which remembers it; a Chroma client; a LangChain ``VectorStore``; or a
                ``VectorIndex``.
            settings: Settings of the mechanisms, and how long a call may wait for servers; None for
                the defaults.
            router: Decides ambiguous edges: a chat model, a ``ChatModelRouter`` over one, or any
                ``Router``; None for the softmax policy.
            reranker: Orders the best candidates: a LangChain cross-encoder or document compressor;
                None for the order of the ranker. Where it fails, the ranker's order stays.
            linkers: Create edges from the text; None for the built-in ones.
            replica: URL of a streaming standby of the database at ``path``, which queries read
                while it is at most ``settings.max_replica_lag`` seconds behind; None for none.
            create: False refuses to create a memory where there is none.
            reindex: True rebuilds the vector index from the graph store first: for an index that
                is new, or a server that has lost its data; see :meth:`MemoryMaintenance.reindex`.

        Raises:
            NotFoundError: There is no memory, and ``create`` is False.
            StoreReadOnlyError: The directory cannot be written.
            StoreLockedError: Another process uses the directory.
            StoreUnavailableError: A database or server cannot be reached.
            ConfigurationError: The arguments do not fit together; the vectors or the replica are
                not those of this memory; or it wraps a vector store, and ``vectors`` is missing.
            MissingExtraError: The package of the provider of ``embeddings`` is not installed.
            InvalidInputError: An argument has the wrong type; or the database is empty, and the
                vectors are not.
            StoreError: The database was lost, and the vectors beside it were not.

        Example::

            with CrabPath.open("./memory", embeddings=embeddings) as memory:
                memory.add_documents(documents)
        """
        services = Services.open(
            path,
            embeddings=embeddings,
            vectors=vectors,
            settings=settings,
            router=router,
            reranker=reranker,
            linkers=linkers,
            replica=replica,
            create=create,
            reindex=reindex,
        )
        return cls(services)

    def __deepcopy__(self, memo: object) -> Self:
        """Return the memory itself: copies of a retriever share it."""
        return self

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled.

        Raises:
            InvalidInputError: Always.
        """
        msg = (
            "a memory cannot be pickled: pass its path, and open it where it is needed with "
            "CrabPathRetriever.from_existing(path)"
        )
        raise InvalidInputError(msg)

    def close(self) -> None:
        """Release files and connections; a temporary memory is deleted. Safe to repeat.

        Example::

            memory = CrabPath.open("./memory")
            memory.close()
        """
        self._all_services.close()

    def __repr__(self) -> str:
        """Show the memory's place, and its number of chunks if counting takes under a second."""
        return describe_briefly(self._all_services)

    def __enter__(self) -> Self:
        """Use the memory in a ``with`` block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the memory."""
        self.close()

    async def __aenter__(self) -> Self:
        """Use the memory in an ``async with`` block."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the memory, off the event loop."""
        await self.aio.close()

    def as_retriever(self, **fields: Unpack["RetrieverFields"]) -> "CrabPathRetriever":
        """A LangChain retriever over this memory.

        Args:
            fields: Fields of :class:`CrabPathRetriever`, such as ``k`` and ``namespace``.

        Example::

            retriever = memory.as_retriever(k=4, namespace="ann")
        """
        from crabpath_retrievers.retriever import CrabPathRetriever

        return CrabPathRetriever(memory=self, **fields)

    def shadow(
        self, retriever: "PresentRetriever", **fields: Unpack["RetrieverFields"]
    ) -> "ShadowRetriever":
        """Answer beside the present retriever, serve nothing, and learn from its outcomes.

        Every question goes to the present retriever, whose documents are served; the memory answers
        it afterwards, in the background, and neither its errors nor its time reach the caller.
        :meth:`MemoryLearning.shadow_lift` says what it would have changed.

        Args:
            retriever: The retriever of today: any LangChain retriever, another Runnable from a
                question to documents, or a function.
            fields: How the memory is asked, as for :meth:`as_retriever`; without ``k`` for as many
                documents as were shown.

        Raises:
            InvalidInputError: It is no retriever, or a field cannot be used.

        Example::

            retriever = memory.shadow(store.as_retriever(search_kwargs={"k": 4}))
            documents = retriever.invoke("how do I deploy?")
            memory.record(documents, True, used=documents[:1])
        """
        make_shadow: Callable[..., ShadowRetriever] = load_part("crabpath_lab.shadow").make_shadow
        k = fields.pop("k", None)
        return make_shadow(retriever, self.as_retriever(**fields), self._services, k)

    @property
    def aio(self) -> "AsyncCrabPath":
        """Every method in its asynchronous form.

        Example::

            answer = await memory.aio.retrieve("how do I deploy?")
        """
        return AsyncCrabPath(self, self._all_services)

    # Documents.

    @trace_memory("upsert_memory", lambda report: count_records(report.added + report.updated))
    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        ids: Sequence[str] | None = None,
        splitter: TextSplitter | None = None,
        split: bool = True,
        vectors: Mapping[str, Sequence[float]] | None = None,
        cleanup: Cleanup = None,
        progress: Progress | None = bar,
    ) -> IngestReport:
        """Add documents; documents that the memory holds already stay.

        A document with an id replaces everything that was added under that id before. Documents
        without an id are identified by source, text and metadata: an identical one changes
        nothing, any other one is added. Documents without text are left out, with one warning.

        Args:
            documents: LangChain documents; ``metadata["title"]`` and ``["aliases"]`` are used, and
                ``["task_type"]``: the types of tasks it is for, a text or a list of them. It is
                not blamed for failures of other tasks.
            ids: One id per document, instead of ``Document.id``. None keeps ``Document.id``.
            splitter: Your own splitter; None splits Markdown by heading and the rest by size.
            split: False when the documents are chunks already; those with ``start_index`` in their
                metadata, as LangChain's splitters write it, stay whole in any case.
            vectors: Embeddings that are known already, by id of a document that is one chunk: it is
                not embedded again. They must come from the memory's own embedder. None if none are
                known.
            cleanup: None only adds. ``"incremental"`` replaces everything of the sources that
                occur in ``documents``: give whole sources in one call. ``"full"`` also removes
                every document that is not given. The names are those of LangChain's ``index``.
            progress: Shows progress; by default on a terminal when it takes long.

        Raises:
            InvalidInputError: A document cannot be used; nothing was changed.
            EmbeddingMismatchError: The memory was built with another embedder, or a vector has
                another dimension.
            StoreError: A store failed; the next ingest finishes what was interrupted.

        Example::

            report = memory.add_documents(documents, ids=["deploy", "rollback"])
            report.added
        """
        require_progress(progress)
        checked, embeddings = require_list("documents", documents), to_unit_vectors(vectors)
        names = None if ids is None else require_list("ids", ids)
        chunking = self._make_chunking(splitter, embeddings, split=split)
        services = self._services
        if checked:
            services.identity.verify()
        if checked and embeddings:
            services.identity.require_size(embeddings.values())
        return services.ingest.add_documents(
            checked, chunking=chunking, ids=names, cleanup=cleanup, progress=progress
        )

    @trace_memory(
        "upsert_memory", lambda report: count_records(report.chunks.added + report.chunks.updated)
    )
    def ingest(
        self,
        paths: SourcePath | Iterable[SourcePath],
        *,
        ray: str | None = None,
        splitter: TextSplitter | None = None,
        split: bool = True,
        progress: Progress | None = bar,
    ) -> "BulkReport":
        """Add or update many files, without loading all of them at once.

        They are read, split, embedded and published part by part, and linked when all are in. If
        it is interrupted, the same call goes on where it stopped. A file that cannot be read, or
        changes meanwhile, is left out and named in the report.

        Args:
            paths: Files and directories.
            ray: Address of a Ray cluster that does all but the writing: ``host:port``, ``auto``,
                or ``local`` for one on this machine; None does it in this process.
            splitter: Your own splitter; None splits Markdown by heading and the rest by size.
            split: False keeps every document whole.
            progress: Shows progress; by default on a terminal when it takes long.

        Raises:
            InvalidInputError: A path does not exist, or there are no files.
            ServiceError: No Ray cluster answers at the address.
            MissingExtraError: Ray is not installed.
            EmbeddingMismatchError: The memory was built with another embedder.
            StoreError: A store failed; the same call goes on.

        Example::

            report = memory.ingest("docs")
            report.rate
        """
        require_progress(progress)
        given = [paths] if isinstance(paths, (str, os.PathLike)) else require_list("paths", paths)
        chunking = self._make_chunking(splitter, split=split)
        linking = partial(bar, description="linking") if progress is bar else None
        report: BulkReport = load_part(_BULK).ingest_files(
            self._services, given, chunking, ray=ray, progress=progress, linking=linking
        )
        return report

    @trace_memory(
        "upsert_memory", lambda report: count_records(report.chunks.added + report.chunks.updated)
    )
    def add_dataset(
        self,
        dataset: "Dataset",
        *,
        splitter: TextSplitter | None = None,
        split: bool = True,
    ) -> "BulkReport":
        """Add the rows of a Ray dataset; its cluster does everything but the writing.

        As :meth:`add_documents` with ``cleanup=None``, for more than fits into this process. If it
        is interrupted, the same call goes on where it stopped.

        Args:
            dataset: Rows with the columns ``text`` and, if there are any, ``metadata`` (a mapping
                or its JSON) and ``id``.
            splitter: Your own splitter; None splits Markdown by heading and the rest by size.
            split: False when the rows are chunks already.

        Raises:
            InvalidInputError: It is no dataset, or a row or a shard of it cannot be read.
            ServiceError: The cluster failed.
            MissingExtraError: Ray is not installed.
            EmbeddingMismatchError: The memory was built with another embedder.
            StoreError: A store failed; the same call goes on.

        Example::

            memory.add_dataset(ray.data.read_parquet("corpus"))
        """
        chunking = self._make_chunking(splitter, split=split)
        linking = partial(bar, description="linking")
        part = load_part(_BULK)
        report: BulkReport = part.ingest_dataset(self._services, dataset, chunking, linking=linking)
        return report

    def _make_chunking(
        self,
        splitter: TextSplitter | None,
        vectors: dict[str, Vector] | None = None,
        *,
        split: bool,
    ) -> Chunking:
        """Make the chunking of a call from its arguments and the settings; None takes defaults."""
        require_flags(split=split)
        require_splitter(splitter)
        keys = self.settings.links.metadata_keys
        return Chunking(self.settings.ingest, splitter, split, keys, vectors or {})

    @trace_memory("upsert_memory", lambda plan: count_records(len(plan.sections)))
    def sync(
        self,
        sources: SourcePath | Iterable[SourcePath] | Iterable[Document],
        *,
        roots: Sequence[str] = (),
        splitter: TextSplitter | None = None,
        split: bool = True,
        allow_empty: bool = False,
        dry_run: bool = False,
        progress: Progress | None = bar,
    ) -> "SyncPlan":
        """Update the memory to the current state of its sources, and keep what was learned.

        A section that was edited or moved to another file, or whose file was renamed, keeps its id
        and with it weights, counts, use, episodes and notes, in every namespace. A section that
        was deleted is retired: no query returns it, but what was learned about it counts again
        once a sync finds its text again; :meth:`forget` deletes it for good. Documents from other
        sources stay. Nothing is written or embedded where nothing changed. Files and documents
        without text are skipped, with one warning that names them.

        Args:
            sources: Files and directories, or LangChain documents from a loader. Of a directory,
                every section that it no longer contains is retired; of documents, sections of the
                same documents.
            roots: With documents: prefixes of sources, such as ``"https://docs.example.com/"``,
                of which these are all documents; sections of other documents there are retired.
            splitter: Your own splitter; use the one that the documents were added with. None splits
                Markdown by heading and the rest by size.
            split: False when the documents are chunks already.
            allow_empty: Allow a source without documents, and retire everything of it.
            dry_run: Only plan; nothing is written.
            progress: Shows progress of embedding; by default on a terminal when it takes long.

        Returns:
            What was changed, or with ``dry_run`` would be.

        Raises:
            InvalidInputError: A path does not exist, cannot be read or holds no documents, or a
                document cannot be used; nothing was changed.
            EmbeddingMismatchError: The memory was built with another embedder.
            StoreError: A store failed; the next ingest finishes what was interrupted.

        Example::

            plan = memory.sync("docs", dry_run=True)
            plan.counts()
        """
        services, part = self._services, load_part("crabpath_retrievers.parts.sync")
        require_flags(allow_empty=allow_empty, dry_run=dry_run)
        require_progress(progress)
        chunking = self._make_chunking(splitter, split=split)
        plan: SyncPlan = part.sync_sources(
            services,
            sources,
            roots,
            chunking,
            allow_empty=allow_empty,
            dry_run=dry_run,
            progress=progress,
        )
        return plan

    @trace_memory("upsert_memory", lambda report: count_records(report.added + report.updated))
    def refresh(self, documents: Iterable[Document] | None = None) -> IngestReport:
        """Update the memory to the current state of the vector store that it wraps.

        Only new and changed documents are embedded, and nothing is written to the store. What was
        learned about documents that are still there stays.

        Args:
            documents: Documents of the store with their ids, where it cannot list them: the new and
                changed ones, or all of them. Others stay as long as the store holds them; where it
                cannot look up ids either, give all of them. None lists those of the store.

        Returns:
            What was added, updated and removed.

        Raises:
            ConfigurationError: The memory wraps no store, or the store cannot list its documents,
                or a document has no id.
            EmbeddingMismatchError: The memory was built with another embedder.
            StoreError: A store failed; the next call finishes what was interrupted.

        Example::

            memory = CrabPathRetriever.from_vectorstore(store).memory
            store.add_documents(documents)
            memory.refresh().added
        """
        part = load_part("crabpath_retrievers.parts.wrapping")
        report: IngestReport = part.refresh_wrapped(self._services, documents)
        return report

    def forget(
        self,
        ids: Iterable[str | Document] | str | Document | None = None,
        *,
        source: Iterable[str] | str | None = None,
        namespace: str | None = None,
        notes_of: str | None = None,
        erase: bool = False,
    ) -> Forgotten:
        """Delete documents, or all that a namespace has learned.

        Give one of ``ids``, ``source`` and ``namespace``; or ``erase`` alone, for what was deleted
        or replaced before. Questions, answers and feedback of namespaces may quote a document: they
        go with their namespace.

        Args:
            ids: Ids of chunks or notes, or of whole documents that were given ids; or the documents
                that a query returned, each of which is a chunk. None for none.
            source: Every chunk of one or several sources. None for none.
            namespace: Its learned weights, notes, turns, feedback, snapshots and clock; documents
                stay. None for none.
            notes_of: With ``ids``, the only namespace whose notes are deleted; None for all.
            erase: Whether no file of the memory may hold it afterwards: the database and an
                embedded index are written anew, which takes longer the larger they are, and
                queries wait for it. ``docs/how-to/privacy.md`` says what servers keep.

        Returns:
            What was deleted, and what of it was not known; as a number, the chunks and notes.

        Raises:
            InvalidInputError: None or several arguments were given, or something that is no id.
            StoreLockedError: It is deleted, but others used the database for too long for it to be
                erased: call it again with ``erase`` alone.

        Example::

            memory.forget(source="docs/old.md", erase=True)
        """
        services = self._services
        services.settle_shadows()  # else a question that waits would make its namespace anew
        operation = "delete_memory" if namespace is None else "delete_memory_store"
        with trace_operation(operation, services.data_source) as span:
            count = forget_documents(services, ids, source, namespace, notes_of, erase=erase)
            describe_memory(span, services.data_source, namespace, count_records(count))
            return count

    def get_by_ids(
        self, ids: Sequence[str] | str, *, namespace: str = DEFAULT_NAMESPACE
    ) -> list[Document]:
        """Read chunks and notes by id; no turn is recorded.

        Args:
            ids: Ids of chunks or notes; or of whole documents, for all their chunks in order.
            namespace: The namespace whose notes may be among them.

        Returns:
            Each once, in the order of ``ids``; unknown ids are left out.

        Example::

            (document,) = memory.get_by_ids("deploy")
        """
        return get_documents(self._services, ids, namespace)

    # What is there.

    def documents(
        self,
        *,
        source: str | None = None,
        under: str | None = None,
        filter: Mapping[str, object] | None = None,  # noqa: A002  as everywhere
        words: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Document]:
        """List the chunks that queries find, the oldest first.

        Args:
            source: Only chunks of this source, in the order of its text if the list has them all;
                None for any.
            under: Only chunks whose source begins with this text, such as ``"docs/"``, by source;
                None for any.
            filter: Only chunks whose metadata have these values, such as ``{"team": "people"}``;
                unlike that of a query it knows no operators. The corpus is read until there are
                enough. None for any.
            words: Only chunks with any of these words in their text or title, those that fit best
                first; of common words many are left out, and at most 1,000 chunks are found. None
                for any.
            after: Only chunks that come after this one in the list, by id, for its next page; None
                from the beginning.
            limit: How many at most, at least 1.

        Raises:
            InvalidInputError: An argument cannot be used.
            NotFoundError: There is no chunk ``after``.

        Example::

            memory.documents(source="handbook.md", limit=3)
        """
        found: list[Document] = load_part(_LISTING).list_documents(
            self._services, source, under, filter, words, limit, after
        )
        return found

    @apply_time_limit
    def similarity_search(self, text: str, *, k: int = 4) -> list[tuple[Document, float]]:
        """Find the chunks nearest to a text, with their cosines, as a plain vector store does.

        Nothing is walked, ranked or recorded: the method is there to compare :meth:`retrieve` with.

        Args:
            text: The question.
            k: How many, at least 1.

        Raises:
            InvalidInputError: An argument cannot be used.
            EmbeddingMismatchError: The memory was built with another embedder.

        Example::

            [(document, cosine)] = memory.similarity_search("how do I deploy?", k=1)
        """
        return find_similar(self._services, text, k)

    @apply_time_limit
    def sources(
        self, *, under: str | None = None, after: str | None = None, limit: int = 100
    ) -> dict[str, int]:
        """The sources by name, each with the number of its chunks.

        Args:
            under: Only sources that begin with this text, such as ``"docs/"``; None for all.
            after: Only sources that stand after this one, for the next page of a list; None for the
                first page.
            limit: How many at most, at least 1.

        Example::

            memory.sources(limit=10)
        """
        limit = require_count("limit", limit)
        texts = {"under": under, "after": after}
        given = {name: parse_text(name, text) for name, text in texts.items() if text is not None}
        reads = load_part(_LISTING).ListQueries(self._services.store)
        counts: dict[str, int] = reads.count_by_source(limit, **given)
        return counts

    @apply_time_limit
    def notes(
        self, *, namespace: str = DEFAULT_NAMESPACE, before: str | None = None, limit: int = 100
    ) -> "list[NoteRecord]":
        """List the notes of a namespace, newest first.

        Args:
            namespace: The namespace that the notes belong to.
            before: Only notes older than this one: the last one of the list before; None for the
                newest.
            limit: How many at most, at least 1.

        Raises:
            InvalidInputError: An argument cannot be used.
            NotFoundError: There is no note ``before`` in that namespace.

        Example::

            for note in memory.notes(namespace="ann"):
                print(note.id, note.text)
        """
        found: list[NoteRecord] = load_part(_LISTING).list_notes(
            self._services.store, namespace, limit, before=before
        )
        return found

    @apply_time_limit
    def turns(
        self, *, namespace: str = DEFAULT_NAMESPACE, before: str | None = None, limit: int = 100
    ) -> "list[TurnRecord]":
        """List what a namespace asked, newest first; :meth:`explain` takes the ids.

        Args:
            namespace: The namespace that asked.
            before: Only turns older than this one: the last one of the list before; None for the
                newest.
            limit: How many at most, at least 1.

        Raises:
            InvalidInputError: An argument cannot be used.
            NotFoundError: There is no turn ``before`` in that namespace.

        Example::

            for turn in memory.turns(limit=5):
                print(turn.id, turn.query)
        """
        found: list[TurnRecord] = load_part(_LISTING).list_turns(
            self._services.store, namespace, limit, before=before
        )
        return found

    def info(self) -> MemoryInfo:
        """Contents of the memory, and their places.

        Example::

            memory.info()["nodes"]
        """
        services = self._services
        return describe(services.store, services.index.description)

    def ready(self) -> Readiness:
        """Whether the database and the vector store answer, for the probe of a host.

        Answers within a second and never raises; a closed memory is not ready. Of a read replica
        it says how far that is behind, or why queries do without it.

        Example::

            state = memory.ready()
            status = 200 if state.ready else 503
        """
        try:
            services = self._services
        except CrabPathError as error:
            return Readiness(ready=False, reason=str(error))
        return check_open_memory(services.store, services.index, services.identity)

    # Queries.

    def retrieve(self, text: str, **options: Unpack[QueryOptions]) -> Answer:
        """Find the documents that answer a question, and record the turn.

        Args:
            text: The question.
            options: Keys of :class:`~crabpath_retrievers.core.query.QueryOptions`.

        Raises:
            InvalidInputError: An option cannot be used.
            EmbeddingMismatchError: The memory was built with another embedder.
            StoreUnavailableError: A server is away, or silent for ``settings.time_limit`` seconds.

        Example::

            answer = memory.retrieve("how do I deploy?", k=4)
            [item.node.id for item in answer.documents]
        """
        services = self._services
        with trace_retrieval(services, text, options) as span:
            answer = run(services.retrieval.steps(text, options))
            describe_turn(span, answer.turn)
        if services.recorder.learns_passively and options.get("record", True):
            services.recorder.learn_passively(answer.turn)
        return answer

    @apply_time_limit
    def explain(self, turn_id: str | UUID, *, namespace: str | None = None) -> "Explanation":
        """Why each document of a turn was returned: seed or path, weights, tiers, feedback.

        Args:
            turn_id: Id of the turn, or of the host's run that asked.
            namespace: Look only among turns of this namespace; None looks in all.

        Raises:
            NotFoundError: There is no such turn in that namespace.

        Example::

            answer = memory.retrieve("how do I deploy?")
            memory.explain(answer.turn.id)
        """
        part = load_part("crabpath_retrievers.parts.explain")
        ranker = self._services.ranker
        found: Explanation = part.explain_turn(self.store, ranker, turn_id, namespace=namespace)
        return found

    # Feedback.

    @overload
    def record(self, about: Feedback) -> Receipt: ...
    @overload
    def record(  # type: ignore[overload-overlap]
        self,
        about: str | UUID | Document | Answer | None,
        outcome: Outcome,
        *,
        strict: bool = True,
        **fields: Unpack[FeedbackFields],
    ) -> Receipt: ...
    @overload
    def record(
        self,
        about: object,
        outcome: Outcome,
        *,
        strict: bool = True,
        **fields: Unpack[FeedbackFields],
    ) -> list[Receipt]: ...
    @apply_time_limit
    def record(
        self,
        about: object,
        outcome: Outcome | None = None,
        *,
        strict: bool = True,
        **fields: Unpack[FeedbackFields],
    ) -> Receipt | list[Receipt]:
        """Learn from the outcome of a turn, now or a week later.

        The feedback is saved durably first; after that it is applied once, as
        ``settings.learning.apply`` says. The last feedback of a giver about a turn counts: feedback
        that says the same changes nothing, and other feedback replaces the earlier one. Feedback of
        a person replaces that of a model, a teacher or an event, which never replaces a person's.
        If two people judge a turn, the feedback of both counts. Feedback about several turns is
        replaced as a whole.

        Args:
            about: What the feedback is about: a turn id, or the run id of the call that retrieved;
                a returned document or several; an :class:`Answer`; or what holds such documents:
                the output of a chain, the state of an agent, a response of LlamaIndex. None for the
                last turn of the conversation ``session``, or of the namespace, and for those before
                it that nobody has judged, as far as ``settings.learning.window_turns`` goes. Or a
                whole :class:`Feedback`, without outcome.
            outcome: True or ``"up"``, False or ``"down"``, or a number from -1 (failure) to 1. None
                only with a :class:`Feedback`, which has its own.
            strict: False returns the receipt of refused feedback, which is raised otherwise. With a
                :class:`Feedback` it is always returned.
            fields: Other fields of :class:`Feedback`, such as ``used`` and ``correction``.

        Returns:
            One receipt for an id, a document, an :class:`Answer`, a ``Feedback`` or None; for
            anything else, which may hold several turns, a list with one for each. Its status is
            ``applied``; ``waiting`` until the feedback is learned from; ``repeated`` if its giver
            had given the same before; ``refused`` with the reason in ``note`` and ``reason``, if
            there is no such turn in that namespace or conversation, a better giver has judged it,
            or its namespace is frozen; or ``undone``, see :meth:`undo`.

        Raises:
            InvalidInputError: An argument cannot be used, or nothing can be learned from it.
            NotFoundError: There is no such turn in that namespace.
            StoreError: The feedback could not be saved; :class:`StoreUnavailableError` also where a
                server is silent for ``settings.time_limit`` seconds.

        Example::

            answer = memory.retrieve("how do I deploy?")
            memory.record(answer, True, used=[answer.documents[0].node.id])
        """
        require_flags(strict=strict)
        self._services.warn_if_temporary()
        self._services.settle_shadows()
        record = self._services.recorder.record
        return record_said(record, about, outcome, strict=strict, **fields)

    @apply_time_limit
    @trace_memory("create_memory", name_record)
    def teach(
        self,
        text: str,
        *,
        kind: Literal["teaching", "directive"] = "teaching",
        query: str | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        authority: str | None = None,
        **fields: Unpack[NoteFields],
    ) -> str:
        """Add a note to a namespace: something that its documents do not say.

        From now on its queries find the note as they find documents; other namespaces never see
        it. The same note again changes nothing; the same id with other content replaces the note.

        Args:
            text: The note, returned as a whole: at most 20,000 characters.
            kind: ``teaching``, or ``directive`` for an instruction.
            query: A question that it answers; similar ones will recall it. None for none.
            namespace: The namespace that the note belongs to.
            authority: ``overlay``; ``canonical``: weights of edges that lead to it decay at a
                quarter of the speed; or ``constitutional``: they never decay. None is ``overlay``
                for a teaching and ``canonical`` for a directive.
            fields: ``title``; ``related``: ids of documents, chunks or notes to which it leads;
                ``metadata``: returned with it, such as ``source`` (missing ``source``, ``title``
                and keys that all documents have are filled in); and ``id``: None derives one from
                namespace and text.

        Returns:
            The id of the note.

        Raises:
            InvalidInputError: An argument cannot be used, the id exists already elsewhere, or the
                namespace is frozen.
            NotFoundError: A related id does not exist in this namespace.

        Example::

            memory.teach("Nobody deploys on a Friday.", query="May I deploy on Friday?")
        """
        default_authority = require_taught_kind(kind)
        self._services.warn_if_temporary()
        asked = None if query is None else NoteQuestion(query)
        rank = default_authority if authority is None else authority
        said = make_content(text, fields)
        return save_note(self._services, kind, namespace, said, rank, asked)

    @apply_time_limit
    @trace_memory("create_memory", name_record)
    def correct(
        self,
        text: str,
        *,
        turn_id: str | None = None,
        wrong: Sequence[str] | str | None = None,
        query: str | None = None,
        namespace: str | None = None,
        authority: str = "overlay",
        **fields: Unpack[NoteFields],
    ) -> str:
        """Add a note with the right answer, and rank the wrong documents lower.

        Inhibitory edges lead to the wrong documents from the note and from the node by which the
        turn reached them. They lower a document where the note, or that node, is found; they never
        remove it. The note comes to questions like its own, and to those for which what it corrects
        is the best document; it then stands before that document, on top of ``k`` documents.

        Args:
            text: What is right.
            turn_id: The turn, or the host's run, that was wrong; its question recalls the note.
                None for a note about no turn.
            wrong: Ids of wrong documents; None is what the turn returned and the text contradicts
                in nearly the same words.
            query: A question that the note answers, instead of that of the turn. None takes that of
                the turn, if there is one.
            namespace: The namespace of the note; None for that of the turn, or "default" without
                one.
            authority: As for :meth:`teach`.
            fields: ``title``, ``related``, ``id`` and ``metadata`` of :meth:`teach`.

        Returns:
            The id of the note.

        Raises:
            InvalidInputError: As for :meth:`teach`.
            NotFoundError: There is no such turn in that namespace, or no such id.

        Example::

            answer = memory.retrieve("how do I deploy?")
            memory.correct("Deploys go through the pipeline.", turn_id=answer.turn.id)
        """
        services = self._services
        services.warn_if_temporary()
        turn = None if turn_id is None else find_turn(services.store, turn_id, namespace)
        if namespace is None:
            namespace = turn.turn.namespace if turn else DEFAULT_NAMESPACE
        if wrong is None:
            wrong = find_wrong(services, turn, text) if turn else ()
        asked = make_question(turn) if query is None else NoteQuestion(query)
        said = make_content(text, fields, wrong)
        return save_note(services, "correction", namespace, said, authority, asked, turn)

    @apply_time_limit
    @trace_memory("update_memory", describe_receipt)
    def undo(
        self,
        feedback_id: str | None = None,
        *,
        turn_id: str | None = None,
        namespace: str | None = None,
    ) -> Receipt:
        """Undo all that was learned from one feedback or note, or all that was said about a turn.

        Its turns may get other feedback then. A note that was taught, or a correction without an
        outcome, is deleted, as by :meth:`forget`, unless feedback that still counts says the same.

        Right after the feedback was learned, undoing it restores the namespace exactly. What was
        learned in between stays: what decay has left of its weight changes is subtracted, and the
        ranker's posterior loses its evidence. Works on frozen namespaces too. A note that the
        feedback created is deleted, unless :meth:`correct` or other feedback that still counts
        says the same; a note on probation that it used counts one use less, and its probation
        keeps its end. :meth:`MemoryLearning.undo_all` undoes all feedback of a user.

        Args:
            feedback_id: The feedback, or the note; None if ``turn_id`` is given.
            turn_id: Instead: a turn, or the host's run; all that was learned from it is undone,
                corrections without an outcome included, whoever said it. Feedback about several
                turns is undone as a whole. None if
                ``feedback_id`` is given.
            namespace: Look only among feedback of this namespace; None looks in all.

        Returns:
            ``undone``; waiting feedback is then never learned from. Of several about a turn, that
            of the latest, whose ``note`` names the others. Otherwise it was not changed, and
            ``note`` says why: it was undone before, it was refused, or its effects are not known
            any more (``applied``).

        Raises:
            NotFoundError: There is no such feedback, note or turn, or nothing was learned from it.
            InvalidInputError: Not exactly one of ``feedback_id`` and ``turn_id`` was given, or one
                of them cannot be used, or a note was made from feedback, which is named.

        Example::

            receipt = memory.record(memory.retrieve("how do I deploy?").turn.id, True)
            memory.undo(receipt.feedback_id)
        """
        return self._services.history.undo(feedback_id, turn_id, namespace)


class AsyncCrabPath(AsyncView[CrabPath], MemoryPart):
    """``memory.aio``: the methods of :class:`CrabPath` and its components, awaited.

    They run in worker threads; a query awaits its router natively.
    """

    regions: "OptionalPart[AsyncMemoryRegions]" = OptionalPart(
        "region_mdp.memory_regions:AsyncMemoryRegions"
    )
    graph: "OptionalPart[AsyncMemoryGraph]" = OptionalPart(
        "typed_graph.memory_graph:AsyncMemoryGraph"
    )
    maintenance: "OptionalPart[AsyncMemoryMaintenance]" = OptionalPart(
        "operation.memory_maintenance:AsyncMemoryMaintenance"
    )
    transfer: "OptionalPart[AsyncMemoryTransfer]" = OptionalPart(
        "operation.memory_transfer:AsyncMemoryTransfer"
    )

    def __init__(self, blocking: CrabPath, services: Services) -> None:
        """Make the asynchronous view of ``blocking``, which has these services."""
        AsyncView.__init__(self, blocking)
        MemoryPart.__init__(self, services)
        self.namespaces = AsyncMemoryNamespaces(blocking.namespaces)
        self.learning = AsyncMemoryLearning(blocking.learning)

    def get_source(self, part: str) -> object:
        """Return the synchronous component that an asynchronous one runs in threads."""
        return getattr(self._blocking, part)

    close = off_loop(CrabPath.close)
    add_documents = off_loop(CrabPath.add_documents, slow=True)
    ingest = off_loop(CrabPath.ingest, slow=True)
    add_dataset = off_loop(CrabPath.add_dataset, slow=True)
    sync = off_loop(CrabPath.sync, slow=True)
    refresh = off_loop(CrabPath.refresh, slow=True)
    forget = off_loop(CrabPath.forget, slow=True)
    get_by_ids = off_loop(CrabPath.get_by_ids)
    documents = off_loop(CrabPath.documents)
    similarity_search = off_loop(CrabPath.similarity_search)
    sources = off_loop(CrabPath.sources)
    notes = off_loop(CrabPath.notes)
    turns = off_loop(CrabPath.turns)
    info = off_loop(CrabPath.info)
    explain = off_loop(CrabPath.explain)
    teach = off_loop(CrabPath.teach)
    correct = off_loop(CrabPath.correct)
    undo = off_loop(CrabPath.undo)

    @overload
    async def record(self, about: Feedback) -> Receipt: ...
    @overload
    async def record(  # type: ignore[overload-overlap]
        self,
        about: str | UUID | Document | Answer | None,
        outcome: Outcome,
        *,
        strict: bool = True,
        **fields: Unpack[FeedbackFields],
    ) -> Receipt: ...
    @overload
    async def record(
        self,
        about: object,
        outcome: Outcome,
        *,
        strict: bool = True,
        **fields: Unpack[FeedbackFields],
    ) -> list[Receipt]: ...
    async def record(self, about: Any, *given: Any, **options: Any) -> Receipt | list[Receipt]:
        """As :meth:`CrabPath.record`, without blocking the event loop."""
        return await arun(perform(partial(self._blocking.record, about, *given, **options)))

    async def ready(self) -> Readiness:
        """As :meth:`CrabPath.ready`, in its own thread, so it does not wait for other calls."""
        return await arun_with_timeout(self._blocking.ready)

    async def retrieve(self, text: str, **options: Unpack[QueryOptions]) -> Answer:
        """As :meth:`CrabPath.retrieve`, without blocking the event loop."""
        services = self._services
        with trace_retrieval(services, text, options) as span:
            answer = await arun(services.retrieval.steps(text, options))
            describe_turn(span, answer.turn)
        if services.recorder.learns_passively and options.get("record", True):
            await arun(perform(services.recorder.learn_passively, answer.turn))
        return answer
