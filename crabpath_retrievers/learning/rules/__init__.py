"""The learning rules: pure functions from credited turns to changes, one chapter per file."""
