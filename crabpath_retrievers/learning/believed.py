"""How far each document of a turn is believed to matter, where nobody said what was used."""

from crabpath_retrievers.trajectory import Turn

_SHARE = 0.5  # of what is returned, that at least matters in a turn that is worth learning from
_SURE = 1e-9


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
    given = [min(1.0 - _SURE, max(_SURE, item.probability)) for item in turn.returned]
    odds, expected = logit(given), _SHARE * len(given)
    if sum(given) < expected:
        far = -logit(_SURE) + 1.0 - min(odds)
        odds = odds + brentq(lambda by: float(expit(odds + by).sum()) - expected, 0.0, far)
    return dict(zip((item.node for item in turn.returned), expit(odds).tolist(), strict=True))
