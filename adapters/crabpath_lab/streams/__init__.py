"""Streams: retrieve, score, then learn, question by question (prequential evaluation)."""
