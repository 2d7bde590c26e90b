"""Texts of all languages are found by their words, and terms are among the references."""

import sqlalchemy as sa
from alembic import op

from crabpath_retrievers.core.terms import list_terms
from crabpath_retrievers.storage.fulltext import get_fulltext_index
from crabpath_retrievers.storage.write.nodes import renew_words
from crabpath_retrievers.storage.write.transaction import Transaction

revision = "4"
down_revision = "3"

_AT_ONCE = 500
_READ = sa.text(
    "SELECT key, title, content FROM crabpath_nodes JOIN crabpath_contents ON node = key "
    "WHERE owner = 0 AND key > :last ORDER BY key LIMIT :most"
)
_WRITE = sa.text(
    "INSERT INTO crabpath_references(address, node) VALUES (:address, :node) ON CONFLICT DO NOTHING"
)


def upgrade() -> None:
    """Index texts again whose words changed, and add the terms of what queries see.

    Edges of the other texts stay until a document changes.
    """
    connection, last = op.get_bind(), 0
    renew_words(Transaction(connection, get_fulltext_index(connection.dialect.name)))
    while found := connection.execute(_READ, {"last": last, "most": _AT_ONCE}).all():
        rows = [
            {"address": term, "node": key}
            for key, title, content in found
            for term in list_terms(title, content)
        ]
        if rows:
            connection.execute(_WRITE, rows)
        last = found[-1].key
