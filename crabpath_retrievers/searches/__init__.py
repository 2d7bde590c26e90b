"""Searches over vectors and typed edges (documents 004 B to D)."""
