"""Names under which the metadata of the store holds trials."""

PREFIX = "trial:"


def meta_name(trial: str) -> str:
    """Name of the metadata row that holds the state of a trial."""
    return PREFIX + trial
