"""Records and pure functions that every other package uses: no I/O, no framework."""
