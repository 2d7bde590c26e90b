"""Typed searches: similarity search that uses typed edges, after [CVX RFC-013].

The document is listed in docs/bibliography.md.
"""
