"""The tables of a store by the names that tests use: renaming a table touches this file alone."""

import json
from typing import Any

from crabpath_retrievers.storage import GraphStore, schema

addresses = schema.addresses
consumed_turns = schema.consumed_turns
contents = schema.contents
edges = schema.edges
episodes = schema.episodes
feedback = schema.feedback
feedback_effects = schema.feedback_effects
health_reports = schema.health_reports
index_deletions = schema.index_deletions
journal = schema.journal
meta = schema.meta
metadata = schema.metadata
names = schema.names
namespaces = schema.namespaces
nodes = schema.nodes
notes = schema.notes
overlay = schema.overlay
pair_counts = schema.pair_counts
references = schema.references
snapshots = schema.snapshots
staging = schema.staging
terms = schema.terms
transitions = schema.transitions
turns = schema.turns
usage = schema.usage
weight_changes = schema.weight_changes


def read_journal(store: GraphStore) -> list[dict[str, Any]]:
    """Rows of the journal, newest first."""
    query = journal.select().order_by(journal.c.sequence.desc())
    with store.connect() as connection:
        rows = connection.execute(query).mappings().all()
    return [{**row, "payload": json.loads(row["payload"])} for row in rows]
