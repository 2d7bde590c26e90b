"""How far one user may speak against what others have said about the same question.

Where several teach one namespace, nobody alone turns round what another one has taught: what a user
says against it, or beside it, weighs at most a share of that, however often they say it. With a
share above a half two users outweigh one.
"""

from collections.abc import Mapping

Voices = Mapping[str, Mapping[str, float]]
"""What users have said about a question: credit by node id, by user."""


def allowed_share(
    credit_stated: Mapping[str, float], user: str, voices: Voices, share: float
) -> float:
    """How much of what a user says of a question counts, in [0, 1].

    Args:
        said: Credit by node id, as it would count in full; below 0 against a document.
        user: Who says so.
        voices: What was said before.
        share: How much all that one user says against others may weigh, relative to these.
    """
    others_credit = _sum_support(voices, user)
    if not others_credit:
        return 1.0
    strongest, own_credit = max(others_credit.values()), voices.get(user, {})
    allowed = 1.0
    for node, credit in credit_stated.items():
        own_before = own_credit.get(node, 0.0)
        if credit > 0 and node not in others_credit:
            allowed = min(allowed, (share * strongest - max(0.0, own_before)) / credit)
        elif credit < 0 and node in others_credit:
            allowed = min(allowed, (share * others_credit[node] + min(0.0, own_before)) / -credit)
    return max(0.0, allowed)


def _sum_support(voices: Voices, user: str) -> dict[str, float]:
    """What others speak for, and how strongly."""
    credit_by_node: dict[str, float] = {}
    for name, credit_stated in voices.items():
        for node, credit in credit_stated.items() if name != user else ():
            if credit > 0:
                credit_by_node[node] = credit_by_node.get(node, 0.0) + credit
    return credit_by_node
