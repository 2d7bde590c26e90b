"""A memory that grows to a million passages: what it takes, and how it answers."""
