"""Credit of decisions: which followed edges led to which documents, with what credit."""

from collections.abc import Container, Iterator
from typing import NamedTuple

from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.trajectory import ReturnedDocument, Turn

FollowedEdge = tuple[str, str]
"""A followed edge: ids of source and target."""


class EdgeCredit(NamedTuple):
    """Credit of one followed edge.

    Attributes:
        credit: z of the best-credited document reached through it, in [-1, 1].
        hops: Edges between it and that document; 0 if it led to the document itself.
    """

    credit: float
    hops: int


def get_known_credit(turn: Turn, credit: Credit) -> dict[str, float]:
    """Return the credit in [-1, 1] of the returned documents for which it is known.

    If only the outcome is known, it is the credit of every returned document.
    """
    nodes = [item.node for item in turn.returned]
    if not credit.documents:
        return dict.fromkeys(nodes, credit.outcome)
    return {node: credit.documents[node] for node in nodes if node in credit.documents}


def assign_edge_credit(
    turn: Turn,
    known: dict[str, float],
    decided: Container[FollowedEdge],
    *,
    last_only: bool = False,
) -> dict[FollowedEdge, EdgeCredit]:
    """Return the credit of every decided edge that led to a document with known credit.

    Of several documents behind one edge the best credited counts: a decision that found one useful
    document did not fail because of the others. Edges that led to no such document have none.

    Args:
        turn: The turn with its returned documents and their paths.
        known: Credit by document.
        decided: Edges that were decided, not followed by reflex.
        last_only: Only edges that were the last decision of a path (myopic rule).
    """
    credit_by_move: dict[FollowedEdge, EdgeCredit] = {}
    last: set[FollowedEdge] = set()
    for item in turn.returned:
        route = list(_list_decisions(item, decided)) if item.node in known else []
        for move, hops in route:
            merit = EdgeCredit(known[item.node], hops)
            credit_by_move[move] = max(credit_by_move.get(move, merit), merit, key=_sort_key)
        last.update(move for move, _ in route[-1:])
    return {move: credit_by_move[move] for move in credit_by_move if not last_only or move in last}


def _list_decisions(
    item: ReturnedDocument, decided: Container[FollowedEdge]
) -> Iterator[tuple[FollowedEdge, int]]:
    """Yield the decided edges on the path to a document, with the hops left after each."""
    for passed, edge in enumerate(item.path, start=1):
        move = (edge.source, edge.target)
        if move in decided:
            yield move, len(item.path) - passed


def _sort_key(merit: EdgeCredit) -> tuple[float, int]:
    return merit.credit, -merit.hops
