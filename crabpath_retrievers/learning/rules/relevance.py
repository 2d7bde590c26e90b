"""Relevance of returned documents in a turn without stated use."""

from crabpath_retrievers.core.turn import Turn

_EXPECTED_SHARE = 0.5  # least expected share of relevant documents among those returned
_MIN_PROBABILITY = 1e-9


def calibrate_relevance(turn: Turn) -> dict[str, float]:
    """Calibrate the ranker's probabilities of relevance for one turn, in (0, 1) by node id.

    The ranker is calibrated on questions whose words occur in their documents; elsewhere all its
    probabilities are near 0, but in the right order. Their log odds are shifted by one constant
    until half of the documents are expected to be relevant, unless more are (prior correction: King
    & Zeng 2001, §4.1).

    Args:
        turn: The turn with its returned documents and their probabilities.
    """
    from scipy.optimize import brentq
    from scipy.special import expit, logit

    if not turn.returned:
        return {}
    probabilities = [
        min(1.0 - _MIN_PROBABILITY, max(_MIN_PROBABILITY, item.probability))
        for item in turn.returned
    ]
    log_odds, expected = logit(probabilities), _EXPECTED_SHARE * len(probabilities)
    if sum(probabilities) < expected:
        upper = -logit(_MIN_PROBABILITY) + 1.0 - min(log_odds)
        log_odds = log_odds + brentq(
            lambda shift: float(expit(log_odds + shift).sum()) - expected, 0.0, upper
        )
    return dict(zip((item.node for item in turn.returned), expit(log_odds).tolist(), strict=True))
