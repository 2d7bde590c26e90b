"""Names under which the metadata of the store holds trials."""

TRIAL_PREFIX = "trial:"


def build_trial_key(trial: str) -> str:
    """Name of the metadata row that holds the state of a trial."""
    return TRIAL_PREFIX + trial
