"""Middleware for LangChain's agents: retrieves before the model, records feedback after it.

Detects events in the messages of an agent.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Annotated, Any

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import OmitFromSchema, PrivateStateAttr
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langgraph.runtime import Runtime
from typing_extensions import NotRequired

from crabpath_retrievers import CrabPathRetriever, InvalidInputError, OutcomePolicy
from crabpath_retrievers.integration import (
    CallOptions,
    EventKind,
    Operations,
    arun,
    collect_exception_names,
    count_words,
    find_turn_ids,
    find_turns_in_state,
    is_blank,
    make_event_feedback,
    parse_output,
    run,
)
from langgraph_crabpath.nodes import (
    build_feedback,
    make_refusals,
    parse_counted_feedback,
    record_feedback,
)
from langgraph_crabpath.recall import (
    Namespace,
    Recall,
    TaskType,
    find_last_question,
    require_retriever,
    resolve_namespace,
    resolve_user,
)
from langgraph_crabpath.tool import NOT_SEARCHED, format_documents


def detect_events(
    messages: Sequence[BaseMessage], answer: str | None, policy: OutcomePolicy
) -> set[EventKind]:
    """Detect the events of a run in its new messages and its answer, counted or not.

    The agent keeps only the text of a tool error; a transport error is recognised by the name of
    its exception in the text. A call of CrabPath's own tool that could not be used is no event.
    """
    failed = [str(m.text) for m in messages if isinstance(m, ToolMessage) and m.status == "error"]
    made = (text for text in failed if not text.startswith(NOT_SEARCHED))
    seen: set[EventKind] = set()
    if any(policy.is_about_documents(_find_exception_names(text)) for text in made):
        seen.add("tool_error")
    if answer:
        seen.add("silent_success")
    return seen


def find_answer(messages: Sequence[BaseMessage], structured: Any = None) -> str | None:
    """Return the answer: the structured output or the last message; None without one."""
    spoken = [message for message in messages if isinstance(message, AIMessage)]
    return parse_output({"structured_response": structured, "messages": spoken[-1:]}).text


def _find_exception_names(text: str) -> set[str]:
    """Find all words of a text, and base classes of the exceptions that they name."""
    words = set(re.findall(r"\w+", text))
    known = (error for error in _iterate_subclasses(BaseException) if error.__name__ in words)
    return words.union(*map(collect_exception_names, known))


def _iterate_subclasses(error: type[BaseException]) -> Iterator[type[BaseException]]:
    for each in error.__subclasses__():
        yield each
        yield from _iterate_subclasses(each)


_NO_ANSWER = (
    "crabpath_feedback has no earlier answer with documents in this thread: give the agent a "
    "checkpointer, and invoke it with the thread_id of such an answer"
)
_JUDGED = (
    "the last message found no documents, and the answer before it has other feedback of this user "
    "already: to change it, give the turn id of that answer to retriever.record"
)
_MIN_WORDS = 3  # of a question that a correction may be about; others are small talk
_Kept = OmitFromSchema(input=True, output=False)
_Given = OmitFromSchema(input=False, output=True)


class CrabPathState(AgentState[Any]):
    """State that the middleware adds to an agent.

    Attributes:
        crabpath_documents: Documents for the last question; each retrieval replaces them.
        crabpath_turns: Ids of the turns of the last run that found documents, including those of
            the tool; feedback is about these.
        crabpath_answer: The answer of that run.
        crabpath_said: The outcome that each user has given of that run; "" is who has no name.
        crabpath_unanswered: Id of the turn of the last question, if it has three words or more and
            no documents were found for it: a correction is about it.
        crabpath_receipts: Receipts of the feedback recorded last.
        crabpath_feedback: Input: feedback of the user about the last answer.
    """

    crabpath_documents: NotRequired[Annotated[list[Document], _Kept]]
    crabpath_turns: NotRequired[Annotated[list[str], _Kept]]
    crabpath_answer: NotRequired[Annotated[str | None, PrivateStateAttr]]
    crabpath_said: NotRequired[Annotated[dict[str, float], PrivateStateAttr]]
    crabpath_unanswered: NotRequired[Annotated[str | None, PrivateStateAttr]]
    crabpath_receipts: NotRequired[Annotated[list[dict[str, Any]], _Kept]]
    crabpath_feedback: NotRequired[Annotated[Any, _Given]]


class CrabPathMiddleware(AgentMiddleware[CrabPathState, Any]):
    """Gives an agent the documents of a memory, and records feedback about them.

    ``create_agent(model, tools, middleware=[CrabPathMiddleware(retriever)])``

    Before the agent starts, it records the user's feedback on the last answer
    (``crabpath_feedback`` in the input) and retrieves for the last human message. Every request to
    the model contains the documents as one message of delimited data before the question; the
    message history never contains them. After the agent, it records the events of the run that the
    :class:`~crabpath_retrievers.OutcomePolicy` counts.

    Feedback of a user replaces feedback from events of the same turns. Invalid feedback raises no
    error in the agent: ``crabpath_receipts`` says ``refused``, and why.
    """

    state_schema = CrabPathState

    def __init__(
        self,
        retriever: CrabPathRetriever,
        *,
        policy: OutcomePolicy | None = None,
        namespace: Namespace | None = None,
        options: CallOptions | None = None,
        task_type: TaskType | None = None,
    ) -> None:
        """Retrieve with ``retriever``.

        Args:
            retriever: The retriever to use.
            policy: Which events count as feedback; None for ``OutcomePolicy()``, which counts
                failed tools, but not answers without feedback.
            namespace: As for :func:`~langgraph_crabpath.crabpath_retrieve`.
            options: Options of every query, such as ``k`` and ``filter``; see
                :class:`~crabpath_retrievers.core.query.CallOptions`.
            task_type: As for :func:`~langgraph_crabpath.crabpath_retrieve`.

        Raises:
            InvalidInputError: An argument is not valid.
        """
        super().__init__()
        if policy is not None and not isinstance(policy, OutcomePolicy):
            msg = f"policy must be an OutcomePolicy, not {policy!r}"
            raise InvalidInputError(msg)
        self.tools = []
        self._retriever = require_retriever(retriever)
        self._policy = policy or OutcomePolicy()
        self._namespace = namespace
        self._recall = Recall(retriever, namespace, options or {}, task_type)

    def before_agent(
        self,
        state: CrabPathState,
        runtime: Runtime[Any],  # noqa: ARG002  LangChain's signature
        config: RunnableConfig | None = None,
    ) -> dict[str, Any]:
        """Record the user's feedback on the last answer, then retrieve."""
        return run(self._run_before(state, ensure_config(config)))

    async def abefore_agent(
        self,
        state: CrabPathState,
        runtime: Runtime[Any],  # noqa: ARG002
        config: RunnableConfig | None = None,
    ) -> dict[str, Any]:
        """As :meth:`before_agent`, off the event loop."""
        return await arun(self._run_before(state, ensure_config(config)))

    def wrap_model_call(
        self,
        request: "ModelRequest[Any]",
        handler: "Callable[[ModelRequest[Any]], ModelResponse[Any]]",
    ) -> "ModelResponse[Any]":
        """Add the documents to the request."""
        return handler(_insert_documents(request))

    async def awrap_model_call(
        self,
        request: "ModelRequest[Any]",
        handler: "Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]",
    ) -> "ModelResponse[Any]":
        """As :meth:`wrap_model_call`."""
        return await handler(_insert_documents(request))

    def after_agent(
        self,
        state: CrabPathState,
        runtime: Runtime[Any],  # noqa: ARG002
        config: RunnableConfig | None = None,
    ) -> dict[str, Any]:
        """Record the events of the run that the policy counts."""
        return run(self._run_after(state, ensure_config(config)))

    async def aafter_agent(
        self,
        state: CrabPathState,
        runtime: Runtime[Any],  # noqa: ARG002
        config: RunnableConfig | None = None,
    ) -> dict[str, Any]:
        """As :meth:`after_agent`, off the event loop."""
        return await arun(self._run_after(state, ensure_config(config)))

    def _run_before(
        self, state: CrabPathState, config: RunnableConfig
    ) -> Operations[dict[str, Any]]:
        said = state.get("crabpath_feedback")
        update: dict[str, Any] = {"crabpath_feedback": None, "crabpath_receipts": []}
        if said is not None:
            update |= yield from self._record_user_feedback(state, said, config)
        question = find_last_question(state["messages"])
        turn, documents = None, list[Document]()
        if not is_blank(question):  # an image only, or a resumed run
            turn, documents = yield from self._recall.steps(question, config)
        update["crabpath_documents"] = documents
        is_asked = not documents and count_words(question or "") >= _MIN_WORDS
        update["crabpath_unanswered"] = turn if is_asked else None
        if turns := find_turn_ids(documents):
            update |= {"crabpath_turns": turns, "crabpath_answer": None, "crabpath_said": {}}
            return update
        return {**update, "crabpath_turns": state.get("crabpath_turns", [])}

    def _record_user_feedback(
        self, state: CrabPathState, said: Any, config: RunnableConfig
    ) -> Operations[dict[str, Any]]:
        """Record feedback of the user, which replaces feedback from events of the same run."""
        namespace = resolve_namespace(self._retriever, self._namespace, config)
        turns, answer = state.get("crabpath_turns"), state.get("crabpath_answer")
        earlier, user = state.get("crabpath_said", {}), resolve_user(config)
        try:
            given = parse_counted_feedback(said, self._policy)
            unanswered = state.get("crabpath_unanswered")
            if unanswered and "correction" in given:
                turns, answer = [unanswered], None
            if not turns:
                return {"crabpath_receipts": make_refusals(_NO_ANSWER, "no_turn")}
            differs = earlier.get(user or "", given["outcome"]) != given["outcome"]
            if differs and "correction" not in given:  # the thumb may be about small talk
                return {"crabpath_receipts": make_refusals(_JUDGED, "outranked")}
            fields = {"answer": answer, **given, "namespace": namespace, "user": user}
            held = [*state.get("crabpath_documents", []), *state["messages"]]
            feedback = build_feedback(turns, held, **fields)
        except InvalidInputError as error:  # raising would fail every later run of the thread
            return {"crabpath_receipts": make_refusals(str(error))}
        receipts = yield from record_feedback(self._retriever, feedback)
        update: dict[str, Any] = {"crabpath_receipts": receipts}
        if turns != [unanswered] and any(one["status"] != "refused" for one in receipts):
            update["crabpath_said"] = {**earlier, user or "": given["outcome"]}
        return update

    def _run_after(
        self, state: CrabPathState, config: RunnableConfig
    ) -> Operations[dict[str, Any]]:
        messages = _select_run_messages(state["messages"])
        tools = [found.turn_id for found in find_turns_in_state({"messages": messages})]
        retrieved = find_turn_ids(state.get("crabpath_documents", []))
        turns = list(dict.fromkeys([*retrieved, *tools]))
        if not turns:
            return {}
        answer = find_answer(messages, state.get("structured_response"))
        update: dict[str, Any] = {"crabpath_turns": turns, "crabpath_answer": answer}
        update |= {"crabpath_unanswered": None, "crabpath_said": {}}  # a tool may have found them
        kind = self._policy.first(detect_events(messages, answer, self._policy))
        if kind is None:
            return update
        namespace = resolve_namespace(self._retriever, self._namespace, config)
        given = [
            make_event_feedback(
                kind,
                self._policy,
                turn,
                answer=answer,
                namespace=namespace,
                user=resolve_user(config),
            )
            for turn in turns
        ]
        receipts = yield from record_feedback(self._retriever, given)
        earlier = state.get("crabpath_receipts", [])
        return {**update, "crabpath_receipts": [*earlier, *receipts]}


def _insert_documents(request: "ModelRequest[Any]") -> "ModelRequest[Any]":
    """Insert the documents before the question that they were retrieved for."""
    documents: Any = request.state.get("crabpath_documents")
    if not documents:
        return request
    messages = list(request.messages)
    human = [n for n, message in enumerate(messages) if isinstance(message, HumanMessage)]
    messages.insert(human[-1] if human else 0, HumanMessage(format_documents(documents)))
    return request.override(messages=messages)


def _select_run_messages(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages after the last human message."""
    human = [n for n, message in enumerate(messages) if isinstance(message, HumanMessage)]
    return list(messages[human[-1] + 1 if human else 0 :])
