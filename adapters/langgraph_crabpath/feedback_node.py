"""The node that records feedback for an answer."""

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import interrupt
from typing_extensions import Unpack

from crabpath_retrievers import CrabPathRetriever, InvalidInputError
from crabpath_retrievers.integration import Operations, RewardSource, find_turn_ids, is_blank
from langgraph_crabpath.feedback_input import (
    FEEDBACK_FIELDS,
    build_feedback,
    parse_feedback,
    record_feedback,
)
from langgraph_crabpath.node import GraphNode
from langgraph_crabpath.recall import find_last_turns
from langgraph_crabpath.scope import Namespace, require_retriever, resolve_namespace, resolve_user
from langgraph_crabpath.state import StateKeys, find_last_question, get_value, merge_keys

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
        """Use :func:`crabpath_feedback`."""
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
        """The turns of the last question in the state; none where it had no words."""
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
        keys: Keys of the state, see :class:`~langgraph_crabpath.state.StateKeys`.

    Raises:
        InvalidInputError: An argument is not valid; or, when the node runs, the state holds no
            turn for its feedback, or invalid feedback.
    """
    return FeedbackNode(
        require_retriever(retriever), merge_keys(keys), ask=ask, namespace=namespace, source=source
    )


def _unwrap(found: list[Any]) -> Any:
    """The only one; a list of several."""
    return found[0] if len(found) == 1 else found


def _summarise_document(document: Any) -> dict[str, Any]:
    title = document.metadata.get("title")
    text = document.page_content
    return {
        "id": document.id,
        "title": None if title is None else str(title),
        "text": text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + " …",
    }
