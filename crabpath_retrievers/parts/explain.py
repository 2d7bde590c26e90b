"""Explaining why each document of a turn was returned, as records, as a text and as HTML."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import sqlalchemy as sa

from crabpath_retrievers.core.query import parse_namespace, parse_text
from crabpath_retrievers.core.records import EdgeKind, PathEdge, ReturnedDocument, Turn
from crabpath_retrievers.core.text import format_time, to_printable
from crabpath_retrievers.rerank import FEATURES, PASSES, USES, Ranker
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.schema import namespaces, nodes, weight_changes
from crabpath_retrievers.storage.sql_tools import Queries

EdgeName = tuple[str, str, str]
"""An edge by name: ids of source and target, label of its kind."""

MAX_CHANGES_PER_EDGE = 5
"""Changes of weight that an explanation lists for one edge."""

_TINY = 1e-6  # of a probability, before its log-odds
_SHOWN = 4  # features of a document
_KINDS = {kind.value: kind.label for kind in EdgeKind}


class StoredWeightChange(NamedTuple):
    """A change of a learned weight: id of the feedback, amount, time in epoch seconds."""

    feedback_id: str
    delta: float
    created: float


@dataclass(frozen=True, slots=True)
class EdgeChanges:
    """The feedback that changed the weight of an edge, newest first, at most five."""

    source: str
    target: str
    kind: str
    moves: tuple[StoredWeightChange, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain, JSON-safe data."""
        edge = {"source": self.source, "target": self.target, "kind": self.kind}
        return {**edge, "moves": [move._asdict() for move in self.moves]}


@dataclass(frozen=True, slots=True)
class DocumentReason:
    """Reasons for which one document was returned.

    Attributes:
        id, title: The document, with its source where it has no title; the title is empty if it has
            been forgotten since.
        probability: Probability of relevance, in [0, 1].
        origin: ``seed`` (search found it) or ``walk`` (an edge led to it).
        path: Route from the seed: kind, weight, tier and probability of every edge.
        support: Strongest edge from a visited node, for search hits too.
        contributions: Log-odds added by each feature, largest absolute value first; past uses and
            passes together as ``past_uses``, see :meth:`Ranker.log_odds`.
        moved: Feedback of the namespace that has changed the edges of path and support until
            now; edges without changes are left out.
    """

    id: str
    title: str
    probability: float
    origin: str
    path: tuple[PathEdge, ...]
    support: PathEdge | None
    contributions: dict[str, float]
    moved: tuple[EdgeChanges, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain, JSON-safe data."""
        return {**asdict(self), "moved": [edge.to_dict() for edge in self.moved]}


class ReasonLines(NamedTuple):
    """Reasons for which one document was returned, as lines for people; texts are not escaped.

    Attributes:
        probability: Probability of relevance, with two decimals.
        document: Title of the document, or its id.
        route: How it was found, line by line.
        shares: The features with the largest shares, each with its log-odds.
    """

    probability: str
    document: str
    route: list[str]
    shares: list[str]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one turn; ``print`` shows it briefly, a notebook as a table.

    Attributes:
        turn: The record.
        documents: Why each document was returned.
        titles: Titles of all nodes of the record that still exist, by id; without one the source,
            or else how the text begins.
    """

    turn: Turn
    documents: tuple[DocumentReason, ...]
    titles: dict[str, str]

    def to_lines(self) -> Iterator[ReasonLines]:
        """Lines of text for people, document by document."""
        for reason in self.documents:
            shares = [s for s in list(reason.contributions.items())[:_SHOWN] if s[0] != "bias"]
            yield ReasonLines(
                f"{reason.probability:.2f}",
                reason.title or reason.id,
                _describe_route(reason, self.titles),
                [f"{name} {share:+.2f}" for name, share in shares],
            )

    def __str__(self) -> str:
        """Question and documents with their routes, without control characters."""
        lines = [f"Query: {self.turn.query}"]
        for found in self.to_lines():
            first, *route = found.route
            lines.append(f"{found.probability}  {found.document}: {first}")
            lines += [f"    {line}" for line in route]
            lines.append(f"      {', '.join(found.shares)}")
        for left_out, kept in self.turn.repeats.items():
            lines.append(f"left out: {left_out}; it says what {kept} says")
        lines += [f"older version: {old}; {new} is newer" for old, new in self._list_superseded()]
        return to_printable("\n".join(lines))

    def _list_superseded(self) -> list[tuple[str, str]]:
        returned = self.turn.returned
        return [(item.node, item.superseded_by) for item in returned if item.superseded_by]

    def _repr_html_(self) -> str:
        """A table for notebooks; texts of documents are escaped."""
        heads = ("p", "document", "route", "log-odds by feature")
        rows = [
            (row.probability, row.document, "\n".join(row.route), "\n".join(row.shares))
            for row in self.to_lines()
        ]
        repeats = self.turn.repeats.items()
        rows += [("", gone, f"left out: it says what {kept} says", "") for gone, kept in repeats]
        superseded = self._list_superseded()
        rows += [("", old, f"older version: {new} is newer", "") for old, new in superseded]
        body = "".join("<tr>" + "".join(map(_to_cell, cells)) + "</tr>" for cells in rows)
        title = escape(to_printable(f"Query: {self.turn.query}"))
        head = "".join(f"<th>{name}</th>" for name in heads)
        return f"<table><caption>{title}</caption><tr>{head}</tr>{body}</table>"

    def to_dict(self) -> dict[str, Any]:
        """Plain, JSON-safe data."""
        return {
            "turn": {**asdict(self.turn), "follow_log": list(self.turn.follow_log)},
            "documents": [document.to_dict() for document in self.documents],
            "titles": self.titles,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Explanation":
        """Make the explanation from data of :meth:`to_dict`, also if they went through JSON."""
        turn = {name: value for name, value in data["turn"].items() if name != "follow_log"}
        reasons = tuple(_to_reason(item) for item in data["documents"])
        return cls(Turn.from_dict(turn), reasons, dict(data["titles"]))


def _to_reason(data: Mapping[str, Any]) -> DocumentReason:
    path = tuple(PathEdge(**edge) for edge in data["path"])
    support = data["support"] and PathEdge(**data["support"])
    moved = tuple(
        EdgeChanges(
            **{**edge, "moves": tuple(StoredWeightChange(**move) for move in edge["moves"])}
        )
        for edge in data["moved"]
    )
    return DocumentReason(**{**data, "path": path, "support": support, "moved": moved})


def collect_edges(path: Sequence[PathEdge], support: PathEdge | None) -> tuple[PathEdge, ...]:
    """Collect the edges of a route and the supporting edge, if any, without duplicates."""
    edges = {(e.source, e.target, e.kind): e for e in (*path, *((support,) if support else ()))}
    return tuple(edges.values())


def list_explained_edges(turn: Turn) -> set[EdgeName]:
    """List every edge in the explanation of a turn."""
    return {
        (edge.source, edge.target, edge.kind)
        for item in turn.returned
        for edge in collect_edges(item.path, item.support)
    }


def list_turn_nodes(turn: Turn) -> list[str]:
    """List the ids of all nodes in the record of a turn, sorted."""
    ids = {item.node for item in turn.returned} | {seed.node for seed in turn.seeds}
    ids |= {*turn.visited, *turn.repeats, *(step.node for step in turn.steps)}
    ids |= {candidate.target for step in turn.steps for candidate in step.candidates}
    for item in turn.returned:
        edges = (*item.path, item.support) if item.support else item.path
        ids |= {node for edge in edges for node in (edge.source, edge.target)}
    return sorted(ids)


def explain_turn(
    store: GraphStore, ranker: Ranker, turn_id: str | UUID, *, namespace: str | None = None
) -> Explanation:
    """Explain a recorded turn, given by its id or the host's run; only the graph store is read.

    ``namespace`` None looks in all.

    Raises:
        NotFoundError: There is no such turn.
    """
    scope = None if namespace is None else parse_namespace(namespace)
    turn = store.turns.get(parse_text("turn_id", turn_id), namespace=scope)
    key = store.walk.get_clock(turn.namespace).key
    titles = store.catalog.get_titles(list_turn_nodes(turn), namespace=key)
    moves = ExplainQueries(store).get_weight_changes(
        turn.namespace, list_explained_edges(turn), MAX_CHANGES_PER_EDGE
    )
    return build_explanation(turn, titles, ranker, moves)


class ExplainQueries(Queries):
    """Reads of what feedback changed in the edges of a turn."""

    def get_weight_changes(
        self, namespace: str, edges: Iterable[EdgeName], most: int
    ) -> dict[EdgeName, tuple[StoredWeightChange, ...]]:
        """Read the latest changes of these edges by feedback, newest first, by edge.

        At most ``most`` changes are read for each edge; edges without changes are left out.
        """
        wanted = set(edges)
        if not wanted:
            return {}
        query = _select_weight_changes(
            namespace, *({edge[place] for edge in wanted} for place in (0, 1))
        )
        found: dict[EdgeName, list[StoredWeightChange]] = {}
        for source, target, kind, place, *move in self._rows(query):
            edge = (source, target, _KINDS[kind])
            if edge in wanted and place <= most:
                found.setdefault(edge, []).append(StoredWeightChange(*move))
        return {edge: tuple(known) for edge, known in found.items()}


def build_explanation(
    turn: Turn,
    titles: Mapping[str, str],
    ranker: Ranker,
    moves: Mapping[EdgeName, tuple[StoredWeightChange, ...]] = MappingProxyType({}),
) -> Explanation:
    """Explain a turn by its record and the ranker's weights.

    ``titles`` are by node id; ``moves`` has the feedback that changed each edge, newest first.
    """
    reasons = []
    for item in turn.returned:
        shares = _list_contributions(item, ranker)
        reasons.append(
            DocumentReason(
                item.node,
                titles.get(item.node, ""),
                item.probability,
                item.origin,
                item.path,
                item.support,
                dict(sorted(shares.items(), key=lambda share: -abs(share[1]))),
                _list_changes(collect_edges(item.path, item.support), moves),
            )
        )
    return Explanation(turn, tuple(reasons), dict(titles))


def _list_contributions(item: ReturnedDocument, ranker: Ranker) -> dict[str, float]:
    """List the log-odds that each feature of a document adds.

    Past uses and passes are one entry, ``past_uses``: the rest of the document's log-odds.
    """
    features = item.features
    weights = dict(zip(FEATURES, ranker.weights.tolist(), strict=True))
    weights["inhibition"] -= ranker.inhibition
    linear = {name: value for name, value in features.items() if name not in (*USES, *PASSES)}
    shares = {name: round(value * weights.get(name, 0.0), 3) for name, value in linear.items()}
    if len(linear) < len(features):
        without = ranker.log_odds(np.array([[linear.get(name, 0.0) for name in FEATURES]]))
        likely = min(max(item.probability, _TINY), 1.0 - _TINY)
        shares["past_uses"] = round(math.log(likely / (1.0 - likely)) - float(without[0]), 3)
    return shares


def _describe_route(reason: DocumentReason, titles: Mapping[str, str]) -> list[str]:
    """Describe the route to a document as lines: the edges that led to it, each with its changes.

    Without a route it says that search found the document, and names its strongest edge.
    """
    if reason.path:
        lines = [titles.get(reason.path[0].source) or reason.path[0].source]
        for edge in reason.path:
            target = titles.get(edge.target) or edge.target
            decided = f"{edge.kind} {edge.weight:.2f}, {edge.tier}, π {edge.probability:.2f}"
            lines += [f"  └ {decided} → {target}", *_describe_changes(reason, edge)]
        return lines
    if (helped := reason.support) is None:
        return ["search hit"]
    by = f"  {helped.kind} {helped.weight:.2f} by {titles.get(helped.source) or helped.source}"
    return ["search hit", by, *_describe_changes(reason, helped)]


def _describe_changes(reason: DocumentReason, edge: PathEdge) -> list[str]:
    """List the feedback that changed the weight of an edge, with its time."""
    name = (edge.source, edge.target, edge.kind)
    return [
        f"      {move.delta:+.3f} by {move.feedback_id}, {format_time(move.created)}"
        for moved in reason.moved
        if (moved.source, moved.target, moved.kind) == name
        for move in moved.moves
    ]


def _to_cell(text: str) -> str:
    return f'<td style="text-align: left; white-space: pre">{escape(to_printable(text))}</td>'


def _list_changes(
    edges: Sequence[PathEdge], moves: Mapping[EdgeName, tuple[StoredWeightChange, ...]]
) -> tuple[EdgeChanges, ...]:
    names = [(edge.source, edge.target, edge.kind) for edge in edges]
    return tuple(
        EdgeChanges(*name, moves[name][:MAX_CHANGES_PER_EDGE]) for name in names if name in moves
    )


def _select_weight_changes(
    namespace: str, sources: Iterable[str], targets: Iterable[str]
) -> sa.Select[Any]:
    """Select weight changes by feedback from ``sources`` to ``targets``, given as ids.

    Each row has the rank of the change among those of its edge, newest first.
    """
    edge = (weight_changes.c.source, weight_changes.c.target, weight_changes.c.kind)
    place = sa.func.row_number().over(partition_by=edge, order_by=weight_changes.c.sequence.desc())
    one, other = nodes.alias(), nodes.alias()
    ends: Sequence[sa.ColumnElement[bool]] = (
        one.c.id.in_(sorted(sources)),
        other.c.id.in_(sorted(targets)),
    )
    found = (one.c.id, other.c.id, weight_changes.c.kind, place.label("place"))
    return (
        sa.select(*found, weight_changes.c.cause, weight_changes.c.delta, weight_changes.c.created)
        .join(namespaces, namespaces.c.key == weight_changes.c.namespace)
        .join(one, one.c.key == weight_changes.c.source)
        .join(other, other.c.key == weight_changes.c.target)
        .where(namespaces.c.name == namespace, weight_changes.c.cause != "", *ends)
        .order_by(weight_changes.c.sequence.desc())
    )
