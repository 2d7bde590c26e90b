"""How far each document of a turn is believed to matter, where nobody said what was used."""

from crabpath_retrievers.trajectory import Turn

_EXPECTED_SHARE = 0.5  # least expected share of relevant documents among those returned
_MIN_PROBABILITY = 1e-9


def believed(turn: Turn) -> dict[str, float]:
    """P(it matters) of each returned document, in (0, 1) by node id.

    The ranker's probabilities are calibrated on questions whose words stand in their documents;
    elsewhere all of them are near 0, in the right order. So their log odds are moved by one number
    until half of the documents is expected to matter, unless more are (prior correction: King &
    Zeng 2001, §4.1).

    Args:
        turn: What was returned, with the ranker's probabilities.
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
