"""Nodes of a graph: one retrieves, one records feedback for an answer.

Feedback comes in the formats that hosts send, and is recorded once per turn, only in the namespace
of the turn.
"""

import logging
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ensure_config
from langgraph.types import interrupt
from typing_extensions import Unpack

from crabpath_retrievers import CrabPathRetriever, Feedback, InvalidInputError, OutcomePolicy
from crabpath_retrievers.integration import (
    DOCUMENT_FIELDS,
    CallOptions,
    Operations,
    Receipt,
    ReceiptReason,
    RewardSource,
    arun,
    find_turn_ids,
    is_blank,
    make_outcome_feedback,
    parse_outcome,
    perform,
    run,
)
from langgraph_crabpath.recall import (
    Namespace,
    Recall,
    StateKeys,
    TaskType,
    find_last_question,
    find_last_turns,
    get_value,
    merge_keys,
    require_question,
    require_retriever,
    resolve_namespace,
    resolve_user,
)


class GraphNode(Runnable[Any, dict[str, Any]]):
    """A node of a graph: takes the state and returns its update."""

    def invoke(
        self,
        input: Any,  # noqa: A002  LangChain's name
        config: RunnableConfig | None = None,
        **_kwargs: Any,
    ) -> dict[str, Any]:
        """Run in the calling thread."""
        return run(self._steps(input, ensure_config(config)))

    async def ainvoke(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **_kwargs: Any,
    ) -> dict[str, Any]:
        """Run without blocking the event loop."""
        return await arun(self._steps(input, ensure_config(config)))

    @abstractmethod
    def _steps(self, state: Any, config: RunnableConfig) -> Operations[dict[str, Any]]:
        """Do the work of the node, yielding every blocking operation."""


class RetrieveNode(GraphNode):
    """Puts documents and their turn id into the state; see :func:`crabpath_retrieve`."""

    name = "crabpath_retrieve"

    def __init__(self, recall: Recall, keys: StateKeys) -> None:
        """Make the node; :func:`crabpath_retrieve` is the public way."""
        self._recall, self._keys = recall, keys

    def _steps(self, state: Any, config: RunnableConfig) -> Operations[dict[str, Any]]:
        question = require_question(state, self._keys)
        if is_blank(question):  # a message that is only a picture
            return self._write([], None)
        found = yield from self._recall.steps(question, config)
        return self._write(found.documents, found.turn_id)

    def _write(self, documents: list[Document], turn_id: str | None) -> dict[str, Any]:
        """Return the update of the state; without the turn if the graph has no key for it."""
        turn = self._keys["turn_key"]
        return {self._keys["documents_key"]: documents, **({turn: turn_id} if turn else {})}


def crabpath_retrieve(
    retriever: CrabPathRetriever,
    *,
    namespace: Namespace | None = None,
    options: CallOptions | None = None,
    task_type: TaskType | None = None,
    **keys: Unpack[StateKeys],
) -> RetrieveNode:
    """Make a node that retrieves for the question in the state.

    One object for sync and async graphs: ``builder.add_node("retrieve", crabpath_retrieve(r))``.
    It reads ``query_key``, else the last human message of ``messages_key``, and writes
    ``documents_key`` and ``turn_key``; both must be in the schema of the state, but where branches
    retrieve in parallel ``turn_key`` is None. A question without words, such as a picture, finds
    no documents and has no turn. With ``stream_mode="custom"`` every hop of the walk is streamed.

    Args:
        retriever: The retriever.
        namespace: The namespace, as a text or as a function of runtime and config. None
            takes the first of: the user authenticated by a LangGraph server;
            ``namespace`` or ``user_id`` in the runtime's context; the same in
            ``config["configurable"]``; the retriever's.
        options: Options of every query, such as ``k`` and ``filter``; see
            :class:`~crabpath_retrievers.core.query.CallOptions`.
        task_type: Type of the task, as a text or as a function of runtime and config. None takes
            ``task_type`` of the runtime's context, else of ``config["configurable"]``, else the
            retriever's.
        keys: Keys of the state, see :class:`~langgraph_crabpath.recall.StateKeys`.

    Raises:
        InvalidInputError: An argument is not valid; or, when the node runs, the state holds no
            question.
    """
    recall = Recall(require_retriever(retriever), namespace, options or {}, task_type)
    return RetrieveNode(recall, merge_keys(keys))


FEEDBACK_FIELDS = ("outcome", *DOCUMENT_FIELDS, "answer", "correction")
"""Fields of feedback on an answer."""

_WRONG = OutcomePolicy().correction.outcome


def parse_feedback(said: Any, wrong: float = _WRONG) -> dict[str, Any]:
    """Parse feedback into the fields of a ``Feedback``.

    Args:
        said: An outcome, as for ``CrabPathRetriever.record``; or a mapping with any of ``outcome``,
            ``used``, ``unused``, ``relevant``, ``irrelevant``, ``answer`` and ``correction``.
        wrong: Outcome of a correction without an outcome, in [-1, 1].
    """
    given = said if isinstance(said, Mapping) else {"outcome": said}
    unknown = sorted(map(str, set(given) - set(FEEDBACK_FIELDS)))
    if unknown:
        msg = f"unknown fields {unknown} in the feedback: use {', '.join(FEEDBACK_FIELDS)}"
        raise InvalidInputError(msg)
    fields = {name: given[name] for name in FEEDBACK_FIELDS if given.get(name) is not None}
    for name in ("answer", "correction"):
        if is_blank(fields.get(name)):
            fields.pop(name, None)
    if "outcome" not in fields and "correction" not in fields:
        msg = "the feedback has neither outcome nor correction: give one of them"
        raise InvalidInputError(msg)
    fields["outcome"] = parse_outcome(fields.get("outcome", wrong))
    return fields


def parse_counted_feedback(said: Any, policy: OutcomePolicy) -> dict[str, Any]:
    """Parse feedback of a user into the fields of a ``Feedback``, if a policy counts it."""
    fields = parse_feedback(said, policy.correction.outcome)
    corrected = "correction" in fields
    if not (policy.correction if corrected else policy.score).on:
        kind = "correction" if corrected else "score"
        msg = f"this is a {kind}, which the policy does not count: switch its rule on"
        raise InvalidInputError(msg)
    return {"source": policy.correction.source if corrected else "human", **fields}


_log = logging.getLogger(__name__)
_IDS = uuid.UUID("6f6fbe1c-54f8-4b0f-9a0c-6c8d1f1f8e55")


def build_feedback(
    turns: Sequence[str], held: Iterable[object], *, answer: str | None = None, **fields: Any
) -> list[Feedback]:
    """Make the feedback for each turn, with those used documents that it returned.

    Its id is derived from the turn, so that a node that runs again repeats the feedback.
    """
    documents = [item for item in held if {*find_turn_ids([item])}.intersection(turns)]
    given = make_outcome_feedback([*turns, *documents], answer=answer, **fields)
    return [replace(one, feedback_id=uuid.uuid5(_IDS, f"said\0{one.turn_id}").hex) for one in given]


def make_refusals(note: str, reason: ReceiptReason | None = None) -> list[dict[str, Any]]:
    """Make the receipt of feedback that was not stored, with the keys of every receipt."""
    _log.warning("feedback was refused: %s", note)
    refused = Receipt("", "refused", note, reason)
    return [{**refused._asdict(), "feedback_id": None}]


def record_feedback(
    retriever: CrabPathRetriever, given: Iterable[Feedback]
) -> Operations[list[dict[str, Any]]]:
    """Record feedback, and return the receipts as plain data for a state."""
    receipts = []
    for feedback in given:
        receipt: Receipt = yield from perform(retriever.memory.record, feedback)
        receipts.append({**receipt._asdict(), "turn_id": feedback.turn_id})
    return receipts


_MAX_CHARS = 500  # characters of a document in the interrupt
_MISNAMED = ("not_returned", "both_sides")  # reasons for which a person is asked again


class FeedbackNode(GraphNode):
    """Records feedback for the turn in the state; see :func:`crabpath_feedback`."""

    name = "crabpath_feedback"

    def __init__(
        self,
        retriever: CrabPathRetriever,
        keys: StateKeys,
        *,
        ask: bool,
        namespace: Namespace | None,
        source: RewardSource,
    ) -> None:
        """Make the node; :func:`crabpath_feedback` is the public way."""
        self._retriever, self._keys = retriever, keys
        self._ask, self._namespace, self._source = ask, namespace, source

    def _steps(self, state: Any, config: RunnableConfig) -> Operations[dict[str, Any]]:
        said = {} if self._ask else self._read_feedback(state)
        turns = [] if said is None else self._find_turns(state)
        if not turns:
            return {}
        namespace = resolve_namespace(self._retriever, self._namespace, config)
        user = resolve_user(config)
        fixed = {"source": self._source, "namespace": namespace, "user": user}
        if self._ask:
            receipts = yield from self._ask_person(state, turns, fixed)
        else:
            held = get_value(state, self._keys["documents_key"]) or ()
            given = build_feedback(turns, held, **fixed, **parse_feedback(said))
            receipts = yield from record_feedback(self._retriever, given)
        return {self._keys["feedback_key"]: _unwrap(receipts)}

    def _find_turns(self, state: Any) -> list[str]:
        """Find the turns of the last question in the state; none if the question was blank."""
        turn, documents = self._keys["turn_key"], self._keys["documents_key"]
        held = get_value(state, documents)
        if named := turn and get_value(state, turn):
            return [str(named)]
        if not (found := find_last_turns(held)) and held != []:
            msg = (
                f"the state holds no turn in {turn!r}, and none in {documents!r}: run "
                "crabpath_retrieve before, with one of these keys in the schema of the state"
            )
            raise InvalidInputError(msg)
        return found

    def _read_feedback(self, state: Any) -> dict[str, Any] | None:
        """Read the feedback in the state; None without outcome and correction."""
        said = {name: get_value(state, self._keys[f"{name}_key"]) for name in FEEDBACK_FIELDS}  # type: ignore[literal-required]
        return None if said["outcome"] is None and is_blank(said["correction"]) else said

    def _ask_person(
        self, state: Any, turns: list[str], fixed: dict[str, Any]
    ) -> Operations[list[dict[str, Any]]]:
        """Ask a person until the reply is valid; LangGraph replays earlier replies."""
        answer = self._find_answer(state)
        held = [
            item
            for item in get_value(state, self._keys["documents_key"]) or ()
            if {*find_turn_ids([item])} <= {*turns}  # not those of earlier questions
        ]
        payload = {
            "type": "crabpath_feedback",
            "turn_id": _unwrap(turns),
            "question": self._find_question(state),
            "answer": answer,
            "documents": [_summarise_document(item) for item in held],
        }
        while True:
            said = interrupt(payload)
            try:
                fields = {"answer": answer, **fixed, **parse_feedback(said)}
                given = build_feedback(turns, held, **fields)
            except InvalidInputError as error:
                payload = {**payload, "error": str(error)}
                continue
            receipts = yield from record_feedback(self._retriever, given)
            misnamed = [one["note"] for one in receipts if one["reason"] in _MISNAMED]
            if not misnamed:
                return receipts
            payload = {**payload, "error": misnamed[0]}

    def _find_question(self, state: Any) -> str | None:
        asked = get_value(state, self._keys["query_key"])
        found = (
            find_last_question(get_value(state, self._keys["messages_key"]))
            if asked is None
            else asked
        )
        return None if found is None else str(found)

    def _find_answer(self, state: Any) -> str | None:
        answer = get_value(state, self._keys["answer_key"])
        return None if answer is None else str(answer)


def crabpath_feedback(
    retriever: CrabPathRetriever,
    *,
    ask: bool = False,
    namespace: Namespace | None = None,
    source: RewardSource = "human",
    **keys: Unpack[StateKeys],
) -> FeedbackNode:
    """Make a node that records feedback for the answer, so that the next retrieval improves.

    It reads ``turn_key`` (else the turns of the last step in ``documents_key``, several of
    parallel branches), ``outcome_key``, ``used_key``, ``unused_key``, ``relevant_key``,
    ``irrelevant_key``, ``answer_key`` and ``correction_key``; if outcome and correction are None,
    or no documents were retrieved, nothing is recorded. It writes the receipt, a dict of
    ``feedback_id``, ``status``, ``note`` and ``turn_id``, under ``feedback_key``; a list of them
    for several turns.

    Safe to run again, after an interrupt, a retry or from an earlier checkpoint: the feedback id
    is derived from the turn, so the same feedback changes nothing, and other feedback of the same
    user replaces it. Feedback for a turn of another namespace is refused.

    Args:
        retriever: The retriever of the turn, or another one over the same memory.
        ask: Ask a person with ``interrupt()``, showing question, answer and documents. Resume with
            ``Command(resume=...)``: a number in [-1, 1], True or False, ``"up"`` or ``"down"``, or
            a dict of outcome, used, unused, relevant, irrelevant, answer, correction. After any
            other answer the person is asked again, with the reason under ``error``.
        namespace: As for :func:`~langgraph_crabpath.crabpath_retrieve`.
        source: Reward source: ``human``, ``self``, ``harvested`` or ``teacher``.
        keys: Keys of the state, see :class:`~langgraph_crabpath.recall.StateKeys`.

    Raises:
        InvalidInputError: An argument is not valid; or, when the node runs, the state holds no
            turn for its feedback, or invalid feedback.
    """
    return FeedbackNode(
        require_retriever(retriever), merge_keys(keys), ask=ask, namespace=namespace, source=source
    )


def _unwrap(found: list[Any]) -> Any:
    """Return the only item of a list, or a list of several."""
    return found[0] if len(found) == 1 else found


def _summarise_document(document: Any) -> dict[str, Any]:
    title = document.metadata.get("title")
    text = document.page_content
    return {
        "id": document.id,
        "title": None if title is None else str(title),
        "text": text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + " …",
    }
