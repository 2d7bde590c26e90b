"""``memory.graph``: typed edges, their traversal, searches that use them, and an export."""

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import TypedDict, Unpack

from crabpath_retrievers.config.settings import apply_knobs_to_tiers
from crabpath_retrievers.core.calls import AsyncView, limit_waiting, off_loop
from crabpath_retrievers.core.changes import AdjustWeights, Change, WeightDelta
from crabpath_retrievers.core.extras import require_extra
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, Feedback, Receipt
from crabpath_retrievers.core.query import (
    parse_namespace,
    parse_path,
    parse_text,
    parse_texts,
    require_count,
    require_flags,
    require_number,
)
from crabpath_retrievers.core.records import EdgeKind
from crabpath_retrievers.core.text import format_value, to_printable
from crabpath_retrievers.errors import ConfigurationError, InvalidInputError
from crabpath_retrievers.learning.recorder import Recorder
from crabpath_retrievers.memory.notes import resolve_nodes
from crabpath_retrievers.memory.services import MemoryPart, Services
from crabpath_retrievers.parts.files import open_replacement
from crabpath_retrievers.parts.typed_graph.derive import TypedGraphs
from crabpath_retrievers.parts.typed_graph.follow import (
    EdgePage,
    Neighbour,
    ReachedNode,
    collect_neighbourhood,
    list_neighbours,
    page_edges,
    traverse_edges,
)
from crabpath_retrievers.parts.typed_graph.granger import Influence, build_series, find_influences
from crabpath_retrievers.parts.typed_graph.queries import (
    Direction,
    TypedQueries,
    WeightMove,
    WeightRange,
)
from crabpath_retrievers.parts.typed_graph.search import (
    DEFAULT_FACTOR_WEIGHTS,
    BayesianHit,
    CausalHit,
    GraphHit,
    search_bayesian,
    search_causal,
    search_graph,
    validate_weights,
)
from crabpath_retrievers.parts.typed_graph.view import (
    MAX_COUNT,
    SETTABLE_KINDS_BY_NAME,
    WALKED_KINDS,
    NamespaceView,
    parse_direction,
    parse_edge_kind,
    parse_edge_kinds,
    parse_tier,
)
from crabpath_retrievers.storage import Reader
from crabpath_retrievers.storage.read.learned import EdgeTriple
from crabpath_retrievers.storage.sql_tools import split_batches

if TYPE_CHECKING:
    from networkx import MultiDiGraph

QueryInput = str | Sequence[float]
"""A text, or a vector of shape ``[d]`` from the memory's own embedder."""

MAX_OFFSET = 1_000_000
"""Edges of one node that can be left out before a page."""

_CONTRARY = {EdgeKind.TAUGHT: EdgeKind.INHIBITS, EdgeKind.INHIBITS: EdgeKind.TAUGHT}
_AT_ONCE = 1_000  # nodes that are read together
_LAST_TURNS = 5_000  # turns from which influence is estimated
_BOOST: Mapping[str, float] = {"caused_success": 0.3}


class GraphOptions(TypedDict, total=False):
    """Arguments of :meth:`MemoryGraph.to_networkx`."""

    edge_type: str | Iterable[str] | None
    around: Sequence[str] | str | None
    max_hops: int
    limit: int
    namespace: str


class MemoryGraph(MemoryPart):
    """Read and set typed edges, and search along them.

    The three searches record no turn, and nothing is learned from them.
    """

    def __init__(self, services: Services) -> None:
        """Keep the services of the memory."""
        super().__init__(services)
        self._graphs = TypedGraphs(services.regions, services.settings.learning)

    def _view(self, namespace: str) -> NamespaceView:
        """Make the view of one namespace."""
        services = self._services
        name = parse_namespace(namespace)
        return NamespaceView(services.store, services.index, services.notes, self._graphs, name)

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
        """Set the weight of an edge; learning goes on from there, and it decays as usual.

        Queries follow a ``taught`` edge, and an ``inhibits`` edge lowers its target where they find
        the source; edges of types that come from outcomes are for the searches of this component.
        Edges of the text are read from the text, and ``co_used`` is left to learning.

        Args:
            source: Id of the document or note where the edge begins.
            target: Id of the one where it ends.
            edge_type: ``taught``, ``inhibits``, ``caused_success``, ``caused_failure``,
                ``irrelevant``, ``temporal``, ``same_action``, ``region_transition`` or
                ``granger_causal``.
            weight: In [-1, 1]; below 0 it lowers the target, 0 removes the edge. That of an
                ``inhibits`` edge is at most 0; it replaces a ``taught`` one, and the reverse.
            namespace: The namespace that learns it.
            edge_id: The same id again changes nothing; ``CrabPath.undo`` takes it. None makes one.

        Returns:
            ``applied``; ``refused`` where the namespace is frozen.

        Raises:
            InvalidInputError: An unknown type, a weight out of range, or an edge from a node to
                itself.
            NotFoundError: There is no such node in the namespace.
        """
        kind = parse_edge_kind(edge_type, SETTABLE_KINDS_BY_NAME)
        most = 0.0 if kind is EdgeKind.INHIBITS else 1.0
        value = require_number("weight", weight, -1.0, most)
        scope = self._view(namespace)
        edge = (
            scope.key(parse_text("source", source)),
            scope.key(parse_text("target", target)),
            kind,
        )
        if edge[0] == edge[1]:
            msg = (
                f"an edge leads from one node to another, not from {format_value(source)} to itself"
            )
            raise InvalidInputError(msg)
        name = uuid.uuid4().hex if edge_id is None else edge_id
        feedback = Feedback(None, value, feedback_id=name, namespace=scope.namespace)
        weights = {edge: value}
        if kind in _CONTRARY:
            contrary = (edge[0], edge[1], _CONTRARY[kind])
            if scope.store.learned.weights(scope.namespace, [edge[0]]).get(contrary):
                weights[contrary] = 0.0
        return _set_weights(self._services.recorder, feedback, weights)

    def neighbors(
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
            node_id: Id of a document or note.
            edge_type: One or several types; None for all, including those read from the text.
            min_weight: Least absolute weight, in [0, 1]; None for any.
            direction: ``out`` for outgoing edges, ``in`` for incoming ones.
            namespace: The namespace whose weights and notes count.

        Raises:
            InvalidInputError: An unknown type or direction, or a weight out of range.
            NotFoundError: There is no such node in the namespace.
        """
        kinds = parse_edge_kinds(edge_type)
        least = 0.0 if min_weight is None else require_number("min_weight", min_weight, 0.0, 1.0)
        way, scope = parse_direction(direction), self._view(namespace)
        return list_neighbours(scope, parse_text("node_id", node_id), kinds, least, way)

    def edges(
        self,
        node_id: str,
        edge_type: str | Iterable[str] | None = None,
        *,
        tier: str | None = None,
        min_weight: float = 0.0,
        direction: Direction = "out",
        limit: int = 50,
        offset: int = 0,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> EdgePage:
        """List a page of a node's edges, strongest first; fast even for a node with very many.

        Args:
            node_id: Id of a chunk or note.
            edge_type: One or several types; None for those that queries follow.
            tier: Only ``reflex``, ``habitual``, ``dormant`` or ``inhibitory`` edges. None for all.
            min_weight: Least absolute weight, in [0, 1].
            direction: ``out`` for outgoing edges, ``in`` for incoming ones.
            limit: How many at most, from 1 to 10,000.
            offset: How many are left out before, from 0 to 1,000,000.
            namespace: The namespace whose weights and notes count.

        Raises:
            InvalidInputError: An unknown type, tier or direction, or a number out of range.
            NotFoundError: There is no such node in the namespace.

        Example::

            page = memory.graph.edges("deploy", tier="reflex", limit=20)
            [(edge.target, edge.weight) for edge in page.edges]
        """
        kinds = WALKED_KINDS if edge_type is None else parse_edge_kinds(edge_type)
        least = require_number("min_weight", min_weight, 0.0, 1.0)
        wanted, way = parse_tier(tier), parse_direction(direction)
        number = require_count("limit", limit, most=MAX_COUNT)
        place = require_count("offset", offset, 0, MAX_OFFSET), number
        services = self._services
        with limit_waiting(services.settings.time_limit):
            scope = self._view(namespace)
            tiers = apply_knobs_to_tiers(services.settings.tiers, scope.clock.knobs)
            bounds = (-1.0, 1.0) if wanted is None else tiers.get_range(wanted)
            weights, node = WeightRange(*bounds, least), parse_text("node_id", node_id)
            return page_edges(scope, node, kinds, weights, way, place, tiers)

    def changes(
        self,
        *,
        source: str | None = None,
        target: str | None = None,
        edge_type: str | None = None,
        feedback_id: str | None = None,
        limit: int = 100,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[WeightMove]:
        """List changes of learned edge weights with their causes and times, newest first.

        Weights that faded and were dropped by maintenance have no changes any more; edges of types
        that are derived from outcomes have some only where somebody set them.

        Args:
            source: Only edges that begin at this chunk or note; None for any.
            target: Only edges that end at this one; None for any.
            edge_type: Only edges of this type; None for any.
            feedback_id: Only changes by this feedback, or by the note with this id; None for any.
            limit: How many at most, from 1 to 10,000.
            namespace: The namespace whose weights are meant.

        Raises:
            InvalidInputError: None of source, target and feedback was given, or an argument cannot
                be used.
            NotFoundError: There is no such node in the namespace.

        Example::

            memory.graph.changes(source="deploy")
        """
        if source is None and target is None and feedback_id is None:
            msg = "give a source, a target or a feedback_id: changes are listed for one of these"
            raise InvalidInputError(msg)
        kind = None if edge_type is None else parse_edge_kind(edge_type)
        most = require_count("limit", limit, most=MAX_COUNT)
        cause = None if feedback_id is None else parse_text("feedback_id", feedback_id)
        services = self._services
        with limit_waiting(services.settings.time_limit):
            scope = self._view(namespace)
            first = None if source is None else scope.key(parse_text("source", source))
            last = None if target is None else scope.key(parse_text("target", target))
            if not scope.clock.key:
                return []
            return TypedQueries(services.store).find_moves(
                scope.clock, most, source=first, target=last, kind=kind, cause=cause
            )

    def traverse(
        self,
        start: str,
        edge_types: str | Iterable[str],
        max_hops: int = 3,
        min_weight: float = 0.0,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[ReachedNode]:
        """All nodes that can be reached along edges of some types: nearest first, 500 at most.

        Args:
            start: Id of a document or note.
            edge_types: One or several types.
            max_hops: Longest path, in edges.
            min_weight: Least absolute weight of every edge, in [0, 1].
            namespace: The namespace whose weights and notes count.

        Returns:
            Every node once, with its fewest hops and the strongest of the paths with so many;
            within a hop the strongest first. The start is not among them.

        Raises:
            InvalidInputError: An unknown type, or a number out of range.
            NotFoundError: There is no such node in the namespace.
        """
        kinds = parse_edge_kinds([] if edge_types is None else edge_types)
        hops = require_count("max_hops", max_hops, most=MAX_COUNT)
        least = require_number("min_weight", min_weight, 0.0, 1.0)
        scope = self._view(namespace)
        return traverse_edges(scope, parse_text("start", start), kinds, hops, least)

    def search(
        self,
        query: QueryInput,
        k: int = 5,
        edge_boost: Mapping[str, float] | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[GraphHit]:
        """The documents that are similar to a query, or that edges lead to from similar ones.

        A score is the cosine with the query plus, for every type, ``boost · w · cosine`` of the
        strongest edge from a similar document; edges of a weight below 0 lower it.

        Args:
            query: A text or a vector.
            k: How many documents.
            edge_boost: Factor by edge type; None for ``caused_success`` with 0.3.
            namespace: The namespace whose weights and notes count.

        Returns:
            At most k, best first, each with the edges that changed its score.

        Raises:
            InvalidInputError: An unknown type, or a number or vector that cannot be used.
            EmbeddingMismatchError: The vector has another dimension.
        """
        boosts = _BOOST if edge_boost is None else edge_boost
        if not isinstance(boosts, Mapping):
            msg = f"edge_boost must map edge types to numbers, not {format_value(edge_boost)}"
            raise InvalidInputError(msg)
        checked = {
            parse_edge_kind(name): require_number(f"the boost of {name}", v)
            for name, v in boosts.items()
        }
        wanted, scope = require_count("k", k, most=MAX_COUNT), self._view(namespace)
        return search_graph(scope, self._services.query_vector(query), wanted, checked)

    def bayesian_search(
        self,
        query: QueryInput,
        k: int = 5,
        weights: Sequence[float] = DEFAULT_FACTOR_WEIGHTS,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[BayesianHit]:
        """The most similar documents, re-ranked by five factors ([CVX RFC-013], part C).

        Args:
            query: A text or a vector.
            k: How many documents.
            weights: Of similarity, recency, reward, region match and success in use.
            namespace: The namespace whose experience counts.

        Returns:
            At most k, best first, each with its factors.

        Raises:
            InvalidInputError: Weights that are not five finite numbers, or a number or vector that
                cannot be used.
            EmbeddingMismatchError: The vector has another dimension.
        """
        services = self._services
        checked, wanted = validate_weights(weights), require_count("k", k, most=MAX_COUNT)
        prior = services.settings.learning.usage_prior
        vector, scope = services.query_vector(query), self._view(namespace)
        return search_bayesian(scope, services.regions, vector, wanted, checked, prior)

    def causal_search(
        self,
        query: QueryInput,
        k: int = 5,
        temporal_context: int = 5,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[CausalHit]:
        """The most similar documents, each with what was used before and after it.

        Args:
            query: A text or a vector.
            k: How many documents.
            temporal_context: How many documents before, and after, at most.
            namespace: The namespace whose experience counts.

        Returns:
            At most k, most similar first.

        Raises:
            InvalidInputError: A number or vector that cannot be used.
            EmbeddingMismatchError: The vector has another dimension.
        """
        wanted = require_count("k", k, most=MAX_COUNT)
        context = require_count("temporal_context", temporal_context, most=MAX_COUNT)
        services = self._services
        vector, scope = services.query_vector(query), self._view(namespace)
        return search_causal(scope, vector, wanted, context)

    def find_influence(
        self,
        namespace: str = DEFAULT_NAMESPACE,
        *,
        window: int = 1,
        lags: int = 2,
        level: float = 0.05,
        dry_run: bool = False,
    ) -> list[Influence]:
        """Find sources whose use predicts the use of others; for maintenance, not for a request.

        Estimated from the last 5,000 turns: the reward of every source in each window, success in
        use less the share of failures. Granger tests (Granger 1969) of all pairs of the 20 most
        used sources, with a controlled false discovery rate (Benjamini & Hochberg 1995). The
        results become ``granger_causal`` edges between the first chunks of both sources, and
        replace those of an earlier run.

        Args:
            namespace: The namespace whose turns are read.
            window: Turns in a window.
            lags: How many windows the tests look back.
            level: False discovery rate, in (0, 1).
            dry_run: Only report; no edge is written.

        Returns:
            Pairs of sources, by source, strongest first.

        Raises:
            ConfigurationError: ``settings.learning.influence`` is off, and this is no dry run.
            MissingExtraError: statsmodels is not installed.
        """
        services = self._services
        require_flags(dry_run=dry_run)
        if not (dry_run or services.settings.learning.influence):
            msg = (
                "influence is switched off: open the memory with "
                "Settings(learning=LearningSettings(influence=True)), or pass dry_run=True"
            )
            raise ConfigurationError(msg)
        scope = self._view(namespace)
        uses = TypedQueries(services.store).get_recent_usage(scope.clock, _LAST_TURNS)
        series = build_series(uses, require_count("window", window, most=MAX_COUNT))
        rate = require_number("level", level, 0.0, 1.0)
        pairs = find_influences(
            series, lags=require_count("lags", lags, most=MAX_COUNT), level=rate
        )
        if not dry_run:
            self._write_influence(scope, pairs)
        return pairs

    def to_networkx(
        self,
        edge_type: str | Iterable[str] | None = None,
        *,
        around: Sequence[str] | str | None = None,
        max_hops: int = 2,
        limit: int = 500,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> "MultiDiGraph":
        """The graph as one namespace sees it now, to analyse or draw.

        Args:
            edge_type: One or several types; None for all, including those read from the text.
            around: Ids of documents, chunks or notes, for what is near them alone; None for the
                whole graph, which is read in batches.
            max_hops: With ``around``: longest path from there in edges, whatever their direction.
            limit: With ``around``: how many nodes at most, those of the strongest edges.
            namespace: The namespace whose weights and notes count.

        Returns:
            A copy. Nodes are ids of chunks and notes, with ``title`` and ``source``; edges have the
            type as key and as ``kind``, and the effective ``weight`` in [-1, 1], decay included.

        Raises:
            InvalidInputError: An unknown type, or a number out of range.
            NotFoundError: There is no such document or note in the namespace.
            MissingExtraError: networkx is not installed.
        """
        kinds, scope = parse_edge_kinds(edge_type), self._view(namespace)
        hops, most = (
            require_count("max_hops", max_hops, most=MAX_COUNT),
            require_count("limit", limit, most=MAX_COUNT),
        )
        require_extra("graph", "to_networkx")
        from networkx import MultiDiGraph

        graph = MultiDiGraph()
        if around is None:
            keys = _read_all_keys(scope)
        else:
            starts = resolve_nodes(scope.store, parse_texts(around, name="around"), scope.namespace)
            keys = collect_neighbourhood(scope, starts.values(), kinds, hops, most)
        batches, names = list(split_batches(sorted(keys), _AT_ONCE)), dict[int, str]()
        for batch in batches:
            heads = scope.heads(batch)
            names |= {head.key: head.id for head in heads}
            sources = _read_sources(scope, [head.id for head in heads])
            graph.add_nodes_from(
                (head.id, {"title": head.title, "source": sources.get(head.id, "")})
                for head in heads
            )
        for batch in batches:
            for edge in scope.edges(batch, kinds):
                if edge.near in names and edge.key in names:
                    kind = edge.kind.label
                    graph.add_edge(names[edge.near], edge.id, kind, kind=kind, weight=edge.weight)
        return graph

    def write_graphml(self, path: str | os.PathLike[str], **options: Unpack[GraphOptions]) -> Path:
        """Write the graph of :meth:`to_networkx` as GraphML, which Gephi, yEd and Cytoscape open.

        Args:
            path: The file; one that exists is replaced once the new one is complete.
            options: Arguments of :meth:`to_networkx`.

        Returns:
            The path.

        Raises:
            InvalidInputError: The file cannot be written, or as for :meth:`to_networkx`.
            NotFoundError: There is no such document or note in the namespace.
            MissingExtraError: networkx is not installed.
        """
        file = parse_path("path", path)
        require_extra("graph", "write_graphml")
        import networkx as nx

        graph = self.to_networkx(**options)
        clean = nx.MultiDiGraph()  # XML cannot say control characters, and edges need ids
        for node, facts in graph.nodes(data=True):
            texts = {name: to_printable(text) for name, text in facts.items()}
            clean.add_node(to_printable(node), **texts)
        for number, (source, target, facts) in enumerate(graph.edges(data=True)):
            clean.add_edge(to_printable(source), to_printable(target), number, **facts)
        with open_replacement(file, str(file)) as opened:
            nx.write_graphml_xml(clean, opened, named_key_ids=True)
        return file

    def _write_influence(self, scope: NamespaceView, pairs: Iterable[Influence]) -> None:
        """Write edges for these pairs; they replace those of an earlier run.

        Edges that do not change are not written.
        """
        kind, typed = EdgeKind.GRANGER_CAUSAL, TypedQueries(self._services.store)
        weights = {(*edge, kind): 0.0 for edge in typed.get_learned(scope.clock, kind)}
        rows = list(pairs)
        first = typed.first_chunks({name for row in rows for name in row[:2]})
        weights |= {(first[row.source], first[row.target], kind): row.weight for row in rows}
        if weights:
            feedback = Feedback(None, 0.0, namespace=scope.namespace)
            _set_weights(self._services.recorder, feedback, weights)


def _set_weights(
    recorder: Recorder, feedback: Feedback, weights: Mapping[EdgeTriple, float]
) -> Receipt:
    """Set the weights of edges; they decay and can be undone like learned ones.

    ``weights`` are in [-1, 1], by keys of both ends and kind. ``feedback`` and the receipt are
    as for :meth:`Recorder.learn_without_turn`.
    """
    namespace = str(feedback.namespace)

    def compute_changes(read: Reader) -> list[Change]:
        known = read.learned.weights(namespace, sorted({edge[0] for edge in weights}))
        deltas = [
            WeightDelta(*edge, weight - known.get(edge, 0.0)) for edge, weight in weights.items()
        ]
        return [AdjustWeights(namespace, tuple(deltas), feedback.feedback_id)]

    return recorder.learn_without_turn(feedback, compute_changes)


class AsyncMemoryGraph(AsyncView[MemoryGraph]):
    """``memory.aio.graph``: :class:`MemoryGraph`, awaited."""

    add_edge = off_loop(MemoryGraph.add_edge)
    neighbors = off_loop(MemoryGraph.neighbors)
    edges = off_loop(MemoryGraph.edges)
    changes = off_loop(MemoryGraph.changes)
    traverse = off_loop(MemoryGraph.traverse)
    search = off_loop(MemoryGraph.search)
    bayesian_search = off_loop(MemoryGraph.bayesian_search)
    causal_search = off_loop(MemoryGraph.causal_search)
    find_influence = off_loop(MemoryGraph.find_influence)
    to_networkx = off_loop(MemoryGraph.to_networkx, slow=True)
    write_graphml = off_loop(MemoryGraph.write_graphml, slow=True)


def _read_all_keys(scope: NamespaceView) -> set[int]:
    """Read the keys of all chunks and of the notes of the namespace."""
    store = scope.store
    notes = store.notes.ids(scope.clock.key) if scope.clock.notes else ()
    ids = split_batches([*store.catalog.chunk_ids(), *notes], _AT_ONCE)
    read = store.learned.keys
    return {key for part in ids for key in read(part, scope.clock.key).values()}


def _read_sources(scope: NamespaceView, ids: Sequence[str]) -> dict[str, str]:
    """Read sources by id of the chunk; a note has the source with which it is returned."""
    chunks = {chunk.id: chunk.source for chunk in scope.store.catalog.find_chunks(ids=ids)}
    others = [node for node in ids if node not in chunks]
    notes = scope.store.notes.get_facts(others, scope.namespace)
    return chunks | {note.id: f"crabpath:{note.kind}" for note in notes}
