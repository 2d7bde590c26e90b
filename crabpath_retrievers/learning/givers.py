"""A bound on how far one user can contradict other users about the same question.

In a namespace that several users teach, nobody alone reverses what another one has taught: credit
that contradicts others, or competes with it, adds up to at most a share of theirs, however often it
is given. With a share above one half two users outweigh one.
"""

from collections.abc import Mapping

CreditByUser = Mapping[str, Mapping[str, float]]
"""Credit for a question: by user, then by node id."""


def limit_user_share(
    credit_stated: Mapping[str, float], user: str, voices: CreditByUser, share: float
) -> float:
    """Return the share of a user's credit for a question that counts, in [0, 1].

    Args:
        credit_stated: The user's credit by node id, if counted in full; below 0 against a document.
        user: The user.
        voices: Credit that users gave before.
        share: Upper bound on a user's contradicting credit, relative to the credit of others.
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


def _sum_support(voices: CreditByUser, user: str) -> dict[str, float]:
    """Sum the positive credit of other users, by node id."""
    credit_by_node: dict[str, float] = {}
    for name, credit_stated in voices.items():
        for node, credit in credit_stated.items() if name != user else ():
            if credit > 0:
                credit_by_node[node] = credit_by_node.get(node, 0.0) + credit
    return credit_by_node
