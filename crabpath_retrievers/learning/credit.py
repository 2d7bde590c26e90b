"""Which turns a feedback is about, the credit of each, and when feedback is refused.

Feedback that names no turn is shared among the latest turns, by recency-weighted credit
``exp(-λ·Δ)`` as in the integration plan of [CrabPath] (docs/bibliography.md).
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, Credit, Feedback
from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.core.turn import ReturnedDocument, Turn
from crabpath_retrievers.learning.attribution.attribute import attribute_turn
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.catalog import StoredChunk
from crabpath_retrievers.storage.read.learned import KnownNode, NamespaceState, StoredFeedback
from crabpath_retrievers.storage.read.turns import StoredTurn


def assign_credit(
    turn: Turn, feedback: Feedback, supported: Mapping[str, float] | None, weight: float
) -> Credit:
    """Assign credit to a turn and, if finer evidence exists, to its returned documents.

    What the host states takes precedence over attribution: ``unused`` documents get 0; with
    ``used`` given, used documents get z and the others 0; otherwise each gets its support times z.
    ``relevant`` documents get 1 and ``irrelevant`` ones 0, whatever the outcome. Only returned
    documents are credited (:func:`add_stated` has added the stated ones): if the turn returned none
    of the used documents, the use of its own documents is not known. Without any of these, or with
    a correction only, no document is.

    Args:
        turn: The turn with its returned documents.
        feedback: The outcome z, and the used and unused documents if stated.
        supported: Support in [0, 1] by document id, attributed from the answer; None or empty if
            not known.
        weight: Weight of the feedback for this turn, in [0, 1].
    """
    returned = [item.node for item in turn.returned]
    shares: dict[str, float] = {}
    inferred: frozenset[str] = frozenset()
    if is_use_stated(turn, feedback):
        shares = {node: float(node in (feedback.used or ())) for node in returned}
    elif supported and any(supported.get(node, 0.0) > 0 for node in returned):
        shares = {node: supported.get(node, 0.0) for node in returned}
        inferred = frozenset(returned)
    passed = {*(feedback.unused or ()), *(feedback.irrelevant or ())}
    unused = {node: 0.0 for node in returned if node in passed}
    shares, inferred = shares | unused, inferred.difference(unused)
    z = feedback.outcome
    # A negative zero would look like blame in a record.
    documents = {node: share * z if share else 0.0 for node, share in shares.items()}
    documents |= {node: 1.0 for node in returned if node in (feedback.relevant or ())}
    return Credit(z, weight, documents, inferred.intersection(documents))


def is_use_stated(turn: Turn, feedback: Feedback) -> bool:
    """Whether the host states which documents of a turn were used, or are relevant."""
    named = [ids for ids in (feedback.used, feedback.relevant) if ids is not None]
    return any(not ids or any(item.node in ids for item in turn.returned) for ids in named)


def share_by_recency(clocks: Sequence[int], delay: float) -> list[float]:
    """Return the share of each turn, ``w_i = exp(-λ·Δ_i) / Σ_j exp(-λ·Δ_j)``.

    Args:
        clocks: Turn numbers of the candidates; Δ is the distance in turns to the latest of them.
        delay: λ, at least 0; 0 gives equal shares.

    Returns:
        Shares in the order of ``clocks``, each in [0, 1], summing to 1.
    """
    latest = max(clocks, default=0)
    weights = [math.exp(-delay * (latest - clock)) for clock in clocks]
    total = sum(weights)
    return [weight / total for weight in weights]


_DEFAULT_WEIGHTS = LearningSettings().sources
# Turns are written after the answer: a turn of another process may arrive after its feedback.
_RETRY_DELAYS = (0.02, 0.05, 0.1)
_MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class CreditedTurn:
    """A turn with its unit query vector, and the credit that a feedback assigns to it."""

    turn: Turn
    credit: Credit
    vector: Vector | None


@dataclass(frozen=True, slots=True)
class CreditAssignment:
    """The turns and credit that follow from a feedback, with what the store knew about them.

    Attributes:
        turns: The turns of one namespace that it is about, latest first; at least one.
        note: Which part of it is ignored; None if none is.
        state: State of the namespace.
        nodes: The nodes of these turns that still exist, by id.
    """

    turns: tuple[CreditedTurn, ...]
    note: str | None
    state: NamespaceState
    nodes: Mapping[str, KnownNode]


def assign_feedback(
    store: GraphStore, settings: LearningSettings, stored: StoredFeedback
) -> CreditAssignment | str:
    """Assign the credit of a feedback to its turns, as they stand now.

    Feedback without a turn is about the turns of a time window that ends when it was given, however
    late it is applied; of these about those that returned a document which it names, if any did.
    The use of a document elsewhere must not count as a pass for what other turns returned.

    Returns:
        The assignment, or why the feedback is refused.
    """
    feedback = stored.feedback
    candidates = (
        _find_recent_turns(store, settings, stored)
        if feedback.turn_id is None
        else _find_turn(store, stored)
    )
    if isinstance(candidates, str):
        return candidates
    if candidates[0].state.frozen:
        return f"namespace {candidates[0].turn.namespace!r} is frozen: it learns nothing"
    shown = {logged.turn.id: {item.node for item in logged.turn.returned} for logged in candidates}
    candidates, feedback, missing = add_stated(store, stored, candidates)
    feedback, unknown = _resolve_use(store, feedback, candidates)
    if unknown:
        return (
            f"{format_value(unknown[0])} in used or unused names no document that the turn "
            "returned: give documents that it returned, their ids, or their sources"
        )
    if feedback.turn_id is None:
        about = feedback.stated_documents.union(feedback.used or (), feedback.unused or ())
        candidates = [c for c in candidates if shown[c.turn.id] & about] or candidates
    weight = settings.sources.get(feedback.source, _DEFAULT_WEIGHTS[feedback.source])
    shares = share_by_recency([logged.turn.clock for logged in candidates], settings.turn_decay)
    turns = list[CreditedTurn]()
    for logged, share in zip(candidates, shares, strict=True):
        turn, support = logged.turn, None
        if feedback.answer and not is_use_stated(turn, feedback):
            support = attribute_turn(store, turn, feedback.answer)
        credit = assign_credit(turn, feedback, support, weight * share)
        added = frozenset(credit.documents) - shown[turn.id]
        turns.append(CreditedTurn(turn, replace(credit, added=added), logged.vector))
    note = _describe_missing(missing) if missing else None
    return CreditAssignment(tuple(turns), note, candidates[0].state, candidates[0].nodes)


def _resolve_use(
    store: GraphStore, feedback: Feedback, candidates: Sequence[StoredTurn]
) -> tuple[Feedback, list[str]]:
    """Put ids of returned chunks in the place of documents and sources among the used and unused.

    Returns:
        The feedback, and the names of nothing that was returned.
    """
    returned = {item.node for logged in candidates for item in logged.turn.returned}
    others = {*(feedback.used or ()), *(feedback.unused or ())} - returned
    if not others:
        return feedback, []
    chosen: dict[str, list[str]] = {}
    for chunk in store.catalog.find_chunks(documents=others, sources=others):
        for name in {chunk.document, chunk.source} & others if chunk.id in returned else ():
            chosen.setdefault(name, []).append(chunk.id)
    used, unused = (_replace_names(names, chosen) for names in (feedback.used, feedback.unused))
    return replace(feedback, used=used, unused=unused), sorted(others - chosen.keys())


def add_stated(
    store: GraphStore, stored: StoredFeedback, candidates: Sequence[StoredTurn]
) -> tuple[list[StoredTurn], Feedback, list[str]]:
    """Add the documents that a feedback calls relevant or irrelevant to turns without them.

    Each is added as the turn would have ranked it, where the process that recorded the feedback
    knew that, else without features.

    Returns:
        The turns; the feedback, with chunks in the place of documents that have several; and the
        ids that queries of the namespace cannot find.
    """
    feedback = stored.feedback
    if not feedback.stated_documents:
        return list(candidates), feedback, []
    key = candidates[0].state.clock.key
    nodes = dict(candidates[0].nodes)
    nodes |= store.learned.nodes(key, [n for n in feedback.stated_documents if n not in nodes])
    if unknown := feedback.stated_documents - nodes.keys():
        chunks = store.catalog.find_chunks(documents=unknown, sources=unknown)
        nodes |= store.learned.nodes(key, [chunk.id for chunk in chunks])
        named = _choose_chunks(chunks, nodes, candidates)
        feedback = replace(
            feedback,
            relevant=_replace_names(feedback.relevant, named),
            irrelevant=_replace_names(feedback.irrelevant, named),
        )
    wanted = sorted(feedback.stated_documents)
    visible = [node for node in wanted if node in nodes and nodes[node].vector is not None]
    known = {item.node: item for item in stored.added}
    added = {
        node: known.get(node) or ReturnedDocument(node, 0.0, "seed", (), {}) for node in visible
    }
    completed = []
    for logged in candidates:
        own = {item.node for item in logged.turn.returned}
        more = [item for node, item in added.items() if node not in own]
        turn = replace(logged.turn, returned=(*logged.turn.returned, *more))
        completed.append(logged._replace(turn=turn, nodes=nodes))
    return completed, feedback, [node for node in wanted if node not in added]


def _choose_chunks(
    chunks: Sequence[StoredChunk],
    nodes: Mapping[str, KnownNode],
    candidates: Sequence[StoredTurn],
) -> dict[str, list[str]]:
    """Chunks by document and source: those that were returned, else the nearest to the query."""
    returned = {item.node for logged in candidates for item in logged.turn.returned}
    query = next((logged.vector for logged in candidates if logged.vector is not None), None)
    cosines: dict[str, dict[str, float]] = {}
    for chunk in chunks:
        vector = nodes[chunk.id].vector if chunk.id in nodes else None
        if vector is not None:
            near = 0.0 if query is None else float(query.astype(np.float32) @ vector)
            for name in (chunk.document, chunk.source):
                cosines.setdefault(name, {})[chunk.id] = near
    return {
        name: sorted(near.keys() & returned) or [max(near, key=near.__getitem__)]
        for name, near in cosines.items()
    }


def _replace_names(
    names: Sequence[str] | None, chosen: Mapping[str, Sequence[str]]
) -> list[str] | None:
    if names is None:
        return None
    return [node for name in names for node in chosen.get(name) or [name]]


def _find_turn(store: GraphStore, stored: StoredFeedback) -> list[StoredTurn] | str:
    turn_id, namespace = str(stored.feedback.turn_id), stored.feedback.namespace
    logged = store.turns.find(turn_id, namespace=namespace)
    for pause in _RETRY_DELAYS:
        if logged is not None or time.time() - stored.created > sum(_RETRY_DELAYS):
            break
        time.sleep(pause)
        logged = store.turns.find(turn_id, namespace=namespace)
    if logged is None:
        where = "here" if namespace is None else f"in namespace {namespace!r}"
        return f"no turn {turn_id!r} is recorded {where}: check the id and the namespace"
    if logged.consumed is not None:
        return f"turn {logged.turn.id!r} was consumed by feedback {logged.consumed!r}"
    return [logged]


def _find_recent_turns(
    store: GraphStore, settings: LearningSettings, stored: StoredFeedback
) -> list[StoredTurn] | str:
    namespace = stored.feedback.namespace or DEFAULT_NAMESPACE
    turns, seconds = settings.window_turns, settings.window_seconds
    window = store.turns.window(
        namespace,
        until=stored.created,
        turns=turns,
        seconds=seconds,
    )
    remaining = [logged for logged in window if logged.consumed is None]
    if remaining:
        return remaining
    if not window and _is_ahead(store, namespace, stored.created):
        return (
            f"the last turn of namespace {namespace!r} is later than this feedback (was "
            "the clock set back?): give the turn id"
        )
    return (
        f"none of the last {turns} turns of namespace {namespace!r} within {seconds:g} "
        "seconds is left to learn from: give the turn id"
    )


def _is_ahead(store: GraphStore, namespace: str, moment: float) -> bool:
    """Whether the last turn was recorded after a moment."""
    latest = store.turns.latest(namespace)
    logged = store.turns.find(latest, namespace=namespace) if latest else None
    return logged is not None and logged.turn.created > moment


def _describe_missing(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:_MAX_LISTED]) + (" …" if len(ids) > _MAX_LISTED else "")
    return f"{len(ids)} ids that are not in this memory are ignored: {shown}"
