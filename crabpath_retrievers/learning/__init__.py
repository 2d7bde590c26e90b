"""What an outcome changes: pure functions from turn records to change records (design §5)."""
