"""Questions to a memory, and why it answered as it did."""

from dataclasses import replace
from uuid import UUID

import numpy as np
from typing_extensions import Unpack

from crabpath_retrievers.driver import Steps, arun, perform, run
from crabpath_retrievers.explanation import Explanation, explain_turn
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.query import Query, QueryOptions
from crabpath_retrievers.rerank.features import Evidence
from crabpath_retrievers.retrieval import Answer
from crabpath_retrievers.seeds.embedder import unit
from crabpath_retrievers.time_limit import limited, within_limit


class Asking(Parts):
    """How a memory answers."""

    @within_limit
    def retrieve(self, text: str, **options: Unpack[QueryOptions]) -> Answer:
        """Find the documents that answer a question.

        Args:
            text: The question.
            options: Keys of :class:`~crabpath_retrievers.query.QueryOptions`.

        Raises:
            InvalidInputError: The query cannot be asked.
            EmbeddingMismatchError: The memory was built with another embedder.
            StoreUnavailableError: A server is away, or silent for ``settings.time_limit`` seconds.
        """
        return run(self._steps(text, options))

    async def aretrieve(self, text: str, **options: Unpack[QueryOptions]) -> Answer:
        """As :meth:`retrieve`, without blocking the event loop."""
        with limited(self.settings.time_limit):
            return await arun(self._steps(text, options))

    def _steps(self, text: str, options: QueryOptions) -> Steps[Answer]:
        self._require_open()
        query = _validate(text, options)
        if not self._identity.fits(query.vector):
            yield from perform(self._identity.verify, query.vector)
        if query.candidate_ids or query.seed_ids:
            query = yield from perform(self._answering, query)
        drawing = None if query.explore is False else _sampler(query.explore)
        answer = yield from self._retrieval.steps(query, explore=drawing)
        if self._recorder.overdue():
            yield from perform(self._recorder.look)
        return answer

    def _answering(self, query: Query) -> Query:
        """A query that names the nodes which stand for those that it names."""
        stands = self.store.catalog.answering((*(query.candidate_ids or ()), *query.seed_ids))
        if not stands:
            return query
        seeds = tuple(stands.get(node, node) for node in query.seed_ids)
        candidates = query.candidate_ids
        if candidates is not None:
            candidates = list(dict.fromkeys(stands.get(node, node) for node in candidates))
        return replace(query, seed_ids=seeds, candidate_ids=candidates)

    def evidence(self, text: str, **options: Unpack[QueryOptions]) -> Evidence:
        """All that a query would rank with what speaks for it, for fitting and analysis.

        No turn is recorded.
        """
        return run(self._retrieval.evidence(_validate(text, options)))

    @within_limit
    def explain(self, turn_id: str | UUID, *, namespace: str | None = None) -> Explanation:
        """Why each document of a turn came: seed or path, weights, tiers, feedback behind them.

        Args:
            turn_id: Id of the turn, or of the host's run that asked.
            namespace: Only turns of this namespace are found; None looks in all.

        Raises:
            NotFoundError: There is no such turn in that namespace.
        """
        self._require_open()
        return explain_turn(self.store, self._ranker, turn_id, namespace=namespace)


def _validate(text: str, options: QueryOptions) -> Query:
    """A query with a vector of length 1."""
    if (vector := options.get("vector")) is not None:
        options = {**options, "vector": unit(vector)}
    return Query.validated(text, **options)


def _sampler(seed: int) -> np.random.Generator:
    """Randomness for exploring; True seeds it afresh every time."""
    return np.random.default_rng(None if seed is True else seed)
