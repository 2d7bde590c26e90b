"""Typed edges of a memory: set, listed, followed; and influence between sources."""

import uuid
from collections.abc import Iterable
from typing import Any

from crabpath_retrievers.driver import arun, perform
from crabpath_retrievers.errors import ConfigurationError, InvalidInputError
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.feedback.set_edges import EdgeSetter
from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.learning.influence import Influence, influences, series_of
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE, Feedback
from crabpath_retrievers.query import namespace_of, require_flags, text_of
from crabpath_retrievers.searches.following import Neighbour, Reached, neighbours, traverse
from crabpath_retrievers.searches.kinds import LEARNED_TYPES, kind_of, kinds_of, number, whole
from crabpath_retrievers.searches.scope import Scope
from crabpath_retrievers.storage.typed_queries import Direction
from crabpath_retrievers.text import shown

_LAST_TURNS = 5_000  # that influence is read off


class Edges(Parts):
    """How a memory is told of typed edges, and how they are followed (document 004 B)."""

    def add_edge(
        self,
        source: str,
        target: str,
        edge_type: str,
        weight: float,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        edge_id: str | None = None,
    ) -> Receipt:
        """Set the weight of a typed edge; outcomes go on from there, and it fades as they do.

        Only types that come from outcomes: what the text says is read off the text, and what
        inhibits or is used together stays the business of learning.

        Args:
            source: Id of the document or note that it leaves.
            target: Id of the one that it leads to.
            edge_type: ``caused_success``, ``caused_failure``, ``irrelevant``, ``temporal``,
                ``same_action``, ``region_transition`` or ``granger_causal``.
            weight: In [-1, 1]; below 0 it speaks against the target, 0 takes the edge away.
            namespace: Who is told.
            edge_id: The same id again changes nothing; ``undo`` takes it.

        Returns:
            ``applied``; ``refused`` where the namespace is frozen.

        Raises:
            InvalidInputError: An unknown type, a weight out of range, or an edge to itself.
            NotFoundError: There is no such node in the namespace.
        """
        self._require_open()
        kind, value = kind_of(edge_type, LEARNED_TYPES), number("weight", weight, -1.0, 1.0)
        scope = self._scope(namespace)
        edge = scope.key(text_of("source", source)), scope.key(text_of("target", target)), kind
        if edge[0] == edge[1]:
            msg = f"an edge leads from one node to another, not from {shown(source)} to itself"
            raise InvalidInputError(msg)
        given = uuid.uuid4().hex if edge_id is None else edge_id
        kept = Feedback(None, value, feedback_id=given, namespace=scope.namespace)
        return self._edges.put(kept, {edge: value})

    def typed_neighbors(
        self,
        node_id: str,
        edge_type: str | Iterable[str] | None = None,
        min_weight: float | None = None,
        direction: Direction = "out",
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[Neighbour]:
        """The nodes at the other end of a node's edges, strongest first.

        Args:
            node_id: Of a document or note.
            edge_type: One or several types; None for all, those of the text too.
            min_weight: Least absolute weight, in [0, 1]; None for any.
            direction: ``out`` for what the node's edges lead to, ``in`` for what leads to it.
            namespace: Who asks.

        Raises:
            InvalidInputError: An unknown type or direction, or a weight out of range.
            NotFoundError: There is no such node in the namespace.
        """
        self._require_open()
        kinds = kinds_of(edge_type)
        least = 0.0 if min_weight is None else number("min_weight", min_weight, 0.0, 1.0)
        if not isinstance(direction, str) or direction not in ("out", "in"):
            msg = f"direction must be 'out' or 'in', not {shown(direction)}"
            raise InvalidInputError(msg)
        return neighbours(
            self._scope(namespace), text_of("node_id", node_id), kinds, least, direction
        )

    def traverse(
        self,
        start: str,
        edge_types: str | Iterable[str],
        max_hops: int = 3,
        min_weight: float = 0.0,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[Reached]:
        """All that can be reached along edges of some types: nearest first, 500 at most.

        Args:
            start: Id of a document or note.
            edge_types: One or several types.
            max_hops: Longest path.
            min_weight: Least absolute weight of every edge, in [0, 1].
            namespace: Who asks.

        Returns:
            Every node once, with its fewest hops and the strongest of such paths; within a hop the
            strongest first. The start is not among them.

        Raises:
            InvalidInputError: An unknown type, or a number that is none.
            NotFoundError: There is no such node in the namespace.
        """
        self._require_open()
        kinds = kinds_of([] if edge_types is None else edge_types)
        hops, least = whole("max_hops", max_hops), number("min_weight", min_weight, 0.0, 1.0)
        return traverse(self._scope(namespace), text_of("start", start), kinds, hops, least)

    async def aadd_edge(self, *args: Any, **options: Any) -> Receipt:
        """As :meth:`add_edge`, off the event loop."""
        return await arun(perform(self.add_edge, *args, **options))

    async def atyped_neighbors(self, *args: Any, **options: Any) -> list[Neighbour]:
        """As :meth:`typed_neighbors`, off the event loop."""
        return await arun(perform(self.typed_neighbors, *args, **options))

    async def atraverse(self, *args: Any, **options: Any) -> list[Reached]:
        """As :meth:`traverse`, off the event loop."""
        return await arun(perform(self.traverse, *args, **options))

    def find_influence(
        self,
        namespace: str = DEFAULT_NAMESPACE,
        *,
        window: int = 1,
        lags: int = 2,
        level: float = 0.05,
        dry_run: bool = False,
    ) -> list[Influence]:
        """Find sources whose use announces that of others, for maintenance; not for a request.

        From the last 5,000 turns: what every source earned in each window, success in use less
        what failures took from its reward. Granger tests of all pairs of the 20 most used sources,
        with their false discovery rate under control. What is found becomes ``granger_causal``
        edges between the first chunks of both sources, in place of those found before.

        Args:
            namespace: Whose turns.
            window: Turns in a window.
            lags: Windows that are looked back.
            level: False discovery rate, in (0, 1).
            dry_run: Only find, change nothing.

        Returns:
            What was found, by source, strongest first.

        Raises:
            ConfigurationError: ``settings.learning.influence`` is off, and this is no dry run.
            MissingExtraError: statsmodels is not installed.
        """
        self._require_open()
        require_flags(dry_run=dry_run)
        if not (dry_run or self.settings.learning.influence):
            msg = (
                "influence is switched off: open the memory with "
                "Settings(learning=LearningSettings(influence=True)), or pass dry_run=True"
            )
            raise ConfigurationError(msg)
        scope = self._scope(namespace)
        uses = self.store.typed.uses(scope.clock, _LAST_TURNS)
        series = series_of(uses, whole("window", window))
        rate = number("level", level, 0.0, 1.0)
        found = influences(series, lags=whole("lags", lags), level=rate)
        if not dry_run:
            self._put_influence(scope, found)
        return found

    def _put_influence(self, scope: Scope, found: Iterable[Influence]) -> None:
        """Write it in place of what was found before; what stands as it is is left alone."""
        kind = EdgeKind.GRANGER_CAUSAL
        standing = self.store.typed.standing(scope.clock, kind)
        weights = {(*edge, kind): 0.0 for edge in standing}
        listed = list(found)
        first = self.store.typed.first_chunks({name for one in listed for name in one[:2]})
        weights |= {(first[one.source], first[one.target], kind): one.weight for one in listed}
        if weights:
            self._edges.put(Feedback(None, 0.0, namespace=scope.namespace), weights)

    @property
    def _edges(self) -> EdgeSetter:
        return EdgeSetter(self.store, self._undoing.prior)

    def _scope(self, namespace: str) -> Scope:
        return Scope(self.store, self.index, self._notes, namespace_of(namespace))
