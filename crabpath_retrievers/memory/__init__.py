"""Components of a memory: what ``CrabPath`` is made of, one file per topic."""
