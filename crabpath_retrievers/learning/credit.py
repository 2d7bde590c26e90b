"""Which turns a feedback is about, the credit of each, and when feedback is refused.

Feedback that names no turn is shared among the latest turns, by recency-weighted credit
``exp(-λ·Δ)`` as in the integration plan of [CrabPath] (docs/bibliography.md).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.feedback import (
    DEFAULT_NAMESPACE,
    DOCUMENT_FIELDS,
    Credit,
    Feedback,
    Receipt,
    ReceiptReason,
)
from crabpath_retrievers.core.records import ReturnedDocument, Turn, Vector
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.learning.rules import decide
from crabpath_retrievers.storage import Reader
from crabpath_retrievers.storage.read.catalog import StoredChunk
from crabpath_retrievers.storage.read.learned import KnownNode, NamespaceState, StoredFeedback
from crabpath_retrievers.storage.read.turns import StoredTurn


def assign_credit(
    turn: Turn, feedback: Feedback, supported: Mapping[str, float] | None, weight: float
) -> Credit:
    """Assign credit to a turn and, if finer evidence exists, to its returned documents.

    What the host states takes precedence over attribution. If ``used`` is given, used documents get
    z and the others 0; otherwise each document gets its support times z. ``unused`` documents get
    0, ``relevant`` ones 1 and ``irrelevant`` ones 0, whatever the outcome. Only returned documents
    are credited (:func:`add_stated` has added the stated ones). If the turn returned none of the
    used documents, the use of its own documents is not known. Without any of these fields and
    without support, no document is credited: only the turn is.

    Args:
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
    relevant = frozenset(feedback.relevant or ()).intersection(returned)
    documents |= dict.fromkeys(relevant, 1.0)
    irrelevant = frozenset(feedback.irrelevant or ()).intersection(unused)
    inferred = inferred.intersection(documents)
    return Credit(z, weight, documents, inferred, irrelevant=irrelevant, relevant=relevant)


def is_use_stated(turn: Turn, feedback: Feedback) -> bool:
    """Whether the host states which documents of a turn were used, or which are relevant.

    An empty list states it: none was. Names of documents that this turn did not return do not.
    """
    named = [ids for ids in (feedback.used, feedback.relevant) if ids is not None]
    return any(not ids or any(item.node in ids for item in turn.returned) for ids in named)


def share_by_recency(clocks: Sequence[int], delay: float) -> list[float]:
    """Return the share of each turn in one feedback: ``w_i = exp(-λ·Δ_i) / Σ_j exp(-λ·Δ_j)``.

    ``clocks`` are the numbers of the turns; Δ is the distance in turns to the latest one. ``delay``
    is λ per turn, at least 0; 0 gives equal shares.
    """
    latest = max(clocks, default=0)
    weights = [math.exp(-delay * (latest - clock)) for clock in clocks]
    total = sum(weights)
    return [weight / total for weight in weights]


_DEFAULT_WEIGHTS = LearningSettings().sources
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
        turns: The turns of one namespace that the feedback is about, latest first; at least one.
        note: Which part of the feedback is ignored; None if none is.
        state: State of the namespace.
        nodes: The nodes of these turns that still exist, by id.
        replaced: Ids of earlier feedback that must be undone first; after that, the turns must be
            read again.
    """

    turns: tuple[CreditedTurn, ...]
    note: str | None
    state: NamespaceState
    nodes: Mapping[str, KnownNode]
    replaced: tuple[str, ...] = ()


def assign_feedback(
    read: Reader, settings: LearningSettings, stored: StoredFeedback
) -> CreditAssignment | StoredFeedback | Receipt:
    """Assign the credit of a feedback to its turns, as they stand now.

    Feedback without a turn is about the last turn of its conversation at the time it was given,
    however late it is applied, and about turns before that one in its window that nobody has
    judged. If some of these turns returned a document that the feedback names, it is about those
    alone: use of a document in one turn must not count against what other turns returned.

    Returns:
        The assignment; or an earlier feedback of the same giver, whose fields the new one lacks and
        must take over first (see ``verdicts.complete``); or a receipt if nothing is learned.
    """
    found = _judge_turns(read, settings, stored)
    if isinstance(found, (StoredFeedback, Receipt)):
        return found
    candidates, replaced = found
    shown = {logged.turn.id: {item.node for item in logged.turn.returned} for logged in candidates}
    try:
        stored = stored._replace(feedback=_name_shown(stored.feedback, candidates))
        feedback, missing, unknown = stored.feedback, list[str](), list[str]()
        if feedback.stated_documents:
            candidates, feedback, missing = add_stated(read, stored, candidates)
        if feedback.used or feedback.unused:
            feedback, unknown = _resolve_use(read, feedback, candidates)
    except InvalidInputError as error:  # names of one document stand on both sides
        return _refuse(stored.feedback, "both_sides", str(error))
    if unknown:
        msg = (
            f"{format_value(unknown[0])} in used or unused names no document that the turn "
            "returned: give documents that it returned, their ids, or their sources"
        )
        return _refuse(feedback, "not_returned", msg)
    weight = settings.sources.get(feedback.source, _DEFAULT_WEIGHTS[feedback.source])
    shares = share_by_recency([logged.turn.clock for logged in candidates], settings.turn_decay)
    turns = list[CreditedTurn]()
    for logged, share in zip(candidates, shares, strict=True):
        turn, support = logged.turn, None
        if feedback.answer and not is_use_stated(turn, feedback):
            part = load_part("crabpath_retrievers.parts.attribution")
            support = part.attribute_turn(read, turn, feedback.answer)
        credit = assign_credit(turn, feedback, support, weight * share)
        added = frozenset(credit.documents) - shown[turn.id]
        turns.append(CreditedTurn(turn, replace(credit, added=added), logged.vector))
    note = None
    if missing:
        names = ", ".join(missing[:_MAX_LISTED]) + (" …" if len(missing) > _MAX_LISTED else "")
        note = f"{len(missing)} ids that are not in this memory are ignored: {names}"
    known = (candidates[0].state, candidates[0].nodes)
    return CreditAssignment(tuple(turns), note, *known, replaced)


def _judge_turns(
    read: Reader, settings: LearningSettings, stored: StoredFeedback
) -> tuple[Sequence[StoredTurn], tuple[str, ...]] | StoredFeedback | Receipt:
    """Find the turns that a feedback is about, and the earlier feedback that it replaces.

    Returns:
        The turns, latest first, and ids of the replaced feedback; or an earlier feedback of the
        same giver that must be completed first; or a receipt if nothing is learned.
    """
    feedback = stored.feedback
    found = (
        _find_recent_turns(read, settings, stored)
        if feedback.turn_id is None
        else _find_turn(read, stored)
    )
    if isinstance(found, Receipt):
        return found
    candidates, verdicts = _choose_turns(read, feedback, found)
    latest = candidates[0].turn
    judgement = decide(feedback, [known for turn, known in verdicts if turn == latest.id])
    if judgement.outranked_by is not None:
        other = judgement.outranked_by
        givers = {"human": "a person", "harvested": "another event"}
        giver = givers.get(other.source, "better judgement")
        msg = f"what {giver} said about turn {latest.id!r} stands: feedback {other.feedback_id!r}"
        return _refuse(feedback, "outranked", msg)
    if judgement.repeats is not None:
        same = f"feedback {judgement.repeats.feedback_id!r} says so already"
        name = feedback.feedback_id
        return Receipt(name, "repeated", same, repeated=True, turn_id=latest.id)
    if candidates[0].state.frozen:
        return refuse_frozen(feedback.feedback_id, latest.namespace)
    if judgement.completes is not None:
        return read.learned.get_feedback(judgement.completes, latest.namespace)
    return candidates, judgement.replaces


def _choose_turns(
    read: Reader, feedback: Feedback, found: Sequence[StoredTurn]
) -> tuple[Sequence[StoredTurn], Sequence[tuple[str, Feedback]]]:
    """Choose the turns that feedback is about, latest first, and read their earlier verdicts.

    If feedback with this id was learned from before, these are the turns that it was about.
    Otherwise they are the latest turn of ``found``, and older ones that nobody has judged; if some
    returned a document that the feedback names, only those are considered.

    Returns:
        The turns; and ``(turn id, feedback)`` of all earlier verdicts about any found turn.
    """
    judged = [logged.turn.id for logged in found if logged.consumed is not None]
    verdicts = read.turns.get_verdicts(judged) if judged else []
    own = {turn for turn, known in verdicts if known.feedback_id == feedback.feedback_id}
    if own:  # its giver has changed its content
        return [logged for logged in found if logged.turn.id in own], verdicts
    if len(found) > 1:
        about = feedback.stated_documents.union(feedback.used or (), feedback.unused or ())
        chunks = read.catalog.find_chunks(documents=about, sources=about) if about else []
        about |= {chunk.id for chunk in chunks}
        found = [
            logged for logged in found if any(item.node in about for item in logged.turn.returned)
        ] or found
    latest, *before = found
    return [latest, *(logged for logged in before if logged.consumed is None)], verdicts


def refuse_unknown(feedback: Feedback) -> Receipt:
    """Refuse feedback about a turn that does not exist."""
    where = "here" if feedback.namespace is None else f"in namespace {feedback.namespace!r}"
    msg = f"no turn {feedback.turn_id!r} is recorded {where}: check the id and the namespace"
    return _refuse(feedback, "unknown_turn", msg)


def refuse_frozen(feedback_id: str, namespace: str) -> Receipt:
    """Refuse feedback of a frozen namespace."""
    msg = f"namespace {namespace!r} is frozen: it learns nothing"
    return Receipt(feedback_id, "refused", msg, "frozen")


def _refuse(feedback: Feedback, reason: ReceiptReason, note: str) -> Receipt:
    return Receipt(feedback.feedback_id, "refused", note, reason)


def _name_shown(feedback: Feedback, candidates: Sequence[StoredTurn]) -> Feedback:
    """Replace names that a present retriever has for documents by ids of the memory.

    Documents that the present retriever showed in ``candidates`` and the memory does not have are
    left out.
    """
    for turn in (logged.turn for logged in candidates if logged.turn.shown):
        unknown = {*turn.shown.values()} - {item.node for item in turn.returned}
        named = {
            field: [node for node in turn.find_shown(names) if node not in unknown]
            for field in DOCUMENT_FIELDS
            if (names := getattr(feedback, field)) is not None
        }
        feedback = replace(feedback, **named)  # type: ignore[arg-type]
    return feedback


def _resolve_use(
    read: Reader, feedback: Feedback, candidates: Sequence[StoredTurn]
) -> tuple[Feedback, list[str]]:
    """Replace used and unused documents and sources by the ids of their returned chunks.

    Returns:
        The feedback; and the names that match nothing that ``candidates`` returned, sorted.
    """
    returned = {item.node for logged in candidates for item in logged.turn.returned}
    others = {*(feedback.used or ()), *(feedback.unused or ())} - returned
    if not others:
        return feedback, []
    chosen: dict[str, list[str]] = {}
    for chunk in read.catalog.find_chunks(documents=others, sources=others):
        for name in {chunk.document, chunk.source} & others if chunk.id in returned else ():
            chosen.setdefault(name, []).append(chunk.id)
    used, unused = (_replace_names(names, chosen) for names in (feedback.used, feedback.unused))
    return replace(feedback, used=used, unused=unused), sorted(others - chosen.keys())


def add_stated(
    read: Reader, stored: StoredFeedback, candidates: Sequence[StoredTurn]
) -> tuple[list[StoredTurn], Feedback, list[str]]:
    """Add the documents that a feedback calls relevant or irrelevant to turns without them.

    Each is added as the turn would have ranked it, if the process that recorded the feedback knew
    that (``stored.added``); otherwise without features.

    Returns:
        The turns (``candidates`` with these documents); the feedback, with ids of chunks instead of
        other names; and the ids that queries of the namespace cannot find.
    """
    feedback = stored.feedback
    key = candidates[0].state.clock.key
    nodes = dict(candidates[0].nodes)
    nodes |= read.learned.nodes(key, [n for n in feedback.stated_documents if n not in nodes])
    if unknown := feedback.stated_documents - nodes.keys():
        chunks = read.catalog.find_chunks(documents=unknown, sources=unknown)
        nodes |= read.learned.nodes(key, [chunk.id for chunk in chunks])
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
    """Choose chunks for each name of a document or source.

    These are the chunks that ``candidates`` returned; if they returned none, the one nearest to the
    query. Chunks without a vector in ``nodes`` are left out.
    """
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


def _find_turn(read: Reader, stored: StoredFeedback) -> list[StoredTurn] | Receipt:
    feedback = stored.feedback
    turn_id, namespace = str(feedback.turn_id), feedback.namespace
    logged = read.turns.find(turn_id, namespace=namespace, wait=False)
    if logged is None:
        return refuse_unknown(feedback)
    turn = logged.turn
    if None not in (feedback.session, turn.session) and feedback.session != turn.session:
        msg = f"turn {turn.id!r} belongs to another conversation than {feedback.session!r}"
        return _refuse(feedback, "other_session", msg)
    if stored.namespace is None:
        # The same id may have been used meanwhile.
        other = read.history.get_feedback_state(feedback.feedback_id, turn.namespace)
        if other is not None and other.sequence != stored.sequence:
            msg = "other feedback has this id: give another one"
            return _refuse(feedback, "id_taken", msg)
    return [logged]


def _find_recent_turns(
    read: Reader, settings: LearningSettings, stored: StoredFeedback
) -> list[StoredTurn] | Receipt:
    feedback = stored.feedback
    namespace = feedback.namespace or DEFAULT_NAMESPACE
    turns, seconds = settings.window_turns, settings.window_seconds
    until, session = stored.created, feedback.session
    if window := read.turns.window(
        namespace, until=until, turns=turns, seconds=seconds, session=session
    ):
        return window
    latest = read.turns.latest(namespace)
    logged = read.turns.find(latest, namespace=namespace) if latest else None
    if logged is not None and logged.turn.created > stored.created:
        msg = (
            f"the last turn of namespace {namespace!r} is later than this feedback (was "
            "the clock set back?): give the turn id"
        )
        return _refuse(feedback, "no_turn", msg)
    where = "" if session is None else f" in conversation {session!r}"
    msg = (
        f"namespace {namespace!r} has no turn{where} within {seconds:g} seconds before this "
        "feedback (the setting learning.window_seconds): give the turn id"
    )
    return _refuse(feedback, "no_turn", msg)
