"""Full-text indexes of the databases: SQLite FTS5 with its bm25, PostgreSQL tsvector.

Texts are tokenised here, so that words and phrases match alike on both databases.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Protocol

import sqlalchemy as sa

from crabpath_retrievers.storage.schema import contents, nodes
from crabpath_retrievers.storage.sql_tools import Queries, ReadableStore, open_driver_cursor

_ONE_MATCH = 0.06079271  # ts_rank of a term that occurs once in a text
_K1, _B = 1.2, 0.75  # BM25 (Robertson & Zaragoza 2009, §3.5); the values of FTS5


class FullText(Protocol):
    """Full-text index of a database."""

    def create(self, connection: sa.Connection) -> None:
        """Create the index if it does not exist."""

    def add(self, connection: sa.Connection, rows: Sequence[tuple[int, Sequence[str]]]) -> None:
        """Index nodes, given as ``(key, tokens)``."""

    def remove(self, connection: sa.Connection, keys: Sequence[int]) -> None:
        """Remove the nodes with these keys from the index."""

    def get_words(
        self, connection: sa.Connection, keys: Sequence[int]
    ) -> list[tuple[int, Sequence[str]]]:
        """Read the words of the nodes with these keys, each with its key.

        Nodes that are not indexed are left out.
        """

    def defer(self, connection: sa.Connection) -> None:
        """Postpone work that is faster done once for many nodes."""

    def complete(self, connection: sa.Connection) -> None:
        """Finish the postponed work; safe to repeat."""

    def search(
        self, connection: sa.Connection, idf: Mapping[str, float], limit: int, mean_length: float
    ) -> list[tuple[int, float]]:
        """Find nodes with any of the terms: keys with BM25 scores ≥ 0, best first.

        ``idf`` has the terms with their weights in nats; ``mean_length`` is that of all texts in
        tokens; at most ``limit`` nodes are found.
        """

    def find_postings(
        self, connection: sa.Connection, idf: Mapping[str, float], mean_length: float
    ) -> list[tuple[int, int, float]]:
        """Find all nodes with each term, in one statement, unordered.

        Returns:
            For each, the place of the term in ``idf``, the key of the node, and the part of its
            BM25 score that is the term's.
        """

    def find_phrases(
        self, connection: sa.Connection, phrases: Iterable[Sequence[str]], limit: int
    ) -> list[list[int]]:
        """Find at most ``limit`` nodes with the tokens of a phrase side by side: keys by phrase."""


class Fts5:
    """SQLite FTS5."""

    def create(self, connection: sa.Connection) -> None:
        """Create the index if it does not exist."""
        # The "ascii" tokenizer treats all other characters as letters and so keeps our tokens.
        connection.exec_driver_sql(
            "CREATE VIRTUAL TABLE IF NOT EXISTS crabpath_fulltext "
            "USING fts5(tokens, tokenize=\"ascii tokenchars '_'\")"
        )

    def add(self, connection: sa.Connection, rows: Sequence[tuple[int, Sequence[str]]]) -> None:
        """Index nodes, given as ``(key, tokens)``."""
        connection.exec_driver_sql(
            "INSERT INTO crabpath_fulltext(rowid, tokens) VALUES (?, ?)",
            [(key, " ".join(tokens)) for key, tokens in rows],
        )

    def remove(self, connection: sa.Connection, keys: Sequence[int]) -> None:
        """Remove the nodes with these keys from the index."""
        connection.exec_driver_sql(
            "DELETE FROM crabpath_fulltext WHERE rowid = ?", [(key,) for key in keys]
        )

    def get_words(
        self, connection: sa.Connection, keys: Sequence[int]
    ) -> list[tuple[int, Sequence[str]]]:
        """Override :class:`FullText`."""
        query = "SELECT rowid, tokens FROM crabpath_fulltext WHERE rowid = ?"
        with open_driver_cursor(connection) as cursor:
            rows = [row for key in keys for row in cursor.execute(query, (key,))]
        return [(key, tokens.split()) for key, tokens in rows]

    def defer(self, connection: sa.Connection) -> None:
        """Do nothing: FTS5 keeps what is added in segments, and merges them by itself."""

    def complete(self, connection: sa.Connection) -> None:
        """Merge all segments, which every look-up would search."""
        connection.exec_driver_sql(
            "INSERT INTO crabpath_fulltext(crabpath_fulltext) VALUES ('optimize')"
        )

    def search(
        self,
        connection: sa.Connection,
        idf: Mapping[str, float],
        limit: int,
        mean_length: float,  # noqa: ARG002  SQLite keeps its own statistics
    ) -> list[tuple[int, float]]:
        """Override :class:`FullText`."""
        match = " OR ".join(f'"{term}"' for term in idf)
        # The column "rank" would prepare and sort in a second statement.
        query = (
            "SELECT f.rowid, bm25(crabpath_fulltext) AS score FROM crabpath_fulltext f {} "
            "WHERE crabpath_fulltext MATCH ? ORDER BY score{} LIMIT ?"
        )
        by_id = f"JOIN {nodes.name} n ON n.key = f.rowid", ", n.id"
        with open_driver_cursor(connection) as cursor:
            rows = cursor.execute(query.format("", ""), (match, limit + 1)).fetchall()
            if _is_tied(rows, limit):
                rows = cursor.execute(query.format(*by_id), (match, limit)).fetchall()
        return [(key, max(0.0, -score)) for key, score in rows[:limit]]

    def find_postings(
        self,
        connection: sa.Connection,
        idf: Mapping[str, float],
        mean_length: float,  # noqa: ARG002  SQLite keeps its own statistics
    ) -> list[tuple[int, int, float]]:
        """Find all nodes with each term of ``idf``, as :meth:`FullText.find_postings`."""
        query = (
            "SELECT ?, rowid, -bm25(crabpath_fulltext) FROM crabpath_fulltext "
            "WHERE crabpath_fulltext MATCH ?"
        )
        terms = [f'"{term}"' for term in idf]
        with open_driver_cursor(connection) as cursor:
            cursor.execute(" UNION ALL ".join([query] * len(idf)), [*chain(*enumerate(terms))])
            rows: list[tuple[int, int, float]] = cursor.fetchall()
        return rows

    def find_phrases(
        self, connection: sa.Connection, phrases: Iterable[Sequence[str]], limit: int
    ) -> list[list[int]]:
        """Find at most ``limit`` nodes with the tokens of a phrase side by side: keys by phrase."""
        query = (
            f"SELECT f.rowid FROM crabpath_fulltext f JOIN {nodes.name} n ON n.key = f.rowid "
            "WHERE crabpath_fulltext MATCH ? ORDER BY n.id LIMIT ?"
        )
        with open_driver_cursor(connection) as cursor:
            return [
                [key for (key,) in cursor.execute(query, (f'"{" ".join(tokens)}"', limit))]
                for tokens in phrases
            ]


class TsVector:
    """PostgreSQL tsvector with a GIN index; tokens become lexemes without its parser."""

    _max_position = 16383
    _max_positions = 255
    _max_tokens = 2000  # which in no case reach the bounds
    _max_bytes = 1_000_000  # PostgreSQL refuses 1 MiB: the rest of the text is not indexed

    def create(self, connection: sa.Connection) -> None:
        """Create the index if it does not exist."""
        connection.exec_driver_sql(
            "CREATE TABLE IF NOT EXISTS crabpath_fulltext "
            "(node bigint PRIMARY KEY, tokens tsvector NOT NULL)"
        )
        self.complete(connection)

    def add(self, connection: sa.Connection, rows: Sequence[tuple[int, Sequence[str]]]) -> None:
        """Index nodes, given as ``(key, tokens)``."""
        keys, texts = [key for key, _ in rows], [self._build_tsvector(t) for _, t in rows]
        connection.execute(
            sa.text(
                "INSERT INTO crabpath_fulltext(node, tokens) SELECT node, CAST(tokens AS tsvector) "
                "FROM unnest(CAST(:keys AS bigint[]), CAST(:texts AS text[])) AS n(node, tokens) "
                "ON CONFLICT (node) DO UPDATE SET tokens = excluded.tokens"
            ),
            {"keys": keys, "texts": texts},
        )

    def _build_tsvector(self, tokens: Sequence[str]) -> str:
        if len(tokens) <= self._max_tokens:  # the database puts the positions of a token together
            return " ".join([f"'{token}':{place}" for place, token in enumerate(tokens, 1)])
        positions: dict[str, list[int]] = {}
        size = 0
        for position, token in enumerate(tokens, 1):
            if token not in positions:
                size += len(token.encode()) + 4
                if size > self._max_bytes:
                    break
            at = positions.setdefault(token, [])
            if len(at) < self._max_positions:
                at.append(min(position, self._max_position))
                size += 2
        return " ".join(f"'{t}':{','.join(map(str, at))}" for t, at in positions.items())

    def remove(self, connection: sa.Connection, keys: Sequence[int]) -> None:
        """Remove the nodes with these keys from the index."""
        connection.execute(
            sa.text("DELETE FROM crabpath_fulltext WHERE node = ANY(:keys)"), {"keys": list(keys)}
        )

    def get_words(
        self, connection: sa.Connection, keys: Sequence[int]
    ) -> list[tuple[int, Sequence[str]]]:
        """Override :class:`FullText`."""
        query = sa.text(
            "SELECT node, tsvector_to_array(tokens) FROM crabpath_fulltext WHERE node = ANY(:keys)"
        )
        return [(key, words) for key, words in connection.execute(query, {"keys": list(keys)})]

    def defer(self, connection: sa.Connection) -> None:
        """Drop the index; searches read all rows until it is created again."""
        connection.exec_driver_sql("DROP INDEX IF EXISTS ix_crabpath_fulltext")

    def complete(self, connection: sa.Connection) -> None:
        """Create the index, unless it exists."""
        # Each search reads all that the index has not taken in yet, else up to 4 MB.
        connection.exec_driver_sql(
            "CREATE INDEX IF NOT EXISTS ix_crabpath_fulltext ON crabpath_fulltext USING gin(tokens)"
            " WITH (gin_pending_list_limit = 256)"
        )

    def search(
        self, connection: sa.Connection, idf: Mapping[str, float], limit: int, mean_length: float
    ) -> list[tuple[int, float]]:
        """Find nodes with any of the terms of ``idf``: keys with BM25 scores ≥ 0, best first.

        Arguments are as for :meth:`FullText.search`. ``ts_rank`` uses neither idf nor length, but
        grows with the frequency f of a term as BM25 does: 1, 1.25, 1.36, … (the sum of 1/j² up to
        f) times a constant. It replaces BM25's function of the frequency here.
        """
        terms = [f"'{term}'" for term in idf]
        score = " + ".join(["%s::float * ts_rank(f.tokens, %s::tsquery)"] * len(terms))
        query = (
            f"SELECT f.node, ({score}) / (1 + {_K1} * ({1 - _B} + {_B} * n.length / %s::float)) "
            f"AS score FROM crabpath_fulltext f JOIN {contents.name} n ON n.node = f.node {{}} "
            "WHERE f.tokens @@ %s::tsquery ORDER BY score DESC{} LIMIT %s"
        )
        by_id = f"JOIN {nodes.name} i ON i.key = f.node", ', i.id COLLATE "C"'
        weights = map(self._weigh, idf.values())
        values = [*chain.from_iterable(zip(weights, terms, strict=True)), mean_length]
        with open_driver_cursor(connection) as cursor:
            asked = [*values, " | ".join(terms)]
            cursor.execute(query.format("", ""), [*asked, limit + 1])
            rows = cursor.fetchall()
            if _is_tied(rows, limit):
                cursor.execute(query.format(*by_id), [*asked, limit])
                rows = cursor.fetchall()
            return [(key, float(score)) for key, score in rows[:limit]]

    def _weigh(self, nats: float) -> float:
        return nats * (_K1 + 1) / _ONE_MATCH

    def find_postings(
        self, connection: sa.Connection, idf: Mapping[str, float], mean_length: float
    ) -> list[tuple[int, int, float]]:
        """Find all nodes with each term of ``idf``, as :meth:`FullText.find_postings`."""
        # One statement that is planned once, however many terms there are.
        query = (
            "SELECT t.place, f.node, t.weight * ts_rank(f.tokens, t.term::tsquery) "
            f"/ (1 + {_K1} * ({1 - _B} + {_B} * n.length / %s::float)) "
            "FROM unnest(%s::int[], %s::float[], %s::text[]) AS t(place, weight, term) "
            f"JOIN crabpath_fulltext f ON f.tokens @@ t.term::tsquery "
            f"JOIN {contents.name} n ON n.node = f.node"
        )
        weights = [self._weigh(nats) for nats in idf.values()]
        terms = [f"'{term}'" for term in idf]
        values = [mean_length, list(range(len(idf))), weights, terms]
        with open_driver_cursor(connection) as cursor:
            cursor.execute(query, values)
            rows: list[tuple[int, int, float]] = cursor.fetchall()
        return rows

    def find_phrases(
        self, connection: sa.Connection, phrases: Iterable[Sequence[str]], limit: int
    ) -> list[list[int]]:
        """Find at most ``limit`` nodes with the tokens of a phrase side by side: keys by phrase."""
        quoted = [" <-> ".join(f"'{token}'" for token in tokens) for tokens in phrases]
        found: list[list[int]] = [[] for _ in quoted]
        query = sa.text(
            "SELECT place, node FROM unnest(CAST(:phrases AS text[])) "
            "WITH ORDINALITY AS given(phrase, place) CROSS JOIN LATERAL ("
            f"SELECT f.node FROM crabpath_fulltext f JOIN {nodes.name} n ON n.key = f.node "
            "WHERE f.tokens @@ CAST(phrase AS tsquery) "
            'ORDER BY n.id COLLATE "C" LIMIT :most) AS held'
        )
        if quoted:
            for place, node in connection.execute(query, {"phrases": quoted, "most": limit}):
                found[place - 1].append(node)
        return found


TAKE_IN = (
    "SELECT gin_clean_pending_list(oid) FROM pg_class WHERE relname = 'ix_crabpath_fulltext' "
    "AND pg_table_is_visible(oid) AND pg_has_role(relowner, 'USAGE')"
)
"""Lets PostgreSQL take additions into its index; only the owner of an index may do so."""


def _is_tied(rows: Sequence[tuple[int, float]], limit: int) -> bool:
    """Whether the last row within the limit has the same score as the first one beyond it."""
    return len(rows) > limit > 0 and rows[limit][1] == rows[limit - 1][1]


def get_fulltext_index(dialect: str) -> FullText:
    """Return the full-text index for an SQLAlchemy dialect name."""
    return Fts5() if dialect == "sqlite" else TsVector()


class FullTextReader(Queries):
    """Searches of the full-text index on a reading connection."""

    def __init__(self, store: ReadableStore, index: FullText) -> None:
        """Keep the store to read from, and its full-text index."""
        super().__init__(store)
        self._index = index

    def search(
        self, idf: Mapping[str, float], limit: int, mean_length: float
    ) -> list[tuple[int, float]]:
        """Find nodes with any of the terms of ``idf``: keys with BM25 scores, best first.

        Arguments are as for :meth:`FullText.search`.
        """
        if not idf:
            return []
        with self._store.connect() as connection:
            return self._index.search(connection, idf, limit, mean_length)

    def find_postings(
        self, idf: Mapping[str, float], mean_length: float
    ) -> list[tuple[int, int, float]]:
        """Find all nodes with each term of ``idf``, as :meth:`FullText.find_postings`."""
        with self._store.connect() as connection:
            return self._index.find_postings(connection, idf, mean_length)

    def find_phrases(self, phrases: Iterable[Sequence[str]], limit: int) -> list[list[int]]:
        """Find at most ``limit`` nodes with the tokens of a phrase side by side: keys by phrase."""
        with self._store.connect() as connection:
            return self._index.find_phrases(connection, phrases, limit)
