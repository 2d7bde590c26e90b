"""How far one user may speak against what others have said about the same question.

Where several teach one namespace, nobody alone turns round what another one has taught: what a user
says against it, or beside it, weighs at most a share of that, however often they say it. With a
share above a half two users outweigh one.
"""

from collections.abc import Mapping

Voices = Mapping[str, Mapping[str, float]]
"""What users have said about a question: credit by node id, by user."""


def allowed_share(said: Mapping[str, float], user: str, voices: Voices, share: float) -> float:
    """How much of what a user says of a question counts, in [0, 1].

    Args:
        said: Credit by node id, as it would count in full; below 0 against a document.
        user: Who says so.
        voices: What was said before.
        share: How much all that one user says against others may weigh, relative to these.
    """
    others = _favoured(voices, user)
    if not others:
        return 1.0
    most, own = max(others.values()), voices.get(user, {})
    left = 1.0
    for node, credit in said.items():
        before = own.get(node, 0.0)
        if credit > 0 and node not in others:
            left = min(left, (share * most - max(0.0, before)) / credit)
        elif credit < 0 and node in others:
            left = min(left, (share * others[node] + min(0.0, before)) / -credit)
    return max(0.0, left)


def _favoured(voices: Voices, user: str) -> dict[str, float]:
    """What others speak for, and how strongly."""
    found: dict[str, float] = {}
    for name, said in voices.items():
        for node, credit in said.items() if name != user else ():
            if credit > 0:
                found[node] = found.get(node, 0.0) + credit
    return found
