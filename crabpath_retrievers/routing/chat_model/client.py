"""Client of the chat model: structured output if supported, a timeout, and retries.

Circuit breaker: a model that fails repeatedly is not called for a while.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from circuitbreaker import STATE_CLOSED, STATE_HALF_OPEN, CircuitBreaker
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

from crabpath_retrievers.core.driver import Operations, perform_sync_or_async
from crabpath_retrievers.core.time_limit import (
    arun_with_timeout,
    make_timeout_error,
    run_with_timeout,
)
from crabpath_retrievers.routing.chat_model.answer import Route
from crabpath_retrievers.routing.chat_model.settings import RouterSettings

# Fields of LangChain chat models that limit the length of an answer; most have one of them.
_LIMITS = ("max_tokens", "max_output_tokens", "max_completion_tokens", "num_predict")
_PAUSE, _LONGEST_PAUSE = 0.2, 2.0  # seconds
_BAD_REQUEST, _SERVER = 400, 500
_TRANSIENT = (408, 409, 425, 429)
_CUT_OFF = ("LengthFinishReasonError",)
_UNSUPPORTED = (400, 404, 415, 422, 501)
# Models without an async form: LangChain calls them in the few threads of the event loop.
_IN_THREADS = (BaseChatModel._agenerate, SimpleChatModel._agenerate)  # noqa: SLF001


@dataclass(slots=True)
class ModelReply:
    """The reply of a model, or its failure.

    Attributes:
        answer: The message, or the result of ``with_structured_output(include_raw=True)``.
        failure: The error, if there is no answer.
        attempts: Number of requests made.
        plain: Whether the request was made without structured output.
        unsupported: Whether the model or its server seems not to support structured output.
    """

    answer: Any = None
    failure: Exception | None = None
    attempts: int = 0
    plain: bool = False
    unsupported: bool = False


@dataclass(slots=True)
class ModelClient:
    """Sends requests to one model."""

    model: BaseChatModel
    settings: RouterSettings
    _chain: Runnable[Any, Any] | None = field(init=False, default=None)
    _structured: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        """Prepare the model; one without structured output gets the instructions only."""
        self.model = _limit_output(self.model, self.settings.max_output_tokens)
        options = {} if self.settings.method is None else {"method": self.settings.method}
        try:
            self._chain = self.model.with_structured_output(Route, include_raw=True, **options)
        except Exception:  # models raise many kinds of errors here
            self._structured = False

    def reply(self, messages: Sequence[BaseMessage], callbacks: Any) -> Operations[ModelReply]:
        """Send messages, within the timeout of the settings; failures are returned, not raised."""
        # Without the tag, LangGraph streams the tokens of the decision to the user.
        config: RunnableConfig = {"run_name": "crabpath_router", "tags": ["nostream"]}
        if callbacks is not None:
            config["callbacks"] = callbacks
        reply = ModelReply(plain=not self._structured)
        try:
            reply.answer = yield from perform_sync_or_async(
                lambda: self._ask(list(messages), config, reply),
                lambda: self._aask(list(messages), config, reply),
            )
        except Exception as error:
            reply.failure = error
        else:
            # Only a plain answer shows that the output format, not the request, was refused.
            self._structured = self._structured and not reply.unsupported
        return reply

    def _ask(self, messages: Any, config: RunnableConfig, reply: ModelReply) -> Any:
        with self._open_retries(messages, config, reply) as ask:
            return run_with_timeout(ask, self.settings.timeout)

    @contextmanager
    def _open_retries(
        self, messages: Any, config: RunnableConfig, reply: ModelReply
    ) -> Iterator[Callable[[], Any]]:
        """A call with retries, which stop when the context is left."""
        abandoned = threading.Event()
        retrying = Retrying(
            **self._retries(reply),
            stop=stop_after_attempt(1 + self.settings.max_retries) | stop_when_event_set(abandoned),
            sleep=sleep_using_event(abandoned),
        )

        def ask() -> Any:
            reply.attempts += 1
            return self._runnable(reply).invoke(messages, config)

        try:
            yield lambda: retrying(ask)
        finally:
            abandoned.set()

    async def _aask(self, messages: Any, config: RunnableConfig, reply: ModelReply) -> Any:
        if type(self.model)._agenerate in _IN_THREADS:  # noqa: SLF001  LangChain has no other sign
            with self._open_retries(messages, config, reply) as ask:
                return await arun_with_timeout(ask, self.settings.timeout)
        retrying = AsyncRetrying(
            **self._retries(reply), stop=stop_after_attempt(1 + self.settings.max_retries)
        )

        async def send() -> Any:
            reply.attempts += 1
            return await self._runnable(reply).ainvoke(messages, config)

        try:
            return await asyncio.wait_for(retrying(send), self.settings.timeout)
        except asyncio.TimeoutError:
            raise make_timeout_error(self.settings.timeout) from None

    def _runnable(self, reply: ModelReply) -> Runnable[Any, Any]:
        return self.model if reply.plain or self._chain is None else self._chain

    def _retries(self, reply: ModelReply) -> dict[str, Any]:
        return {
            "wait": wait_exponential(_PAUSE, _LONGEST_PAUSE) + wait_random(0, _PAUSE),
            "retry": retry_if_exception(lambda error: self._is_transient(error, reply)),
            "reraise": True,
        }

    def _is_transient(self, error: BaseException, reply: ModelReply) -> bool:
        """Whether another attempt, perhaps without structured output, may succeed."""
        status = getattr(error, "status_code", None)
        missing = isinstance(error, NotImplementedError) or status in _UNSUPPORTED
        # Clients raise for output that they cannot parse; plain output is parsed here.
        if not reply.plain and (missing or isinstance(error, ValueError)):
            reply.plain, reply.unsupported = True, missing
            return True
        refused = isinstance(status, int) and _BAD_REQUEST <= status < _SERVER
        final = refused or isinstance(error, (NotImplementedError, ValueError))
        final = final or type(error).__name__ in _CUT_OFF
        return isinstance(error, Exception) and (status in _TRANSIENT or not final)


def _limit_output(model: BaseChatModel, limit: int | None) -> BaseChatModel:
    """The model with its answers limited to ``limit`` tokens, if it has a field for that."""
    for name in _LIMITS if limit is not None else ():
        if name in type(model).model_fields:
            now = getattr(model, name)
            return model if now and now <= limit else model.model_copy(update={name: limit})
    return model


_log = logging.getLogger(__name__)


class ModelBreaker:
    """Opens after consecutive failures; after a while it admits a single trial call."""

    def __init__(self, failures: int, seconds: float) -> None:
        """Open after ``failures`` consecutive failures, for ``seconds``."""
        self._circuit = CircuitBreaker(failures, seconds, Exception, "chat model router")
        self._trial = threading.Lock()
        self._lock = threading.Lock()

    @property
    def state(self) -> str:
        """``closed``: calls are made; ``open``: no call is; ``half_open``: one trial call is."""
        return str(self._circuit.state)

    @property
    def reason(self) -> str:
        """Why no call is made."""
        circuit = self._circuit
        return (
            f"not asked: {circuit.failure_count} failures in a row, "
            f"next try in {max(0, circuit.open_remaining)} s, last: {circuit.last_failure!r}"
        )

    @contextmanager
    def admit(self) -> Iterator[bool]:
        """Whether a call may be made now; in state ``half_open`` one of several may."""
        state = self._circuit.state
        trial = state == STATE_HALF_OPEN and self._trial.acquire(blocking=False)
        try:
            yield trial or state == STATE_CLOSED
        finally:
            if trial:
                self._trial.release()

    def report(self, failure: Exception | None) -> None:
        """Count a failure; None is a success, which closes the circuit."""
        with self._lock:
            before = self._circuit.state
            with suppress(Exception), self._circuit:
                if failure is not None:
                    raise failure
            after = self._circuit.state
        if before == STATE_CLOSED != after:
            _log.warning("the chat model of the router is %s", self.reason)
        elif before != STATE_CLOSED == after:
            _log.warning("the chat model of the router answers again")
