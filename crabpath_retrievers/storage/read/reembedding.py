"""Reads of a change of the embedder: what must still be embedded again."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic_core import from_json

from crabpath_retrievers.core.records import Node
from crabpath_retrievers.storage.read.catalog import CONTENT, decode_node
from crabpath_retrievers.storage.schema import (
    EMBEDDED,
    contents,
    episodes,
    feedback,
    nodes,
    reembedded,
    turns,
)
from crabpath_retrievers.storage.sql_tools import Queries

IDENTITY = "embedder"
"""Kind of the row that says which embedder is changed to."""


class EmbeddedText(NamedTuple):
    """A text with a stored vector.

    Attributes:
        kind: Name of its table in ``EMBEDDED``.
        key: Its key there, as a text.
        mark: Changes with the text.
        text: A question or a correction; empty for a node.
        node: The chunk or note.
        visible: Whether the vector index of the documents holds it.
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
        """The embedder that is changed to, as text; None while none is."""
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
    """Texts without a new vector, or with that of another text; and their key."""
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
