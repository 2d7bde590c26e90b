"""Comparison of two retrievers on one's own documents, judged blind by a person."""
