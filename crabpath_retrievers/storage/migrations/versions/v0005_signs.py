"""Texts and names are found by words that only signs tell from others, such as "C++" and "-O2"."""

from alembic import op

from crabpath_retrievers.core.text import has_signs
from crabpath_retrievers.storage.fulltext import get_fulltext_index
from crabpath_retrievers.storage.write.nodes import renew_words
from crabpath_retrievers.storage.write.transaction import Transaction

revision = "5"
down_revision = "4"


def upgrade() -> None:
    """Index texts again that have words with signs, such as "C++"."""
    connection = op.get_bind()
    renew_words(Transaction(connection, get_fulltext_index(connection.dialect.name)), has_signs)
