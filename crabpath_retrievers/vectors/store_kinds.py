"""What LangChain's vector stores do differently: ids, filters, look-ups, listing.

A kind is chosen by the names of a store's classes, which need not be installed. What any
``VectorStore`` does is in :class:`StoreKind`; each other class has what one store needs besides.
"""

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from langchain_core.documents import Document

from crabpath_retrievers.core.filters import OF_LISTS, Condition, make_test, parse_filter
from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.vectors.chroma_client import note_embedded
from crabpath_retrievers.vectors.filters import (
    quote_milvus,
    to_chroma,
    to_milvus,
    to_postgres,
    to_qdrant,
)

_PAGE = 1000  # documents listed at a time
_SPACE = uuid.UUID("5b1c4a2e-6d0f-5c7e-9a43-2f8d1e7b9c60")  # of ids that Qdrant does not accept
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


class StoreKind:
    """Any LangChain vector store whose documents carry their ids.

    Attributes:
        translates: Whether filters in the language of all stores are translated.
        operators: Operators of filters that it has besides.
        native_async: Whether its own methods are asynchronous, not run in threads.
        deletes_by_filter: Whether it can delete what satisfies a filter.
        scores: Whether a search by vector can give scores.
        lists: Whether its documents can be listed.
    """

    translates: ClassVar[bool] = False
    operators: ClassVar[tuple[str, ...]] = ()
    native_async: ClassVar[bool] = False
    deletes_by_filter: ClassVar[bool] = False
    scores: ClassVar[bool] = False
    lists: ClassVar[bool] = False

    def __init__(self, store: Any) -> None:
        """Use a store."""
        self.store = store

    @property
    def serial(self) -> bool:
        """Whether its calls must not overlap in threads."""
        return False

    def get_id(self, document: Document) -> str | None:
        """Id of a document that the store returned; None if it has none."""
        return None if document.id is None else str(document.id)

    def parse(self, condition: Any) -> Condition | None:
        """A filter in our language; None for one in the store's own."""
        if not self.translates or not isinstance(condition, Mapping):
            return None
        return parse_filter(condition, type(self.store).__name__, self.operators)

    def translate(self, condition: Condition) -> Any:
        """A filter as the store reads it."""
        raise NotImplementedError

    def search(self, vector: list[float], k: int, condition: Any) -> list[Document]:
        """The k nearest documents that satisfy a filter in either language."""
        arguments = self.filter_arguments(condition) if condition else {}
        found: list[Document] = self.store.similarity_search_by_vector(vector, k=k, **arguments)
        return found

    def filter_arguments(self, condition: Any) -> dict[str, Any]:
        """The arguments of a search that carry a filter."""
        parsed = self.parse(condition)
        return {"filter": condition if parsed is None else self.translate(parsed)}

    def add(self, documents: Sequence[Document], ids: Sequence[str]) -> None:
        """Add documents under new ids."""
        self.store.add_documents(list(documents), ids=list(ids))

    def delete(self, ids: Sequence[str]) -> Any:
        """Delete documents; False if the store says that it failed."""
        return self.store.delete(list(ids))

    def fetch_documents(self, ids: Sequence[str]) -> list[Document]:
        """Fetch the documents that the store contains, with ids and metadata."""
        return list(self.store.get_by_ids(list(ids)))

    def look_up(self, ids: Sequence[str]) -> list[str]:
        """Select the ids that the store contains."""
        return [str(self.get_id(document)) for document in self.fetch_documents(ids)]

    def select(self, ids: Sequence[str], condition: Condition) -> set[str]:
        """Select the ids whose metadata satisfies a filter."""
        satisfies = make_test(condition)
        return {str(self.get_id(d)) for d in self.fetch_documents(ids) if satisfies(d.metadata)}

    def documents(self) -> Iterator[Document]:
        """All documents, with ids."""
        raise NotImplementedError


class ChromaKind(StoreKind):
    """``langchain_chroma.Chroma``."""

    translates = scores = lists = True
    operators = OF_LISTS

    def __init__(self, store: Any) -> None:
        """Use a store.

        Raises:
            ForkedError: Its embedded Chroma cannot work in this process, which was forked.
        """
        super().__init__(store)
        note_embedded(store._client)  # noqa: SLF001

    def translate(self, condition: Condition) -> Any:
        """A ``where``."""
        return to_chroma(condition)

    def look_up(self, ids: Sequence[str]) -> list[str]:
        """Select the ids that the store contains."""
        # Its get_by_ids fails on documents without metadata.
        return list(self.store.get(ids=list(ids), include=[])["ids"])

    def fetch_documents(self, ids: Sequence[str]) -> list[Document]:
        """Fetch the documents that the store contains, without texts."""
        page = self.store.get(ids=list(ids), include=["metadatas"])
        return [
            Document(id=node_id, page_content="", metadata=metadata or {})
            for node_id, metadata in zip(page["ids"], page["metadatas"], strict=True)
        ]

    def documents(self) -> Iterator[Document]:
        """All documents, page by page."""
        offset = 0
        while True:
            page = self.store.get(limit=_PAGE, offset=offset, include=["documents", "metadatas"])
            for node_id, text, metadata in zip(
                page["ids"], page["documents"], page["metadatas"], strict=True
            ):
                yield Document(id=node_id, page_content=text or "", metadata=metadata or {})
            if len(page["ids"]) < _PAGE:
                return
            offset += _PAGE


class InMemoryKind(StoreKind):
    """LangChain's ``InMemoryVectorStore``."""

    translates = scores = lists = True

    @property
    def serial(self) -> bool:
        """True: it is a table in the process."""
        return True

    def translate(self, condition: Condition) -> Any:
        """A function of a document."""
        satisfies = make_test(condition)
        return lambda document: satisfies(document.metadata)

    def documents(self) -> Iterator[Document]:
        """All documents."""
        for node_id, record in list(self.store.store.items()):
            yield Document(id=node_id, page_content=record["text"], metadata=record["metadata"])


class FaissKind(StoreKind):
    """``FAISS`` of langchain-community."""

    translates = scores = lists = True

    @property
    def serial(self) -> bool:
        """True: it is a table in the process."""
        return True

    def translate(self, condition: Condition) -> Any:
        """A function of metadata."""
        return make_test(condition)

    def filter_arguments(self, condition: Any) -> dict[str, Any]:
        """The filter, applied to all documents: by default it sees the 20 nearest."""
        return {**super().filter_arguments(condition), "fetch_k": max(1, self.store.index.ntotal)}

    def fetch_documents(self, ids: Sequence[str]) -> list[Document]:
        """Fetch the documents that the store contains."""
        found = ((each, self.store.docstore.search(each)) for each in ids)
        return [
            document.model_copy(update={"id": each})
            for each, document in found
            if isinstance(document, Document)
        ]

    def documents(self) -> Iterator[Document]:
        """All documents."""
        yield from self.fetch_documents(list(self.store.index_to_docstore_id.values()))


class QdrantKind(StoreKind):
    """``QdrantVectorStore``: its ids are numbers and UUIDs, and stand in the metadata.

    Other ids are kept in the metadata, under the UUID of their text.
    """

    translates = scores = lists = True

    @property
    def serial(self) -> bool:
        """Whether it is the local engine, which is one dictionary in the process."""
        options = self.store.client.init_options
        return bool(options.get("path")) or options.get("location") == ":memory:"

    def get_id(self, document: Document) -> str | None:
        """Id of a document that the store returned; None if it has none."""
        own = document.metadata.get(_OWN_ID, document.metadata.get("_id"))
        return None if own is None else str(own)

    def translate(self, condition: Condition) -> Any:
        """A ``models.Filter``."""
        return to_qdrant(condition, self.store.metadata_payload_key)

    def add(self, documents: Sequence[Document], ids: Sequence[str]) -> None:
        """Add documents under new ids."""
        named = [
            document.model_copy(update={"metadata": {**document.metadata, _OWN_ID: node_id}})
            for document, node_id in zip(documents, ids, strict=True)
        ]
        self.store.add_documents(named, ids=[_to_point(node_id) for node_id in ids])

    def delete(self, ids: Sequence[str]) -> Any:
        """Delete documents; False if the store says that it failed."""
        return self.store.delete([_to_point(node_id) for node_id in ids])

    def fetch_documents(self, ids: Sequence[str]) -> list[Document]:
        """Fetch the documents that the store contains."""
        points: Any = [_to_point(node_id) for node_id in ids]
        return super().fetch_documents(points)

    def documents(self) -> Iterator[Document]:
        """All documents, page by page."""
        offset = None
        while True:
            points, offset = self.store.client.scroll(
                self.store.collection_name, limit=_PAGE, offset=offset, with_payload=True
            )
            for point in points:
                metadata = dict(point.payload.get(self.store.metadata_payload_key) or {})
                node_id = str(metadata.pop(_OWN_ID, point.id))
                text = point.payload.get(self.store.content_payload_key, "")
                yield Document(id=node_id, page_content=text, metadata=metadata)
            if offset is None:
                return


_OWN_ID = "crabpath_id"


def _to_point(node_id: str) -> str | int:
    """The id of a point of Qdrant: numbers and UUIDs are what they are."""
    if _NUMBER.fullmatch(node_id):
        return int(node_id)
    try:
        if str(uuid.UUID(node_id)) == node_id:
            return node_id
    except ValueError:
        pass
    return str(uuid.uuid5(_SPACE, node_id))


class MilvusKind(StoreKind):
    """``langchain_milvus.Milvus``: ids stand in the metadata, filters are expressions."""

    translates = scores = native_async = deletes_by_filter = True

    @property
    def serial(self) -> bool:
        """Milvus Lite is a database in a file; a server is not told apart from it."""
        return True

    def __init__(self, store: Any) -> None:
        """Use a store."""
        super().__init__(store)
        self._key: str | None = None

    @property
    def _primary(self) -> str | None:
        """Name of the field with the ids; None before the first document."""
        if self._key is None and self.store.client.has_collection(self.store.collection_name):
            facts = self.store.client.describe_collection(self.store.collection_name)
            keys = [str(field["name"]) for field in facts["fields"] if field.get("is_primary")]
            self._key = keys[0] if keys else None
        return self._key

    def get_id(self, document: Document) -> str | None:
        """Id of a document that the store returned; None if it has none."""
        own = document.metadata.get(self._primary or "")
        return None if own is None else str(own)

    def translate(self, condition: Condition) -> Any:
        """An expression."""
        return to_milvus(condition)

    def filter_arguments(self, condition: Any) -> dict[str, Any]:
        """The filter, or the expression that was given as text."""
        return {"expr": super().filter_arguments(condition)["filter"]}

    def _name(self, ids: Sequence[str]) -> str:
        return f"{self._primary} in [{', '.join(map(quote_milvus, ids))}]"

    def delete(self, ids: Sequence[str]) -> Any:
        """Delete documents; False if the store says that it failed."""
        # Given ids it writes them into an expression as Python shows them.
        return None if self._primary is None else self.store.delete(expr=self._name(ids))

    def look_up(self, ids: Sequence[str]) -> list[str]:
        """Select the ids that the store contains."""
        if self._primary is None or not ids:
            return []
        return [str(each) for each in self.store.get_pks(self._name(ids)) or ()]

    def select(self, ids: Sequence[str], condition: Condition) -> set[str]:
        """Select the ids whose metadata satisfies a filter."""
        if self._primary is None:
            return set()
        both = f"({self._name(ids)}) and ({to_milvus(condition)})"
        return {str(each) for each in self.store.get_pks(both) or ()}


class PostgresKind(StoreKind):
    """``PGVectorStore`` of langchain-postgres."""

    translates = scores = native_async = deletes_by_filter = True

    def translate(self, condition: Condition) -> Any:
        """Its own dictionary."""
        return to_postgres(condition)


_KINDS: Mapping[str, type[StoreKind]] = {
    "Chroma": ChromaKind,
    "InMemoryVectorStore": InMemoryKind,
    "FAISS": FaissKind,
    "QdrantVectorStore": QdrantKind,
    "Milvus": MilvusKind,
    "PGVectorStore": PostgresKind,
}


def find_kind(store: Any) -> StoreKind:
    """Kind of a store, by the names of its classes."""
    names = (each.__name__ for each in type(store).__mro__)
    return next((_KINDS[name] for name in names if name in _KINDS), StoreKind)(store)


def require_success(result: Any, description: str) -> None:
    """Refuse the answer of a store that only tells of a failure.

    Raises:
        StoreError: It did.
    """
    if result is False:
        msg = f"{description} failed to delete, and does not say why: see its log"
        raise StoreError(msg)
