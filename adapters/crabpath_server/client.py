"""A memory that another process serves: the retriever and the memory over HTTP.

    from crabpath_server.client import CrabPathRetriever

    retriever = CrabPathRetriever.connect("http://memory.example.com", token=token, k=4)

It has the fields and methods of the retriever over a memory of this process.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NoReturn
from urllib.parse import quote
from uuid import UUID

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_text_splitters import TextSplitter
from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)
from typing_extensions import Self, Unpack

from crabpath_retrievers import errors
from crabpath_retrievers.core.calls import AsyncView, bar, off_loop
from crabpath_retrievers.core.extras import require_extra
from crabpath_retrievers.core.feedback import Feedback, FeedbackFields, Receipt
from crabpath_retrievers.core.processes import register_owner
from crabpath_retrievers.core.query import Query, QueryOptions, parse_ids, parse_texts, require_list
from crabpath_retrievers.core.records import Hop, Node, PathEdge, ReturnedDocument, Turn
from crabpath_retrievers.core.text import format_value, is_blank, to_storable
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import (
    ConflictError,
    CrabPathError,
    ForbiddenError,
    ForkedError,
    InvalidInputError,
    NotFoundError,
    ServiceError,
    StoreUnavailableError,
    TokenError,
)
from crabpath_retrievers.ingest.chunking import to_json_safe
from crabpath_retrievers.ingest.pipeline import (
    Cleanup,
    IngestReport,
    Progress,
    require_progress,
    show_progress,
)
from crabpath_retrievers.learning.outcomes import Outcome, record_said
from crabpath_retrievers.memory.documents import Forgotten
from crabpath_retrievers.memory.notes import NoteFields
from crabpath_retrievers.memory.services import Readiness
from crabpath_retrievers.parts.explain import Explanation
from crabpath_retrievers.parts.listing import NoteRecord, TurnRecord
from crabpath_retrievers.retrieval.pipeline import Answer, RetrievedDocument
from crabpath_retrievers.retriever import CrabPathRetriever as EmbeddedRetriever
from crabpath_retrievers.retriever import RetrieverFields

require_extra("client", "the client")

import httpx  # noqa: E402  the sentence comes first

__all__ = ["CrabPathRetriever", "ServedMemory"]

_BODY_BYTES = 4 << 20  # half of the limit of a server
_MAX_KNOWN_TURNS = 10_000  # turns of other namespaces
_ATTEMPTS = 3
_WRITE_SECONDS = 3600.0  # until documents are added or deleted, as long as a server allows
_UNSENDABLE = {"vector", "existing_ids"}  # options that cannot be sent
_UNSERVED = {  # what needs the stores themselves
    "namespaces",
    "regions",
    "graph",
    "maintenance",
    "learning",
    "transfer",
    "index",
    "embedder",
    "settings",
}
_STATUSES: dict[int, type[CrabPathError]] = {
    400: InvalidInputError,
    401: TokenError,
    403: ForbiddenError,
    404: NotFoundError,
    405: InvalidInputError,
    409: ConflictError,
    413: InvalidInputError,
    415: InvalidInputError,
    429: StoreUnavailableError,
    503: StoreUnavailableError,
}
_ERRORS: dict[str, type[CrabPathError]] = {  # by the end of the type of a problem
    name.lower(): kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, CrabPathError)
}


class _NotServedError(InvalidInputError, AttributeError):
    """A memory has this attribute or argument, and its server does not offer it."""

    def __init__(self) -> None:
        super().__init__(
            "the server does not offer this: open the memory itself, where it is, with "
            "CrabPath.open(path)"
        )


class _RefusedError(InvalidInputError):
    """Feedback was refused, with a receipt."""

    def __init__(self, message: str, receipt: Receipt) -> None:
        super().__init__(message)
        self.receipt = receipt


class _BusyError(Exception):
    """The request may succeed if repeated; ``reason`` is raised once it is not."""

    def __init__(self, reason: CrabPathError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class ServedMemory(CrabPath):
    """A memory behind ``crabpath serve``, with the methods that its server offers.

    Thread-safe. Errors of the server are raised as the classes that the memory itself raises.
    What a server does not offer, such as ``sync`` and ``maintenance``, raises
    ``InvalidInputError``.

    Attributes:
        url: Address of the server.
        namespace: Namespace of calls that name none.
    """

    store = None  # type: ignore[assignment]  # the server's

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        namespace: str | None = None,
        timeout: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connect to a server.

        Args:
            url: Its address, such as ``http://127.0.0.1:8765``.
            token: What ``crabpath token`` printed; None for a server of this machine.
            namespace: Namespace of calls that name none; None for the first of the token.
            timeout: Seconds to wait for an answer, above 0.
            transport: Another transport of httpx, such as one with certificates of your own.

        Raises:
            InvalidInputError: The address cannot be used.
            TokenError: The token is missing, unknown or expired.
            ForbiddenError: The namespace is not granted.
            StoreUnavailableError: No server answers there.
        """
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            msg = f"the address must begin with http:// or https://, not {format_value(url)}"
            raise InvalidInputError(msg)
        host = url.partition("://")[2].partition("/")[0]
        if not host:
            msg = f"the address has no host: {url}"
            raise InvalidInputError(msg)
        if "@" in host:
            # Errors name the address, and httpx would send this instead of the token.
            msg = "the address must hold no user and password: give token=, or transport="
            raise InvalidInputError(msg)
        if token is not None and not (isinstance(token, str) and token.isascii() and token.strip()):
            msg = "the token must be the text that crabpath token printed"
            raise InvalidInputError(msg)
        self.url = url.rstrip("/")
        self._slow = httpx.Timeout(timeout, read=_WRITE_SECONDS)
        headers = {} if token is None else {"Authorization": f"Bearer {token.strip()}"}
        self._options: dict[str, Any] = {"headers": headers, "timeout": timeout}
        self._has_own_transport = transport is not None
        self._client: httpx.Client | None = self._make_client(transport)
        register_owner(self)
        # By turn: feedback mostly names a turn alone, and the server needs its namespace too.
        self._namespaces: OrderedDict[str, str] = OrderedDict()
        try:
            session = self._get("/session", namespace)
        except BaseException:
            self._http.close()
            raise
        self.namespace: str = session["namespace"]

    def _make_client(self, transport: httpx.BaseTransport | None = None) -> httpx.Client:
        used = transport or httpx.HTTPTransport(retries=_ATTEMPTS - 1)
        return httpx.Client(transport=used, **self._options)

    @property
    def _http(self) -> httpx.Client:
        """Connections of this process."""
        if self._client is None:
            if self._has_own_transport:
                raise ForkedError
            self._client = self._make_client()
        return self._client

    def leave_to_parent(self) -> None:
        """Use no connection of the parent in a forked process; a closed one stays closed."""
        if self._client is not None and not self._client.is_closed:
            self._client = None

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse an attribute that the server does not offer."""
        if name in _UNSERVED or name in {"_services", "_all_services"}:
            raise _NotServedError
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(message)

    def __repr__(self) -> str:
        """Show the server's address."""
        return f"<ServedMemory {self.url}>"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled, since that would write the token down."""
        message = "a connection cannot be pickled: pass the address, and connect where it is needed"
        raise InvalidInputError(message)

    def close(self) -> None:
        """Close the connections; the memory stays with its server. Safe to repeat."""
        if self._client is not None:
            self._client.close()

    @property
    def aio(self) -> "AsyncServedMemory":  # type: ignore[override]
        """Every method in its asynchronous form."""
        return AsyncServedMemory(self)

    def as_retriever(self, **fields: Unpack[RetrieverFields]) -> "CrabPathRetriever":
        """A LangChain retriever over this memory, as :meth:`CrabPath.as_retriever`."""
        return CrabPathRetriever(memory=self, **fields)

    # Documents.

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        ids: Sequence[str] | None = None,
        splitter: TextSplitter | None = None,
        split: bool = True,
        vectors: Mapping[str, Sequence[float]] | None = None,
        cleanup: Cleanup = None,
        progress: Progress | None = bar,
    ) -> IngestReport:
        """As :meth:`CrabPath.add_documents`; the server splits and embeds.

        Large lists are sent in parts unless ``cleanup`` needs them together; ``progress`` shows how
        many documents were sent.

        Raises:
            InvalidInputError: As there; or ``splitter`` or ``vectors`` are given.
        """
        if splitter is not None or vectors is not None:
            message = (
                "the server splits and embeds: leave splitter and vectors out, and split yourself "
                "with split=False"
            )
            raise InvalidInputError(message)
        require_progress(progress)
        names = None if ids is None else require_list("ids", ids)
        given = [_to_body(document) for document in require_list("documents", documents)]
        if names is not None:
            if len(names) != len(given):
                message = (
                    f"there are {len(names)} ids for {len(given)} documents: give one for each"
                )
                raise InvalidInputError(message)
            given = [{**item, "id": name} for item, name in zip(given, names, strict=True)]
        total = IngestReport()
        with show_progress(progress, len(given)) as advance:
            for part in [given] if cleanup is not None else _divide(given):
                body = {"documents": part, "split": split, "cleanup": cleanup}
                report = IngestReport(**self._post("/documents", None, body))
                total.add(report)
                total.blank += report.blank
                total.ids += report.ids
                advance(len(part))
        return total

    def forget(
        self,
        ids: Iterable[str | Document] | str | Document | None = None,
        *,
        source: Iterable[str] | str | None = None,
        namespace: str | None = None,
        notes_of: str | None = None,
        erase: bool = False,
    ) -> Forgotten:
        """As :meth:`CrabPath.forget`, without ``namespace`` and ``erase``.

        Without ``notes_of`` notes are those of the namespace of this object.

        Raises:
            InvalidInputError: As there; or ``namespace`` or ``erase`` is given.
        """
        if namespace is not None or erase:
            raise _NotServedError
        if (ids is None) == (source is None):
            message = "give exactly one of ids and source to forget"
            raise InvalidInputError(message)
        total, unknown = dict.fromkeys(("documents", "chunks", "notes"), 0), []
        names = parse_ids(ids) if source is None else parse_texts(source, name="source")
        for name in names:
            if source is None:
                found = self._request("DELETE", _make_path(name), notes_of)
            else:
                found = self._request(
                    "DELETE", "/documents", None, params={"source": to_storable(name)}
                )
            unknown += [] if found["deleted"] else [name]
            total = {part: number + found[part] for part, number in total.items()}
        return Forgotten(total["chunks"] + total["notes"], **total, unknown=tuple(unknown))

    def get_by_ids(
        self, ids: Sequence[str] | str, *, namespace: str | None = None
    ) -> list[Document]:
        """As :meth:`CrabPath.get_by_ids`."""
        found: dict[str, Document] = {}
        for name in dict.fromkeys(parse_texts(ids)):
            try:
                chunks = self._get(_make_path(name), namespace)["chunks"]
            except NotFoundError:
                continue
            for chunk in chunks:
                found.setdefault(chunk["id"], _to_document(chunk))
        return list(found.values())

    def documents(
        self,
        *,
        source: str | None = None,
        under: str | None = None,
        filter: Mapping[str, object] | None = None,  # noqa: A002  as everywhere
        words: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Document]:
        """As :meth:`CrabPath.documents`, without ``filter``; at most 1,000."""
        if filter is not None:
            raise _NotServedError
        found = self._get(
            "/documents", None, source=source, under=under, q=words, after=after, limit=limit
        )
        return [_to_document(chunk) for chunk in found["documents"]]

    def sources(
        self, *, under: str | None = None, after: str | None = None, limit: int = 100
    ) -> dict[str, int]:
        """As :meth:`CrabPath.sources`; at most 1,000."""
        read = self._get("/sources", None, under=under, after=after, limit=limit)
        found: dict[str, int] = read["sources"]
        return found

    def notes(
        self, *, namespace: str | None = None, before: str | None = None, limit: int = 100
    ) -> list[NoteRecord]:
        """As :meth:`CrabPath.notes`; at most 1,000."""
        found = self._get("/notes", namespace, after=before, limit=limit)["notes"]
        return [NoteRecord(**note) for note in found]

    def turns(
        self, *, namespace: str | None = None, before: str | None = None, limit: int = 100
    ) -> list[TurnRecord]:
        """As :meth:`CrabPath.turns`; at most 1,000."""
        found = self._get("/turns", namespace, after=before, limit=limit)["turns"]
        return [TurnRecord(**{**turn, "documents": tuple(turn["documents"])}) for turn in found]

    def ready(self) -> Readiness:
        """As :meth:`CrabPath.ready`; a server that does not answer is not ready."""
        try:
            return Readiness(**self._http.get(f"{self.url}/ready").json())
        except (httpx.HTTPError, ForkedError, ValueError, TypeError, RuntimeError) as error:
            return Readiness(ready=False, reason=f"{self.url} cannot be reached: {error}")

    # Questions.

    def retrieve(self, text: str, **options: Unpack[QueryOptions]) -> Answer:
        """As :meth:`CrabPath.retrieve`, but the steps of the turn are not sent.

        Raises:
            InvalidInputError: As there; or an option is given that cannot be sent: ``vector``,
                ``existing_ids``, or a filter that is no mapping.
        """
        asked = Query.from_options(text, **options)
        given: dict[str, Any] = {
            name: getattr(asked, name) for name, value in options.items() if value is not None
        }
        given.pop("callbacks", None)  # of a router, which the server has itself
        if unsent := sorted(_UNSENDABLE & set(given)):
            message = f"{', '.join(unsent)} cannot be sent to a server: leave them out"
            raise InvalidInputError(message)
        if "filter" in given and not isinstance(given["filter"], Mapping):
            message = (
                f"a filter that is sent must be a mapping, not {format_value(given['filter'])}"
            )
            raise InvalidInputError(message)
        if "filter" in given:
            given["filter"] = to_json_safe(given["filter"])
        namespace = given.pop("namespace", None)
        if asked.run_id is not None:
            given["run_id"] = asked.run_id
        on_hop, repeat = given.pop("on_hop", None), not asked.record
        body = {"text": text, **given}
        found = self._post("/query", namespace, body, repeat=repeat, on_hop=on_hop)
        answer = _to_answer(asked, found)
        self._remember(answer.turn)
        return answer

    def explain(self, turn_id: str | UUID, *, namespace: str | None = None) -> Explanation:
        """As :meth:`CrabPath.explain`, within one namespace."""
        name = namespace or self._namespaces.get(str(turn_id))
        found = self._get(f"/turns/{_quote(str(turn_id))}", name)
        return Explanation.from_dict(found)

    # Feedback.

    def record(  # type: ignore[override]
        self,
        about: object,
        outcome: Outcome | None = None,
        *,
        strict: bool = True,
        **fields: Unpack[FeedbackFields],
    ) -> Receipt | list[Receipt]:
        """As :meth:`CrabPath.record`.

        Feedback on a turn that this object asked goes to the namespace of that turn. For other
        turns it goes to ``namespace``, by default that of this object.
        """
        return record_said(self._record_one, about, outcome, strict=strict, **fields)

    def _record_one(self, feedback: Feedback) -> Receipt:
        body = feedback.to_dict()
        name = body.pop("namespace") or self._namespaces.get(str(feedback.turn_id))
        try:
            return Receipt(**self._post("/feedback", name, body, repeat=True))
        except _RefusedError as error:
            return error.receipt

    def _remember(self, turn: Turn) -> None:
        for name in (turn.id, turn.run_id):
            if name is not None and turn.namespace != self.namespace:
                self._namespaces[name] = turn.namespace
        while len(self._namespaces) > _MAX_KNOWN_TURNS:
            self._namespaces.popitem(last=False)

    def teach(
        self,
        text: str,
        *,
        kind: Literal["teaching", "directive"] = "teaching",
        query: str | None = None,
        namespace: str | None = None,
        authority: str | None = None,
        **fields: Unpack[NoteFields],
    ) -> str:
        """As :meth:`CrabPath.teach`."""
        body = {"text": text, "kind": kind, "query": query, "authority": authority}
        found = self._post("/teach", namespace, {**body, **_to_note(fields)}, repeat=True)
        return str(found["id"])

    def correct(
        self,
        text: str,
        *,
        turn_id: str | None = None,
        wrong: Sequence[str] | str | None = None,
        query: str | None = None,
        namespace: str | None = None,
        authority: str = "overlay",
        **fields: Unpack[NoteFields],
    ) -> str:
        """As :meth:`CrabPath.correct`; without turn, ``wrong`` and ``query`` of the last answer."""
        turn = None if turn_id is None else str(turn_id)
        ids = None if wrong is None else parse_texts(wrong, name="wrong")
        body = {"text": text, "turn_id": turn, "wrong": ids, "query": query, "authority": authority}
        name = namespace or self._namespaces.get(str(turn_id))
        found = self._post("/correct", name, {**body, **_to_note(fields)}, repeat=True)
        return str(found["id"])

    def undo(
        self,
        feedback_id: str | None = None,
        *,
        turn_id: str | None = None,
        namespace: str | None = None,
    ) -> Receipt:
        """As :meth:`CrabPath.undo`."""
        turn = None if turn_id is None else str(turn_id)
        body = {"feedback_id": feedback_id, "turn_id": turn}
        name = namespace or self._namespaces.get(str(turn_id))
        return Receipt(**self._post("/undo", name, body))

    # Requests.

    def _get(self, path: str, namespace: str | None, **parameters: Any) -> dict[str, Any]:
        """Send a GET request; returns the answer."""
        given = {
            name: to_storable(value) if isinstance(value, str) else value
            for name, value in parameters.items()
            if value is not None
        }
        return self._request("GET", path, namespace, params=given, repeat=True)

    def _post(
        self,
        path: str,
        namespace: str | None,
        body: Mapping[str, Any],
        *,
        repeat: bool = False,
        on_hop: Callable[[Hop], object] | None = None,
    ) -> dict[str, Any]:
        """Send a POST request, again if it fails and ``repeat`` allows that; returns the answer."""
        given = {name: value for name, value in body.items() if value is not None}
        try:
            text = json.dumps(given, allow_nan=False, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            message = f"this cannot be sent as JSON ({error}): pass plain values"
            raise InvalidInputError(message) from error
        content = text.encode("utf-8", "replace")
        return self._request("POST", path, namespace, content=content, repeat=repeat, on_hop=on_hop)

    def _request(
        self, method: str, path: str, namespace: str | None, *, repeat: bool = False, **options: Any
    ) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"} if "content" in options else {}
        if options.get("on_hop") is not None:
            headers["Accept"] = "text/event-stream"
        name = getattr(self, "namespace", None) if is_blank(namespace) else namespace
        if name is not None:
            headers["CrabPath-Namespace"] = _quote(str(name))
        if path.startswith("/documents") and method != "GET":
            options["timeout"] = self._slow
        attempts = Retrying(
            stop=stop_after_attempt(_ATTEMPTS if repeat else 1),
            retry=retry_if_exception_type(_BusyError),
            wait=wait_random_exponential(multiplier=0.2, max=2),
            reraise=True,
        )
        try:
            found: dict[str, Any] = attempts(
                self._request_once, method, f"{self.url}/v1{path}", headers=headers, **options
            )
        except _BusyError as error:
            raise error.reason from error.__cause__
        return found

    def _request_once(
        self,
        method: str,
        address: str,
        *,
        on_hop: Callable[[Hop], object] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        with self._report_failures(), self._http.stream(method, address, **options) as response:
            if not response.is_success:
                response.read()
                raise _read_error(response)
            if on_hop is not None:
                return _read_events(response, on_hop)
            response.read()
            try:
                found: dict[str, Any] = response.json()
            except ValueError as error:
                message = f"{self.url} is no server of CrabPath: check the address"
                raise ServiceError(message) from error
            return found

    @contextmanager
    def _report_failures(self) -> Iterator[None]:
        """Turn failures of the connection into our errors."""
        try:
            yield
        except httpx.TimeoutException as error:
            message = f"{self.url} did not answer in time: ask again, or give a longer timeout"
            raise StoreUnavailableError(message) from error
        except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeError) as error:
            message = f"this cannot be sent to {self.url}: {error}"
            raise InvalidInputError(message) from error
        except httpx.HTTPError as error:
            message = f"{self.url} cannot be reached: {error}"
            raise _BusyError(StoreUnavailableError(message)) from error
        except RuntimeError as error:
            if not self._http.is_closed:
                raise
            message = "this connection was closed: connect again"
            raise StoreUnavailableError(message) from error


class AsyncServedMemory(AsyncView[ServedMemory]):
    """``memory.aio``: the methods of :class:`ServedMemory`, in worker threads."""

    close = off_loop(ServedMemory.close)
    add_documents = off_loop(ServedMemory.add_documents, slow=True)
    forget = off_loop(ServedMemory.forget, slow=True)
    get_by_ids = off_loop(ServedMemory.get_by_ids)
    documents = off_loop(ServedMemory.documents)
    sources = off_loop(ServedMemory.sources)
    notes = off_loop(ServedMemory.notes)
    turns = off_loop(ServedMemory.turns)
    ready = off_loop(ServedMemory.ready)
    retrieve = off_loop(ServedMemory.retrieve)
    explain = off_loop(ServedMemory.explain)
    record = off_loop(ServedMemory.record)
    teach = off_loop(ServedMemory.teach)
    correct = off_loop(ServedMemory.correct)
    undo = off_loop(ServedMemory.undo)

    def __getattr__(self, name: str) -> NoReturn:
        """Return an attribute of :class:`ServedMemory`."""
        getattr(self._blocking, name)
        raise _NotServedError


class CrabPathRetriever(EmbeddedRetriever):
    """The retriever over a memory that another process serves; make one with :meth:`connect`.

    It has the fields and methods of :class:`crabpath_retrievers.CrabPathRetriever`, and is one:
    LangChain, LangGraph and the adapters take it as they take that one.
    """

    def __init__(self, *, memory: CrabPath, **fields: Unpack[RetrieverFields]) -> None:
        """Search a :class:`ServedMemory`, by default in its namespace."""
        if isinstance(memory, ServedMemory) and is_blank(fields.get("namespace")):
            fields["namespace"] = memory.namespace
        super().__init__(memory=memory, **fields)

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 60.0,
        **fields: Unpack[RetrieverFields],
    ) -> Self:
        """A retriever over a memory behind ``crabpath serve``.

        Args:
            url: Address of the server.
            token: What ``crabpath token`` printed; None for a server of this machine.
            timeout: Seconds to wait for an answer, above 0.
            fields: Fields of the retriever, such as ``k``. Without ``namespace`` it is the first of
                the token.

        Raises:
            InvalidInputError: A field or the address cannot be used.
            TokenError: The token is missing, unknown or expired.
            ForbiddenError: The namespace is not granted.
            StoreUnavailableError: No server answers there.

        Example::

            retriever = CrabPathRetriever.connect("http://127.0.0.1:8765", k=4)
        """
        chosen = fields.get("namespace")
        name = None if is_blank(chosen) else chosen
        memory = ServedMemory(url, token=token, namespace=name, timeout=timeout)
        try:
            return cls(memory=memory, **fields)
        except BaseException:
            memory.close()
            raise

    @classmethod
    def _validate_fields(cls, fields: RetrieverFields) -> NoReturn:  # noqa: ARG003
        message = "a served memory is there already: use CrabPathRetriever.connect(url)"
        raise InvalidInputError(message)

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        """Facts about this retriever for LangSmith."""
        return BaseRetriever._get_ls_params(self, **kwargs)  # noqa: SLF001  past the embedded one


def _read_error(response: httpx.Response) -> Exception:
    """Make the error that a server names, by its class; ``_BusyError`` if repeating may help."""
    try:
        error = _make_error(response.json())
    except (ValueError, KeyError, TypeError):
        message = f"{response.url} answered with status {response.status_code}"
        error = _STATUSES.get(response.status_code, ServiceError)(message)
    return _BusyError(error) if response.status_code in {429, 503} else error


def _make_error(problem: Mapping[str, Any]) -> CrabPathError:
    """Make the error that the type of a problem names, else one by its status."""
    message, name = str(problem["detail"]), str(problem["type"]).rpartition("#")[2]
    if problem.get("receipt") is not None:
        return _RefusedError(message, Receipt(**problem["receipt"]))
    return _ERRORS.get(name, _STATUSES.get(problem["status"], ServiceError))(message)


def _read_events(response: httpx.Response, on_hop: Callable[[Hop], object]) -> dict[str, Any]:
    """Read the answer from server-sent events; each hop is passed on as it comes."""
    name = ""
    for line in response.iter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data: dict[str, Any] = json.loads(value)
            if name == "answer":
                return data
            if name == "error":
                raise _make_error(data)
            on_hop(_to_hop(data))
    message = f"{response.url} ended before it answered: ask again"
    raise StoreUnavailableError(message)


def _make_path(name: str) -> str:
    return f"/documents/{_quote(name)}"


def _quote(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _to_body(document: Document) -> dict[str, Any]:
    """Convert a document to JSON for sending."""
    if not isinstance(document, Document):
        message = f"documents must be LangChain documents, not {format_value(document)}"
        raise InvalidInputError(message)
    body: dict[str, Any] = {"text": document.page_content}
    if document.id is not None:
        body["id"] = document.id
    if document.metadata:
        body["metadata"] = to_json_safe(document.metadata)
    return body


def _divide(bodies: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Divide documents into parts that are small enough to send; none where there is nothing."""
    part: list[dict[str, Any]] = []
    size = 0
    for body in bodies:
        length = len(json.dumps(body).encode())
        if part and size + length > _BODY_BYTES:
            yield part
            part, size = [], 0
        part.append(body)
        size += length
    if part:
        yield part


def _to_document(chunk: Mapping[str, Any]) -> Document:
    return Document(id=chunk["id"], page_content=chunk["text"], metadata=chunk["metadata"])


def _to_note(fields: NoteFields) -> dict[str, Any]:
    body: dict[str, Any] = dict(fields)
    if body.get("related") is not None:
        body["related"] = parse_texts(body["related"], name="related")
    if body.get("metadata") is not None:
        body["metadata"] = to_json_safe(body["metadata"])
    return body


def _to_answer(asked: Query, found: Mapping[str, Any]) -> Answer:
    """Convert a server's answer; its turn knows what was returned, but not how the walk went."""
    documents = tuple(_to_retrieved(item) for item in found["documents"])
    turn = Turn(
        id=found["turn_id"],
        namespace=found["namespace"],
        clock=0,
        created=0.0,
        query=asked.text,
        seeds=(),
        steps=(),
        visited=(),
        returned=tuple(item.returned for item in documents),
        guardrails=(),
        novelty={},
        run_id=asked.run_id,
        latency_ms=found["latency_ms"],
        task_type=asked.task_type,
        session=asked.session,
        arm=asked.arm,
    )
    return Answer(documents, turn)


def _to_hop(data: Mapping[str, Any]) -> Hop:
    followed = tuple(PathEdge(**edge) for edge in data["followed"])
    return Hop(**{**data, "frontier": tuple(data["frontier"]), "followed": followed})


def _to_retrieved(item: Mapping[str, Any]) -> RetrievedDocument:
    node = Node(
        id=item["id"],
        document=item["id"],
        source=item["source"],
        content=item["text"],
        title=item["title"],
        metadata=item["metadata"],
    )
    path = tuple(PathEdge(**edge) for edge in item["path"])
    returned = ReturnedDocument(
        node=item["id"],
        probability=item["score"],
        origin=item["origin"],
        path=path,
        features=item["features"],
        superseded_by=item.get("superseded_by"),
    )
    return RetrievedDocument(node, returned)
