"""``CrabPathRetriever``: the LangChain retriever that takes the place of ``as_retriever()``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from langchain_text_splitters import TextSplitter
from pydantic import ConfigDict, Field, field_validator
from typing_extensions import Self, TypedDict, Unpack

from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, Feedback, FeedbackFields, Receipt
from crabpath_retrievers.core.metadata import add_answer_metadata
from crabpath_retrievers.core.query import CallOptions, QueryOptions, RetrieverOptions, require_list
from crabpath_retrievers.core.text import is_blank
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.pipeline import Cleanup, IngestReport, Progress
from crabpath_retrievers.retrieval.pipeline import Answer
from crabpath_retrievers.routing.policy import Router

Filter = dict[str, Any]
_OPENING = ("router", "settings")
_FIELDS = ("k", "filter", *RetrieverOptions.__annotations__)
_CALL_OPTIONS = dict.fromkeys((*_FIELDS, *CallOptions.__annotations__))


class CrabPathDocument(Document):
    """A document that equals every document of the same id and text, whichever turn returned it.

    So code that compares documents, such as ``MultiQueryRetriever``, sees each of them once.
    Serialisers treat it as a ``Document``, and load it as one.
    """

    @property  # type: ignore[misc]  # object allows to set it, too
    def __class__(self) -> Any:
        """``Document``: LangGraph's checkpoints save objects by class name, and know that one."""
        return Document

    @classmethod
    def lc_id(cls) -> list[str]:
        """The id of ``Document``, the class that LangChain loads."""
        return Document.lc_id()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by class and fields."""
        return type(self).model_validate, (dict(self),)

    def __eq__(self, other: object) -> bool:
        """Whether the other is a document with this id and text."""
        if not isinstance(other, Document):
            return NotImplemented
        return (self.id, self.page_content) == (other.id, other.page_content)

    def __hash__(self) -> int:
        """By id and text."""
        return hash((self.id, self.page_content))


class RetrieverFields(RetrieverOptions, total=False):
    """Fields that :class:`CrabPathRetriever` takes when it is made; all are optional."""

    k: int
    filter: Filter | None
    name: str | None
    tags: list[str] | None
    metadata: dict[str, Any] | None


class OpeningFields(RetrieverFields, total=False):
    """What makes a memory and a retriever over it: fields of both."""

    router: Router | BaseChatModel | None
    """Decides ambiguous edges, see :meth:`CrabPath.open`."""
    settings: Settings | None
    """Settings of the mechanisms, see :meth:`CrabPath.open`."""


class IndexingFields(OpeningFields, total=False):
    """What indexes documents besides: see :meth:`CrabPathRetriever.from_documents`."""

    path: str | Path | None
    split: bool
    cleanup: Cleanup
    vectors: Any


class AddingOptions(TypedDict, total=False):
    """Options of :meth:`CrabPath.add_documents`."""

    ids: Sequence[str] | None
    splitter: TextSplitter | None
    split: bool
    vectors: Mapping[str, Sequence[float]] | None
    cleanup: Cleanup
    progress: Progress | None


class CrabPathRetriever(BaseRetriever):
    """Retrieves by search and a walk over a graph of the documents.

    Drop-in for ``vectorstore.as_retriever()``::

        retriever = CrabPathRetriever.from_documents(documents, path="./memory", k=4)
        documents = retriever.invoke("how do I deploy?")

    Every document carries ``metadata["crabpath"]``: turn id, id, score (probability of relevance,
    in [0, 1]), origin, path, tier and feature values. Id and score stand in ``metadata["id"]`` and
    ``["score"]`` as well, unless the document itself has such keys. A value of its own under
    ``crabpath`` is in ``metadata["crabpath"]["original"]``. Returned documents can be added again:
    the metadata that retrieval added to them is then left out.

    A note carries ``source`` (such as ``crabpath:correction``), ``title``, and every metadata key
    that all documents have, as an empty text, so that prompt templates work with it. Documents of
    the same id and text are equal, whichever turns returned them.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    memory: CrabPath = Field(exclude=True)
    """The memory that is searched."""
    k: int = 4
    """Documents to return: exactly this many, if the memory holds so many."""
    filter: Filter | None = None
    """Condition on metadata, in the language of the vector store (Chroma's by default)."""
    namespace: str = DEFAULT_NAMESPACE
    """User, agent or tenant whose learned weights apply; a blank one means the default."""
    task_type: str | None = None
    """Type of the task, such as "refund"; steps in regions are also counted by it."""
    explore: bool | int = False
    """Sample the walk instead of following the best edges; an integer seeds the sampling."""
    fill: bool = True
    """False returns only documents that the ranker is confident about, at most k."""
    one_per_document: bool = False
    """Return at most one chunk of each document, for corpora of long documents."""
    max_tokens: int | None = None
    """Tokens of all returned texts together, at most; near-duplicates are left out."""

    @field_validator("namespace", mode="before")
    @classmethod
    def _default_namespace(cls, namespace: object) -> object:
        """The default namespace for a blank one, which hosts configure for anonymous users."""
        return DEFAULT_NAMESPACE if is_blank(namespace) else namespace

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Document],
        embeddings: Embeddings | None = None,
        *,
        path: str | Path | None = None,
        ids: Sequence[str] | None = None,
        split: bool = True,
        cleanup: Cleanup = None,
        vectors: Any = None,
        **fields: Unpack[OpeningFields],
    ) -> Self:
        """Index documents and return a retriever over them.

        Args:
            documents: LangChain documents.
            embeddings: Any embedder; None for all-MiniLM-L6-v2.
            path: Directory or database URL to keep the memory in; None keeps it for this process.
            ids: One id per document.
            split: False when the documents are chunks already.
            cleanup: What is removed from a memory that exists at ``path`` already: None for
                nothing, or ``"incremental"`` or ``"full"``, see :meth:`CrabPath.add_documents`.
            vectors: Where vectors are searched, see :meth:`CrabPath.open`.
            fields: Fields of the retriever, such as ``k`` and ``namespace``; and ``router`` and
                ``settings`` of :meth:`CrabPath.open`.
        """
        opening, own = _split_fields(fields)
        memory = CrabPath.open(path, embeddings=embeddings, vectors=vectors, **opening)
        with _close_on_error(memory):
            memory.add_documents(documents, ids=ids, split=split, cleanup=cleanup)
            return cls(memory=memory, **own)

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embeddings: Embeddings | None = None,
        metadatas: Sequence[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str] | None = None,
        **fields: Unpack[IndexingFields],
    ) -> Self:
        """As :meth:`from_documents`, from texts and their metadata."""
        contents = require_list("texts", texts)
        about = (
            [{} for _ in contents] if metadatas is None else require_list("metadatas", metadatas)
        )
        try:
            documents = [
                Document(page_content=text, metadata=metadata)
                for text, metadata in zip(contents, about, strict=True)
            ]
        except ValueError as error:  # from pydantic, or because their numbers differ
            msg = f"texts and metadatas must be as many texts and mappings: {error}"
            raise InvalidInputError(msg) from error
        return cls.from_documents(documents, embeddings, ids=ids, **fields)

    @classmethod
    def from_vectorstore(
        cls,
        vectorstore: VectorStore | VectorStoreRetriever,
        *,
        path: str | Path | None = None,
        documents: Iterable[Document] | None = None,
        embeddings: Embeddings | None = None,
        **fields: Unpack[OpeningFields],
    ) -> Self:
        """Wrap an existing store in place: it is searched unchanged, nothing is written to it.

        Documents that the store no longer holds are not returned; new and changed ones are found
        after :meth:`refresh`, or when the store is wrapped again.

        Args:
            vectorstore: The store, or its ``as_retriever()`` with its ``k`` and ``filter``. Chroma,
                FAISS and the in-memory store list their documents; for others pass ``documents``.
            path: Where to keep the graph; None for this process. Wrapping again with the same path
                reads only what changed.
            documents: The store's documents with their ids, where it cannot list them.
            embeddings: The store's embedder, where the store does not expose it.
            fields: As for :meth:`from_documents`.

        Raises:
            InvalidInputError: It is no ``VectorStore``.
            ConfigurationError: The store lacks a capability that is needed (the message names all
                of them); or there is another memory at the path, which is not changed.
            EmbeddingMismatchError: The store, or the memory, was filled with another embedder.
        """
        from crabpath_retrievers.stores.wrap import unwrap_store, wrap_vectorstore

        store, store_fields = unwrap_store(vectorstore)
        opening, own = _split_fields(fields)
        memory = wrap_vectorstore(
            store, path=path, documents=documents, embeddings=embeddings, **opening
        )
        with _close_on_error(memory):
            return cls(memory=memory, **{**store_fields, **own})

    @classmethod
    def from_existing(
        cls,
        path: str | Path,
        embeddings: Embeddings | None = None,
        *,
        vectors: Any = None,
        **fields: Unpack[OpeningFields],
    ) -> Self:
        """A retriever over a memory that exists already, by directory or database URL.

        Takes the same fields as :meth:`from_documents`.

        Raises:
            NotFoundError: There is no memory; nothing is created.
            ConfigurationError: The memory wraps a store: open it with :meth:`from_vectorstore`.
        """
        opening, own = _split_fields(fields)
        memory = CrabPath.open(
            path, embeddings=embeddings, vectors=vectors, create=False, **opening
        )
        with _close_on_error(memory):
            return cls(memory=memory, **own)

    def add_documents(
        self, documents: Iterable[Document], **options: Unpack[AddingOptions]
    ) -> list[str]:
        """Add documents as :meth:`CrabPath.add_documents`; returns the ids of their chunks."""
        return self.memory.add_documents(documents, **options).ids

    async def aadd_documents(
        self, documents: Iterable[Document], **options: Unpack[AddingOptions]
    ) -> list[str]:
        """As :meth:`add_documents`, off the event loop."""
        return (await self.memory.aio.add_documents(documents, **options)).ids

    def refresh(self, documents: Iterable[Document] | None = None) -> IngestReport:
        """Update to what the wrapped store holds now; see :meth:`CrabPath.refresh`."""
        return self.memory.refresh(documents)

    async def arefresh(self, documents: Iterable[Document] | None = None) -> IngestReport:
        """As :meth:`refresh`, off the event loop."""
        return await self.memory.aio.refresh(documents)

    def record(
        self, turn_id: str | UUID | None, outcome: float, **fields: Unpack[FeedbackFields]
    ) -> Receipt:
        """Learn from the outcome of a turn; shorthand for :meth:`CrabPath.record`.

        Args:
            turn_id: ``metadata["crabpath"]["turn_id"]`` of a document, or the run id of the call
                that returned it; None for the last turns of this retriever's namespace.
            outcome: From -1 (failure) to 1 (success).
            fields: Other fields of :class:`~crabpath_retrievers.core.feedback.Feedback`.

        Raises:
            InvalidInputError: The outcome is no number in [-1, 1], or a field cannot be used.
            StoreError: It could not be saved.
        """
        return self.memory.record(self._feedback(turn_id, outcome, fields))

    async def arecord(
        self, turn_id: str | UUID | None, outcome: float, **fields: Unpack[FeedbackFields]
    ) -> Receipt:
        """As :meth:`record`, off the event loop."""
        return await self.memory.aio.record(self._feedback(turn_id, outcome, fields))

    def _feedback(
        self, turn_id: str | UUID | None, outcome: float, fields: FeedbackFields
    ) -> Feedback:
        if turn_id is None:
            fields.setdefault("namespace", self.namespace)
        return Feedback(None if turn_id is None else str(turn_id), outcome, **fields)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        **options: Unpack[CallOptions],
    ) -> list[Document]:
        given = self._options(run_manager, options)
        return to_documents(self.memory.retrieve(query, **given))

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        **options: Unpack[CallOptions],
    ) -> list[Document]:
        given = self._options(run_manager, options)
        return to_documents(await self.memory.aio.retrieve(query, **given))

    def _options(
        self,
        run_manager: CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun,
        options: CallOptions,
    ) -> QueryOptions:
        """The retriever's fields, overridden by what one call gives."""
        if unknown := set(options) - {*_CALL_OPTIONS, "verbose"}:  # that one is LangChain's
            usable = ", ".join(_CALL_OPTIONS)
            msg = f"unknown retriever arguments {sorted(unknown)}: use {usable}"
            raise TypeError(msg)
        given = {n: v for n, v in options.items() if v is not None and n != "verbose"}
        if is_blank(given.get("namespace")):
            given.pop("namespace", None)
        merged: QueryOptions = {
            **{name: getattr(self, name) for name in _FIELDS},  # type: ignore[typeddict-item]
            **given,
            "run_id": str(run_manager.run_id),
            "callbacks": run_manager.get_child(),
        }
        return merged

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        """Facts about this retriever for LangSmith."""
        params = super()._get_ls_params(**kwargs)
        vectors = self.memory.index.description.removeprefix("LangChain ")
        params["ls_vector_store_provider"] = vectors.split()[0]
        params["ls_embedding_model"] = self.memory.embedder.model
        return params


def _split_fields(fields: OpeningFields) -> tuple[dict[str, Any], RetrieverFields]:
    """The arguments of ``CrabPath.open`` among the fields, and those of a retriever."""
    opening = {name: value for name, value in fields.items() if name in _OPENING}
    own = {name: value for name, value in fields.items() if name not in _OPENING}
    return opening, cast("RetrieverFields", own)


@contextmanager
def _close_on_error(memory: CrabPath) -> Iterator[None]:
    """Close a memory that is not handed over to a retriever."""
    try:
        yield
    except BaseException:
        memory.close()
        raise


def to_documents(answer: Answer) -> list[Document]:
    """An answer as LangChain documents."""
    documents: list[Document] = []
    for item in answer.documents:
        node, returned = item.node, item.returned
        block = {
            "turn_id": answer.turn.id,
            "namespace": answer.turn.namespace,
            "id": node.id,
            "score": item.score,
            "source": node.source,
            "origin": returned.origin,
            "tier": returned.path[-1].tier if returned.path else None,
            "path": [
                {"source": e.source, "target": e.target, "kind": e.kind, "weight": e.weight}
                for e in returned.path
            ],
            "features": dict(returned.features),
        }
        # The id is also outside of the block, where EnsembleRetriever(id_key="id") reads it.
        metadata = add_answer_metadata(node.metadata, block)
        documents.append(CrabPathDocument(id=node.id, page_content=node.content, metadata=metadata))
    return documents
