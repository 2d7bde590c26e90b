"""``CrabPathRetriever``: the LlamaIndex retriever that takes the place of ``as_retriever()``."""

import asyncio
import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.instrumentation.span import active_span_id
from llama_index.core.node_parser import NodeParser
from llama_index.core.schema import BaseNode, Document, NodeWithScore, QueryBundle
from typing_extensions import Self, Unpack

from crabpath_retrievers.driver import arun, run
from crabpath_retrievers.errors import ConfigurationError, InvalidInputError
from crabpath_retrievers.feedback.receipt import FeedbackFields, Receipt
from crabpath_retrievers.ingest.pipeline import Cleanup, IngestReport
from crabpath_retrievers.memory import CrabPath
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE
from crabpath_retrievers.query import QueryOptions, RetrieverOptions
from crabpath_retrievers.text import is_blank
from llama_index.retrievers.crabpath.bundles import asked
from llama_index.retrievers.crabpath.documents import checked, chunks, wholes
from llama_index.retrievers.crabpath.embeddings import EmbedModel, embeddings_of
from llama_index.retrievers.crabpath.filters import to_where
from llama_index.retrievers.crabpath.index import Origin, stored_nodes, stored_vectors
from llama_index.retrievers.crabpath.nodes import to_nodes
from llama_index.retrievers.crabpath.options import Existing, Fields, Options, filled, split
from llama_index.retrievers.crabpath.responses import Outcome, record


class CrabPathRetriever(BaseRetriever):
    """Retrieves by search and a walk over a graph of the documents, and learns from outcomes.

    Drop-in for ``index.as_retriever()``::

        retriever = CrabPathRetriever.from_documents(documents, path="./memory")
        engine = RetrieverQueryEngine.from_args(retriever, llm=llm)
        response = engine.query("how do I deploy?")
        retriever.record(response, 1.0)

    Every node carries ``metadata["crabpath"]`` (turn id, origin, path, tier, feature values),
    which no model reads, and a score in (0, 1]: the probability that it is relevant.
    """

    def __init__(self, memory: CrabPath, **options: Unpack[Fields]) -> None:
        """Retrieve from a memory, which LangChain and LangGraph may use at the same time.

        Args:
            memory: The memory that is searched.
            options: Keys of :class:`~llama_index.retrievers.crabpath.options.Fields`, such as
                ``similarity_top_k``, ``namespace`` and ``filters``. A blank namespace is the
                default one.

        Raises:
            InvalidInputError: The filters cannot be used.
        """
        given: dict[str, Any] = dict(options)
        filters, count = given.pop("filters", None), given.pop("similarity_top_k", 4)
        names = RetrieverOptions.__annotations__
        asked: QueryOptions = {n: given.pop(n) for n in names if n in given}  # type: ignore[assignment]
        super().__init__(**given)
        if not isinstance(memory, CrabPath):
            msg = (
                f"memory must be a CrabPath, not {type(memory).__name__}: use from_documents, "
                "from_index or from_existing, or pass the memory of another retriever"
            )
            raise InvalidInputError(msg)
        self.memory = memory
        namespace = asked.pop("namespace", DEFAULT_NAMESPACE)
        self.namespace = DEFAULT_NAMESPACE if is_blank(namespace) else namespace
        self.task_type: str | None = asked.pop("task_type", None)
        self.similarity_top_k: int = count
        self.origin: Origin | None = None
        self._options: QueryOptions = {"filter": to_where(filters), **asked}

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Document],
        embed_model: EmbedModel = None,
        *,
        node_parser: NodeParser | None = None,
        cleanup: Cleanup = None,
        **options: Unpack[Options],
    ) -> Self:
        """Index documents and return a retriever over them.

        Adding the same again changes nothing. A document with an id that you gave it replaces what
        was added under that id before; an id that LlamaIndex made up differs at every load, so
        such a document is told apart by source, text and metadata.

        Args:
            documents: LlamaIndex documents; ``metadata["title"]`` and ``["aliases"]`` are used.
            embed_model: A LlamaIndex embedding model; None for ``Settings.embed_model`` if the
                program has set it, else for all-MiniLM-L6-v2.
            node_parser: Says where texts are cut; None cuts Markdown by heading and the rest by
                size.
            cleanup: What goes of a memory that is at ``path`` already: None for nothing,
                ``"incremental"`` for what a given source, ``metadata["source"]`` or
                ``["file_path"]``, no longer holds, ``"full"`` for every document not given.
            options: ``path`` (a directory or database URL; None keeps the memory for this
                process), ``vectors``, ``settings`` and ``router`` of ``CrabPath.open``, where a
                LlamaIndex ``LLM`` will do as router; and arguments of the retriever.

        Raises:
            InvalidInputError: A document cannot be used; nothing was changed.
            EmbeddingMismatchError: The memory was built with another embedder.
        """
        given = wholes(checked(documents, Document), node_parser)
        opening, fields = split(options)
        memory = filled(embed_model, opening, lambda m: m.add_documents(**given, cleanup=cleanup))
        return cls._over(memory, fields)

    @classmethod
    def from_nodes(
        cls,
        nodes: Iterable[BaseNode],
        embed_model: EmbedModel = None,
        *,
        embeddings: Mapping[str, Sequence[float]] | None = None,
        cleanup: Cleanup = None,
        **options: Unpack[Options],
    ) -> Self:
        """As :meth:`from_documents`, from nodes: each becomes a chunk under its own id.

        Args:
            nodes: Nodes with text, such as an ingestion pipeline makes. Those that carry their
                embedding are not embedded again.
            embed_model: The model that made the embeddings.
            embeddings: Embeddings by node id, for nodes that do not carry theirs.
            cleanup: None removes nothing, ``"incremental"`` nodes that are not given of documents
                of which some are, ``"full"`` every node that is not given.
            options: As for :meth:`from_documents`.

        Raises:
            InvalidInputError: A node cannot be used; nothing was changed.
            EmbeddingMismatchError: An embedding has another dimension than the model's.
        """
        given = chunks(checked(nodes, BaseNode), embeddings or {})
        opening, fields = split(options)
        memory = filled(embed_model, opening, lambda m: m.add_documents(**given, cleanup=cleanup))
        return cls._over(memory, fields)

    @classmethod
    def from_index(
        cls,
        index: VectorStoreIndex,
        embed_model: EmbedModel = None,
        *,
        cleanup: Cleanup = None,
        **options: Unpack[Options],
    ) -> Self:
        """A retriever over what a ``VectorStoreIndex`` holds, under the same node ids.

        Nodes are copied from the index's document store, or from a vector store that lists them
        (Chroma's does); the index stays as it is. Embeddings that the index holds in Chroma or in
        its own simple store are used as they are; others are made again. This retriever does not
        return what the index no longer holds; :meth:`refresh` takes over what is new.

        Args:
            index: The index. Call again with the same ``path`` to open the memory with it.
            embed_model: The model that the index was built with; None for the one that it has.
            cleanup: ``"full"`` also removes whatever the index does not hold.
            options: As for :meth:`from_documents`.

        Raises:
            InvalidInputError: It is no ``VectorStoreIndex``.
            ConfigurationError: The index cannot list its nodes.
            EmbeddingMismatchError: The model has another dimension than the stored embeddings.
        """
        nodes = stored_nodes(index)
        model = index._embed_model if embed_model is None else embed_model  # noqa: SLF001  no other way
        vectors = stored_vectors(index, nodes)
        made = cls.from_nodes(nodes, model, embeddings=vectors, cleanup=cleanup, **options)
        made.origin = Origin(index, [node.node_id for node in nodes])
        return made

    @classmethod
    def from_existing(
        cls, path: str | Path, embed_model: EmbedModel = None, **options: Unpack[Existing]
    ) -> Self:
        """A retriever over a memory that exists already, whichever host filled it.

        Raises:
            NotFoundError: There is no memory; nothing is created.
        """
        opening, fields = split(options)
        embeddings = embeddings_of(embed_model)
        memory = CrabPath.open(path, embeddings=embeddings, create=False, **opening)
        return cls._over(memory, fields)

    @classmethod
    def _over(cls, memory: CrabPath, fields: dict[str, Any]) -> Self:
        try:
            return cls(memory, **fields)
        except BaseException:
            memory.close()
            raise

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        node_parser: NodeParser | None = None,
        cleanup: Cleanup = None,
    ) -> list[str]:
        """Add documents as :meth:`from_documents` does; returns the ids of the chunks."""
        given = wholes(checked(documents, Document), node_parser)
        return self.memory.add_documents(**given, cleanup=cleanup).ids

    def add_nodes(self, nodes: Iterable[BaseNode]) -> list[str]:
        """Add or update nodes as :meth:`from_nodes` does; returns their ids."""
        return self.memory.add_documents(**chunks(checked(nodes, BaseNode), {})).ids

    def refresh(self) -> IngestReport:
        """Take over what is new, changed and gone in the index that :meth:`from_index` was given.

        Nodes that were added to the memory otherwise stay.

        Raises:
            ConfigurationError: The retriever was made in another way.
            StoreError: A store failed; the next call finishes.
        """
        origin = self.origin
        if origin is None:
            msg = (
                "this retriever was not made by from_index: call "
                "CrabPathRetriever.from_index(index, path=...), which takes over what is new"
            )
            raise ConfigurationError(msg)
        nodes = stored_nodes(origin.index)
        given = chunks(nodes, stored_vectors(origin.index, nodes))
        report = self.memory.add_documents(**given, cleanup="incremental")
        there = {node.node_id for node in nodes}
        if gone := sorted(origin.taken - there):
            report.removed += self.memory.forget(gone)
        origin.taken = there
        return report

    async def arefresh(self) -> IngestReport:
        """As :meth:`refresh`, off the event loop."""
        return await asyncio.to_thread(self.refresh)

    def for_namespace(self, namespace: str) -> Self:
        """The same retriever for another user, agent or tenant, over the same memory.

        A blank namespace is the default one.
        """
        other = copy.copy(self)
        other.namespace = DEFAULT_NAMESPACE if is_blank(namespace) else namespace
        return other

    def for_task(self, task_type: str | None) -> Self:
        """The same retriever for a type of task: what is learned of steps is counted by it too."""
        other = copy.copy(self)
        other.task_type = task_type
        return other

    def record(
        self, response: Any, outcome: Outcome, **fields: Unpack[FeedbackFields]
    ) -> list[Receipt]:
        """Learn from what became of a response, now or a week later.

        Args:
            response: What a query engine, chat engine or agent returned, or nodes, or a turn id.
            outcome: How good it was, in [-1, 1], or LlamaIndex's ``EvaluationResult``.
            fields: Other fields of :class:`~crabpath_retrievers.outcome.Feedback`, such as
                ``correction``. The response's own text counts as ``answer`` unless ``used`` or
                ``answer`` are given.

        Returns:
            One receipt per turn. Turns of another namespace than the retriever's are refused.

        Raises:
            InvalidInputError: The response carries no turn, or a field cannot be used.
            StoreError: It could not be kept.
        """
        fields.setdefault("namespace", self.namespace)
        return record(self.memory, response, outcome, **fields)

    async def arecord(
        self, response: Any, outcome: Outcome, **fields: Unpack[FeedbackFields]
    ) -> list[Receipt]:
        """As :meth:`record`, off the event loop."""
        return await asyncio.to_thread(self.record, response, outcome, **fields)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return to_nodes(run(asked(self.memory, query_bundle, self._asked())))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return to_nodes(await arun(asked(self.memory, query_bundle, self._asked())))

    def _asked(self) -> QueryOptions:
        # The span of LlamaIndex's own trace finds the turn, as a run id does in LangChain.
        return {
            **self._options,
            "k": self.similarity_top_k,
            "namespace": self.namespace,
            "task_type": self.task_type,
            "run_id": active_span_id.get(),
            "existing_ids": None if self.origin is None else self.origin.held,
        }
