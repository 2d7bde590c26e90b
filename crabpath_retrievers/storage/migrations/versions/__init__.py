"""One file per schema version, each of which makes it of the one before."""
