"""The pointers of a frontier about which the policy is not sure."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from crabpath_retrievers.graph import Pointer
from crabpath_retrievers.routing.policy import RoutingRequest


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that one or several unclear pointers lead to.

    Attributes:
        pointer: The best of them.
        weight: Its effective weight, in [-1, 1].
        score: How far it is above STOP; below 0 the policy does not follow it.
        places: Indices of choice and pointer of all of them in the request.
    """

    pointer: Pointer
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
            known = found[pointer.target.key] = Candidate(pointer, weight, score, places)
        known.places.append(place)
    return sorted(found.values(), key=lambda candidate: -candidate.score)[:most]


def _scores(request: RoutingRequest) -> Iterator[tuple[tuple[int, int], Pointer, float, float]]:
    for row, choice in enumerate(request.choices):
        stop = request.policy.stop + choice.stop_weight
        scores = (choice.relevance + choice.weights - stop).tolist()
        columns = zip(choice.pointers, choice.weights.tolist(), scores, strict=True)
        for column, (pointer, weight, score) in enumerate(columns):
            yield (row, column), pointer, weight, score
