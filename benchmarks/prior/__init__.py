"""Fitting the prior of the ranker on training files."""
