"""``CrabPathRetriever``: the LangChain retriever that takes the place of ``as_retriever()``."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, Field
from typing_extensions import Self, Unpack

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.feedback.receipt import FeedbackFields, Receipt
from crabpath_retrievers.memory import CrabPath
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.query import listed
from crabpath_retrievers.retrieval import Answer, RetrievedDocument

Filter = dict[str, Any]


class CrabPathRetriever(BaseRetriever):
    """Retrieves by search and a walk over a graph of the documents.

    Drop-in for ``vectorstore.as_retriever()``::

        retriever = CrabPathRetriever.from_documents(documents, path="./memory", k=4)
        documents = retriever.invoke("how do I deploy?")

    Every document carries ``metadata["score"]`` (probability of relevance, in [0, 1]) and
    ``metadata["crabpath"]`` (turn id, origin, path, tier, feature values).
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    memory: CrabPath = Field(exclude=True)
    """The memory that is searched."""
    k: int = 4
    """Documents to return: exactly this many, as far as the memory holds them."""
    filter: Filter | None = None
    """Condition on metadata, in the language of the vector store (Chroma's by default)."""
    namespace: str = "default"
    """User, agent or tenant whose learned weights apply."""
    task_type: str | None = None
    """Type of the task that asks, such as "refund": what is learned of steps is counted by it."""
    explore: bool | int = False
    """Sample the walk instead of following the best pointers; an integer seeds the sampling."""
    fill: bool = True
    """False returns only documents that the ranker is confident about, k at most."""
    distinct: bool = False
    """At most one chunk of every document, for corpora of long documents."""
    max_tokens: int | None = None
    """Budget for all returned texts together; near-duplicates are left out."""

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Document],
        embeddings: Embeddings | None = None,
        *,
        path: str | Path | None = None,
        ids: Sequence[str] | None = None,
        split: bool = True,
        vectors: Any = None,
        **fields: Any,
    ) -> Self:
        """Index documents and return a retriever over them.

        Args:
            documents: LangChain documents.
            embeddings: Any embedder; None for all-MiniLM-L6-v2.
            path: Directory or database URL to keep the memory in; None keeps it for this process.
            ids: One id per document.
            split: False when the documents are chunks already.
            vectors: Where vectors are searched, see :meth:`CrabPath.open`.
            fields: Fields of the retriever, such as ``k`` and ``namespace``; and ``router`` and
                ``settings`` of :meth:`CrabPath.open`.
        """
        opening = _opening(fields)
        memory = CrabPath.open(path, embeddings=embeddings, vectors=vectors, **opening)
        return cls._filled(memory, documents, fields, ids=ids, split=split)

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embeddings: Embeddings | None = None,
        metadatas: Sequence[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str] | None = None,
        **options: Any,
    ) -> Self:
        """As :meth:`from_documents`, from texts and their metadata."""
        given = listed("texts", texts)
        about = [{} for _ in given] if metadatas is None else listed("metadatas", metadatas)
        try:
            documents = [
                Document(page_content=text, metadata=metadata)
                for text, metadata in zip(given, about, strict=True)
            ]
        except ValueError as error:  # as pydantic says it, or because their numbers differ
            msg = f"texts and metadatas must be as many texts and mappings: {error}"
            raise InvalidInputError(msg) from error
        return cls.from_documents(documents, embeddings, ids=ids, **options)

    @classmethod
    def from_vectorstore(
        cls,
        vectorstore: VectorStore,
        *,
        path: str | Path | None = None,
        documents: Iterable[Document] | None = None,
        embeddings: Embeddings | None = None,
        **fields: Any,
    ) -> Self:
        """Wrap an existing store in place: it is searched as it is, nothing is copied into it.

        Args:
            vectorstore: The store. Its documents are read from Chroma, FAISS and the in-memory
                store; for others pass ``documents``.
            path: Where to keep the graph; None for this process. Opening it again reads only what
                changed.
            documents: The store's documents with their ids, where it cannot list them.
            embeddings: The store's embedder, where it does not tell it.
            fields: As for :meth:`from_documents`.

        Raises:
            ConfigurationError: The store tells neither its documents nor its embedder.
        """
        from crabpath_retrievers.wrapping import wrap

        opening = {"embeddings": embeddings, **_opening(fields)}
        memory = wrap(vectorstore, path=path, documents=documents, **opening)
        return cls._over(memory, fields)

    @classmethod
    def from_existing(
        cls,
        path: str | Path,
        embeddings: Embeddings | None = None,
        *,
        vectors: Any = None,
        **fields: Any,
    ) -> Self:
        """A retriever over a memory that exists already, by directory or database URL.

        Takes the same fields as :meth:`from_documents`.

        Raises:
            NotFoundError: There is no memory; nothing is created.
        """
        opening = {"vectors": vectors, "create": False, **_opening(fields)}
        memory = CrabPath.open(path, embeddings=embeddings, **opening)
        return cls._over(memory, fields)

    @classmethod
    def _filled(
        cls,
        memory: CrabPath,
        documents: Iterable[Document],
        fields: dict[str, Any],
        *,
        ids: Sequence[str] | None,
        split: bool,
    ) -> Self:
        try:
            memory.add_documents(documents, ids=ids, split=split)
        except BaseException:
            memory.close()
            raise
        return cls._over(memory, fields)

    @classmethod
    def _over(cls, memory: CrabPath, fields: dict[str, Any]) -> Self:
        try:
            return cls(memory=memory, **fields)
        except BaseException:
            memory.close()
            raise

    def add_documents(self, documents: Iterable[Document], **options: Any) -> list[str]:
        """Add or update documents; returns the ids of their chunks. See the memory's method."""
        return self.memory.add_documents(documents, **options).ids

    async def aadd_documents(self, documents: Iterable[Document], **options: Any) -> list[str]:
        """As :meth:`add_documents`, off the event loop."""
        return (await self.memory.aadd_documents(documents, **options)).ids

    def record(
        self, turn_id: str | UUID | None, outcome: float, **fields: Unpack[FeedbackFields]
    ) -> Receipt:
        """Learn from what became of a turn: shorthand for the memory's :meth:`CrabPath.record`.

        Args:
            turn_id: ``metadata["crabpath"]["turn_id"]`` of a document, or the run id of the call
                that returned it; None for the last turns of this retriever's namespace.
            outcome: How well the chain did, in [-1, 1].
            fields: Other fields of :class:`~crabpath_retrievers.outcome.Feedback`.

        Raises:
            InvalidInputError: The outcome is no number in [-1, 1], or a field cannot be used.
            StoreError: It could not be kept.
        """
        return self.memory.record(self._feedback(turn_id, outcome, fields))

    async def arecord(
        self, turn_id: str | UUID | None, outcome: float, **fields: Unpack[FeedbackFields]
    ) -> Receipt:
        """As :meth:`record`, off the event loop."""
        return await self.memory.arecord(self._feedback(turn_id, outcome, fields))

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
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002  the name that LangChain's stores use
        namespace: str | None = None,
        **options: Any,
    ) -> list[Document]:
        given = self._options(run_manager, options, k=k, filter=filter, namespace=namespace)
        return to_documents(self.memory.retrieve(query, **given))

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002
        namespace: str | None = None,
        **options: Any,
    ) -> list[Document]:
        given = self._options(run_manager, options, k=k, filter=filter, namespace=namespace)
        return to_documents(await self.memory.aretrieve(query, **given))

    def _options(
        self,
        run_manager: CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun,
        options: dict[str, Any],
        **named: Any,
    ) -> dict[str, Any]:
        """The retriever's fields, overridden by what one call gives."""
        fields = (
            *("k", "filter", "namespace", "task_type"),
            *("explore", "fill", "distinct", "max_tokens"),
        )
        usable = (*fields, "seed_ids", "boost_tags", "on_hop", "session", "arm")
        unknown = set(options) - {*usable, "verbose"}
        if unknown:
            msg = f"unknown retriever arguments {sorted(unknown)}: use {', '.join(usable)}"
            raise TypeError(msg)
        given = {name: value for name, value in {**options, **named}.items() if value is not None}
        given.pop("verbose", None)
        return {
            **{name: getattr(self, name) for name in fields},
            **given,
            "run_id": str(run_manager.run_id),
            "callbacks": run_manager.get_child(),
        }

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        """What LangSmith shows of this retriever."""
        params = super()._get_ls_params(**kwargs)
        vectors = self.memory.index.description.removeprefix("LangChain ")
        params["ls_vector_store_provider"] = vectors.split()[0]
        params["ls_embedding_model"] = self.memory.embedder.model
        return params


def _opening(fields: dict[str, Any]) -> dict[str, Any]:
    """What of the fields is meant for the memory; it is taken out of them."""
    return {name: fields.pop(name) for name in ("router", "settings") if name in fields}


def to_documents(answer: Answer) -> list[Document]:
    """An answer as LangChain documents."""
    return [_document(item, answer) for item in answer.documents]


def _document(item: RetrievedDocument, answer: Answer) -> Document:
    returned = item.returned
    block = {
        "turn_id": answer.turn.id,
        "namespace": answer.turn.namespace,
        "id": item.node.id,
        "source": item.node.source,
        "origin": returned.origin,
        "tier": returned.path[-1].tier if returned.path else None,
        "path": [
            {"source": e.source, "target": e.target, "kind": e.kind, "weight": e.weight}
            for e in returned.path
        ],
        "features": dict(returned.features),
    }
    # The id stands in the metadata too: EnsembleRetriever(id_key="id") reads it there.
    metadata = {"id": item.node.id, **item.node.metadata, "score": item.score, "crabpath": block}
    return Document(id=item.node.id, page_content=item.node.content, metadata=metadata)
