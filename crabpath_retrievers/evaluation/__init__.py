"""``crabpath eval``: data sets, methods, scores, learning streams and reports."""
