"""What a feedback says about each document of a turn (design §5)."""

from collections.abc import Mapping

from crabpath_retrievers.outcome import Credit, Feedback
from crabpath_retrievers.trajectory import Turn


def credit(
    turn: Turn, feedback: Feedback, supported: Mapping[str, float] | None, weight: float
) -> Credit:
    """Credit of a turn and, where something finer is known, of its returned documents.

    What the host says goes before what was found out: ``unused`` → 0; ``used`` → z, the other
    returned ones 0; else support times z. Only returned documents are credited, and without
    any of these, or with a correction alone, none is.

    Args:
        turn: What was returned.
        feedback: z and what is known of the documents.
        supported: Support in [0, 1] by document id, found from the answer; None or empty when not
            known.
        weight: How much the feedback counts for this turn, in [0, 1].
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
    # 0 where z or the share is: a negative zero would look like blame in a record.
    documents = {node: share * z if share else 0.0 for node, share in shares.items()}
    return Credit(z, weight, documents, inferred)
