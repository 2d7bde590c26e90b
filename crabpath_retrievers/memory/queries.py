"""Queries to a memory: the steps of one, its feature values, and its explanation."""

from dataclasses import replace
from typing import Any

import numpy as np

from crabpath_retrievers.driver import Steps, perform
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.query import Query
from crabpath_retrievers.retrieval import Answer
from crabpath_retrievers.seeds.embedder import unit
from crabpath_retrievers.text import shown


def retrieve_steps(
    services: Services,
    text: str,
    *,
    explore: bool | int = False,
    vector: Any = None,
    **options: Any,
) -> Steps[Answer]:
    """Steps of one query, for either driver of :mod:`crabpath_retrievers.driver`.

    Args:
        services: Of the memory.
        text: The question.
        explore: As for ``CrabPath.retrieve``.
        vector: Embedding of the question where it is known, of shape ``[d]``.
        options: Other fields of :class:`~crabpath_retrievers.query.Query`.
    """
    services.require_open()
    query = Query.of(text, vector=None if vector is None else unit(vector), **options)
    if not services.identity.fits(query.vector):
        yield from perform(services.identity.verify, query.vector)
    if query.among or query.seed_ids:
        query = yield from perform(_resolve_ids, services, query)
    random = None if explore is False else _generator(explore)
    answer = yield from services.retrieval.steps(query, explore=random)
    if services.recorder.overdue():
        yield from perform(services.recorder.look)
    return answer


def _resolve_ids(services: Services, query: Query) -> Query:
    """The query with ids of merged documents replaced by the ids of those that answer for them."""
    aliases = services.store.catalog.answering((*(query.among or ()), *query.seed_ids))
    if not aliases:
        return query
    seeds = tuple(aliases.get(node, node) for node in query.seed_ids)
    among = query.among
    if among is not None:
        among = list(dict.fromkeys(aliases.get(node, node) for node in among))
    return replace(query, seed_ids=seeds, among=among)


def _generator(seed: int) -> np.random.Generator:
    """Random numbers for exploration; True takes a new seed every time."""
    if not isinstance(seed, int) or seed < 0:
        msg = f"explore must be True, False or a seed of at least 0, not {shown(seed)}"
        raise InvalidInputError(msg)
    return np.random.default_rng(None if seed is True else seed)
