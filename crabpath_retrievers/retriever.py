"""``CrabPathRetriever``: the LangChain retriever that takes the place of ``as_retriever()``."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast, overload
from uuid import UUID

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from langchain_text_splitters import TextSplitter
from pydantic import ConfigDict, Field, ValidationError, field_validator
from typing_extensions import Self, TypedDict, Unpack

from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, FeedbackFields, Receipt
from crabpath_retrievers.core.query import (
    CallOptions,
    MetadataFilter,
    Query,
    QueryOptions,
    RetrieverOptions,
    add_answer_metadata,
    explain_unknown,
    find_namespace,
    find_session,
    require_list,
)
from crabpath_retrievers.core.text import format_value, is_blank
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.pipeline import Cleanup, IngestReport, Progress
from crabpath_retrievers.learning.outcomes import Outcome
from crabpath_retrievers.memory.services import OpenOptions
from crabpath_retrievers.retrieval.pipeline import Answer
from crabpath_retrievers.vectors.opening import VectorPlace

if TYPE_CHECKING:
    from ray.data import Dataset

_log = logging.getLogger(__name__)
FIELDS = ("k", "filter", *RetrieverOptions.__annotations__)
"""Fields of a retriever that are options of every query."""

# Fields that None unsets for a call.
_UNSET = ("filter", "min_score", "max_tokens", "recency", "as_of", "task_type")
_SEARCH_KWARGS = {"k": "k", "filter": "filter", "score_threshold": "min_score"}
_CALL_OPTIONS = dict.fromkeys((*FIELDS, *CallOptions.__annotations__))


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
        """Hash id and text."""
        return hash((self.id, self.page_content))


class RetrieverFields(RetrieverOptions, total=False):
    """Fields that :class:`CrabPathRetriever` takes when it is made; all are optional."""

    k: int
    filter: MetadataFilter
    name: str | None
    tags: list[str] | None
    metadata: dict[str, Any] | None
    search_type: str
    """As for LangChain's ``as_retriever``: ``"similarity"`` or ``"similarity_score_threshold"``."""
    search_kwargs: Mapping[str, Any]
    """As for LangChain's ``as_retriever``: ``k``, ``filter`` and ``score_threshold``, which is
    ``min_score`` here."""


class OpeningFields(RetrieverFields, OpenOptions, total=False):
    """Fields that make a memory and a retriever over it."""

    embedding: Embeddings | str | None
    """The name that LangChain's vector stores have for ``embeddings``."""


class IndexingFields(OpeningFields, total=False):
    """Fields that index documents besides: see :meth:`CrabPathRetriever.from_documents`."""

    path: str | Path | None
    split: bool
    cleanup: Cleanup
    vectors: VectorPlace


class InvokeOptions(CallOptions, total=False):
    """Options of one call besides the question and LangChain's config."""

    run_id: UUID | None
    """Run id of the call, by which feedback can refer to it; also taken from the config."""


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

    A call belongs to the first namespace that is given: ``namespace=`` of the call; what the config
    of its run says, see :func:`~crabpath_retrievers.integration.find_namespace` (the user that a
    LangGraph server authenticated, then ``namespace`` and ``user_id`` of ``configurable``); the
    field :attr:`namespace`.

    Every document carries ``metadata["crabpath"]``: turn id, id, score (probability of relevance,
    in [0, 1]), origin, path, tier and feature values. Id and score stand in ``metadata["id"]`` and
    ``["score"]`` as well, unless the document itself has such keys; all else is as it was added. A
    document with a ``crabpath`` of its own is refused when it is added. Returned documents can be
    added again: the metadata that retrieval added to them is then left out.

    A note carries ``source`` (such as ``crabpath:correction``), ``title``, and every metadata key
    that all documents have, as an empty text, so that prompt templates work with it. Documents of
    the same id and text are equal, whichever turns returned them.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    memory: CrabPath = Field(exclude=True)
    """The memory that is searched."""
    k: int = 4
    """Documents to return: exactly this many, if the memory holds so many; notes that correct some
    of them come on top."""
    filter: MetadataFilter = None
    """Condition on metadata, in the language of the vector store (Chroma's by default)."""
    namespace: str = DEFAULT_NAMESPACE
    """User, agent or tenant whose learned weights apply; a blank one means the default."""
    task_type: str | None = None
    """Type of the task, such as "refund"; steps in regions are also counted by it."""
    explore: bool | int = False
    """Sample the walk instead of following the best edges; an integer seeds the sampling."""
    fill: bool = True
    """False returns only documents that the ranker is confident about, at most k."""
    min_score: float | None = None
    """Least probability of relevance, in [0, 1], of a returned document; None for no bound."""
    one_per_document: bool = False
    """Return at most one chunk of each document, for corpora of long documents."""
    max_tokens: int | None = None
    """Tokens of all returned texts together, at most; near-duplicates are left out."""
    recency: float | None = None
    """Half-life of a document in days, by its ``metadata["date"]``; None: age does not count."""
    as_of: str | date | None = None
    """Only documents that were valid then, such as "2024-05-31", and those without a date."""

    def __init__(self, *, memory: CrabPath, **fields: Unpack[RetrieverFields]) -> None:
        """Search a memory.

        Args:
            memory: The memory that is searched.
            fields: Fields of the retriever, such as ``k`` and ``namespace``.

        Raises:
            InvalidInputError: There is no such field, or a value cannot be used.
        """
        given = _read_search_arguments(fields)
        try:
            super().__init__(memory=memory, **given)
        except ValidationError as error:
            raise InvalidInputError(_explain_refusal(type(self), error)) from None
        Query.from_options("?", **{name: getattr(self, name) for name in FIELDS})

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled, as the memory does."""
        self.memory.__reduce__()

    @classmethod
    def _validate_fields(cls, fields: RetrieverFields) -> Self:
        """Validate the fields of a retriever, still without an open memory."""
        return cls(memory=CrabPath.__new__(CrabPath), **fields)

    @field_validator("namespace", mode="before")
    @classmethod
    def _default_namespace(cls, namespace: object) -> object:
        """Replace a blank namespace, as hosts give anonymous users, by the default one."""
        return DEFAULT_NAMESPACE if is_blank(namespace) else namespace

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Document],
        embeddings: Embeddings | str | None = None,
        *,
        path: str | Path | None = None,
        ids: Sequence[str] | None = None,
        split: bool = True,
        cleanup: Cleanup = None,
        vectors: VectorPlace = None,
        **fields: Unpack[OpeningFields],
    ) -> Self:
        """Index documents and return a retriever over them.

        Args:
            documents: LangChain documents.
            embeddings: Any embedder, or its ``"provider:model"``, see :meth:`CrabPath.open`; None
                for all-MiniLM-L6-v2.
            path: Directory or database URL to keep the memory in; None keeps it for this process.
            ids: One id per document; None keeps ``Document.id``.
            split: False when the documents are chunks already.
            cleanup: What is removed from a memory that exists at ``path`` already: None for
                nothing, or ``"incremental"`` or ``"full"``, see :meth:`CrabPath.add_documents`.
            vectors: Where vectors are searched, see :meth:`CrabPath.open`.
            fields: Fields of the retriever, such as ``k`` and ``namespace``; and arguments of
                :meth:`CrabPath.open`: the keys of
                :class:`~crabpath_retrievers.memory.services.OpenOptions`, such as ``settings``.

        Example::

            retriever = CrabPathRetriever.from_documents(documents, embeddings, path="./memory")
        """
        opening, own = _split_fields(fields, embeddings)
        made = cls._validate_fields(own)  # before anything is opened or embedded
        made.memory = CrabPath.open(path, vectors=vectors, **opening)
        with _close_on_error(made.memory):
            report = made.memory.add_documents(documents, ids=ids, split=split, cleanup=cleanup)
            report.require_all(made.memory.settings.ingest.unusable_vectors)
        return made

    @classmethod
    def from_dataset(
        cls,
        dataset: "Dataset",
        embeddings: Embeddings | str | None = None,
        *,
        path: str | Path | None = None,
        split: bool = True,
        vectors: VectorPlace = None,
        **fields: Unpack[OpeningFields],
    ) -> Self:
        """Index a dataset of Ray on its cluster, and return a retriever over it.

        Args:
            dataset: Rows with the columns ``text``, ``metadata`` and ``id``, see
                :meth:`CrabPath.add_dataset`.
            embeddings: As for :meth:`from_documents`; an object is sent to the workers.
            path: Directory or database URL of the memory, which the workers must reach.
            split: False if the rows are chunks already.
            vectors: As for :meth:`from_documents`.
            fields: As for :meth:`from_documents`.

        Example::

            retriever = CrabPathRetriever.from_dataset(ray.data.read_parquet("corpus"), path=url)
        """
        opening, own = _split_fields(fields, embeddings)
        made = cls._validate_fields(own)  # before anything is opened or embedded
        made.memory = CrabPath.open(path, vectors=vectors, **opening)
        with _close_on_error(made.memory):
            report = made.memory.add_dataset(dataset, split=split)
            report.chunks.require_all(made.memory.settings.ingest.unusable_vectors)
        return made

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embeddings: Embeddings | str | None = None,
        metadatas: Sequence[Mapping[str, object]] | None = None,
        *,
        ids: Sequence[str] | None = None,
        **fields: Unpack[IndexingFields],
    ) -> Self:
        """As :meth:`from_documents`, from texts and their metadata.

        Example::

            retriever = CrabPathRetriever.from_texts(["Run `ship it`."], embeddings, ids=["deploy"])
        """
        contents = require_list("texts", texts)
        about = (
            [{} for _ in contents] if metadatas is None else require_list("metadatas", metadatas)
        )
        try:
            documents = [
                Document(page_content=text, metadata=dict(metadata))
                for text, metadata in zip(contents, about, strict=True)
            ]
        except (TypeError, ValueError) as error:  # from pydantic, or because their numbers differ
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
        embeddings: Embeddings | str | None = None,
        **fields: Unpack[OpeningFields],
    ) -> Self:
        """Wrap an existing store in place: it is searched unchanged, nothing is written to it.

        Documents that the store no longer holds are not returned; new and changed ones are found
        after :meth:`refresh`, or when the store is wrapped again.

        Args:
            vectorstore: The store, or its ``as_retriever()`` with its ``k`` and ``filter``. Stores
                of docs/how-to/existing-data.md list their documents; for others pass ``documents``.
            path: Where to keep the graph; None for this process. Wrapping again with the same path
                reads only what changed.
            documents: The store's documents with their ids, where it cannot list them. None lists
                those of the store.
            embeddings: The store's embedder, where the store does not expose it. None for the
                store's own.
            fields: As for :meth:`from_documents`.

        Raises:
            InvalidInputError: It is no ``VectorStore``.
            ConfigurationError: The store lacks a capability that is needed (the message names all
                of them); or there is another memory at the path, which is not changed.
            EmbeddingMismatchError: The store, or the memory, was filled with another embedder.

        Example::

            retriever = CrabPathRetriever.from_vectorstore(store, path="./graph", k=4)
        """
        part = load_part("crabpath_retrievers.parts.wrapping")
        store, store_fields = part.unwrap_store(vectorstore)
        opening, own = _split_fields(fields, embeddings)
        made = cls._validate_fields({**_read_search_arguments(store_fields), **own})
        made.memory = part.wrap_vectorstore(store, path=path, documents=documents, **opening)
        return made

    @classmethod
    def from_existing(
        cls,
        path: str | Path,
        embeddings: Embeddings | str | None = None,
        *,
        vectors: VectorPlace = None,
        **fields: Unpack[OpeningFields],
    ) -> Self:
        """Open a retriever over a memory that exists already, by directory or database URL.

        ``embeddings`` and ``vectors`` are as for :meth:`from_documents`, and so are further fields.

        Raises:
            NotFoundError: There is no memory; nothing is created.
            ConfigurationError: The memory wraps a store: open it with :meth:`from_vectorstore`.

        Example::

            retriever = CrabPathRetriever.from_existing("./memory", namespace="ann")
        """
        opening, own = _split_fields(fields, embeddings)
        made = cls._validate_fields(own)
        made.memory = CrabPath.open(path, vectors=vectors, create=False, **opening)
        return made

    def close(self) -> None:
        """Close the memory, as :meth:`CrabPath.close`; other retrievers over it end as well.

        Example::

            with CrabPathRetriever.from_existing("./memory") as retriever:
                retriever.invoke("how do I deploy?")
        """
        self.memory.close()

    def __enter__(self) -> Self:
        """Use the retriever in a ``with`` block, which closes its memory."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the memory."""
        self.close()

    def invoke(  # type: ignore[override]  # options by name, where LangChain takes any
        self,
        input: str,  # noqa: A002  LangChain's name
        config: RunnableConfig | None = None,
        **options: Unpack[InvokeOptions],
    ) -> list[Document]:
        """Find the documents that answer a question.

        Args:
            input: The question.
            config: LangChain's config. Its ``run_id`` becomes that of the turn, so that feedback
                can refer to it; ``configurable`` may name the namespace, as the class says.
            options: Fields of the retriever for this call (``filter``, ``min_score``,
                ``max_tokens`` and ``task_type`` of None unset them), and other keys of
                :class:`~crabpath_retrievers.core.query.CallOptions`.

        Raises:
            InvalidInputError: An option does not exist or cannot be used.

        Example::

            retriever.invoke("how do I deploy?", {"configurable": {"user_id": "ann"}}, k=2)
        """
        return super().invoke(input, config, **add_config(config, options))

    async def ainvoke(  # type: ignore[override]
        self,
        input: str,  # noqa: A002
        config: RunnableConfig | None = None,
        **options: Unpack[InvokeOptions],
    ) -> list[Document]:
        """As :meth:`invoke`, without blocking the event loop.

        Example::

            await retriever.ainvoke("how do I deploy?", k=2)
        """
        return await super().ainvoke(input, config, **add_config(config, options))

    def add_documents(
        self, documents: Iterable[Document], **options: Unpack[AddingOptions]
    ) -> list[str]:
        """Add documents as :meth:`CrabPath.add_documents`; returns the ids of their chunks.

        Example::

            ids = retriever.add_documents(documents)
        """
        return self.memory.add_documents(documents, **options).ids

    async def aadd_documents(
        self, documents: Iterable[Document], **options: Unpack[AddingOptions]
    ) -> list[str]:
        """As :meth:`add_documents`, off the event loop.

        Example::

            ids = await retriever.aadd_documents(documents)
        """
        return (await self.memory.aio.add_documents(documents, **options)).ids

    def get_by_ids(self, ids: Sequence[str] | str) -> list[Document]:
        """Read chunks, documents and notes of its namespace by id, see :meth:`CrabPath.get_by_ids`.

        No turn is recorded, so the documents carry the metadata that they were added with.

        Example::

            (document,) = retriever.get_by_ids(["deploy"])
        """
        return self.memory.get_by_ids(ids, namespace=self.namespace)

    async def aget_by_ids(self, ids: Sequence[str] | str) -> list[Document]:
        """As :meth:`get_by_ids`, off the event loop.

        Example::

            (document,) = await retriever.aget_by_ids(["deploy"])
        """
        return await self.memory.aio.get_by_ids(ids, namespace=self.namespace)

    def refresh(self, documents: Iterable[Document] | None = None) -> IngestReport:
        """Update to the current state of the wrapped store; see :meth:`CrabPath.refresh`.

        Example::

            retriever = CrabPathRetriever.from_vectorstore(store)
            retriever.refresh().removed
        """
        return self.memory.refresh(documents)

    async def arefresh(self, documents: Iterable[Document] | None = None) -> IngestReport:
        """As :meth:`refresh`, off the event loop.

        Example::

            retriever = CrabPathRetriever.from_vectorstore(store)
            (await retriever.arefresh()).removed
        """
        return await self.memory.aio.refresh(documents)

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
    def record(
        self,
        about: object,
        outcome: Outcome,
        *,
        strict: bool = True,
        **fields: Unpack[FeedbackFields],
    ) -> Receipt | list[Receipt]:
        """Learn from the outcome of an answer, now or a week later.

        Args:
            about: What it is about: the returned documents, or one of them; the output of a chain
                or agent that holds them; a turn id, ``metadata["crabpath"]["turn_id"]``, or the
                run id of the call; None for the last turn of this retriever's namespace.
            outcome: True or ``"up"``, False or ``"down"``, or a number from -1 (failure) to 1.
            strict: False returns the receipt of refused feedback, which is raised otherwise.
            fields: Other fields of :class:`~crabpath_retrievers.core.feedback.Feedback`, such as
                ``used``: the documents that helped, or their ids.

        Returns:
            One receipt for an id, a document, an ``Answer`` or None; for anything else, which may
            hold several turns, a list with one for each, also where there is only one.

        Raises:
            InvalidInputError: An argument cannot be used, or nothing can be learned from it.
            NotFoundError: There is no such turn.
            StoreError: It could not be saved.

        Example::

            documents = retriever.invoke("how do I deploy?")
            retriever.record(documents, True, used=documents[:1])
        """
        return self.memory.record(about, outcome, strict=strict, **self._add_own(about, fields))

    @overload
    async def arecord(  # type: ignore[overload-overlap]
        self,
        about: str | UUID | Document | Answer | None,
        outcome: Outcome,
        *,
        strict: bool = True,
        **fields: Unpack[FeedbackFields],
    ) -> Receipt: ...
    @overload
    async def arecord(
        self,
        about: object,
        outcome: Outcome,
        *,
        strict: bool = True,
        **fields: Unpack[FeedbackFields],
    ) -> list[Receipt]: ...
    async def arecord(
        self,
        about: object,
        outcome: Outcome,
        *,
        strict: bool = True,
        **fields: Unpack[FeedbackFields],
    ) -> Receipt | list[Receipt]:
        """As :meth:`record`, off the event loop.

        Example::

            documents = await retriever.ainvoke("how do I deploy?")
            await retriever.arecord(documents, "down", correction="Nobody deploys on a Friday.")
        """
        own = self._add_own(about, fields)
        return await self.memory.aio.record(about, outcome, strict=strict, **own)

    def _add_own(self, about: object, fields: FeedbackFields) -> FeedbackFields:
        """Add this retriever's namespace and session to feedback about its last turn."""
        if about is not None:
            return fields
        session = find_session(var_child_runnable_config.get())
        return {"namespace": self.namespace, "session": session, **fields}

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        **options: Unpack[CallOptions],
    ) -> list[Document]:
        given = self._options(run_manager, options)
        if _is_nothing(query):
            return []
        return to_documents(self.memory.retrieve(query, **given))

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        **options: Unpack[CallOptions],
    ) -> list[Document]:
        given = self._options(run_manager, options)
        if _is_nothing(query):
            return []
        return to_documents(await self.memory.aio.retrieve(query, **given))

    def _options(
        self,
        run_manager: CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun,
        options: CallOptions,
    ) -> QueryOptions:
        """Merge the retriever's fields with the ``options`` of one call, which take precedence.

        ``run_manager`` gives callbacks and the id of the run.
        """
        if unknown := set(options) - {*_CALL_OPTIONS, "verbose"}:  # that one is LangChain's
            raise InvalidInputError(explain_unknown(sorted(unknown), _CALL_OPTIONS))
        # None is no filter and no bound; for other fields it is as if nothing was given.
        given = {n: v for n, v in options.items() if v is not None or n in _UNSET}
        given.pop("verbose", None)
        if is_blank(given.get("namespace")):
            given.pop("namespace", None)
        merged: QueryOptions = {
            **{name: getattr(self, name) for name in FIELDS},  # type: ignore[typeddict-item]
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


def add_config(config: RunnableConfig | None, options: InvokeOptions) -> InvokeOptions:
    """Add run id, namespace and session of a config to the options of a call."""
    # A run id that a part of a chain inherits is that of the chain.
    if config and config.get("run_id") is not None:
        options.setdefault("run_id", config["run_id"])
    inherited = var_child_runnable_config.get()
    configurable = (config or {}).get("configurable") or (inherited or {}).get("configurable")
    if configurable and is_blank(options.get("namespace")):
        found = find_namespace(configurable)
        if found is not None:
            options["namespace"] = found
    if options.get("session") is None:
        found = find_session(config) or find_session(inherited)
        options |= {} if found is None else {"session": found}
    return options


def _is_nothing(query: object) -> bool:
    """Whether a question is blank: then nothing is found, so that an agent's call does not fail."""
    if not (isinstance(query, str) and is_blank(query)):
        return False
    _log.warning("a blank question has no documents: ask with some words")
    return True


def _split_fields(
    fields: OpeningFields, embeddings: Embeddings | str | None
) -> tuple[dict[str, Any], RetrieverFields]:
    """Split fields into the arguments of ``CrabPath.open`` and those of a retriever.

    Raises:
        InvalidInputError: Two embedders are given.
    """
    own: dict[str, Any] = dict(fields)
    other = own.pop("embedding", None)
    if embeddings is not None and other is not None:
        msg = "embedding and embeddings are two names of one argument: give one of them"
        raise InvalidInputError(msg)
    opening = {name: own.pop(name) for name in OpenOptions.__annotations__ if name in own}
    opening["embeddings"] = other if embeddings is None else embeddings
    return opening, cast("RetrieverFields", own)


def _read_search_arguments(fields: Mapping[str, Any]) -> RetrieverFields:
    """Translate ``search_type`` and ``search_kwargs`` of LangChain to fields of a retriever.

    Raises:
        InvalidInputError: They ask for something that does not exist here.
    """
    own = dict(fields)
    kind, options = own.pop("search_type", None), own.pop("search_kwargs", None) or {}
    if kind not in (None, "similarity", "similarity_score_threshold"):
        msg = (
            f"there is no search_type={format_value(kind)} here: leave it out, since every answer "
            "is chosen for relevance and for what each document adds to the others, and see "
            "one_per_document= and max_tokens= for still more variety"
        )
        raise InvalidInputError(msg)
    if not isinstance(options, Mapping):
        msg = f"search_kwargs must be a mapping, not {format_value(options)}"
        raise InvalidInputError(msg)
    if unknown := set(options) - set(_SEARCH_KWARGS):
        said, known = ", ".join(sorted(map(str, unknown))), ", ".join(_SEARCH_KWARGS)
        msg = f"search_kwargs cannot have {said} here: use {known}, or fields of the retriever"
        raise InvalidInputError(msg)
    if options.get("score_threshold") is not None:
        _log.warning(
            "score_threshold=%s is compared with the probability of relevance in "
            "metadata['score'], not with a cosine: say min_score= once you have looked at some",
            options["score_threshold"],
        )
    for name, value in options.items():
        own.setdefault(_SEARCH_KWARGS[name], value)
    return cast("RetrieverFields", own)


def _explain_refusal(kind: type[CrabPathRetriever], error: ValidationError) -> str:
    """One sentence about the first error."""
    first = error.errors(include_url=False)[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        usable = [n for n in kind.model_fields if n != "memory"]
        return explain_unknown([name], [*usable, *OpeningFields.__annotations__, "embeddings"])
    reason = first["msg"][:1].lower() + first["msg"][1:]
    return f"{name} cannot be {format_value(first['input'])}: {reason}"


@contextmanager
def _close_on_error(memory: CrabPath) -> Iterator[None]:
    """Close a memory if the block fails before a retriever takes it over."""
    try:
        yield
    except BaseException:
        memory.close()
        raise


def to_documents(answer: Answer) -> list[Document]:
    """Convert an answer to LangChain documents."""
    documents: list[Document] = []
    for item in answer.documents:
        node, returned = item.node, item.returned
        block = {
            "turn_id": answer.turn.id,
            "namespace": answer.turn.namespace,
            "id": node.id,
            "score": returned.probability,
            "source": node.source,
            "origin": returned.origin,
            "tier": returned.path[-1].tier if returned.path else None,
            "path": [
                {"source": e.source, "target": e.target, "kind": e.kind, "weight": e.weight}
                for e in returned.path
            ],
            "features": dict(returned.features),
        }
        if returned.superseded_by is not None:
            block["superseded_by"] = returned.superseded_by
        # The id is also outside of the block, where EnsembleRetriever(id_key="id") reads it.
        metadata = add_answer_metadata(node.metadata, block)
        documents.append(CrabPathDocument(id=node.id, page_content=node.content, metadata=metadata))
    return documents
