"""Regions of the embedding space, and what is known of the steps taken in them (document 004 A)."""
