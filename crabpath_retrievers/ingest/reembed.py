"""Changes the embedder of a memory while it answers: a second index grows beside the first.

New vectors are kept in a table of their own until all are there; one transaction then replaces the
old ones, and the second index takes the place of the first. Texts that come meanwhile are embedded
before. Whatever was interrupted before that transaction is continued by the next try with the same
embedder; what was interrupted after it, by the next open.
"""

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from crabpath_retrievers.core.calls import elapsed_ms
from crabpath_retrievers.core.changes import PutMeta
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.parts import ChunkEmbedder
from crabpath_retrievers.ingest.pipeline import Advance, Progress, show_progress
from crabpath_retrievers.ingest.reindex import Reindexer
from crabpath_retrievers.storage import GraphStore, Store
from crabpath_retrievers.storage.read.reembedding import EmbeddedText
from crabpath_retrievers.storage.schema import EMBEDDED
from crabpath_retrievers.storage.write.reembedding import (
    begin_reembedding,
    end_reembedding,
    put_reembedded,
    switch_embedder,
)
from crabpath_retrievers.storage.write.transaction import Write
from crabpath_retrievers.vectors.base import VectorIndex
from crabpath_retrievers.vectors.embedder import (
    Embedder,
    EmbedderFingerprint,
    EmbedderIdentity,
    are_same,
    encode_identity,
    measure_identity,
    parse_identity,
    read_identity,
)

_BATCH = 256  # texts that are embedded, indexed and stored as one unit
_NEEDED = ("nodes", "episodes")  # of these none may lack its new vector when it is switched
_STRAGGLERS = 1.0  # seconds until queries of other processes have ended
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EmbedderChange:
    """Embeds all texts of a memory again, and switches."""

    store: GraphStore
    index: VectorIndex
    identity: EmbedderFingerprint
    reindexing: Reindexer

    def run(self, new: Embedder, progress: Progress | None = None) -> int:
        """Change to another embedder; returns how many texts were embedded.

        Raises:
            ConfigurationError: The vectors are in a store of others.
            InvalidInputError: The embedder gives a text no usable vector; nothing was changed.
            StoreLockedError: The embedder is being changed already.
        """
        begun = time.perf_counter()
        with self.store.hold_change_lock():
            self.identity.require_current()
            found = measure_identity(new)
            stored = read_identity(self.store.catalog.meta())
            if stored is None or are_same(stored, found):
                self._adopt_at_once(new, found, stored)
                return 0
            following = self._begin(found)
            total = self._embed_all(new, following, progress)
            with self.store.hold_ingest_lock():
                self.identity.require_current()
                self.reindexing.ingest.recover()
                while not self._switch(new, found, following):
                    total += self._embed_all(new, following)
            self._finish(new)
        message = "changed from %s to %s: %d texts embedded in %.0f ms"
        _log.info(message, stored.model, found.model, total, elapsed_ms(begun))
        return total

    def resume(self) -> None:
        """Finish what was interrupted after the switch; what was before it waits for its embedder.

        The caller opens the memory.
        """
        text = self.store.reembedding.get_identity()
        if text is None:
            return
        with self.store.hold_ingest_lock():
            stored = read_identity(self.store.catalog.meta())
            if stored is None or not are_same(stored, parse_identity(text)):
                _log.warning(
                    "the embedder of %s was being changed to %r: crabpath reembed with that "
                    "embedder goes on, with the present one it gives up",
                    self.store.name,
                    parse_identity(text).model,
                )
                return
            self.index.take_next()
            self.store.write(end_reembedding, forgets=True)
            self.reindexing.ingest.stamp()

    def _adopt_at_once(
        self, new: Embedder, found: EmbedderIdentity, stored: EmbedderIdentity | None
    ) -> None:
        """Use an embedder that needs nothing embedded; a change that was begun is given up."""
        self.index.drop_next()
        self.store.write(end_reembedding)
        known = found if stored is None else stored._replace(name=found.name or stored.name)
        if stored is not None and known != stored:
            self.store.apply([PutMeta((("embedder", encode_identity(known)),))])
        with self.identity.change(new, None if stored is None else known):
            pass

    def _begin(self, found: EmbedderIdentity) -> VectorIndex:
        """The next index, with what an earlier try with this embedder has left."""
        text = self.store.reembedding.get_identity()
        anew = text is None or not are_same(parse_identity(text), found)
        following = self.index.open_next(anew=anew)
        if anew:
            self.store.write(begin_reembedding, encode_identity(found))
        return following

    def _embed_all(
        self, new: Embedder, following: VectorIndex, progress: Progress | None = None
    ) -> int:
        """Embed what has no new vector yet; returns how many texts."""
        self.store.flush()
        total = sum(self.store.reembedding.count(kind) for kind in EMBEDDED)
        if total:
            with show_progress(progress, total) as advance:
                for kind in EMBEDDED:
                    self._embed_kind(kind, new, following, advance)
        return total

    def _embed_kind(
        self, kind: str, new: Embedder, following: VectorIndex, advance: Advance
    ) -> None:
        for page in self.store.reembedding.iterate(kind, _BATCH):
            vectors = _embed_page(new, page)
            # The index first: what is in the table is in the index.
            shown = [(one, v) for one, v in zip(page, vectors, strict=True) if one.visible]
            nodes = [one.node for one, _ in shown if one.node is not None]
            following.upsert(
                [node.id for node in nodes],
                [vector for _, vector in shown],
                [node.content for node in nodes],
                [node.metadata for node in nodes],
            )
            self.store.write(put_reembedded, _to_rows(page, vectors))
            advance(len(page))

    def _switch(self, new: Embedder, found: EmbedderIdentity, following: VectorIndex) -> bool:
        """Switch, unless a text has come meanwhile; the caller holds the ingest lock."""
        self._delete_surplus(following)
        text = encode_identity(found)
        with ExitStack() as stack:
            entered = list[bool]()

            def switch(store: Store) -> bool:
                if any(store.reembedding.count(kind) for kind in _NEEDED):
                    return False
                store.apply([Write(switch_embedder, text, time.time()), *self.index.switch])
                if not entered:  # else the transaction is repeated
                    entered.append(True)
                    stack.enter_context(self.identity.change(new, found))
                return True

            if not self.store.apply_together(switch):
                return False
            self.index.use_next(following)
            self.reindexing.episodes.reopen()
            self.reindexing.notes.reopen()
        return True

    def _delete_surplus(self, following: VectorIndex) -> None:
        """Delete the vectors of documents that were removed meanwhile."""
        wanted = set(self.store.catalog.chunk_ids())
        surplus = [one for page in following.ids() for one in page if one not in wanted]
        following.delete(surplus)

    def _finish(self, new: Embedder) -> None:
        """Tidy up after the switch, with what came too late for it."""
        self.reindexing.episodes.catch_up()
        self.reindexing.notes.catch_up()
        if not self.index.local:
            time.sleep(_STRAGGLERS)
        self.store.flush()
        for kind in EMBEDDED:
            for page in self.store.reembedding.iterate(kind, _BATCH):
                rows = _to_rows(page, _embed_page(new, page))
                self.store.write(put_reembedded, rows, adopted=True)
        with self.store.hold_ingest_lock():
            self.index.take_next()
            self.store.write(end_reembedding)
            self.reindexing.ingest.stamp()
        self.reindexing.episodes.reopen()
        self.reindexing.notes.reopen()


def _to_rows(
    page: Sequence[EmbeddedText], vectors: Sequence[Vector]
) -> tuple[tuple[str, str, str, Vector], ...]:
    return tuple((*one[:3], vector) for one, vector in zip(page, vectors, strict=True))


def _embed_page(new: Embedder, page: Sequence[EmbeddedText]) -> list[Vector]:
    """Unit vectors ``[d]`` of texts of one kind; zeros for a question that has none.

    Raises:
        InvalidInputError: A chunk has none; the message names it.
    """
    nodes = [one.node for one in page if one.node is not None]
    if nodes:
        embedded, _ = ChunkEmbedder(new, strict=True).embed(nodes)
        return [np.asarray(node.vector) for node in embedded]
    texts = [one.text for one in page]
    if page[0].kind == "feedback":
        return new.documents(texts)
    return [_embed_question(new, text) for text in texts]


def _embed_question(new: Embedder, text: str) -> Vector:
    try:
        return new.query(text)
    except InvalidInputError:
        return np.zeros(new.documents(["."])[0].size, dtype=np.float32)
