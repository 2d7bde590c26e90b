"""Searches that follow typed edges, or weigh what is known of each document (document 004 B-D)."""

from collections.abc import Mapping, Sequence
from typing import Any

from crabpath_retrievers.driver import arun, perform
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE
from crabpath_retrievers.query import namespace_of
from crabpath_retrievers.searches.bayesian import (
    DEFAULT_WEIGHTS,
    BayesianHit,
    bayesian_search,
    weights_of,
)
from crabpath_retrievers.searches.boosted import BoostedHit, graph_search
from crabpath_retrievers.searches.causal import CausalHit, causal_search
from crabpath_retrievers.searches.kinds import kind_of, number, whole
from crabpath_retrievers.searches.scope import Scope
from crabpath_retrievers.seeds.embedder import unit
from crabpath_retrievers.text import shown, storable

Asked = str | Sequence[float]
"""A text, or a vector of shape ``[d]`` from the memory's own embedder."""

_BOOST: Mapping[str, float] = {"caused_success": 0.3}


class Searching(Parts):
    """How a memory is searched beside :meth:`retrieve`; no turn is recorded, nothing is learned."""

    def graph_search(
        self,
        query: Asked,
        k: int = 5,
        edge_boost: Mapping[str, float] | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[BoostedHit]:
        """The documents that are similar, or that edges lead to from similar ones.

        A score is the cosine with the query, and for every type ``boost · w · cosine`` of the
        strongest edge from a similar document; edges of a weight below 0 lower it.

        Args:
            query: A text or a vector.
            k: How many.
            edge_boost: How much edges of a type count; None for ``caused_success`` with 0.3.
            namespace: Who asks.

        Returns:
            At most k, best first, each with the edges that spoke.

        Raises:
            InvalidInputError: An unknown type, or a number or vector that is none.
            EmbeddingMismatchError: The vector has another dimension.
        """
        self._require_open()
        given = _BOOST if edge_boost is None else edge_boost
        if not isinstance(given, Mapping):
            msg = f"edge_boost must map edge types to numbers, not {shown(edge_boost)}"
            raise InvalidInputError(msg)
        boosts = {kind_of(name): number(f"the boost of {name}", v) for name, v in given.items()}
        wanted = whole("k", k)
        return graph_search(self._view(namespace), self._place(query), wanted, boosts)

    def bayesian_search(
        self,
        query: Asked,
        k: int = 5,
        weights: Sequence[float] = DEFAULT_WEIGHTS,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[BayesianHit]:
        """The most similar documents, re-ranked by five factors (document 004 C).

        Args:
            query: A text or a vector.
            k: How many.
            weights: Of similarity, recency, reward, region match and success in use.
            namespace: Whose experience.

        Returns:
            At most k, best first, each with its factors.

        Raises:
            InvalidInputError: Weights that are not five finite numbers, or a number or vector that
                is none.
            EmbeddingMismatchError: The vector has another dimension.
        """
        self._require_open()
        weighed, wanted = weights_of(weights), whole("k", k)
        prior = self.settings.learning.usage_prior
        vector, view = self._place(query), self._view(namespace)
        return bayesian_search(view, self._regions, vector, wanted, weighed, prior)

    def causal_search(
        self,
        query: Asked,
        k: int = 5,
        temporal_context: int = 5,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[CausalHit]:
        """The most similar documents, each with what was used before and after it.

        Args:
            query: A text or a vector.
            k: How many.
            temporal_context: Most documents before, and most after.
            namespace: Whose experience.

        Returns:
            At most k, most similar first.

        Raises:
            InvalidInputError: A number or vector that is none.
            EmbeddingMismatchError: The vector has another dimension.
        """
        self._require_open()
        wanted, context = whole("k", k), whole("temporal_context", temporal_context)
        return causal_search(self._view(namespace), self._place(query), wanted, context)

    async def agraph_search(self, *args: Any, **options: Any) -> list[BoostedHit]:
        """As :meth:`graph_search`, off the event loop."""
        return await arun(perform(self.graph_search, *args, **options))

    async def abayesian_search(self, *args: Any, **options: Any) -> list[BayesianHit]:
        """As :meth:`bayesian_search`, off the event loop."""
        return await arun(perform(self.bayesian_search, *args, **options))

    async def acausal_search(self, *args: Any, **options: Any) -> list[CausalHit]:
        """As :meth:`causal_search`, off the event loop."""
        return await arun(perform(self.causal_search, *args, **options))

    def _place(self, query: Asked) -> Vector:
        """Unit vector of a query, by the embedder that the memory was built with."""
        if isinstance(query, str):
            self._identity.verify()
            return self.embedder.query(storable(query))
        vector = unit(query)
        if not self._identity.fits(vector):
            self._identity.verify(vector)
        return vector

    def _view(self, namespace: str) -> Scope:
        return Scope(self.store, self.index, self._notes, namespace_of(namespace))
