"""Ranking: features of the candidates and a logistic model with a shipped prior."""
