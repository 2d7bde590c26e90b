"""Changes the embedder of a memory while it answers: a second index grows beside the first.

New vectors are kept in a table of their own until all are there; one transaction then replaces the
old ones, and the second index takes the place of the first. Texts that come meanwhile are embedded
before. Whatever was interrupted before that transaction is continued by the next try with the same
embedder; what was interrupted after it, by the next open.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from pydantic_core import from_json

from crabpath_retrievers.core.calls import elapsed_ms
from crabpath_retrievers.core.records import Node, Vector
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.pipeline import Advance, ChunkEmbedder, Progress, show_progress
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.storage import Store
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.database import lock_schema
from crabpath_retrievers.storage.read.walk import CONTENT, decode_node
from crabpath_retrievers.storage.schema import (
    EMBEDDED,
    REEMBEDDED_AT,
    contents,
    episodes,
    feedback,
    nodes,
    reembedded,
    turns,
)
from crabpath_retrievers.storage.sql_tools import Queries, encode_vector
from crabpath_retrievers.storage.write.nodes import put_meta
from crabpath_retrievers.storage.write.transaction import Transaction, Write
from crabpath_retrievers.vectors.base import VectorIndex
from crabpath_retrievers.vectors.embedder import (
    Embedder,
    EmbedderIdentity,
    are_same,
    encode_identity,
    measure_identity,
    parse_identity,
    read_identity,
)

IDENTITY = "embedder"
"""Kind of the row that says which embedder is changed to."""


class EmbeddedText(NamedTuple):
    """A text with a stored vector.

    ``kind`` and ``key`` are its table in ``EMBEDDED`` and its key there, as a text; ``mark``
    changes with the text, which is empty for a node. ``visible`` ones are held by the vector index
    of the documents.
    """

    kind: str
    key: str
    mark: str
    text: str
    node: Node | None = None
    visible: bool = False


_QUERIES: dict[str, tuple[Any, ...]] = {
    "nodes": (contents.c.digest, nodes.c.owner, *CONTENT),
    "turns": (sa.literal(""), turns.c.record),
    "feedback": (sa.cast(sa.func.length(feedback.c.payload), sa.Text), feedback.c.payload),
    "episodes": (sa.literal(""), episodes.c.query),
}


class ReembeddingQueries(Queries):
    """Reads of the table that exists while an embedder is changed."""

    def get_identity(self) -> str | None:
        """Read the embedder that is being changed to, as text; None without a change."""
        with self._store.connect() as connection:
            if not sa.inspect(connection).has_table(reembedded.name):
                return None
            query = sa.select(reembedded.c.mark).where(reembedded.c.kind == IDENTITY)
            found: str | None = connection.scalar(query)
            return found

    def count(self, kind: str) -> int:
        """Number of texts of a kind that must still be embedded."""
        query = _select_waiting(kind)[0].with_only_columns(sa.func.count())
        return self._scalar(query.order_by(None)) or 0

    def iterate(self, kind: str, size: int) -> Iterator[list[EmbeddedText]]:
        """Yield the texts of a kind that must still be embedded, in pages by key."""
        query, key = _select_waiting(kind)
        page = self._rows(query.limit(size))
        while page:
            yield [_decode(kind, *row) for row in page]
            page = self._rows(query.where(key > page[-1][0]).limit(size))


def _select_waiting(kind: str) -> tuple[sa.Select[Any], Any]:
    """Select the texts of a kind that have no new vector, or one of an earlier text.

    Returns:
        The query; and the column with the key of the text.
    """
    embedding, key = EMBEDDED[kind]
    mark = _QUERIES[kind][0]
    done = sa.exists().where(
        reembedded.c.kind == kind,
        reembedded.c.key == sa.cast(key, sa.Text),
        reembedded.c.mark == mark,
    )
    query = sa.select(key, *_QUERIES[kind]).where(~done).order_by(key)
    if kind == "nodes":
        return query.join(contents, contents.c.node == nodes.c.key), key
    return query.where(embedding.is_not(None)), key


def _decode(kind: str, key: Any, mark: str, *values: Any) -> EmbeddedText:
    own = (kind, str(key), mark)
    if kind == "nodes":
        owner, *row = values
        return EmbeddedText(*own, "", decode_node(row), owner == 0)
    (text,) = values
    if kind == "turns":
        text = from_json(text)["query"]
    elif kind == "feedback":
        text = from_json(text).get("correction") or ""
    return EmbeddedText(*own, text)


def begin_reembedding(tx: Transaction, identity: str) -> None:
    """Create the table of new vectors, made by the embedder ``identity``.

    The table of an earlier change is deleted.
    """
    lock_schema(tx.connection)
    s.reembedded.drop(tx.connection, checkfirst=True)
    s.reembedded.create(tx.connection)
    row = {"kind": IDENTITY, "key": "", "mark": identity, "embedding": b""}
    tx.run(s.reembedded.insert(), [row])


def put_reembedded(
    tx: Transaction, given: Sequence[tuple[str, str, str, Vector]], *, adopted: bool = False
) -> None:
    """Store new vectors until the switch.

    ``given`` are kind, key and mark of each text, with its unit vector ``[d]``. If ``adopted``,
    which is right after the switch, the vectors also replace the old ones at once.
    """
    rows = [
        {"kind": kind, "key": key, "mark": mark, "embedding": encode_vector(vector)}
        for kind, key, mark, vector in given
    ]
    tx.upsert(s.reembedded, rows, ("mark", "embedding"))
    if adopted:
        for kind in {row[0] for row in given}:
            own = [key for name, key, *_ in given if name == kind]
            _adopt(tx, kind, s.reembedded.c.key.in_(own))


def switch_embedder(tx: Transaction, identity: str, time: float) -> None:
    """Replace all vectors by the new ones, made by the embedder ``identity``.

    What processes remember of the old ones is invalidated. Episodes and notes are queued for the
    vector index. Snapshots from before ``time`` can no longer be restored.
    """
    tx.touches_corpus = True
    for kind in s.EMBEDDED:
        _adopt(tx, kind, sa.true())
    put_meta(tx, {"embedder": identity, REEMBEDDED_AT: repr(time)})
    hubs = sa.cast(sa.cast(s.meta.c.value, sa.BigInteger) + 1, sa.Text)
    tx.update(s.meta, s.meta.c.name == "hubs", value=hubs)
    for table in (s.episodes, s.notes):
        tx.update(table, indexed=0)
    # Last: others that write to the rows wait from here on.
    later = s.namespaces.c.version + 1
    tx.update(s.namespaces, s.namespaces.c.version > 0, version=later)


def end_reembedding(tx: Transaction, *, forgets: bool = False) -> None:
    """Delete the table of new vectors.

    If ``forgets``, turns and corrections without a new vector lose the old one.
    """
    for kind in ("turns", "feedback") if forgets else ():
        embedding, key = s.EMBEDDED[kind]
        known = sa.select(s.reembedded.c.key).where(s.reembedded.c.kind == kind)
        tx.update(embedding.table, sa.cast(key, sa.Text).not_in(known), embedding=None)
    s.reembedded.drop(tx.connection, checkfirst=True)


def _adopt(tx: Transaction, kind: str, which: sa.ColumnElement[bool]) -> None:
    embedding, key = s.EMBEDDED[kind]
    found = (s.reembedded.c.kind == kind, s.reembedded.c.key == sa.cast(key, sa.Text), which)
    new = sa.select(s.reembedded.c.embedding).where(*found).scalar_subquery()
    tx.update(embedding.table, sa.exists().where(*found), embedding=new)


_BATCH = 256  # texts that are embedded, indexed and stored as one unit
_NEEDED = ("nodes", "episodes")  # of these none may lack its new vector when it is switched
_STRAGGLERS = 1.0  # seconds until queries of other processes have ended
_log = logging.getLogger(__name__)


class EmbedderChange:
    """A change of the embedder: all texts are embedded again before the switch."""

    def __init__(self, services: Services) -> None:
        """Keep the services of the memory whose embedder is to be changed."""
        self.store, self.index = services.store, services.index
        self.identity, self.reindexing = services.identity, services.reindexing

    def run(self, new: Embedder, progress: Progress | None = None) -> int:
        """Change to the embedder ``new``; return how many texts were embedded.

        The number is 0 if it is the embedder in use. ``progress`` shows progress; None shows
        nothing.

        Raises:
            InvalidInputError: The embedder gives a text no usable vector; nothing was changed.
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
        """Finish a change that was interrupted after the switch; warn of one before it.

        Called while the memory is opened.
        """
        text = ReembeddingQueries(self.store).get_identity()
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
        """Use an embedder that needs no new vectors; give up a change that was begun.

        ``found`` is its identity, ``stored`` the recorded one; None before the first text.
        """
        self.index.drop_next()
        self.store.write(end_reembedding)
        known = found if stored is None else stored._replace(name=found.name or stored.name)
        if stored is not None and known != stored:
            self.store.write(put_meta, {"embedder": encode_identity(known)})
        with self.identity.change(new, None if stored is None else known):
            pass

    def _begin(self, found: EmbedderIdentity) -> VectorIndex:
        """Open the next index; keep vectors of an earlier attempt with the embedder ``found``."""
        text = ReembeddingQueries(self.store).get_identity()
        anew = text is None or not are_same(parse_identity(text), found)
        following = self.index.open_next(anew=anew)
        if anew:
            self.store.write(begin_reembedding, encode_identity(found))
        return following

    def _embed_all(
        self, new: Embedder, following: VectorIndex, progress: Progress | None = None
    ) -> int:
        """Embed all texts that have no new vector yet, into ``following``; return how many."""
        self.store.flush()
        total = sum(ReembeddingQueries(self.store).count(kind) for kind in EMBEDDED)
        if total:
            with show_progress(progress, total) as advance:
                for kind in EMBEDDED:
                    self._embed_kind(kind, new, following, advance)
        return total

    def _embed_kind(
        self, kind: str, new: Embedder, following: VectorIndex, advance: Advance
    ) -> None:
        for page in ReembeddingQueries(self.store).iterate(kind, _BATCH):
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
        """Switch to the embedder ``new``, with the identity ``found`` and the index ``following``.

        False, and nothing is changed, if a text was added meanwhile. The caller holds the ingest
        lock.
        """
        self._delete_surplus(following)
        text = encode_identity(found)
        with ExitStack() as stack:
            entered = list[bool]()

            def switch(store: Store) -> bool:
                if any(ReembeddingQueries(store).count(kind) for kind in _NEEDED):
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
        """Embed texts that came during the switch, and delete the tables of the change."""
        self.reindexing.episodes.catch_up()
        self.reindexing.notes.catch_up()
        if not self.index.local:
            time.sleep(_STRAGGLERS)
        self.store.flush()
        for kind in EMBEDDED:
            for page in ReembeddingQueries(self.store).iterate(kind, _BATCH):
                rows = _to_rows(page, _embed_page(new, page))
                self.store.write(put_reembedded, rows, adopted=True)
        with self.store.hold_ingest_lock():
            self.index.take_next()
            self.store.write(end_reembedding)
            self.reindexing.ingest.stamp()
        self.reindexing.episodes.reopen()
        self.reindexing.notes.reopen()


def resume_change(services: Services) -> None:
    """Finish a change of the embedder that was interrupted after the switch, at opening."""
    EmbedderChange(services).resume()


def _to_rows(
    page: Sequence[EmbeddedText], vectors: Sequence[Vector]
) -> tuple[tuple[str, str, str, Vector], ...]:
    return tuple((*one[:3], vector) for one, vector in zip(page, vectors, strict=True))


def _embed_page(new: Embedder, page: Sequence[EmbeddedText]) -> list[Vector]:
    """Embed a page of texts of one kind as unit vectors ``[d]``; zeros for unusable ones.

    Raises:
        InvalidInputError: A chunk or a correction has no usable vector; the message names it.
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
