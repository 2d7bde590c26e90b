"""From documents to nodes and edges: chunking, identity, linking, crash-safe publication."""
