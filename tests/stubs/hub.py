"""A node with very many edges."""

import sqlalchemy as sa

from tests.seams import get_engine

FILL = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {hub})
INSERT INTO {table} ({columns}) SELECT {values} FROM n {more}
"""


def make_hub(memory, size):
    """Let d1 mention more pages, with weights from .3 to .8 by the text."""
    first = memory.store.catalog.get_last_key() + 1
    hub = memory.store.learned.keys(["d1"])["d1"]
    of_d1 = "JOIN crabpath_nodes AS d ON d.id = 'd1' JOIN crabpath_contents AS c ON c.node = d.key"
    rows = (
        (
            "crabpath_nodes",
            "key, id, mentions, title, embedding, terms",
            f"{first} + i, 'far' || i, 0, 'Far ' || i, d.embedding, d.terms",
            of_d1,
        ),
        (
            "crabpath_contents",
            "node, document, source, position, digest, length, content, metadata",
            f"{first} + i, 'far' || i, 'far', i, '', c.length, c.content, c.metadata",
            of_d1,
        ),
        (
            "crabpath_edges",
            "source, target, kind, prior, floor, decay_at",
            f"{hub}, {first} + i, 4, 0.3 + (i % 1000) / 2000.0, 0.3 + (i % 1000) / 2000.0, 0",
            "",
        ),
    )
    with get_engine(memory.store).begin() as connection:
        for table, columns, values, more in rows:
            given = {"hub": size, "table": table, "columns": columns, "values": values}
            connection.execute(sa.text(FILL.format(**given, more=more)))
    memory.store.refresh_statistics()
