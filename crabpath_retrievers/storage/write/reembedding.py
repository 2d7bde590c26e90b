"""Writers of a change of the embedder: new vectors are kept apart until all are there."""

import sqlalchemy as sa

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.changes import vectors as v
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.engine import lock_schema
from crabpath_retrievers.storage.read.reembedding import IDENTITY
from crabpath_retrievers.storage.registry import REEMBEDDED_AT
from crabpath_retrievers.storage.sql_tools import encode_vector
from crabpath_retrievers.storage.write.nodes import put_meta
from crabpath_retrievers.storage.write.transaction import Transaction


def begin_reembedding(tx: Transaction, change: v.BeginReembedding) -> None:
    """Create the table anew, with the embedder."""
    lock_schema(tx.connection)
    s.reembedded.drop(tx.connection, checkfirst=True)
    s.reembedded.create(tx.connection)
    row = {"kind": IDENTITY, "key": "", "mark": change.identity, "embedding": b""}
    tx.run(s.reembedded.insert(), [row])


def put_reembedded(tx: Transaction, change: v.PutReembedded) -> None:
    """Keep new vectors."""
    rows = [
        {"kind": kind, "key": key, "mark": mark, "embedding": encode_vector(vector)}
        for kind, key, mark, vector in change.rows
    ]
    tx.upsert(s.reembedded, rows, ("mark", "embedding"))
    if change.adopted:
        for kind in {row[0] for row in change.rows}:
            own = [key for name, key, *_ in change.rows if name == kind]
            _adopt(tx, kind, s.reembedded.c.key.in_(own))


def switch_embedder(tx: Transaction, change: v.SwitchEmbedder) -> None:
    """Replace all vectors, and invalidate what processes remember of them."""
    for kind in s.EMBEDDED:
        _adopt(tx, kind, sa.true())
    facts = (("embedder", change.identity), (REEMBEDDED_AT, repr(change.time)))
    put_meta(tx, c.PutMeta(facts))
    hubs = sa.cast(sa.cast(s.meta.c.value, sa.BigInteger) + 1, sa.Text)
    tx.update(s.meta, s.meta.c.name == "hubs", value=hubs)
    for table in (s.episodes, s.notes):
        tx.update(table, indexed=0)
    # Last: others that write to the rows wait from here on.
    later = s.namespaces.c.version + 1
    tx.update(s.namespaces, s.namespaces.c.version > 0, version=later)


def end_reembedding(tx: Transaction, change: v.EndReembedding) -> None:
    """Delete the table."""
    for kind in ("turns", "feedback") if change.forgets else ():
        embedding, key = s.EMBEDDED[kind]
        known = sa.select(s.reembedded.c.key).where(s.reembedded.c.kind == kind)
        tx.update(embedding.table, sa.cast(key, sa.Text).not_in(known), embedding=None)
    s.reembedded.drop(tx.connection, checkfirst=True)


def _adopt(tx: Transaction, kind: str, which: sa.ColumnElement[bool]) -> None:
    embedding, key = s.EMBEDDED[kind]
    found = (s.reembedded.c.kind == kind, s.reembedded.c.key == sa.cast(key, sa.Text), which)
    new = sa.select(s.reembedded.c.embedding).where(*found).scalar_subquery()
    tx.update(embedding.table, sa.exists().where(*found), embedding=new)
