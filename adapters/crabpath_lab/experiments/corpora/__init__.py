"""Texts and questions that the experiments are made of."""
