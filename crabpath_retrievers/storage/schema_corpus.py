"""Tables of what all namespaces share: nodes, edges, the text they were read off."""

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
    # Key of the one namespace that sees it, 0 for all; and how far it is above learning.
    Column("owner", BigInteger, nullable=False, server_default="0"),
    Column("authority", SmallInteger, nullable=False, server_default="0"),
    # Nodes of level L and above are the hubs of that level; notes have 0.
    Column("level", SmallInteger, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)
Index("ix_crabpath_nodes_level", nodes.c.level)

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
    # Id of the node that it was split off, as its metadata says; so that splits are found.
    Column("split_from", Text),
)
Index(
    "ix_crabpath_contents_split_from",
    contents.c.split_from,
    sqlite_where=contents.c.split_from.is_not(None),
    postgresql_where=contents.c.split_from.is_not(None),
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
    # "put" and "remove" wait for their vectors and for publication, "link" for edges, "index" for
    # their vectors alone, "return" for both.
    Column("operation", String(8), nullable=False),
    Column("payload", Text),
    Column("embedding", LargeBinary),
)

trash = Table("crabpath_trash", metadata, Column("id", Text, primary_key=True))

replaced = Table(
    "crabpath_replaced",
    metadata,
    # A document that no query sees, because others say what it says: see the module ``replaced``.
    Column("node", Key, primary_key=True, autoincrement=False),
    Column("standing", Key, primary_key=True, autoincrement=False),
    # Which of several; the one with 0 answers to the id.
    Column("place", Integer, nullable=False),
    # "merge" or "split", and the maintenance that did it.
    Column("kind", String(8), nullable=False),
    Column("run", String(64), nullable=False),
    sqlite_with_rowid=False,
)

Index("ix_crabpath_replaced_standing", replaced.c.standing)
