"""Credit of a turn and of its returned documents, from one feedback."""

from collections.abc import Mapping

from crabpath_retrievers.outcome import Credit, Feedback
from crabpath_retrievers.trajectory import Turn


def assign_credit(
    turn: Turn, feedback: Feedback, supported: Mapping[str, float] | None, weight: float
) -> Credit:
    """Assign credit to a turn and, if finer evidence exists, to its returned documents.

    What the host states takes precedence over attribution: ``unused`` documents get 0; with
    ``used`` given, used documents get z and the others 0; otherwise each gets its support times z.
    Only returned documents are credited. Without any of these, or with a correction only, no
    document is.

    Args:
        turn: The turn with its returned documents.
        feedback: The outcome z, and the used and unused documents if stated.
        supported: Support in [0, 1] by document id, attributed from the answer; None or empty if
            not known.
        weight: Weight of the feedback for this turn, in [0, 1].
    """
    returned = [item.node for item in turn.returned]
    shares: dict[str, float] = {}
    inferred: frozenset[str] = frozenset()
    if feedback.used is not None:
        shares = {node: float(node in feedback.used) for node in returned}
    elif supported and any(supported.get(node, 0.0) > 0 for node in returned):
        shares = {node: supported.get(node, 0.0) for node in returned}
        inferred = frozenset(returned)
    if feedback.unused is not None:
        unused = {node: 0.0 for node in returned if node in feedback.unused}
        shares, inferred = shares | unused, inferred.difference(unused)
    z = feedback.outcome
    # A negative zero would look like blame in a record.
    documents = {node: share * z if share else 0.0 for node, share in shares.items()}
    return Credit(z, weight, documents, inferred)
