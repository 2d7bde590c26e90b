"""A model of the host that orders the best candidates: a cross-encoder or a compressor."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import BaseDocumentCompressor, Document

from crabpath_retrievers.core.calls import (
    Operations,
    arun_with_timeout,
    perform_sync_or_async,
    run_with_timeout,
)
from crabpath_retrievers.core.processes import raise_interruption
from crabpath_retrievers.core.query import METADATA_KEY
from crabpath_retrievers.core.records import Node
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.memory.services import HostReranker

_log = logging.getLogger(__name__)


class ModelReranker:
    """Re-orders documents by a model of the host, and never loses one of them.

    What the model does not name keeps its order behind what it names; where it fails, or takes too
    long, all keep theirs. The log says so once.
    """

    def __init__(self, model: HostReranker, timeout: float) -> None:
        """Keep the model, and the ``timeout`` in seconds that a question may take.

        Raises:
            InvalidInputError: The model is no cross-encoder and no compressor.
        """
        if not isinstance(model, (BaseCrossEncoder, BaseDocumentCompressor)):
            msg = (
                f"reranker must be a LangChain BaseCrossEncoder or BaseDocumentCompressor, "
                f"not {format_value(model)}"
            )
            raise InvalidInputError(msg)
        self._model, self._timeout, self._has_warned = model, timeout, False

    def steps(
        self, query: str, nodes: Sequence[Node], callbacks: Any = None
    ) -> Operations[Sequence[str]]:
        """Order all nodes, as ids, best first; see :class:`.retrieval.pipeline.Reranker`."""
        ids = [node.id for node in nodes]
        given = [_to_document(node) for node in nodes]
        work = partial(self._name_best, query, given, callbacks)
        try:
            named = yield from perform_sync_or_async(
                lambda: run_with_timeout(work, self._timeout),
                lambda: self._name_best_async(query, given, callbacks),
            )
        except Exception as error:
            raise_interruption(error)
            self._warn(f"failed ({type(error).__name__}: {error})")
            return ids
        best = [name for name in dict.fromkeys(named) if name in ids]
        if len(best) < len(ids):
            self._warn(f"returned {len(best)} of {len(ids)} documents")
        return [*best, *(name for name in ids if name not in best)]

    def _name_best(self, query: str, documents: Sequence[Document], callbacks: Any) -> list[str]:
        """List the ids of the documents that the model names, best first."""
        if isinstance(self._model, BaseDocumentCompressor):
            found = self._model.compress_documents(documents, query, callbacks)
            return [_read_id(document) for document in found]
        scores = self._model.score([(query, document.page_content) for document in documents])
        values = np.asarray(scores, dtype=np.float64).reshape(len(documents))
        order = np.argsort(-values, kind="stable").tolist()
        return [str(documents[i].id) for i in order if np.isfinite(values[i])]

    async def _name_best_async(
        self, query: str, documents: Sequence[Document], callbacks: Any
    ) -> list[str]:
        if isinstance(self._model, BaseDocumentCompressor):
            asked = self._model.acompress_documents(documents, query, callbacks)
            found = await asyncio.wait_for(asked, self._timeout)
            return [_read_id(document) for document in found]
        return await arun_with_timeout(
            partial(self._name_best, query, documents, callbacks), self._timeout
        )

    def _warn(self, problem: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("the reranker %s: the other documents keep our order", problem)


def _to_document(node: Node) -> Document:
    """Make a document with its id also in the metadata: compressors may drop ``Document.id``."""
    metadata = {**node.metadata, METADATA_KEY: {"id": node.id}}
    return Document(id=node.id, page_content=node.content, metadata=metadata)


def _read_id(document: Document) -> str:
    mark = document.metadata.get(METADATA_KEY)
    return str(mark.get("id") if isinstance(mark, Mapping) else document.id)
