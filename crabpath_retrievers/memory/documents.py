"""Documents of a memory: added, updated, forgotten."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_text_splitters import TextSplitter

from crabpath_retrievers.changes import ForgetNamespace
from crabpath_retrievers.changes.notes import RemoveNotes
from crabpath_retrievers.driver import arun, perform
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.ingest.chunking import Chunking
from crabpath_retrievers.ingest.pipeline import Cleanup, IngestReport, Progress
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.progress import bar
from crabpath_retrievers.query import (
    listed,
    namespace_of,
    require_flags,
    require_splitter,
    text_of,
    texts_of,
)
from crabpath_retrievers.seeds.embedder import unit
from crabpath_retrievers.storage.catalog import Known
from crabpath_retrievers.storage.replaced import WHOLES
from crabpath_retrievers.storage.retired import RETIRED
from crabpath_retrievers.text import shown

_ALL = (*WHOLES, RETIRED)  # what is forgotten is gone, whoever saw it


class Documents(Parts):
    """What a memory holds."""

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        ids: Sequence[str] | None = None,
        splitter: TextSplitter | None = None,
        split: bool = True,
        vectors: Mapping[str, Sequence[float]] | None = None,
        cleanup: Cleanup = "incremental",
        progress: Progress | None = bar,
    ) -> IngestReport:
        """Bring the memory to hold these documents as they are now.

        Adding the same again changes nothing; a changed document is updated: documents are told
        apart by id, else by ``metadata["source"]``, else by their text.

        Args:
            documents: LangChain documents; ``metadata["title"]`` and ``["aliases"]`` are used, and
                ``["task_type"]``: for which types of tasks it is, a text or a list of them.
                Failures of other tasks are not blamed on it.
            ids: One id per document, instead of ``Document.id``.
            splitter: Your own splitter; None splits Markdown by heading and the rest by size.
            split: False when the documents are chunks already.
            vectors: Embeddings that are known already, by id of a document that is one chunk: it
                is not embedded again. They must be of the memory's own embedder.
            cleanup: ``"incremental"`` removes chunks that a given source no longer has;
                ``"full"`` also removes every document that is not given; None removes nothing.
            progress: Shows progress; by default a bar on a terminal when it takes long.

        Raises:
            InvalidInputError: A document cannot be used; nothing was changed.
            EmbeddingMismatchError: The memory was built with another embedder, or a vector has
                another dimension.
            StoreError: A store failed; what was interrupted is finished by the next ingest.
        """
        require_flags(split=split)
        require_splitter(splitter)
        if progress is not None and not callable(progress):
            msg = f"progress must be a function of the number of documents, not {shown(progress)}"
            raise InvalidInputError(msg)
        given, known = listed("documents", documents), _known(vectors)
        named = None if ids is None else listed("ids", ids)
        chunking = Chunking(
            self.settings.ingest, splitter, split, self.settings.links.metadata_keys, known
        )
        self._require_open()
        if given:
            self._identity.verify()
            self._identity.require_size(known.values())
        return self._ingest.add(
            given, chunking=chunking, ids=named, cleanup=cleanup, progress=progress
        )

    async def aadd_documents(self, documents: Iterable[Document], **options: Any) -> IngestReport:
        """As :meth:`add_documents`, off the event loop."""
        return await arun(perform(self.add_documents, documents, **options))

    def adopt(self, documents: Iterable[Document]) -> None:
        """Read the graph off documents that the vector index holds already, under the same ids.

        Documents that the index no longer holds go; nothing is written to the index.
        """
        self._require_open()
        given = listed("documents", documents)
        if given:
            self._identity.verify()
        chunking = Chunking(self.settings.ingest, split=False)
        self._ingest.adopt(chunking.nodes(given))

    def forget(
        self,
        ids: Sequence[str] | str | None = None,
        *,
        source: str | None = None,
        namespace: str | None = None,
    ) -> int:
        """Delete documents, or all that a namespace has learned. Give exactly one argument.

        Args:
            ids: Ids of chunks or notes, or of whole documents that were given ids. A part that
                maintenance has split off goes with its whole.
            source: Every chunk of this source.
            namespace: Learned weights, notes, turns and clock; documents stay.

        Returns:
            How many chunks and notes were deleted.

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
            return self._remove(
                self.store.catalog.known(sources=[text_of("source", source)], owners=_ALL)
            )
        wanted = texts_of(() if ids is None else ids)
        wanted = [*wanted, *self.store.catalog.wholes(wanted)]
        known = self.store.catalog.known(ids=wanted, documents=wanted, owners=_ALL)
        found = self._remove(known)
        return found + self._forget_notes(wanted)

    def _remove(self, known: Sequence[Known]) -> int:
        if known:
            self._ingest.remove([node.id for node in known])
        return len(known)

    def _forget_notes(self, ids: Sequence[str]) -> int:
        notes = self.store.notes.facts(ids)
        if notes:
            self.store.apply([RemoveNotes(tuple(note.id for note in notes))])
        for owner in {note.owner for note in notes}:
            self._notes.remove(owner, [note.id for note in notes if note.owner == owner])
        return len(notes)

    def _forget_namespace(self, namespace: str) -> None:
        clock = self.store.walk.clock(namespace)
        self.store.apply([ForgetNamespace(namespace)])
        self._forget_vectors(clock)

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


def _known(vectors: object) -> dict[str, Vector]:
    """Unit vectors by id of what was given as ``vectors``.

    Raises:
        InvalidInputError: It is no mapping of vectors.
    """
    if vectors is None:
        return {}
    if not isinstance(vectors, Mapping):
        msg = f"vectors must map ids to embeddings, not {shown(vectors)}"
        raise InvalidInputError(msg)
    return {name: unit(vector) for name, vector in vectors.items()}
