"""Client of the chat model: structured output if supported, a timeout, and retries.

Circuit breaker: a model that fails repeatedly is not called for a while.

Budgets and limits of routing by a chat model.
"""

import asyncio
import logging
import math
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Literal

from langchain_core.language_models import BaseChatModel, SimpleChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import BeforeValidator, Field

from crabpath_retrievers.config.base import Count, Positive, ValidatedSettings, to_tuple
from crabpath_retrievers.core.calls import (
    Operations,
    arun_with_timeout,
    make_timeout_error,
    perform_sync_or_async,
    run_with_timeout,
)
from crabpath_retrievers.core.processes import raise_interruption
from crabpath_retrievers.parts.chat_router.prompt import Route

# Fields of LangChain chat models that limit the length of an answer; most have one of them.
_LIMITS = ("max_tokens", "max_output_tokens", "max_completion_tokens", "num_predict")
_PAUSE, _LONGEST_PAUSE = 0.2, 2.0  # seconds
_BAD_REQUEST, _SERVER = 400, 500
_TRANSIENT = (408, 409, 425, 429)
_CUT_OFF = ("LengthFinishReasonError",)
_UNSUPPORTED = (400, 404, 415, 422, 501)
# Models without an async form: LangChain calls them in the few threads of the event loop.
_IN_THREADS = (BaseChatModel._agenerate, SimpleChatModel._agenerate)  # noqa: SLF001


_Price = Annotated[float, Field(ge=0, le=1_000_000_000)]


class RouterSettings(ValidatedSettings):
    """Settings of a chat-model router: when it is asked, and what that may cost."""

    ask_per: Literal["turn", "hop"] = "turn"
    """One call per ``turn``, at the first hop with an unclear edge, or per ``hop``."""
    clear_margin: Annotated[float, Field(gt=0, le=1000)] = 0.35
    """Distance from STOP, in units of relevance plus weight, from which an edge is clear. Where all
    edges are clear, the model is not asked."""
    known_confidence: Annotated[float, Field(ge=0, le=1000)] = 0.8
    """Score of a successful episode of the same query from which its route is followed without
    asking the model."""
    max_candidates: Count = 20
    """Candidates that the model is shown."""
    max_input_tokens: Count = 900
    """Tokens of the request, with the schema of the answer."""
    max_output_tokens: Annotated[int | None, Field(ge=1, le=100_000_000)] = 180
    """Tokens of the answer; None leaves the model as it is."""
    timeout: Annotated[float, Field(gt=0, le=86_400)] = 10.0
    """Seconds for one decision, retries included."""
    max_retries: Annotated[int, Field(ge=0, le=2)] = 2
    """Further attempts after a temporary failure."""
    max_failures: Count = 3
    """Failures in a row after which the model is not asked for a while."""
    recovery_seconds: Positive = 60.0
    """Seconds for which it is not asked then."""
    prices: Annotated[
        tuple[_Price, _Price],
        BeforeValidator(to_tuple),
    ] = (0.0, 0.0)
    """US dollars per million tokens of input and of output."""
    method: str | None = None
    """``method`` of ``with_structured_output``; None for what the model prefers."""


class ModelClient:
    """Sends requests to one model."""

    def __init__(self, model: BaseChatModel, settings: RouterSettings) -> None:
        """Prepare the model; one without structured output gets the instructions only."""
        self.model = _limit_output(model, settings.max_output_tokens)
        self._settings = settings
        self._structured: Runnable[Any, Any] | None = None
        options = {} if settings.method is None else {"method": settings.method}
        with suppress(Exception):  # models raise many kinds of errors here
            self._structured = self.model.with_structured_output(Route, include_raw=True, **options)

    def reply(
        self, messages: Sequence[BaseMessage], callbacks: Any
    ) -> Operations[tuple[Any, Exception | None, int]]:
        """Send messages, within the timeout of the settings; failures are returned, not raised.

        Returns:
            The message, or the result of ``with_structured_output(include_raw=True)``; the error
            where there is no answer; and the number of requests made.
        """
        # Without the tag, LangGraph streams the tokens of the decision to the user.
        config: RunnableConfig = {"run_name": "crabpath_router", "tags": ["nostream"]}
        if callbacks is not None:
            config["callbacks"] = callbacks
        attempts, unsupported = 0, False
        runnable = self._structured or self.model
        end = time.monotonic() + self._settings.timeout
        while True:
            attempts += 1
            try:
                answer = yield from self._send(runnable, list(messages), config, end)
            except Exception as error:
                raise_interruption(error)
                failure = error
            else:
                # Only a plain answer shows that the output format, not the request, was refused.
                if unsupported:
                    self._structured = None
                return answer, None, attempts
            missing = _is_unsupported(failure)
            # Clients raise for output that they cannot parse; plain output is parsed here.
            if runnable is not self.model and (missing or isinstance(failure, ValueError)):
                runnable, unsupported = self.model, missing
            elif not _is_transient(failure):
                return None, failure, attempts
            if attempts > self._settings.max_retries:
                return None, failure, attempts
            yield from _pause(attempts, end)
            if time.monotonic() >= end:
                return None, make_timeout_error(self._settings.timeout), attempts

    def _send(
        self, runnable: Runnable[Any, Any], messages: Any, config: RunnableConfig, end: float
    ) -> Operations[Any]:
        """Send messages once, until ``end`` on the monotonic clock."""
        seconds = end - time.monotonic()
        # LangChain has no other sign of a model that cannot be awaited.
        threaded = type(self.model)._agenerate in _IN_THREADS  # noqa: SLF001

        def invoke() -> Any:
            return runnable.invoke(messages, config)

        async def ainvoke() -> Any:
            if threaded:
                return await arun_with_timeout(invoke, seconds)
            return await asyncio.wait_for(runnable.ainvoke(messages, config), seconds)

        try:
            answer = yield from perform_sync_or_async(
                lambda: run_with_timeout(invoke, seconds), ainvoke
            )
        except (TimeoutError, asyncio.TimeoutError):
            if time.monotonic() < end:  # raised by the model itself
                raise
            raise make_timeout_error(self._settings.timeout) from None
        return answer


def _pause(attempts: int, end: float) -> Operations[None]:
    """Wait before the next attempt, at most until ``end``."""
    seconds = min(_PAUSE * 2 ** (attempts - 1), _LONGEST_PAUSE) + random.uniform(0, _PAUSE)  # noqa: S311
    seconds = max(0.0, min(seconds, end - time.monotonic()))
    yield from perform_sync_or_async(lambda: time.sleep(seconds), lambda: asyncio.sleep(seconds))


def _is_unsupported(error: Exception) -> bool:
    """Whether the model or its server seems not to support structured output."""
    status = getattr(error, "status_code", None)
    return isinstance(error, NotImplementedError) or status in _UNSUPPORTED


def _is_transient(error: Exception) -> bool:
    """Whether another attempt may succeed."""
    status = getattr(error, "status_code", None)
    refused = isinstance(status, int) and _BAD_REQUEST <= status < _SERVER
    final = refused or isinstance(error, (NotImplementedError, ValueError))
    return status in _TRANSIENT or not (final or type(error).__name__ in _CUT_OFF)


def _limit_output(model: BaseChatModel, limit: int | None) -> BaseChatModel:
    """Limit a model's answers to ``limit`` tokens, if the model has a field for that."""
    for name in _LIMITS if limit is not None else ():
        if name in type(model).model_fields:
            now = getattr(model, name)
            return model if now and now <= limit else model.model_copy(update={name: limit})
    return model


_log = logging.getLogger(__name__)


class ModelBreaker:
    """Opens after consecutive failures; after a while it admits a single trial call."""

    def __init__(self, failures: int, seconds: float) -> None:
        """Keep the limits: open after ``failures`` consecutive failures, for ``seconds``."""
        self._most, self._seconds = failures, seconds
        self._failures, self._until = 0, 0.0
        self._last: Exception | None = None
        self._trial = threading.Lock()
        self._lock = threading.Lock()

    @property
    def state(self) -> str:
        """``closed``: calls are made; ``open``: no call is; ``half_open``: one trial call is."""
        if self._failures < self._most:
            return "closed"
        return "open" if time.monotonic() < self._until else "half_open"

    @property
    def reason(self) -> str:
        """Reason for which no call is made."""
        wait = max(0, math.ceil(self._until - time.monotonic()))
        return (
            f"not asked: {self._failures} failures in a row, "
            f"next try in {wait} s, last: {self._last!r}"
        )

    @contextmanager
    def admit(self) -> Iterator[bool]:
        """Yield whether a call may be made now; in state ``half_open`` only one of several may."""
        state = self.state
        trial = state == "half_open" and self._trial.acquire(blocking=False)
        try:
            yield trial or state == "closed"
        finally:
            if trial:
                self._trial.release()

    def report(self, failure: Exception | None) -> None:
        """Count a failure; None is a success, which closes the circuit."""
        with self._lock:
            before = self.state
            if failure is None:
                self._failures = 0
            else:
                self._failures, self._last = self._failures + 1, failure
                self._until = time.monotonic() + self._seconds
            after = self.state
        if before == "closed" != after:
            _log.warning("the chat model of the router is %s", self.reason)
        elif before != "closed" == after:
            _log.warning("the chat model of the router answers again")
