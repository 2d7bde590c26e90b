"""Comparison on one's own documents: two retrievers, the same questions, a person who judges blind."""
