"""Putting down what a retrieval did, as the record that learning reads."""

import time
import uuid
from collections.abc import Container, Iterable, Mapping, Sequence

from crabpath_retrievers.graph import NodeHead
from crabpath_retrievers.query import Query
from crabpath_retrievers.rerank.features import FEATURES, Hit, Matrix
from crabpath_retrievers.trajectory import PathEdge, Returned, SeedRecord, Turn
from crabpath_retrievers.traversal import Arrival, Walk

_DIGITS = 5
# Document 001 §2.7: a query this close to something known is not novel; this far is noise.
_KNOWN, _NOVEL, _NOISE = 0.60, 0.58, 0.28


def strongest(arrivals: Iterable[Arrival], keys: Container[int]) -> dict[int, Arrival]:
    """The strongest pointer to each of the nodes with these keys that has one, by node key."""
    found: dict[int, Arrival] = {}
    for arrival in arrivals:
        key = arrival.option.pointer.target.key
        if key in keys and (key not in found or found[key].strength < arrival.strength):
            found[key] = arrival
    return found


def returned(
    hit: Hit,
    row: Matrix,
    probability: float,
    walk: Walk,
    best: Arrival | None,
    propensity: float | None = None,
) -> Returned:
    """A ranked document with its route and its features, ``row`` of shape ``[len(FEATURES)]``."""
    return Returned(
        node=hit.head.id,
        probability=round(probability, _DIGITS),
        origin="seed" if hit.found else "walk",
        path=_path(hit, walk, best),
        features={
            name: round(value, _DIGITS)
            for name, value in zip(FEATURES, row.tolist(), strict=True)
            if value
        },
        support=best and best.option.edge(best.source, 0.0),
        propensity=propensity,
    )


def _path(hit: Hit, walk: Walk, best: Arrival | None) -> tuple[PathEdge, ...]:
    """The route that entered a node, or else leads past it: its last edge was not followed."""
    visit = walk.visits.get(hit.head.key)
    if visit:
        return visit.path
    if hit.found or best is None:
        return ()
    return (*walk.visits[best.source.key].path, best.option.edge(best.source, 0.0))


def turn_record(
    query: Query,
    clock: int,
    hits: Mapping[int, Hit],
    walk: Walk,
    ranked: Sequence[Returned],
    *,
    explored: bool,
    latency_ms: dict[str, float],
) -> Turn:
    """The record of one retrieval (outputs of document 001 §2.10).

    Args:
        query: What was asked.
        clock: Turn number of the namespace.
        hits: What search found, by node key.
        walk: What the walk did.
        ranked: What is returned.
        explored: Whether choices were sampled.
        latency_ms: Milliseconds by stage.
    """
    top = max((hit.similarity for hit in hits.values()), default=0.0)
    return Turn(
        id=uuid.uuid4().hex,
        namespace=query.namespace,
        clock=clock,
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
        task_type=query.task_type,
        session=query.session,
        arm=query.arm,
    )


def _seed(head: NodeHead, energy: float, hit: Hit) -> SeedRecord:
    return SeedRecord(
        node=head.id,
        score=round(energy, _DIGITS),
        similarity=round(hit.similarity, _DIGITS),
        lexical=round(hit.lexical, _DIGITS),
        name=round(hit.name, _DIGITS),
        hinted=hit.hint > 0,
    )
