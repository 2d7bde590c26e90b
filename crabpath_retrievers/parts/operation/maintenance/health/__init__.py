"""Health of a memory: eight metrics, their ranges, and their history."""
