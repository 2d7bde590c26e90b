"""A small real sample for all tests of the evaluation."""

from small_sample import beir_folder, cache, cached, small, write

__all__ = ["beir_folder", "cache", "cached", "small", "write"]
