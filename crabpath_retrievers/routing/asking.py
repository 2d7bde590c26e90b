"""One question to a chat model: in structured form where it can, in time, with retries."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from langchain_core.language_models import BaseChatModel, SimpleChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from tenacity import (
    AsyncRetrying,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)
from tenacity.nap import sleep_using_event
from tenacity.stop import stop_when_event_set

from crabpath_retrievers.driver import Steps, perform_either
from crabpath_retrievers.routing.limited import alimited, late, limited
from crabpath_retrievers.routing.route import Route
from crabpath_retrievers.routing.settings import RouterSettings

# Of the fields by which chat models are told how long an answer may be, most know one.
_LIMITS = ("max_tokens", "max_output_tokens", "max_completion_tokens", "num_predict")
_PAUSE, _LONGEST_PAUSE = 0.2, 2.0  # seconds
_BAD_REQUEST, _SERVER = 400, 500
_PASSING = (408, 409, 425, 429)
_CUT_OFF = ("LengthFinishReasonError",)
_UNSUPPORTED = (400, 404, 415, 422, 501)
# Models that cannot be awaited: LangChain calls them in the few threads of the event loop.
_IN_THREADS = (BaseChatModel._agenerate, SimpleChatModel._agenerate)  # noqa: SLF001


@dataclass(slots=True)
class Reply:
    """What came back.

    Attributes:
        answer: The message, or what ``with_structured_output(include_raw=True)`` makes of it.
        failure: Why there is none.
        attempts: Requests that were made.
        plain: Whether the question is put without structured output.
        unsupported: Whether that is because the model, or its server, seems to know none.
    """

    answer: Any = None
    failure: Exception | None = None
    attempts: int = 0
    plain: bool = False
    unsupported: bool = False


@dataclass(slots=True)
class Asking:
    """Asks one model."""

    model: BaseChatModel
    settings: RouterSettings
    _chain: Runnable[Any, Any] | None = field(init=False, default=None)
    _structured: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        """Prepare the model; one without structured output is asked for JSON in words."""
        self.model = _short(self.model, self.settings.max_output_tokens)
        given = {} if self.settings.method is None else {"method": self.settings.method}
        try:
            self._chain = self.model.with_structured_output(Route, include_raw=True, **given)
        except Exception:  # models say in many ways that they cannot
            self._structured = False

    def reply(self, messages: Sequence[BaseMessage], callbacks: Any) -> Steps[Reply]:
        """Ask, and wait no longer than the settings allow; failures are returned."""
        # Without the tag LangGraph would stream the tokens of the decision to the user.
        config: RunnableConfig = {"run_name": "crabpath_router", "tags": ["nostream"]}
        if callbacks is not None:
            config["callbacks"] = callbacks
        reply = Reply(plain=not self._structured)
        try:
            reply.answer = yield from perform_either(
                lambda: self._blocking(list(messages), config, reply),
                lambda: self._native(list(messages), config, reply),
            )
        except Exception as error:
            reply.failure = error
        else:
            # Only an answer in plain words shows that the form, not the question, was refused.
            self._structured = self._structured and not reply.unsupported
        return reply

    def _blocking(self, messages: Any, config: RunnableConfig, reply: Reply) -> Any:
        with self._patient(messages, config, reply) as ask:
            return limited(ask, self.settings.timeout)

    @contextmanager
    def _patient(
        self, messages: Any, config: RunnableConfig, reply: Reply
    ) -> Iterator[Callable[[], Any]]:
        """Asks with retries, which end when nobody waits any more."""
        abandoned = threading.Event()
        retrying = Retrying(
            **self._retries(reply),
            stop=stop_after_attempt(1 + self.settings.max_retries) | stop_when_event_set(abandoned),
            sleep=sleep_using_event(abandoned),
        )

        def ask() -> Any:
            reply.attempts += 1
            return self._put(reply).invoke(messages, config)

        try:
            yield lambda: retrying(ask)
        finally:
            abandoned.set()

    async def _native(self, messages: Any, config: RunnableConfig, reply: Reply) -> Any:
        if type(self.model)._agenerate in _IN_THREADS:  # noqa: SLF001  LangChain has no other sign
            with self._patient(messages, config, reply) as patient:
                return await alimited(patient, self.settings.timeout)
        retrying = AsyncRetrying(
            **self._retries(reply), stop=stop_after_attempt(1 + self.settings.max_retries)
        )

        async def ask() -> Any:
            reply.attempts += 1
            return await self._put(reply).ainvoke(messages, config)

        try:
            return await asyncio.wait_for(retrying(ask), self.settings.timeout)
        except asyncio.TimeoutError:
            raise late(self.settings.timeout) from None

    def _put(self, reply: Reply) -> Runnable[Any, Any]:
        return self.model if reply.plain or self._chain is None else self._chain

    def _retries(self, reply: Reply) -> dict[str, Any]:
        return {
            "wait": wait_exponential(_PAUSE, _LONGEST_PAUSE) + wait_random(0, _PAUSE),
            "retry": retry_if_exception(lambda error: self._may_pass(error, reply)),
            "reraise": True,
        }

    def _may_pass(self, error: BaseException, reply: Reply) -> bool:
        """Whether the same question, or one in plain words, may be answered next time."""
        status = getattr(error, "status_code", None)
        missing = isinstance(error, NotImplementedError) or status in _UNSUPPORTED
        # Clients raise what they cannot parse, and keep the words: plain ones can be read.
        if not reply.plain and (missing or isinstance(error, ValueError)):
            reply.plain, reply.unsupported = True, missing
            return True
        refused = isinstance(status, int) and _BAD_REQUEST <= status < _SERVER
        final = refused or isinstance(error, (NotImplementedError, ValueError))
        final = final or type(error).__name__ in _CUT_OFF
        return isinstance(error, Exception) and (status in _PASSING or not final)


def _short(model: BaseChatModel, most: int | None) -> BaseChatModel:
    """The model with its answers limited to so many tokens, where it has a field for that."""
    for name in _LIMITS if most is not None else ():
        if name in type(model).model_fields:
            now = getattr(model, name)
            return model if now and now <= most else model.model_copy(update={name: most})
    return model
