"""Wrap an existing vector store, or move a memory to another store."""
