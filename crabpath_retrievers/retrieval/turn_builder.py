"""Building the turn record of a retrieval, from which feedback learns."""

import time
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from crabpath_retrievers.core.graph import Candidate, NodeHead, WalkEdge
from crabpath_retrievers.core.turn import (
    DRAFT_ARM,
    PathEdge,
    ReturnedDocument,
    SeedRecord,
    Turn,
    make_turn_id,
)
from crabpath_retrievers.rerank.features import FEATURES, Matrix
from crabpath_retrievers.retrieval.walk import Walk, to_path_edge

if TYPE_CHECKING:
    from crabpath_retrievers.retrieval.chooser import Candidates

_DIGITS = 5
_MOST_REPEATS = 20  # that a turn records
# Cosine of the best match, as in [CrabPath]: a known query, a novel one, and noise below that.
_KNOWN, _NOVEL, _NOISE = 0.60, 0.58, 0.28


class Rankings(NamedTuple):
    """Nodes that the ranking before any lesson, and the learned one, return, best first.

    Attributes:
        frozen: Ids of the first; None where they are not compared.
        learned: Ids of the second; None where that is what was returned.
        teams: Which of both drafted each returned document; empty unless both answered.
    """

    frozen: tuple[str, ...] | None = None
    learned: tuple[str, ...] | None = None
    teams: Mapping[str, str] = MappingProxyType({})


def find_strongest_edges(edges: Iterable[WalkEdge], keys: Container[int]) -> dict[int, WalkEdge]:
    """The strongest edge to each node with one of these keys, by key; others are left out."""
    best: dict[int, WalkEdge] = {}
    for edge in edges:
        key = edge.target.key
        if key in keys and (key not in best or best[key].strength < edge.strength):
            best[key] = edge
    return best


def describe_returned(
    hit: Candidate,
    row: Matrix,
    score: tuple[float, float, float],
    walk: Walk,
    best: WalkEdge | None,
    propensity: float | None = None,
    superseded_by: str | None = None,
) -> ReturnedDocument:
    """The record of a returned document.

    Args:
        hit: The document.
        row: Its features, shape ``[len(FEATURES)]``.
        score: Probability of relevance, in [0, 1]; log-odds of the logistic model before
            calibration; past uses and passes that were counted.
        walk: The walk of the turn.
        best: Strongest edge to the document; None without one.
        propensity: Probability that a draw of the ranker returns it, in [0, 1].
        superseded_by: Id of a newer version of it.
    """
    return ReturnedDocument(
        node=hit.head.id,
        probability=round(score[0], _DIGITS),
        origin="seed" if hit.found else "walk",
        path=_path(hit, walk, best),
        features={
            name: round(value, _DIGITS)
            for name, value in zip(FEATURES, row.tolist(), strict=True)
            if value
        },
        support=best and to_path_edge(best, 0.0),
        propensity=propensity,
        log_odds=round(score[1], _DIGITS),
        trials=round(score[2], _DIGITS),
        superseded_by=superseded_by,
    )


def _path(hit: Candidate, walk: Walk, best: WalkEdge | None) -> tuple[PathEdge, ...]:
    """Route to a visited node, or route to its strongest source plus the edge not followed."""
    visit = walk.visits.get(hit.head.key)
    if visit:
        return visit.path
    if hit.found or best is None:
        return ()
    return (*walk.visits[best.source.key].path, to_path_edge(best, 0.0))


def build_turn(
    found: "Candidates",
    ranked: Sequence[ReturnedDocument],
    rankings: Rankings,
    latency_ms: dict[str, float],
    *,
    explored: bool,
) -> Turn:
    """The record of one retrieval.

    Args:
        found: The candidates.
        ranked: The documents returned, best first.
        rankings: What both rankings return or would have.
        latency_ms: Milliseconds by stage.
        explored: Whether choices were sampled.
    """
    query, walk, hits = found.query, found.walk, found.seeds.hits
    top = max((hit.similarity for hit in hits.values()), default=0.0)
    return Turn(
        id=make_turn_id(),
        namespace=query.namespace,
        clock=found.seeds.clock.turn + 1,
        created=time.time(),
        query=query.text,
        seeds=tuple(
            _seed(visit.head, visit.energy, hits[key])
            for key, visit in walk.visits.items()
            if visit.hop == 0
        ),
        steps=walk.steps,
        visited=tuple(visit.head.id for visit in walk.visits.values()),
        returned=tuple(ranked),
        guardrails=tuple(head.id for head, _ in walk.inhibition.values()),
        novelty={
            "top": round(top, _DIGITS),
            "known": top >= _KNOWN,
            "novel": _NOISE < top < _NOVEL,
        },
        explored=explored,
        run_id=query.run_id,
        llm_calls=walk.usage.calls,
        llm_cached_calls=walk.usage.cached_calls,
        llm_failures=walk.usage.failures,
        llm_input_tokens=walk.usage.input_tokens,
        llm_output_tokens=walk.usage.output_tokens,
        llm_tokens=walk.usage.tokens,
        cost_usd=walk.usage.cost_usd,
        routing=tuple(walk.notes),
        latency_ms=latency_ms,
        repeats=dict(islice(found.repeats.items(), _MOST_REPEATS)),
        frozen=rankings.frozen,
        learned=rankings.learned,
        teams=dict(rankings.teams),
        task_type=query.task_type,
        session=query.session,
        arm=DRAFT_ARM if rankings.teams else query.arm,
    )


def _seed(head: NodeHead, energy: float, hit: Candidate) -> SeedRecord:
    return SeedRecord(
        node=head.id,
        score=round(energy, _DIGITS),
        similarity=round(hit.similarity, _DIGITS),
        lexical=round(hit.lexical, _DIGITS),
        name=round(hit.name, _DIGITS),
        hinted=hit.hint > 0,
    )
