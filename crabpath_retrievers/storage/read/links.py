"""Reads of the linkers: names, mentions, link targets, and the order of chunks."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from crabpath_retrievers.core.records import Node
from crabpath_retrievers.core.terms import TERM
from crabpath_retrievers.core.text import prepend_title
from crabpath_retrievers.storage.fulltext import FullTextReader
from crabpath_retrievers.storage.schema import (
    addresses,
    contents,
    edges,
    meta,
    names,
    nodes,
    references,
)
from crabpath_retrievers.storage.sql_tools import (
    CompiledSelect,
    Queries,
    ReadableStore,
    split_batches,
)

T = TypeVar("T")


class LinkNode(NamedTuple):
    """The columns of a node that linkers use."""

    key: int
    id: str
    document: str
    source: str
    position: int
    title: str
    content: str

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
)
_NODES = CompiledSelect(
    sa.select(*_COLUMNS)
    .join(contents, contents.c.node == nodes.c.key)
    .where(nodes.c.key.in_(sa.bindparam("values", expanding=True)))
)

_FEW = 256  # values

_IN_ORDER = CompiledSelect(
    sa.select(contents.c.source, contents.c.document, contents.c.position, contents.c.node)
    .join(nodes, nodes.c.key == contents.c.node)
    .where(
        contents.c.source.in_(sa.bindparam("values", expanding=True)),
        nodes.c.owner == 0,
    )
)

# A name is stored as its tokens with a space between, which sorts before every letter.
_LONGER_NAMES = """
SELECT value, name FROM (
    SELECT value, (
        SELECT name FROM crabpath_names WHERE name >= value ORDER BY name LIMIT 1
    ) AS name FROM {rows} AS given
) AS found WHERE name = value OR substr(name, 1, length(value) + 1) = value || ' '
"""
# The exclamation mark is the character after the space.
_NAMES_BEGINNING = """
SELECT value, name FROM {rows} AS given
JOIN crabpath_names ON name >= value || ' ' AND name < value || '!'
"""
_JSON_ROWS = {
    "sqlite": "json_each(:given)",
    "postgresql": "(SELECT jsonb_array_elements_text(CAST(:given AS jsonb)) AS value)",
}

_FEW_REFERRING = {
    "sqlite": """
SELECT value, (
    SELECT group_concat(node) FROM (
        SELECT node FROM crabpath_references WHERE address = value ORDER BY node LIMIT :most
    )
) FROM json_each(:given)
""",
    "postgresql": """
SELECT value, (
    SELECT string_agg(CAST(node AS text), ',') FROM (
        SELECT node FROM crabpath_references WHERE address = value ORDER BY node LIMIT :most
    ) AS few
) FROM (SELECT jsonb_array_elements_text(CAST(:given AS jsonb)) AS value) AS given
""",
}


@cache
def _build_lookup(by: sa.Column[Any], of: sa.Column[Any]) -> CompiledSelect:
    """Build a select of two columns by the values of the first."""
    wanted: sa.BindParameter[Any] = sa.bindparam("values", expanding=True)
    return CompiledSelect(sa.select(by, of).where(by.in_(wanted)))


_MAX_REMEMBERED = 500_000


class LinkQueries(Queries):
    """Lookups whose cost does not grow with the corpus."""

    def __init__(self, store: ReadableStore, fulltext: FullTextReader) -> None:
        """Read from ``store`` and its full-text index."""
        super().__init__(store)
        self._fulltext = fulltext

    @property
    def language(self) -> str | None:
        """Language of all texts of the store; None to detect that of each."""
        with self._store.connect() as connection:
            query = sa.select(meta.c.value).where(meta.c.name == "language")
            found: str | None = connection.scalar(query)
        return found

    def _lookup(
        self, statement: CompiledSelect, values: Sequence[object]
    ) -> Iterator[tuple[Any, ...]]:
        if not values:
            return
        with self._store.connect() as connection:
            for part in split_batches(values):
                yield from statement.rows(connection, {"values": part})

    def _pairs(
        self, by: sa.Column[Any], of: sa.Column[Any], values: Sequence[object]
    ) -> Iterable[tuple[Any, ...]]:
        """Values of two columns, for some values of the first."""
        if len(values) < _FEW:
            return self._lookup(_build_lookup(by, of), values)
        # Past the statement that is compiled for every length, which the driver parses in Python.
        return self._rows_in(sa.select(by, of), by, values)

    def _group(
        self, by: sa.Column[Any], of: sa.Column[Any], values: Sequence[object]
    ) -> dict[Any, list[Any]]:
        """Values of a column by those of another one; values that do not occur are left out."""
        return _group_by_key(self._pairs(by, of, values))

    def nodes(self, keys: Sequence[int]) -> list[LinkNode]:
        """The nodes with these keys."""
        return [LinkNode(*row) for row in self._lookup(_NODES, keys)]

    def documents(self, keys: Sequence[int]) -> dict[int, str]:
        """Document by key of the node."""
        return dict(self._pairs(contents.c.node, contents.c.document, keys))

    def keys(self, ids: Sequence[str]) -> dict[str, int]:
        """Keys of nodes by id; those that do not exist are left out."""
        return dict(self._pairs(nodes.c.id, nodes.c.key, ids))

    def ids(self, keys: Sequence[int]) -> dict[int, str]:
        """Id by key of the node."""
        return dict(self._pairs(nodes.c.key, nodes.c.id, keys))

    def count_mentions(self, keys: Sequence[int]) -> dict[int, int]:
        """Count the nodes that mention each of these nodes."""
        return dict(self._pairs(nodes.c.key, nodes.c.mentions, keys))

    def owners(self, candidates: Sequence[str]) -> dict[str, list[int]]:
        """Keys of the nodes with these names, by name."""
        return self._group(names.c.name, names.c.node, candidates)

    def find_longer_names(self, texts: Sequence[str]) -> dict[str, str]:
        """The first stored name that is a text, or begins with it and another word, by text.

        Texts with which no name begins are left out.
        """
        if not texts:
            return {}
        with self._store.connect() as connection:
            query = sa.text(_LONGER_NAMES.format(rows=_JSON_ROWS[connection.dialect.name]))
            return {
                text: name for text, name in connection.execute(query, {"given": json.dumps(texts)})
            }

    def find_second_words(self, firsts: Collection[str]) -> Mapping[str, AbstractSet[str]] | None:  # noqa: ARG002
        """Second words of all names by each first word; None where that is not worth its cost."""
        return None

    def names(self, keys: Sequence[int]) -> dict[int, list[str]]:
        """Names by key of the node."""
        return self._group(names.c.node, names.c.name, keys)

    def find_phrases(
        self, phrases: Iterable[tuple[str, ...]], limit: int
    ) -> dict[tuple[str, ...], list[int]]:
        """Keys of at most ``limit`` nodes with the tokens side by side, in order, by phrase."""
        distinct = list(dict.fromkeys(phrases))
        return dict(zip(distinct, self._fulltext.find_phrases(distinct, limit), strict=True))

    def find_addressed(self, targets: Sequence[str]) -> dict[str, list[int]]:
        """Keys of the nodes that link targets lead to, by target."""
        return self._group(addresses.c.address, addresses.c.node, targets)

    def addresses(self, keys: Sequence[int]) -> dict[int, list[str]]:
        """Link targets that lead to these nodes, by key."""
        return self._group(addresses.c.node, addresses.c.address, keys)

    def find_referring(self, targets: Sequence[str]) -> dict[str, list[int]]:
        """Keys of the nodes whose text contains link targets, by target."""
        return self._group(references.c.address, references.c.node, targets)

    def find_few_referring(self, targets: Sequence[str], most: int) -> dict[str, list[int]]:
        """Keys of the nodes, in order and at most ``most``, that refer to targets, by target."""
        if not targets:
            return {}
        with self._store.connect() as connection:
            query = _FEW_REFERRING[connection.dialect.name]
            given = {"given": json.dumps(targets), "most": most}
            rows = connection.execute(sa.text(query), given)
            return {target: sorted(map(int, found.split(","))) for target, found in rows if found}

    def references(self, keys: Sequence[int], *, terms: bool) -> dict[int, list[str]]:
        """Terms in the text of these nodes, or its link targets, by key."""
        found = self._group(references.c.node, references.c.address, keys)
        return {key: _select_terms(values, terms=terms) for key, values in found.items()}

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

    def find_ends(self, keys: Sequence[int], kind: int) -> set[tuple[int, int]]:
        """Sources and targets of the edges of a kind that leave nodes."""
        query = sa.select(edges.c.source, edges.c.target).where(edges.c.kind == kind)
        return {(source, target) for source, target in self._rows_in(query, edges.c.source, keys)}

    def find_sources(self, keys: Sequence[int], kind: int) -> set[tuple[int, int]]:
        """Targets and sources of the edges of a kind that lead to nodes."""
        query = sa.select(edges.c.target, edges.c.source).where(edges.c.kind == kind)
        return {(target, source) for target, source in self._rows_in(query, edges.c.target, keys)}


class RememberedLinks(LinkQueries):
    """Reader that looks up words once, while no document is added or removed."""

    def __init__(self, store: ReadableStore, fulltext: FullTextReader) -> None:
        """Read from ``store`` and its full-text index."""
        super().__init__(store, fulltext)
        self._names: dict[str, str | None] = {}
        self._seconds: dict[str, set[str]] = {}

    def find_longer_names(self, texts: Sequence[str]) -> dict[str, str]:
        """Override :class:`LinkQueries`: names are remembered."""
        return _remember(self._names, texts, super().find_longer_names)

    def find_second_words(self, firsts: Collection[str]) -> Mapping[str, AbstractSet[str]]:
        """Second words of all names by each first word: read once, they spare most look-ups."""
        if len(self._seconds) > _MAX_REMEMBERED:
            self._seconds.clear()
        if new := [first for first in firsts if first not in self._seconds]:
            self._seconds |= {first: set() for first in new}
            with self._store.connect() as connection:
                query = sa.text(_NAMES_BEGINNING.format(rows=_JSON_ROWS[connection.dialect.name]))
                for first, name in connection.execute(query, {"given": json.dumps(new)}):
                    self._seconds[first].add(name[len(first) + 1 :].partition(" ")[0])
        return self._seconds


class PublishedLinks(LinkQueries):
    """Reader right after some chunks were published, whose facts it does not read again."""

    def __init__(
        self, store: ReadableStore, fulltext: FullTextReader, published: Mapping[int, Node]
    ) -> None:
        """Read from ``store`` and its full-text index; ``published`` are new chunks by key."""
        super().__init__(store, fulltext)
        self._published = published

    def _know(
        self,
        keys: Sequence[int],
        take: Callable[[int, Node], T],
        look_up: Callable[[list[int]], Mapping[int, T]],
    ) -> dict[int, T]:
        """Facts of chunks by key, known or looked up; empty ones are left out."""
        other = [key for key in keys if key not in self._published]
        own = {key: take(key, self._published[key]) for key in keys if key in self._published}
        known = {key: value for key, value in own.items() if value}
        return {**known, **look_up(other)} if other else known

    def nodes(self, keys: Sequence[int]) -> list[LinkNode]:
        """Override :class:`LinkQueries`: published chunks are known."""
        columns = attrgetter("id", "document", "source", "position", "title", "content")
        found = self._know(
            keys,
            lambda key, node: LinkNode(key, *columns(node)),
            lambda others: {node.key: node for node in super(PublishedLinks, self).nodes(others)},
        )
        return list(found.values())

    def documents(self, keys: Sequence[int]) -> dict[int, str]:
        """Override :class:`LinkQueries`: published chunks are known."""
        return self._know(keys, lambda _, node: node.document, super().documents)

    def names(self, keys: Sequence[int]) -> dict[int, list[str]]:
        """Override :class:`LinkQueries`: published chunks are known."""
        return self._know(keys, lambda _, node: [*dict.fromkeys(node.names)], super().names)

    def addresses(self, keys: Sequence[int]) -> dict[int, list[str]]:
        """Override :class:`LinkQueries`: published chunks are known."""
        return self._know(keys, lambda _, node: [*dict.fromkeys(node.addresses)], super().addresses)

    def references(self, keys: Sequence[int], *, terms: bool) -> dict[int, list[str]]:
        """Override :class:`LinkQueries`: published chunks are known."""
        return self._know(
            keys,
            lambda _, node: _select_terms(dict.fromkeys(node.references), terms=terms),
            partial(super().references, terms=terms),
        )


def _select_terms(values: Iterable[str], *, terms: bool) -> list[str]:
    return [value for value in values if value.startswith(TERM) == terms]


def _remember(
    known: dict[str, T | None], wanted: Sequence[str], look_up: Callable[[list[str]], dict[str, T]]
) -> dict[str, T]:
    """Values of the wanted words that have one; those that are not known yet are looked up."""
    if len(known) > _MAX_REMEMBERED:
        known.clear()
    if new := [word for word in wanted if word not in known]:
        known.update(dict.fromkeys(new))
        known.update(look_up(new))
    return {word: value for word in wanted if (value := known[word]) is not None}


def _group_by_key(rows: Iterable[tuple[Any, ...]]) -> dict[Any, list[Any]]:
    grouped: dict[Any, list[Any]] = {}
    for key, value in rows:
        grouped.setdefault(key, []).append(value)
    return grouped
