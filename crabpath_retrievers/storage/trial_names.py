"""Under which name of the store's own facts a trial stands."""

PREFIX = "trial:"


def meta_name(trial: str) -> str:
    """Name of the row that keeps the state of a trial."""
    return PREFIX + trial
