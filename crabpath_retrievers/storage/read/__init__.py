"""Queries: each reads one kind of record within a reading transaction of the store."""
