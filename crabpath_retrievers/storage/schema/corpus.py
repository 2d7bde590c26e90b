"""Tables of the corpus, which all namespaces share: nodes, contents, structural edges, terms."""

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

# The columns that retrieval reads of every node; everything else about it is in ``contents``.
nodes = Table(
    "crabpath_nodes",
    metadata,
    Column("key", Key, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("mentions", Integer, nullable=False, default=0),
    Column("title", Text, nullable=False),
    Column("embedding", LargeBinary, nullable=False),
    Column("terms", LargeBinary, nullable=False),
    # Key of the namespace that alone sees the node; 0: all do; below 0: hidden (see ``aliases``).
    Column("owner", BigInteger, nullable=False, server_default="0"),
    # Number of its ``graph.Authority``, which sets how fast learned weights to it decay.
    Column("authority", SmallInteger, nullable=False, server_default="0"),
    # A node is a hub of all levels from 1 to this one; notes have level 0.
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
    # Id of the node that this one is a part of, copied from its metadata, for the partial index.
    Column("split_from", Text),
)
Index(
    "ix_crabpath_contents_split_from",
    contents.c.split_from,
    sqlite_where=contents.c.split_from.is_not(None),
    postgresql_where=contents.c.split_from.is_not(None),
)

# Names by which other texts mention a node: titles, headings, aliases of the document.
names = Table(
    "crabpath_names",
    metadata,
    # Compared by code points, as on SQLite: names that begin alike stand together.
    Column("name", Text().with_variant(Text(collation="C"), "postgresql"), primary_key=True),
    Column("node", Key, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

Index("ix_crabpath_names_node", names.c.node)

# Link targets that lead to a node: file names, URLs, anchors.
addresses = Table(
    "crabpath_addresses",
    metadata,
    Column("address", Text, primary_key=True),
    Column("node", Key, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

Index("ix_crabpath_addresses_node", addresses.c.node)

# Link targets that occur in the text of a node.
references = Table(
    "crabpath_references",
    metadata,
    Column("address", Text, primary_key=True),
    Column("node", Key, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

Index("ix_crabpath_references_node", references.c.node)

# Structural edges, derived from the text; learned weights are in ``overlay``.
edges = Table(
    "crabpath_edges",
    metadata,
    Column("source", Key, primary_key=True, autoincrement=False),
    Column("target", Key, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, primary_key=True, autoincrement=False),
    Column("prior", Float, nullable=False),
    # Weight to which decay brings the edge back.
    Column("floor", Float, nullable=False),
    # Decay exponent from which its weight decays in a namespace without a learned weight.
    Column("decay_at", Float, nullable=False),
    sqlite_with_rowid=False,
)

Index("ix_crabpath_edges_target", edges.c.target, edges.c.kind)

# Document frequency of each term.
terms = Table(
    "crabpath_terms",
    metadata,
    Column("term", Text, primary_key=True),
    Column("frequency", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# Queue of unfinished ingest work; a restart finishes it.
staging = Table(
    "crabpath_staging",
    metadata,
    Column("id", Text, primary_key=True),
    # Before publication: "put", "remove", "retire", "move", "split". After it: "link" waits for
    # edges, "index" for its vector in the index, "return" for its vector and then for edges.
    Column("operation", String(8), nullable=False),
    Column("payload", Text),
    Column("embedding", LargeBinary),
)

# Ids whose vectors must still be deleted from the vector index.
index_deletions = Table("crabpath_index_deletions", metadata, Column("id", Text, primary_key=True))

# Merged and split documents: hidden nodes, and the nodes that take their place.
aliases = Table(
    "crabpath_aliases",
    metadata,
    Column("node", Key, primary_key=True, autoincrement=False),
    Column("target", Key, primary_key=True, autoincrement=False),
    # Of several targets the one at position 0 answers to the id of the hidden node.
    Column("position", Integer, nullable=False),
    # "merge" or "split", and the id of the maintenance run that did it.
    Column("kind", String(8), nullable=False),
    Column("run", String(64), nullable=False),
    sqlite_with_rowid=False,
)

Index("ix_crabpath_aliases_target", aliases.c.target)
