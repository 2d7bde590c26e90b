"""A chat model decides the pointers about which the policy is not sure (document 001 §2.5).

It never has the last word: only numbers that were offered count; clear pointers, and those that it
does not mention, stay with the policy; where it fails the policy decides alone. Nothing that it
says hides a document that search found.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from crabpath_retrievers.driver import Steps, arun, perform, run
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.routing.asking import Asking, Reply
from crabpath_retrievers.routing.breaker import Breaker
from crabpath_retrievers.routing.candidates import Candidate, entered, unclear
from crabpath_retrievers.routing.policy import Decision, Routed, RoutingRequest, SoftmaxRouter
from crabpath_retrievers.routing.prompt import Prompt, prompt
from crabpath_retrievers.routing.route import Heard, Route, heard
from crabpath_retrievers.routing.settings import RouterSettings
from crabpath_retrievers.routing.tokens import counter
from crabpath_retrievers.usage import Usage

_MILLION = 1_000_000
_CUT_OFF = {"length", "max_tokens"}
_NOTE = 300  # characters


class ChatModelRouter:
    """Lets a chat model choose among the unclear pointers of a frontier.

    It is asked at most once a turn unless told otherwise, and not at all where the policy is sure.
    After failures in a row it is left alone for a while; :attr:`state` and the turns say so.
    """

    def __init__(self, llm: BaseChatModel, settings: RouterSettings | None = None) -> None:
        """Route with a model.

        Args:
            llm: Any LangChain chat model; one without structured output is asked for JSON.
            settings: Budgets.

        Raises:
            InvalidInputError: It is no chat model.
        """
        if not isinstance(llm, BaseChatModel):
            msg = (
                f"a router needs a chat model, not {type(llm).__name__}: pass a BaseChatModel "
                "itself, without bind, with_config, with_retry or with_fallbacks"
            )
            raise InvalidInputError(msg)
        self.settings = settings or RouterSettings()
        self._asking = Asking(llm, self.settings)
        self._count = counter(llm)
        self._breaker = Breaker(self.settings.max_failures, self.settings.recovery_seconds)
        self._schema: int | None = None

    @property
    def model(self) -> BaseChatModel:
        """The model that is asked."""
        return self._asking.model

    @property
    def state(self) -> str:
        """``closed``: the model is asked; ``open``: it is not; ``half_open``: one call may try."""
        return self._breaker.state

    def route(self, request: RoutingRequest) -> Routed:
        """One decision per choice of the request, in order."""
        return run(self._steps(request))

    async def aroute(self, request: RoutingRequest) -> Routed:
        """As :meth:`route`, without blocking the event loop."""
        return await arun(self._steps(request))

    def _steps(self, request: RoutingRequest) -> Steps[Routed]:
        default = SoftmaxRouter(request.policy).route(request)
        asked = request.calls and self.settings.ask_per == "turn"
        if asked or request.recalled >= self.settings.known_confidence:
            return default
        candidates = unclear(request, self.settings.clear_margin, self.settings.max_candidates)
        if not candidates:
            return default
        with self._breaker.admitted() as admitted:
            if not admitted:
                return default._replace(notes=(self._breaker.complaint[:_NOTE],))
            shown = [*entered(request), *candidates][: self.settings.max_candidates]
            routed = yield from self._asked(request, shown, default)
            return routed

    def _asked(
        self, request: RoutingRequest, candidates: Sequence[Candidate], default: Routed
    ) -> Steps[Routed]:
        shown = yield from perform(self._prompt, request, candidates)
        if shown is None:
            note = f"not asked: no candidate fits into {self.settings.max_input_tokens} tokens"
            return default._replace(notes=(note,))
        reply = yield from self._asking.reply(shown.messages, request.callbacks)
        said = heard(reply.answer, range(1, len(shown.offered) + 1), request.budget)
        failure = reply.failure
        if failure is None and said is None:
            failure = ValueError(_complaint(_message(reply.answer)))
        self._breaker.report(failure)
        usage = self._usage(shown, reply, failed=failure is not None)
        if said is None:
            return default._replace(usage=usage, notes=(f"failed: {failure!r}"[:_NOTE],))
        routed = followed(request, default, shown.offered, said)
        return routed._replace(usage=usage, notes=(said.reason,) if said.reason else ())

    def _prompt(self, request: RoutingRequest, candidates: Sequence[Candidate]) -> Prompt | None:
        if self._schema is None:
            self._schema = self._count(json.dumps(Route.model_json_schema()))
        budget = self.settings.max_input_tokens - self._schema
        shown = prompt(request, candidates, self._count, budget)
        return shown if shown.offered and shown.tokens <= budget else None

    def _usage(self, shown: Prompt, reply: Reply, *, failed: bool) -> Usage:
        calls, failures = reply.attempts, reply.attempts - (not failed)
        message = _message(reply.answer)
        if not isinstance(message, BaseMessage):
            return Usage(calls, failures=failures)
        told: Any = getattr(message, "usage_metadata", None) or {}
        if told.get("total_cost") == 0:  # so LangChain marks what its cache answered
            return Usage(calls - 1, 1, failures)
        given, taken = _tokens(told, "input_tokens"), _tokens(told, "output_tokens")
        given = shown.tokens if given is None else given
        taken = self._count(message.text) if taken is None else taken
        per_input, per_output = self.settings.prices
        cost = (given * per_input + taken * per_output) / _MILLION
        return Usage(calls, 0, failures, given, taken, cost)


def _message(answer: Any) -> Any:
    return answer.get("raw") if isinstance(answer, dict) else answer


def _complaint(message: Any) -> str:
    """Why nothing in an answer can be followed."""
    told: Mapping[str, Any] = getattr(message, "response_metadata", None) or {}
    if {told.get("finish_reason"), told.get("stop_reason")} & _CUT_OFF:
        return "the answer was cut off: raise output_tokens, or set it to None"
    return "the answer names no candidate that was offered"


def _tokens(told: Mapping[str, Any], name: str) -> int | None:
    """What a model tells of its tokens; None where that is no number of tokens."""
    found = told.get(name)
    if isinstance(found, (int, float)) and 0 <= found < float("inf"):
        return int(found)
    return None


def followed(
    request: RoutingRequest, default: Routed, offered: Sequence[Candidate], said: Heard
) -> Routed:
    """The decisions of the policy, with those of the model about what it was offered.

    Args:
        request: What is to be decided.
        default: What the policy decides.
        offered: What the model was shown; number ``i`` is ``offered[i - 1]``.
        said: Its answer.
    """
    wanted = [place for number in said.follow for place in offered[number - 1].places]
    settled = {p for n, c in enumerate(offered, 1) if said.stop or n in said.drop for p in c.places}
    settled.update(wanted)
    shown = {row for candidate in offered for row, _ in candidate.places}
    decisions = []
    for row, (choice, decision) in enumerate(zip(request.choices, default.decisions, strict=True)):
        if row in shown:
            chosen = [column for place, column in wanted if place == row]
            own = [column for column in decision.followed if (row, column) not in settled]
            taken = (*chosen, *own)[: request.budget]
            stopped = len(taken) < min(request.budget, len(choice.pointers))
            decision = Decision(taken, stopped, decision.probabilities, "chat_model")  # noqa: PLW2901
        decisions.append(decision)
    keys = {number: candidate.target.key for number, candidate in enumerate(offered, 1)}
    return Routed(
        decisions,
        chosen=frozenset(keys[number] for number in said.follow),
        dropped=frozenset(keys[number] for number in said.drop),
    )
