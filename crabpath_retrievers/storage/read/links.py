"""Reads of the linkers: names, mentions, link targets, and the order of chunks."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.text import prepend_title
from crabpath_retrievers.storage.fulltext import FullTextReader
from crabpath_retrievers.storage.schema import (
    addresses,
    contents,
    edges,
    names,
    nodes,
    references,
    terms,
)
from crabpath_retrievers.storage.sql_tools import (
    CompiledSelect,
    Queries,
    ReadableStore,
    split_batches,
)


class LinkNode(NamedTuple):
    """The columns of a node that linkers use."""

    key: int
    id: str
    document: str
    source: str
    position: int
    title: str
    content: str
    mentions: int

    @property
    def text(self) -> str:
        """Title, then content: the text that the full-text index holds."""
        return prepend_title(self.title, self.content)


_COLUMNS = (
    nodes.c.key,
    nodes.c.id,
    contents.c.document,
    contents.c.source,
    contents.c.position,
    nodes.c.title,
    contents.c.content,
    nodes.c.mentions,
)
_NODES = CompiledSelect(
    sa.select(*_COLUMNS)
    .join(contents, contents.c.node == nodes.c.key)
    .where(nodes.c.key.in_(sa.bindparam("values", expanding=True)))
)

_IN_ORDER = CompiledSelect(
    sa.select(contents.c.source, contents.c.document, contents.c.position, contents.c.node)
    .join(nodes, nodes.c.key == contents.c.node)
    .where(
        contents.c.source.in_(sa.bindparam("values", expanding=True)),
        nodes.c.owner == 0,
    )
)


@cache
def _build_lookup(column: sa.Column[Any], select: tuple[sa.Column[Any], ...]) -> CompiledSelect:
    """Build a select of columns by the values of one column."""
    wanted: sa.BindParameter[Any] = sa.bindparam("values", expanding=True)
    return CompiledSelect(sa.select(*select).where(column.in_(wanted)))


class LinkQueries(Queries):
    """Lookups whose cost does not grow with the corpus."""

    def __init__(self, store: ReadableStore, fulltext: FullTextReader) -> None:
        """Read from ``store`` and its full-text index."""
        super().__init__(store)
        self._fulltext = fulltext

    def _find(
        self, column: sa.Column[Any], values: Sequence[object], *select: sa.Column[Any]
    ) -> Iterator[tuple[Any, ...]]:
        yield from self._lookup(_build_lookup(column, select), values)

    def _lookup(
        self, statement: CompiledSelect, values: Sequence[object]
    ) -> Iterator[tuple[Any, ...]]:
        with self._store.open_reader() as connection:
            for part in split_batches(values):
                yield from statement.rows(connection, {"values": part})

    def nodes(self, keys: Sequence[int]) -> list[LinkNode]:
        """The nodes with these keys."""
        return [LinkNode(*row) for row in self._lookup(_NODES, keys)]

    def owners(self, candidates: Sequence[str]) -> dict[str, list[int]]:
        """Keys of the nodes with these names, by name; unknown names are left out."""
        return _group_by_key(self._find(names.c.name, candidates, names.c.name, names.c.node))

    def names(self, keys: Sequence[int]) -> dict[int, list[str]]:
        """Names by key of the node."""
        return _group_by_key(self._find(names.c.node, keys, names.c.node, names.c.name))

    def phrase(self, tokens: Sequence[str], limit: int) -> list[int]:
        """Keys of nodes that contain the tokens next to each other, in order."""
        return self._fulltext.phrase(tokens, limit)

    def frequencies(self, words: Sequence[str]) -> dict[str, int]:
        """Document frequency by word; unknown words are left out."""
        return dict(self._find(terms.c.term, words, terms.c.term, terms.c.frequency))

    def find_addressed(self, targets: Sequence[str]) -> dict[str, list[int]]:
        """Keys of the nodes that link targets lead to, by target."""
        return _group_by_key(
            self._find(addresses.c.address, targets, addresses.c.address, addresses.c.node)
        )

    def addresses(self, keys: Sequence[int]) -> dict[int, list[str]]:
        """Link targets that lead to these nodes, by key."""
        return _group_by_key(
            self._find(addresses.c.node, keys, addresses.c.node, addresses.c.address)
        )

    def find_referring(self, targets: Sequence[str]) -> dict[str, list[int]]:
        """Keys of the nodes whose text contains link targets, by target."""
        return _group_by_key(
            self._find(references.c.address, targets, references.c.address, references.c.node)
        )

    def references(self, keys: Sequence[int]) -> dict[int, list[str]]:
        """Link targets in the text of these nodes, by key."""
        rows = self._find(references.c.node, keys, references.c.node, references.c.address)
        return _group_by_key(rows)

    def in_order(self, sources: Sequence[str]) -> dict[str, list[int]]:
        """Keys of the chunks of each source in order of the text.

        Documents of one source are in the order in which they were added, chunks by position.
        """
        rows = list(self._lookup(_IN_ORDER, sources))
        first: dict[tuple[str, str], int] = {}
        for source, document, _, key in rows:
            first[source, document] = min(key, first.get((source, document), key))
        rows.sort(key=lambda row: (row[0], first[row[0], row[1]], row[2], row[3]))
        return _group_by_key((source, key) for source, _, _, key in rows)

    def out_degrees(self, keys: Sequence[int], kind: int) -> dict[int, int]:
        """Number of edges of a kind that leave nodes, by key; nodes without any are left out."""
        query = sa.select(edges.c.source, sa.func.count()).group_by(edges.c.source)
        rows = self._rows_in(query.where(edges.c.kind == kind), edges.c.source, keys)
        return {key: count for key, count in rows}


def _group_by_key(rows: Iterable[tuple[Any, ...]]) -> dict[Any, list[Any]]:
    grouped: dict[Any, list[Any]] = {}
    for key, value in rows:
        grouped.setdefault(key, []).append(value)
    return grouped
