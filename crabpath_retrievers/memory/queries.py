"""Queries to a memory: the steps of one, its feature values, and its explanation."""

import numpy as np

from crabpath_retrievers.core.driver import Operations, perform
from crabpath_retrievers.core.query import Query, QueryOptions
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.retrieval.pipeline import Answer
from crabpath_retrievers.vectors.embedder import to_unit_vector


def retrieve_steps(services: Services, text: str, options: QueryOptions) -> Operations[Answer]:
    """Steps of one query, for either driver of :mod:`crabpath_retrievers.core.driver`.

    Args:
        services: Of the memory.
        text: The question.
        options: Of the query.
    """
    services.require_open()
    query = validate_query(text, options)
    if not services.identity.fits(query.vector):
        yield from perform(services.identity.verify, query.vector)
    random = None if query.explore is False else _generator(query.explore)
    answer = yield from services.retrieval.steps(query, explore=random)
    if services.recorder.is_backlog_due():
        yield from perform(services.recorder.index_backlog)
    return answer


def validate_query(text: str, options: QueryOptions) -> Query:
    """The query with valid options, its vector scaled to length 1."""
    if (vector := options.get("vector")) is not None:
        options = {**options, "vector": to_unit_vector(vector)}
    return Query.from_options(text, **options)


def _generator(seed: int) -> np.random.Generator:
    """Random numbers for exploration; True takes a new seed every time."""
    return np.random.default_rng(None if seed is True else seed)
