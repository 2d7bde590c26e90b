"""What a chat model may choose among: where a walk begins, and the pointers that are not clear."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from crabpath_retrievers.graph import NodeHead, Pointer
from crabpath_retrievers.routing.policy import RoutingRequest


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that search found, or that one or several unclear pointers lead to.

    Attributes:
        target: The node.
        kind: Of the best pointer; ``search`` where the walk begins.
        weight: Effective weight of that pointer, in [-1, 1]; or energy, in [0, 1].
        score: How far it is above STOP; below 0 the policy does not follow it.
        places: Indices of choice and pointer of all pointers to it in the request.
    """

    target: NodeHead
    kind: str
    weight: float
    score: float
    places: list[tuple[int, int]] = field(default_factory=list)


def unclear(request: RoutingRequest, margin: float, most: int) -> list[Candidate]:
    """Nodes about which the policy is not sure, those that it prefers first.

    Args:
        request: What is to be decided.
        margin: Distance from STOP, in units of relevance plus weight, from which it is sure.
        most: How many at most.
    """
    found: dict[int, Candidate] = {}
    for place, pointer, weight, score in _scores(request):
        if abs(score) >= margin:
            continue
        known = found.get(pointer.target.key)
        if known is None or known.score < score:
            places = [] if known is None else known.places
            known = Candidate(pointer.target, pointer.kind.label, weight, score, places)
            found[pointer.target.key] = known
        known.places.append(place)
    return sorted(found.values(), key=lambda candidate: -candidate.score)[:most]


def entered(request: RoutingRequest) -> list[Candidate]:
    """Nodes where the walk begins: search found them, and the ranking is not decided yet."""
    return [Candidate(head, "search", energy, energy) for head, energy in request.entries]


def _scores(request: RoutingRequest) -> Iterator[tuple[tuple[int, int], Pointer, float, float]]:
    for row, choice in enumerate(request.choices):
        stop = request.policy.stop_score + choice.stop_weight
        scores = (choice.relevance + choice.weights - stop).tolist()
        columns = zip(choice.pointers, choice.weights.tolist(), scores, strict=True)
        for column, (pointer, weight, score) in enumerate(columns):
            yield (row, column), pointer, weight, score
