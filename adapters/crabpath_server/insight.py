"""Functions of explanations, namespaces, edges, learning, regions, maintenance and snapshots.

What was asked and learned is that of the namespace of the request. Only the list of namespaces and
maintenance concern others that the token grants.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from pydantic import Field

from crabpath_retrievers.core.feedback import Receipt
from crabpath_retrievers.core.records import EdgeKind
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import (
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    StoreLockedError,
)
from crabpath_retrievers.parts.listing import FeedbackRecord
from crabpath_retrievers.parts.operation.lift import Lift, ShadowLift
from crabpath_retrievers.parts.operation.maintenance import Metric
from crabpath_retrievers.parts.operation.maintenance.runner import (
    MAINTENANCE_STEPS,
    MaintenanceReport,
)
from crabpath_retrievers.parts.operation.snapshots import Snapshot
from crabpath_retrievers.parts.operation.uses import DocumentUse, Precedent
from crabpath_retrievers.parts.region_mdp.overview import PlacedRegion
from crabpath_retrievers.parts.typed_graph import WeightMove
from crabpath_retrievers.parts.typed_graph.follow import EdgePage
from crabpath_retrievers.storage.read.learned import NamespaceRecord
from crabpath_server.answers import ApiOutput, AuthorityName, Download, Sent, TierName
from crabpath_server.endpoints import (
    NAMESPACE_HEADER,
    ApiInput,
    Call,
    Limit,
    UnerasedError,
    require_accepted,
)
from crabpath_server.judging import bound_authority
from crabpath_server.queries import AuditRecord, ServerQueries

_MOST_CHANGES = 1000  # of one turn
_OUTCOMES, _BUCKETS = 500, 20  # newest feedback, and the parts that it is averaged in
_REPORTS = 200  # newest reports of health


class TurnExplanation(ApiOutput):
    """Why each document of a turn was returned, and what was learned from it."""

    turn: dict[str, Any] = Field(description="The record of the turn.")
    documents: list[dict[str, Any]] = Field(description="The reasons, best document first.")
    titles: dict[str, str] = Field(description="Titles of all its nodes, by id.")
    feedback: list[Sent[FeedbackRecord]] = Field(description="All feedback about it, newest first.")
    changes: list[Sent[WeightMove]] = Field(description="What that feedback changed, newest first.")
    texts: dict[str, str] = Field(description="Texts of its documents that still exist, by id.")
    precedents: list[Sent[Precedent]] = Field(
        description="Earlier verdicts on questions like it, the most alike first."
    )


async def read_turn(call: Call) -> TurnExplanation:
    """Explain a turn, with its feedback and the weights that this has changed."""
    memory, turn_id = call.memory.aio, call.path["id"]
    explained = await memory.explain(turn_id, namespace=call.namespace)
    given = await memory.learning.feedback(
        turn_id=explained.turn.id, namespace=call.namespace, limit=100
    )
    moves: list[WeightMove] = []
    for record in given:
        if record.status == "applied" and len(moves) < _MOST_CHANGES:
            moves += await memory.graph.changes(
                feedback_id=record.feedback_id,
                namespace=call.namespace,
                limit=_MOST_CHANGES - len(moves),
            )
    found = await memory.get_by_ids(
        [one.id for one in explained.documents], namespace=call.namespace
    )
    return TurnExplanation(
        **explained.to_dict(),
        feedback=given,
        changes=moves,
        texts={str(one.id): one.page_content for one in found},
        precedents=await memory.learning.precedents(explained.turn.id, namespace=call.namespace),
    )


class Overview(ApiOutput):
    """Contents of the memory, and how much the namespace asked and learned."""

    chunks: int
    sources: int
    notes: int = Field(description="Of the namespace.")
    turns: int
    feedback: int


async def read_overview(call: Call) -> Overview:
    """Count documents, questions and feedback."""
    memory = call.memory.aio
    info = await memory.info()
    own = await memory.namespaces.records([call.namespace])
    counts = own[0] if own else NamespaceRecord(call.namespace, 0, 0, 0, 0, frozen=False)
    return Overview(
        chunks=info["nodes"],
        sources=info["sources"],
        notes=counts.notes,
        turns=counts.turns,
        feedback=counts.feedback,
    )


class NamespaceList(ApiOutput):
    """Namespaces that are granted, in the order of their names."""

    namespaces: list[Sent[NamespaceRecord]]


async def read_namespaces(
    call: Call,
    after: Annotated[str, Field(description="The last name of the page before this one.")] = "",
    limit: Limit = 100,
) -> NamespaceList:
    """List the granted namespaces that exist."""
    grant, granted = call.grant, list[NamespaceRecord]()
    names = None if any("*" in name for name in grant.namespaces) else grant.namespaces
    while len(granted) < limit:
        found = await call.memory.aio.namespaces.records(names, after=after, limit=limit)
        granted += [record for record in found if grant.has_namespace(record.name)]
        if len(found) < limit:
            break
        after = found[-1].name
    return NamespaceList(namespaces=granted[:limit])


async def list_neighbors(
    call: Call,
    node: Annotated[str, Field(description="Id of a chunk or note.")],
    kind: Annotated[
        str | None, Field(description="Only this kind; else those that queries follow.")
    ] = None,
    tier: TierName | None = None,
    min_weight: Annotated[float, Field(ge=0, le=1, description="Least absolute weight.")] = 0.0,
    direction: Literal["out", "in"] = "out",
    limit: Limit = 50,
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0,
) -> EdgePage:
    """List the edges of a node, page by page."""
    return await call.memory.aio.graph.edges(
        node,
        kind,
        tier=tier,
        min_weight=min_weight,
        direction=direction,
        limit=limit,
        offset=offset,
        namespace=call.namespace,
    )


class ChangeList(ApiOutput):
    """Changes of weights, newest first."""

    changes: list[Sent[WeightMove]]


async def list_changes(
    call: Call,
    source: str | None = None,
    target: str | None = None,
    feedback_id: str | None = None,
    kind: str | None = None,
    limit: Limit = 100,
) -> ChangeList:
    """List who moved the weights of edges, and when."""
    found = await call.memory.aio.graph.changes(
        source=source,
        target=target,
        feedback_id=feedback_id,
        edge_type=kind,
        limit=limit,
        namespace=call.namespace,
    )
    return ChangeList(changes=found)


class EdgeBody(ApiInput):
    """An edge and its weight."""

    source: str
    target: str
    weight: float = Field(ge=-1, le=1, description="Below 0 it lowers the target; 0 removes it.")
    kind: str | None = Field(
        None, description="taught, inhibits or a typed one; null: inhibits below 0, else taught."
    )
    edge_id: str | None = Field(None, description="The same id again changes nothing.")


async def set_edge(call: Call, body: EdgeBody) -> Receipt:
    """Set the weight of an edge in the namespace; undo takes the id of the receipt."""
    usual = EdgeKind.INHIBITS if body.weight < 0 else EdgeKind.TAUGHT
    receipt: Receipt = await call.memory.aio.graph.add_edge(
        body.source,
        body.target,
        usual.label if body.kind is None else body.kind,
        body.weight,
        namespace=call.namespace,
        edge_id=body.edge_id,
    )
    return require_accepted(receipt)


class AuthorityBody(ApiInput):
    """Nodes and their new authority."""

    ids: list[str] = Field(description="Ids of chunks, notes or whole documents.")
    authority: AuthorityName = "constitutional"


class NodeCount(ApiOutput):
    """Number of nodes that were set."""

    nodes: int


async def anchor_nodes(call: Call, body: AuthorityBody) -> NodeCount:
    """Set how slowly weights of edges that lead to nodes decay."""
    bound_authority(call, body.authority)
    anchor = call.memory.aio.learning.anchor
    return NodeCount(nodes=await anchor(body.ids, body.authority, namespace=call.namespace))


class SuccessBucket(ApiOutput):
    """Feedback that was given one after the other."""

    since: float = Field(description="Time of the first, in seconds since the epoch.")
    until: float = Field(description="Time of the last.")
    feedback: int
    outcome: float = Field(description="Mean outcome, from -1 to 1.")
    success: float = Field(description="Share with an outcome above 0.")


class TierCounts(ApiOutput):
    """Edges by tier when the health of the namespace was measured."""

    at: float = Field(description="Seconds since the epoch.")
    turn: int
    edges: dict[TierName, int]


class LearningReport(ApiOutput):
    """Report on a namespace's learning."""

    success: list[SuccessBucket] = Field(description="Of the newest 500 feedback, oldest first.")
    tiers: list[TierCounts] = Field(description="Oldest first; the last one is now.")
    health: list[Sent[Metric]]
    most_useful: list[Sent[DocumentUse]]
    least_useful: list[Sent[DocumentUse]]


class UseList(ApiOutput):
    """Documents and how often they were used, the most useful first, or the least useful."""

    documents: list[Sent[DocumentUse]]


async def list_uses(
    call: Call,
    order: Annotated[
        Literal["most", "least"],
        Field(description="least: what was more often returned without use, worst first."),
    ] = "most",
    limit: Limit = 100,
) -> UseList:
    """List how often documents were used by answers, as feedback says."""
    usage, least = call.memory.aio.learning.usage, order == "least"
    return UseList(documents=await usage(namespace=call.namespace, least=least, limit=limit))


class LiftReport(ApiOutput):
    """Gain of learning in a namespace."""

    weeks: list[Sent[Lift]] = Field(description="Oldest first.")
    shadow: list[Sent[ShadowLift]] = Field(
        description="What a memory that answers in the shadow of a retriever would have changed, "
        "by week, oldest first."
    )


async def report_lift(call: Call) -> LiftReport:
    """Show what learning gained, by week."""
    learning, name = call.memory.aio.learning, call.namespace
    rows = await learning.lift(namespace=name, by="week")
    return LiftReport(weeks=rows, shadow=await learning.shadow_lift(namespace=name, by="week"))


async def report_learning(call: Call) -> LearningReport:
    """Show success and tiers over time, health, and the most and least useful documents."""
    memory, name = call.memory.aio, call.namespace
    given = await memory.learning.feedback(namespace=name, limit=_OUTCOMES)
    history = await memory.maintenance.health_history(name, limit=_REPORTS)
    now = await memory.maintenance.health(name, record=False)
    most = await memory.learning.usage(namespace=name)
    least = await memory.learning.usage(namespace=name, least=True)
    return LearningReport(
        success=count_success(given),
        tiers=[
            TierCounts(at=report.created, turn=report.turn, edges=_add_tiers(report.edges))
            for report in (*history, now)
        ],
        health=list(now.metrics),
        most_useful=most,
        least_useful=least,
    )


def count_success(newest: Sequence[FeedbackRecord]) -> list[SuccessBucket]:
    """Count outcomes of applied feedback about turns, newest first, in at most 20 buckets."""
    judged = [r for r in reversed(newest) if r.status == "applied" and r.turn_id is not None]
    size = max(1, -(-len(judged) // _BUCKETS))
    parts = [judged[start : start + size] for start in range(0, len(judged), size)]
    return [
        SuccessBucket(
            since=part[0].created,
            until=part[-1].created,
            feedback=len(part),
            outcome=sum(record.outcome for record in part) / len(part),
            success=sum(record.outcome > 0 for record in part) / len(part),
        )
        for part in parts
    ]


def _add_tiers(edges: Any) -> dict[TierName, int]:
    """Add up edges of the text and learned ones, by tier."""
    total: dict[TierName, int] = {}
    for counts in edges.values():
        for tier, count in counts.items():
            total[tier] = total.get(tier, 0) + count
    return total


class MaintenanceBody(ApiInput):
    """Selects the maintenance steps to run."""

    steps: list[str] = Field(list(MAINTENANCE_STEPS))


def _require_all_namespaces(call: Call, what: str = "maintenance") -> None:
    """Refuse a token without all namespaces: maintenance changes all of them."""
    if not call.grant.has_all_namespaces:
        msg = f"{what} concerns all namespaces: use a token that grants '*'"
        raise ForbiddenError(msg)


async def plan_maintenance(call: Call) -> MaintenanceReport:
    """Say what maintenance would change; needs all namespaces."""
    _require_all_namespaces(call)
    return await call.memory.aio.maintenance.run(dry_run=True)


async def maintain(call: Call, body: MaintenanceBody) -> MaintenanceReport:
    """Run maintenance; needs all namespaces."""
    _require_all_namespaces(call)
    return await call.memory.aio.maintenance.run(body.steps)


class RegionList(ApiOutput):
    """Regions of one level; none in a very small memory."""

    level: int | None
    levels: list[int]
    regions: list[Sent[PlacedRegion]]


async def draw_regions(
    call: Call,
    level: Annotated[int | None, Field(ge=1, le=64, description="Null: the finest one.")] = None,
) -> RegionList:
    """Show the regions on a map, with success by action."""
    regions = call.memory.aio.regions
    if level is None and not await regions.levels():
        return RegionList(level=None, levels=[], regions=[])
    found = await regions.map(level, namespace=call.namespace)
    return RegionList.model_validate(found)


class FrozenState(ApiOutput):
    """Whether a namespace learns."""

    namespace: str
    frozen: bool


async def freeze(call: Call) -> FrozenState:
    """Stop the namespace from learning."""
    await call.memory.aio.namespaces.freeze(call.namespace)
    return FrozenState(namespace=call.namespace, frozen=True)


async def unfreeze(call: Call) -> FrozenState:
    """Let the namespace learn again."""
    await call.memory.aio.namespaces.unfreeze(call.namespace)
    return FrozenState(namespace=call.namespace, frozen=False)


class ForgetNamespaceBody(ApiInput):
    """Confirms that a namespace is to be deleted."""

    confirm: str = Field(description="Name of the namespace of the request, against mistakes.")
    erase: bool = Field(
        default=False, description="Whether files are written anew, so that no byte of it stays."
    )


class ForgottenNamespace(ApiOutput):
    """Counts of what was deleted."""

    notes: int
    turns: int
    feedback: int
    episodes: int
    snapshots: int


async def erase_namespace(call: Call, body: ForgetNamespaceBody) -> ForgottenNamespace:
    """Delete all that the namespace asked, said, was taught and has learned."""
    if body.confirm != call.namespace:
        msg = (
            f"confirm must be the name of the namespace, {call.namespace!r}, "
            f"not {format_value(body.confirm)}: name another one in {NAMESPACE_HEADER}"
        )
        raise InvalidInputError(msg)
    found = await call.memory.aio.forget(namespace=call.namespace)
    if body.erase:
        try:
            await call.memory.aio.forget(erase=True)
        except StoreLockedError as error:
            raise UnerasedError from error
    return ForgottenNamespace.model_validate(found)


async def export_namespace(call: Call) -> Download:
    """Export all that the namespace asked, said, was taught and has learned, as an archive."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "namespace.crabpath"
        await call.memory.aio.transfer.export(path, namespace=call.namespace)
        return Download(name=path.name, kind="application/zip", file=path.open("rb"))


class AuditList(ApiOutput):
    """Changes, newest first."""

    changes: list[Sent[AuditRecord]]


async def list_audit(
    call: Call,
    limit: Limit = 100,
    before: Annotated[
        int | None,
        Field(ge=0, le=1 << 53, description="Number of the last change of the page before."),
    ] = None,
) -> AuditList:
    """List what was added, deleted and maintained, and by which token; needs all namespaces."""
    _require_all_namespaces(call, "the audit")
    read = partial(ServerQueries(call.memory.store).list_audit, limit, before=before)
    return AuditList(changes=await asyncio.to_thread(read))


class SnapshotList(ApiOutput):
    """Snapshots of the namespace, newest first."""

    snapshots: list[Sent[Snapshot]]


class SnapshotBody(ApiInput):
    """A name for the snapshot."""

    name: str | None = Field(None, description="Unique within the namespace.")


class RestoreBody(ApiInput):
    """Selects a snapshot."""

    snapshot: str = Field(description="Its id or name.")


async def read_snapshots(call: Call) -> SnapshotList:
    """List the snapshots of the namespace."""
    found = await call.memory.aio.namespaces.snapshots(call.namespace)
    return SnapshotList(snapshots=found)


async def save_snapshot(call: Call, body: SnapshotBody) -> Snapshot:
    """Save all that the namespace has learned up to now."""
    spaces = call.memory.aio.namespaces
    name = await spaces.snapshot(call.namespace, body.name)
    for kept in await spaces.snapshots(call.namespace):
        if kept.id == name:
            return kept
    msg = f"the snapshot {name!r} was deleted at the same time: take another one"
    raise NotFoundError(msg)


async def reset_to_snapshot(call: Call, body: RestoreBody) -> Snapshot:
    """Reset what the namespace has learned to what it was at a snapshot."""
    return await call.memory.aio.namespaces.restore(body.snapshot, namespace=call.namespace)
