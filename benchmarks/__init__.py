"""Benchmarks and studies of CrabPath, run from a checkout; not part of the wheel."""
