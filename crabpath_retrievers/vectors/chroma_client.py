"""Clients of Chroma servers, whose requests wait no longer than the current call may."""

import re
from collections.abc import Iterator
from http.client import HTTPException
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from crabpath_retrievers.core.calls import DEFAULT_TIME_LIMIT, track_waiting
from crabpath_retrievers.core.processes import use_engine
from crabpath_retrievers.errors import InvalidInputError, StoreUnavailableError
from crabpath_retrievers.vectors.chroma_directory import DEFAULT_COLLECTION, find_owner

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]")
_PORTS = {"http": 8000, "https": 443}
_MIN_TIMEOUT = 0.001  # seconds; makes a request without time left fail at once


def create_client(url: str) -> "tuple[ClientAPI, str]":
    """A client of the server at a URL, and the name of the collection in the URL.

    Args:
        url: ``http://host:port`` or ``https://host``; a path names another collection.

    Raises:
        InvalidInputError: The URL is malformed.
        StoreUnavailableError: The server cannot be reached.
    """
    import chromadb
    from chromadb.config import Settings

    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname:
        msg = f"{url!r} is no URL of a Chroma server: use a form such as http://localhost:8000"
        raise InvalidInputError(msg)
    name = parts.path.strip("/") or DEFAULT_COLLECTION
    if parts.query or parts.fragment or not _NAME.fullmatch(name) or find_owner(name):
        msg = (
            f"{url!r} names no collection: the path must be one name of 3 to 512 letters, digits, "
            "'.', '_' and '-', which does not end like those of namespaces ('-notes-1')"
        )
        raise InvalidInputError(msg)
    settings = Settings(anonymized_telemetry=False)
    _require_answer(url, f"{parts.scheme}://{parts.hostname}:{port or _PORTS[parts.scheme]}")
    try:
        client = chromadb.HttpClient(
            parts.hostname,
            port or _PORTS[parts.scheme],
            ssl=parts.scheme == "https",
            settings=settings,
        )
    except ValueError as error:  # chromadb raises it when no server answers
        msg = f"Chroma at {url} cannot be reached ({error}): is the Chroma server running?"
        raise StoreUnavailableError(msg) from error
    return client, name


def _require_answer(url: str, address: str) -> None:
    """Send one request with a timeout: chromadb waits for ever for a server that accepts only.

    Raises:
        StoreUnavailableError: The server does not answer within the time limit.
    """
    with track_waiting() as until:
        left = DEFAULT_TIME_LIMIT if until is None else max(_MIN_TIMEOUT, until - monotonic())
        try:
            urlopen(f"{address}/api/v2/heartbeat", timeout=left).close()  # noqa: S310  http or https
        except OSError as error:
            if isinstance(error, HTTPError):
                error.close()
            if isinstance(getattr(error, "reason", error), TimeoutError):
                msg = f"Chroma at {url} did not answer within {left:.1f} s: is the server running?"
                raise StoreUnavailableError(msg) from error
        except HTTPException:  # chromadb reports what is wrong with the answer
            return


def _sessions(client: Any) -> Iterator[Any]:
    """The HTTP sessions of a client; none for an embedded one."""
    for own in (client, getattr(client, "_admin_client", None)):
        session = getattr(getattr(own, "_server", None), "_session", None)
        if session is not None:
            yield session


def note_embedded(client: Any) -> None:
    """Note the use of Chroma's engine in this process, if a client does not ask a server.

    Raises:
        ForkedError: It was in use when this process was forked, and would wait for ever.
    """
    if next(_sessions(client), None) is None:
        use_engine("chroma")


def limit_requests(client: "ClientAPI") -> None:
    """Limit requests to the time left of the current call; shorter timeouts stay."""
    for session in _sessions(client):
        hooks = getattr(session, "event_hooks", {}).get("request")
        if hooks is not None and _shorten_timeout not in hooks:
            hooks.append(_shorten_timeout)


def _shorten_timeout(request: Any) -> None:
    """Set the timeouts of an httpx request to the time left of the current call."""
    with track_waiting() as until:
        if until is None:
            return
        left = max(_MIN_TIMEOUT, until - monotonic())
    given = request.extensions.get("timeout") or {}
    request.extensions["timeout"] = {
        what: left if given.get(what) is None else min(given[what], left)
        for what in ("connect", "read", "write", "pool")
    }


def close_client(client: "ClientAPI") -> None:
    """Close a client and its connections, which ``close`` of chromadb 1.5 leaves open."""
    for session in _sessions(client):
        session.close()
    close = getattr(client, "close", None)
    if close is not None:
        close()
