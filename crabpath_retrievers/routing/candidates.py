"""The nodes among which a chat model chooses: entries of the walk and targets of unclear edges."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from crabpath_retrievers.graph import NodeHead, OutgoingEdge
from crabpath_retrievers.routing.policy import RoutingRequest


@dataclass(frozen=True, slots=True)
class RouteOption:
    """An entry of the walk, or a node that unclear edges lead to.

    Attributes:
        target: The node.
        kind: Kind of the best edge; ``search`` for an entry.
        weight: Effective weight of the best edge, in [-1, 1]; energy of an entry, in [0, 1].
        score: Score above that of STOP; below 0 the policy does not follow the edge.
        places: Indices (choice, edge) of all edges to it in the request.
    """

    target: NodeHead
    kind: str
    weight: float
    score: float
    places: list[tuple[int, int]] = field(default_factory=list)


def find_unclear(request: RoutingRequest, margin: float, limit: int) -> list[RouteOption]:
    """Targets of edges whose score is close to that of STOP, best first.

    Args:
        request: Decisions of a hop.
        margin: Distance from STOP, in units of relevance plus weight, from which an edge is
            clear.
        limit: Most nodes.
    """
    options: dict[int, RouteOption] = {}
    for place, edge, weight, score in _score_edges(request):
        if abs(score) >= margin:
            continue
        known = options.get(edge.target.key)
        if known is None or known.score < score:
            places = [] if known is None else known.places
            known = RouteOption(edge.target, edge.kind.label, weight, score, places)
            options[edge.target.key] = known
        known.places.append(place)
    return sorted(options.values(), key=lambda option: -option.score)[:limit]


def list_entries(request: RoutingRequest) -> list[RouteOption]:
    """The entries of the walk; none after the first hop."""
    return [RouteOption(head, "search", energy, energy) for head, energy in request.entries]


def _score_edges(
    request: RoutingRequest,
) -> Iterator[tuple[tuple[int, int], OutgoingEdge, float, float]]:
    """Place, edge, weight and score above STOP of every edge."""
    for row, choice in enumerate(request.choices):
        stop = request.policy.stop_score + choice.stop_weight
        scores = (choice.relevance + choice.weights - stop).tolist()
        columns = zip(choice.edges, choice.weights.tolist(), scores, strict=True)
        for column, (edge, weight, score) in enumerate(columns):
            yield (row, column), edge, weight, score
