"""Feedback: kept first, then applied, once (design §5)."""
