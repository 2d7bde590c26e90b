"""Writers of a change of the embedder: new vectors are kept apart until all are there."""

from collections.abc import Sequence

import sqlalchemy as sa

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.engine import lock_schema
from crabpath_retrievers.storage.read.reembedding import IDENTITY
from crabpath_retrievers.storage.registry import REEMBEDDED_AT
from crabpath_retrievers.storage.sql_tools import encode_vector
from crabpath_retrievers.storage.write.nodes import put_meta
from crabpath_retrievers.storage.write.transaction import Transaction


def begin_reembedding(tx: Transaction, identity: str) -> None:
    """Create the table of new vectors; an interrupted change of the embedder is deleted."""
    lock_schema(tx.connection)
    s.reembedded.drop(tx.connection, checkfirst=True)
    s.reembedded.create(tx.connection)
    row = {"kind": IDENTITY, "key": "", "mark": identity, "embedding": b""}
    tx.run(s.reembedded.insert(), [row])


def put_reembedded(
    tx: Transaction, given: Sequence[tuple[str, str, str, Vector]], *, adopted: bool = False
) -> None:
    """Keep new vectors until all are there.

    Args:
        tx: The transaction.
        given: Kind, key and mark of each text, with its unit vector ``[d]``.
        adopted: Whether they replace the old ones at once, after the switch.
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
    """Replace all vectors by the new ones, and invalidate what processes remember of them.

    Episodes and notes are queued for the vector index.

    Args:
        tx: The transaction.
        identity: The new embedder, as text.
        time: Seconds since the epoch; snapshots from before it cannot be restored.
    """
    tx.touches_corpus = True
    for kind in s.EMBEDDED:
        _adopt(tx, kind, sa.true())
    facts = (("embedder", identity), (REEMBEDDED_AT, repr(time)))
    put_meta(tx, c.PutMeta(facts))
    hubs = sa.cast(sa.cast(s.meta.c.value, sa.BigInteger) + 1, sa.Text)
    tx.update(s.meta, s.meta.c.name == "hubs", value=hubs)
    for table in (s.episodes, s.notes):
        tx.update(table, indexed=0)
    # Last: others that write to the rows wait from here on.
    later = s.namespaces.c.version + 1
    tx.update(s.namespaces, s.namespaces.c.version > 0, version=later)


def end_reembedding(tx: Transaction, *, forgets: bool = False) -> None:
    """Delete the table of new vectors.

    Args:
        tx: The transaction.
        forgets: Whether turns and corrections that came too late for it lose their old vectors.
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
