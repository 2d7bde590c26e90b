"""Who decides at an ambiguous pointer."""
