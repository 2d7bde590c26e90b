"""Regions of the embedding space, and what is learned about actions in them.

After the region MDP of [CVX RFC-013] (docs/bibliography.md).
"""
