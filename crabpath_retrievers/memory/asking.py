"""Questions to a memory, and why it answered as it did."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np

from crabpath_retrievers.driver import Steps, arun, perform, run
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.explanation import Explanation, explain_turn
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.query import Query
from crabpath_retrievers.rerank.features import Evidence
from crabpath_retrievers.retrieval import Answer
from crabpath_retrievers.seeds.embedder import unit
from crabpath_retrievers.text import shown
from crabpath_retrievers.time_limit import limited, within_limit


class Asking(Parts):
    """How a memory answers."""

    @within_limit
    def retrieve(self, text: str, **options: Any) -> Answer:
        """Find the documents that answer a question.

        Args:
            text: The question.
            options: Fields of :class:`~crabpath_retrievers.retrieval.Query`, and ``explore``:
                a seed (or True) samples the walk instead of following the best pointers, and draws
                the weights of the ranking from what the namespace believes.

        Raises:
            InvalidInputError: The query cannot be asked.
            EmbeddingMismatchError: The memory was built with another embedder.
            StoreUnavailableError: A server is away, or silent for ``settings.time_limit`` seconds.
        """
        return run(self._steps(text, **options))

    async def aretrieve(self, text: str, **options: Any) -> Answer:
        """As :meth:`retrieve`, without blocking the event loop."""
        with limited(self.settings.time_limit):
            return await arun(self._steps(text, **options))

    def _steps(
        self, text: str, *, explore: bool | int = False, vector: Any = None, **options: Any
    ) -> Steps[Answer]:
        self._require_open()
        query = Query.of(text, vector=None if vector is None else unit(vector), **options)
        if not self._identity.fits(query.vector):
            yield from perform(self._identity.verify, query.vector)
        if query.among or query.seed_ids:
            query = yield from perform(self._answering, query)
        drawing = None if explore is False else _sampler(explore)
        answer = yield from self._retrieval.steps(query, explore=drawing)
        if self._recorder.overdue():
            yield from perform(self._recorder.look)
        return answer

    def _answering(self, query: Query) -> Query:
        """A query that names the nodes which stand for those that it names."""
        stands = self.store.catalog.answering((*(query.among or ()), *query.seed_ids))
        if not stands:
            return query
        seeds = tuple(stands.get(node, node) for node in query.seed_ids)
        among = query.among
        if among is not None:
            among = list(dict.fromkeys(stands.get(node, node) for node in among))
        return replace(query, seed_ids=seeds, among=among)

    def evidence(self, text: str, **options: Any) -> Evidence:
        """All that a query would rank with what speaks for it, for fitting and analysis.

        No turn is recorded.
        """
        return run(self._retrieval.evidence(Query.of(text, **options)))

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


def _sampler(seed: int) -> np.random.Generator:
    """Randomness for exploring; True seeds it afresh every time."""
    if not isinstance(seed, int) or seed < 0:
        msg = f"explore must be True, False or a seed of at least 0, not {shown(seed)}"
        raise InvalidInputError(msg)
    return np.random.default_rng(None if seed is True else seed)
