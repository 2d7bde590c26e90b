"""A Chroma server, found by its URL."""

import re
from http.client import HTTPException
from time import monotonic
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from crabpath_retrievers.core.calls import DEFAULT_TIME_LIMIT, track_waiting
from crabpath_retrievers.errors import InvalidInputError, StoreUnavailableError
from crabpath_retrievers.vectors.chroma import MIN_TIMEOUT
from crabpath_retrievers.vectors.chroma_directory import DEFAULT_COLLECTION, find_owner

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]")
_PORTS = {"http": 8000, "https": 443}


def create_client(url: str) -> "tuple[ClientAPI, str]":
    """Create a client of the server at a URL, and return it with the URL's collection name.

    URLs are ``http://host:port`` or ``https://host``; a path names another collection.
    """
    import chromadb
    from chromadb.config import Settings

    host, port, is_safe, name = _parse_url(url)
    settings = Settings(anonymized_telemetry=False)
    ping_server(url)
    try:
        client = chromadb.HttpClient(host, port, ssl=is_safe, settings=settings)
    except ValueError as error:  # chromadb raises it when no server answers
        msg = f"Chroma at {url} cannot be reached ({error}): is the Chroma server running?"
        raise StoreUnavailableError(msg) from error
    return client, name


def _parse_url(url: str) -> tuple[str, int, bool, str]:
    """Parse the URL of a server to host, port, whether it is encrypted, and collection name."""
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
    return parts.hostname, port or _PORTS[parts.scheme], parts.scheme == "https", name


def ping_server(url: str) -> None:
    """Send one request with a timeout: chromadb waits for ever for a server that only accepts."""
    host, port, is_safe, _ = _parse_url(url)
    address = f"http{'s' if is_safe else ''}://{host}:{port}"
    with track_waiting() as until:
        left = DEFAULT_TIME_LIMIT if until is None else max(MIN_TIMEOUT, until - monotonic())
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
