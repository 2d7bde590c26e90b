"""Memories are broken on purpose, and what was lost is counted: ``make soak``."""
