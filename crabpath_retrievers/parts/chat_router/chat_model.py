"""A router that lets a chat model decide the edges about which the policy is unsure [CrabPath].

The model's influence is bounded: only offered numbers count; the policy decides clear edges and
those that the model does not mention, and decides alone if the model fails. The model cannot hide a
document that search found.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from crabpath_retrievers.core.calls import Operations, arun, perform, run
from crabpath_retrievers.core.records import ModelUsage
from crabpath_retrievers.core.text import describe_type
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.chat_router.model_client import (
    ModelBreaker,
    ModelClient,
    RouterSettings,
)
from crabpath_retrievers.parts.chat_router.prompt import (
    Route,
    RouteOption,
    RouterPrompt,
    build_prompt,
    find_unclear,
    make_token_counter,
    parse_answer,
)
from crabpath_retrievers.routing import (
    Decision,
    RoutingRequest,
    RoutingResult,
    SoftmaxRouter,
)

_MILLION = 1_000_000
_CUT_OFF = {"length", "max_tokens"}
_MAX_NOTE = 300  # characters


class ChatModelRouter:
    """Lets a chat model choose among the unclear edges of a frontier.

    By default the model is called at most once a turn, and not at all if the policy is sure about
    every edge. After consecutive failures it is not called for a while; :attr:`state` and the turn
    records show this.
    """

    def __init__(self, llm: BaseChatModel, settings: RouterSettings | None = None) -> None:
        """Route with a model.

        Args:
            llm: Any LangChain chat model; one without structured output is asked for JSON.
            settings: Budgets.

        Raises:
            InvalidInputError: ``llm`` is not a chat model.
        """
        if not isinstance(llm, BaseChatModel):
            msg = (
                f"a router needs a chat model, not {describe_type(llm)}: pass a BaseChatModel "
                "itself, without bind, with_config, with_retry or with_fallbacks; or, as router=, "
                "an object with the methods route and aroute"
            )
            raise InvalidInputError(msg)
        self.settings = settings or RouterSettings()
        self._client = ModelClient(llm, self.settings)
        self._count_tokens = make_token_counter(llm)
        self._breaker = ModelBreaker(self.settings.max_failures, self.settings.recovery_seconds)
        self._schema_tokens: int | None = None

    @property
    def model(self) -> BaseChatModel:
        """The chat model."""
        return self._client.model

    @property
    def state(self) -> str:
        """``closed``: calls are made; ``open``: none is; ``half_open``: one trial call is."""
        return self._breaker.state

    def route(self, request: RoutingRequest) -> RoutingResult:
        """Return one decision per choice of the request, in order."""
        return run(self._steps(request))

    async def aroute(self, request: RoutingRequest) -> RoutingResult:
        """As :meth:`route`, without blocking the event loop."""
        return await arun(self._steps(request))

    def _steps(self, request: RoutingRequest) -> Operations[RoutingResult]:
        default = SoftmaxRouter(request.policy).route(request)
        called = request.calls and self.settings.ask_per == "turn"
        if called or request.recalled >= self.settings.known_confidence:
            return default
        candidates = find_unclear(request, self.settings.clear_margin, self.settings.max_candidates)
        if not candidates:
            return default
        with self._breaker.admit() as admitted:
            if not admitted:
                return default._replace(notes=(self._breaker.reason[:_MAX_NOTE],))
            entries = [
                RouteOption(head, "search", energy, energy) for head, energy in request.entries
            ]
            options = [*entries, *candidates][: self.settings.max_candidates]
            routed = yield from self._ask_model(request, options, default)
            return routed

    def _ask_model(
        self, request: RoutingRequest, candidates: Sequence[RouteOption], default: RoutingResult
    ) -> Operations[RoutingResult]:
        sent = yield from perform(self._build_prompt, request, candidates)
        if sent is None:
            note = f"not asked: no candidate fits into {self.settings.max_input_tokens} tokens"
            return default._replace(notes=(note,))
        reply, failure, attempts = yield from self._client.reply(sent.messages, request.callbacks)
        answer = parse_answer(reply, range(1, len(sent.offered) + 1), request.budget)
        if failure is None and answer is None:
            failure = ValueError(_explain_unusable(_get_message(reply)))
        self._breaker.report(failure)
        failures = attempts - (failure is None)
        usage = self._measure_usage(sent, _get_message(reply), attempts, failures)
        if answer is None:
            return default._replace(usage=usage, notes=(f"failed: {failure!r}"[:_MAX_NOTE],))
        routed = merge_decisions(request, default, sent.offered, answer)
        return routed._replace(usage=usage, notes=(answer.reason,) if answer.reason else ())

    def _build_prompt(
        self, request: RoutingRequest, candidates: Sequence[RouteOption]
    ) -> RouterPrompt | None:
        """Build the prompt about the candidates of a request; None if none fits into the budget."""
        if self._schema_tokens is None:
            self._schema_tokens = self._count_tokens(json.dumps(Route.model_json_schema()))
        budget = self.settings.max_input_tokens - self._schema_tokens
        built = build_prompt(request, candidates, self._count_tokens, budget)
        return built if built.offered and built.tokens <= budget else None

    def _measure_usage(
        self, sent: RouterPrompt, message: Any, calls: int, failures: int
    ) -> ModelUsage:
        if not isinstance(message, BaseMessage):
            return ModelUsage(calls, failures=failures)
        metadata: Any = getattr(message, "usage_metadata", None) or {}
        if metadata.get("total_cost") == 0:  # LangChain marks answers from its cache like this
            return ModelUsage(calls - 1, 1, failures)
        sent_tokens = _read_tokens(metadata, "input_tokens")
        sent_tokens = sent.tokens if sent_tokens is None else sent_tokens
        answer_tokens = _read_tokens(metadata, "output_tokens")
        if answer_tokens is None:
            answer_tokens = self._count_tokens(message.text)
        per_input, per_output = self.settings.prices
        cost = (sent_tokens * per_input + answer_tokens * per_output) / _MILLION
        return ModelUsage(calls, 0, failures, sent_tokens, answer_tokens, cost)


def _get_message(answer: Any) -> Any:
    return answer.get("raw") if isinstance(answer, dict) else answer


def _explain_unusable(message: Any) -> str:
    """Explain why an answer names no candidate."""
    metadata: Mapping[str, Any] = getattr(message, "response_metadata", None) or {}
    if {metadata.get("finish_reason"), metadata.get("stop_reason")} & _CUT_OFF:
        return "the answer was cut off: raise output_tokens, or set it to None"
    return "the answer names no candidate that was offered"


def _read_tokens(metadata: Mapping[str, Any], name: str) -> int | None:
    """Read a token count that a model reported as ``name``; None if missing or no count."""
    count = metadata.get(name)
    if isinstance(count, (int, float)) and 0 <= count < float("inf"):
        return int(count)
    return None


def merge_decisions(
    request: RoutingRequest,
    default: RoutingResult,
    offered: Sequence[RouteOption],
    answer: Route,
) -> RoutingResult:
    """Combine the policy's decisions with the model's decisions about the offered nodes."""
    wanted = [place for number in answer.follow for place in offered[number - 1].places]
    settled = {
        place
        for number, option in enumerate(offered, 1)
        if answer.stop or number in answer.drop
        for place in option.places
    }
    settled.update(wanted)
    rows = {row for option in offered for row, _ in option.places}
    decisions = []
    for row, (choice, decision) in enumerate(zip(request.choices, default.decisions, strict=True)):
        if row in rows:
            chosen = [column for index, column in wanted if index == row]
            others = [column for column in decision.followed if (row, column) not in settled]
            columns = (*chosen, *others)[: request.budget]
            stopped = len(columns) < min(request.budget, len(choice.edges))
            decision = Decision(columns, stopped, decision.probabilities, "chat_model")  # noqa: PLW2901
        decisions.append(decision)
    keys = {number: candidate.target.key for number, candidate in enumerate(offered, 1)}
    return RoutingResult(
        decisions,
        chosen=frozenset(keys[number] for number in answer.follow),
        dropped=frozenset(keys[number] for number in answer.drop),
    )
