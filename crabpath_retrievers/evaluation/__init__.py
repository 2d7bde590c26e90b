"""Measuring: data sets, baselines, the fitted prior, speed."""
