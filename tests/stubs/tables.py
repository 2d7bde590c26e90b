"""The tables of a store by the names that tests use: renaming a table touches this file alone."""

from crabpath_retrievers.storage import schema

addresses = schema.addresses
consumed = schema.consumed
contents = schema.contents
counts = schema.counts
edges = schema.edges
episodes = schema.episodes
feedback = schema.feedback
health = schema.health
journal = schema.journal
meta = schema.meta
metadata = schema.metadata
moves = schema.moves
names = schema.names
namespaces = schema.namespaces
nodes = schema.nodes
notes = schema.notes
overlay = schema.overlay
references = schema.references
replaced = schema.replaced
snapshots = schema.snapshots
staging = schema.staging
steps = schema.steps
taught = schema.taught
terms = schema.terms
trash = schema.trash
turns = schema.turns
usage = schema.usage
