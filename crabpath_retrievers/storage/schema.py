"""Tables of the graph store. Surrogate integer keys inside, stable string ids outside."""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
)

metadata = MetaData()
# SQLite only autoincrements a column declared INTEGER; PostgreSQL needs 64 bits spelled out.
Key = BigInteger().with_variant(Integer, "sqlite")

meta = Table(
    "crabpath_meta",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

# What a walk reads of a node stands in one row, and nothing else in it.
nodes = Table(
    "crabpath_nodes",
    metadata,
    Column("key", Key, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("mentions", Integer, nullable=False, default=0),
    Column("title", Text, nullable=False),
    Column("embedding", LargeBinary, nullable=False),
    Column("terms", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)

contents = Table(
    "crabpath_contents",
    metadata,
    Column("node", Key, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False, index=True),
    Column("source", Text, nullable=False, index=True),
    Column("position", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("length", Integer, nullable=False),
    Column("content", Text, nullable=False),
    Column("metadata", Text, nullable=False),
)

names = Table(
    "crabpath_names",
    metadata,
    Column("name", Text, primary_key=True),
    Column("node", Key, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)
Index("ix_crabpath_names_node", names.c.node)

addresses = Table(
    "crabpath_addresses",
    metadata,
    Column("address", Text, primary_key=True),
    Column("node", Key, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)
Index("ix_crabpath_addresses_node", addresses.c.node)

references = Table(
    "crabpath_references",
    metadata,
    Column("address", Text, primary_key=True),
    Column("node", Key, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)
Index("ix_crabpath_references_node", references.c.node)

edges = Table(
    "crabpath_edges",
    metadata,
    Column("source", Key, primary_key=True, autoincrement=False),
    Column("target", Key, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, primary_key=True, autoincrement=False),
    Column("prior", Float, nullable=False),
    Column("floor", Float, nullable=False),
    Column("born", Float, nullable=False),
    sqlite_with_rowid=False,
)
Index("ix_crabpath_edges_target", edges.c.target, edges.c.kind)

namespaces = Table(
    "crabpath_namespaces",
    metadata,
    Column("key", Key, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False, unique=True),
    Column("turn", BigInteger, nullable=False, default=0),
    Column("exponent", Float, nullable=False, default=0.0),
)

overlay = Table(
    "crabpath_overlay",
    metadata,
    Column("namespace", Key, primary_key=True, autoincrement=False),
    Column("source", Key, primary_key=True, autoincrement=False),
    Column("target", Key, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, primary_key=True, autoincrement=False),
    Column("weight", Float, nullable=False),
    Column("mark", Float, nullable=False),
    sqlite_with_rowid=False,
)
Index("ix_crabpath_overlay_source", overlay.c.source)
Index("ix_crabpath_overlay_target", overlay.c.target)

turns = Table(
    "crabpath_turns",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("namespace", Key, nullable=False),
    Column("clock", BigInteger, nullable=False),
    Column("created", Float, nullable=False),
    Column("run_id", String(64), index=True),
    Column("record", Text, nullable=False),
)
Index("ix_crabpath_turns_clock", turns.c.namespace, turns.c.clock)

journal = Table(
    "crabpath_journal",
    metadata,
    Column("sequence", Key, primary_key=True, autoincrement=True),
    Column("created", Float, nullable=False),
    Column("namespace", Text),
    Column("change", String(32), nullable=False),
    Column("payload", Text, nullable=False),
    Column("inverse", Text),
)

terms = Table(
    "crabpath_terms",
    metadata,
    Column("term", Text, primary_key=True),
    Column("frequency", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

staging = Table(
    "crabpath_staging",
    metadata,
    Column("id", Text, primary_key=True),
    # "put" and "remove" wait for their vectors and for publication, "link" for edges.
    Column("operation", String(8), nullable=False),
    Column("payload", Text),
    Column("embedding", LargeBinary),
)

trash = Table("crabpath_trash", metadata, Column("id", Text, primary_key=True))
