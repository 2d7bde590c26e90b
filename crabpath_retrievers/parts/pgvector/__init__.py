"""Vectors in the PostgreSQL database of the graph, by its extension pgvector."""
