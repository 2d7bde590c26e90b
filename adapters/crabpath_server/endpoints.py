"""Declares endpoints and the arguments of their functions.

To add one, write its function, and list it in the table that
:func:`crabpath_server.app.create_app` gets, as in
:mod:`crabpath_server.table`::

    class Shelf(ApiOutput):
        titles: list[str]

    async def read_shelf(call: Call, limit: int = 10) -> Shelf:
        titles = await call.memory.aio.sources(limit=limit)
        return Shelf(titles=list(titles))

    Endpoint("GET /shelves/{name:path}", "read", read_shelf)

The answer is a record of the package, or a model where there is none; see
:mod:`crabpath_server.answers`. The input is the JSON body of POST, which is a model derived from
:class:`ApiInput`, or the query parameters of other methods, which are those of the function.
``call.path`` has the values of the path, here ``name``. Rights, input and limits are checked as the
table says; the OpenAPI description is made from it, with the names of models, records and functions
and the first lines of their docstrings.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, Receipt
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import (
    ConflictError,
    CrabPathError,
    InvalidInputError,
    ServiceError,
    StoreError,
    StoreLockedError,
    TokenError,
)
from crabpath_server.access import Access, Grant
from crabpath_server.answers import ApiOutput, find_model
from crabpath_server.names import SourceNames
from crabpath_server.probe import Probe
from crabpath_server.tokens import Right

_log = logging.getLogger(__name__)

MOST_CHARACTERS = 50_000
"""Of a question, or of another text that lists repeat; lists hold up to 1,000 of them."""

NAMESPACE_HEADER = "CrabPath-Namespace"

DEFAULT_RESULTS = 8
"""Documents of an answer to a model, which reads their titles, and fetches what it needs."""

Limit = Annotated[int, Field(ge=1, le=1000, description="How many at most.")]
ShortText = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Ids = Annotated[list[str], Field(max_length=10_000)]


class LateAnswerError(ServiceError):
    """The answer took longer than the time limit."""

    def __init__(self, seconds: float) -> None:
        """Say after how many seconds the request was given up."""
        super().__init__(
            f"there was no answer within {seconds:g} s; what was asked for may still be done"
        )


class RefusedFeedbackError(InvalidInputError):
    """Nothing can be learned from feedback; ``receipt`` says why."""

    def __init__(self, receipt: Receipt) -> None:
        """Say what the note of the receipt says."""
        super().__init__(str(receipt.note))
        self.receipt = receipt


def require_accepted(receipt: Receipt) -> Receipt:
    """Return a receipt, unless it is a refusal."""
    if receipt.status == "refused":
        raise RefusedFeedbackError(receipt)
    return receipt


class UnerasedError(StoreLockedError):
    """Forgotten texts are deleted, but not yet erased from the files of the database."""

    def __init__(self) -> None:
        """Say what is done, and how to get the rest done."""
        super().__init__(
            "what was to be forgotten is deleted, but is still in the files of the database, which "
            "is in use: send the same request again once exports and other long work have ended"
        )


def describe_error(error: CrabPathError) -> str:
    """Return an error's message; that of a failed store is logged instead: it names its place."""
    if isinstance(error, StoreError) and not isinstance(error, (ConflictError, UnerasedError)):
        _log.warning("a request failed: %s", error)
        return "a store of the server failed: the log of the server says why"
    return str(error)


class ApiInput(BaseModel):
    """A body or parameters."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)

    @property
    def requests(self) -> int:
        """As how many requests of its token it counts."""
        return 1

    def to_options(self, *but: str) -> dict[str, Any]:
        """Return the fields that were sent, without those named in ``but``."""
        return {name: getattr(self, name) for name in self.model_fields_set if name not in but}


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was authorised.

    Attributes:
        memory: The memory that is served.
        grant: What the sender may do.
        namespace: The namespace of the request.
        path: Values from the path by name, such as ``id``.
        probe: Says whether the server can serve; None where it is ending.
        names: Sources as the sender knows them.
        results: Documents that a search returns which does not say how many.
    """

    memory: CrabPath
    grant: Grant
    namespace: str
    path: Mapping[str, str]
    probe: Probe | None
    names: SourceNames
    results: int = DEFAULT_RESULTS


Bound = tuple[list[Any], dict[str, Any]]
"""Arguments of a function, by place and by name."""

Answering = Callable[..., Awaitable[object]]
Streaming = Callable[..., AsyncIterator[tuple[str, object]]]


@dataclass(frozen=True, slots=True)
class Tool:
    """An endpoint as language models call it.

    Attributes:
        name: Its name.
        title: The same for people.
        effect: What it does to the memory at most.
        arguments: Model of the arguments, where they are a part of the input. Its docstring is read
            by models.
    """

    name: str
    title: str
    effect: Literal["reads", "writes", "deletes"] = "reads"
    arguments: type[ApiInput] | None = None


@dataclass(frozen=True)
class Endpoint:
    """An operation that a server offers to those who have the right.

    Attributes:
        route: Method and path of HTTP, with ``{name}`` or ``{name:path}`` for values; None where
            it is only a tool.
        right: The right that it needs; ``any`` for any token, None for none.
        answer: The function that answers; see the module.
        tool: The endpoint as a tool; None where it is only for HTTP.
        stream: The function that answers where ``Accept`` asks for ``text/event-stream``: it yields
            the name and the data of each event; the last one is ``answer``.
        event: Record or model of the data of its other events.
        is_slow: Whether ``Limits.slow_seconds`` applies to it, not ``answer_seconds``.
        has_key: Whether ``Idempotency-Key`` names a request, which is answered once.
    """

    route: str | None
    right: Right | Literal["any"] | None
    answer: Answering
    tool: Tool | None = None
    stream: Streaming | None = None
    event: type | None = None
    is_slow: bool = False
    has_key: bool = False

    @property
    def method(self) -> str:
        """Method of HTTP."""
        return (self.route or "").partition(" ")[0]

    @property
    def path(self) -> str:
        """Path of HTTP."""
        return (self.route or "").partition(" ")[2]

    @cached_property
    def input(self) -> type[ApiInput] | None:
        """Model of the body or of the parameters."""
        hints = get_type_hints(self.answer, include_extras=True)
        _, *taken = signature(self.answer).parameters.values()
        if not taken:
            return None
        if self._takes_model:
            model: type[ApiInput] = hints[taken[0].name]
            return model
        fields: dict[str, Any] = {
            one.name: (hints[one.name], ... if one.default is one.empty else one.default)
            for one in taken
        }
        return create_model(self.answer.__name__, __base__=ApiInput, **fields)

    @cached_property
    def _takes_model(self) -> bool:
        """Whether the function takes its input as the model."""
        hints = get_type_hints(self.answer)
        return any(isinstance(hint, type) and issubclass(hint, ApiInput) for hint in hints.values())

    def bind(self, call: Call, given: ApiInput | None) -> Bound:
        """Make the arguments of the function for one request."""
        if given is None:
            return [call], {}
        return ([call, given], {}) if self._takes_model else ([call], dict(given))

    @cached_property
    def output(self) -> type[ApiOutput]:
        """Model of the answer."""
        return find_model(get_type_hints(self.answer)["return"])

    @property
    def gives_feedback(self) -> bool:
        """Whether it counts among the feedbacks of a token."""
        return self.right in {"feedback", "teach"}

    def authorise(self, access: Access, token: str | None) -> Grant:
        """Find the sender's rights; all of them where no token is needed."""
        if self.right is None:
            with suppress(TokenError):
                return access.authorise(token)
            return Grant((DEFAULT_NAMESPACE,), frozenset())
        grant = access.authorise(token)
        self.require_right(grant)
        return grant

    def require_right(self, grant: Grant) -> None:
        """Refuse senders without the right."""
        if self.right not in {None, "any"}:
            grant.require(str(self.right))
