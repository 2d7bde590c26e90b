"""Tokens of an authorisation server: JSON web tokens, verified with its public keys.

The server is a resource server of OAuth, as the specification of MCP asks: it publishes who issues
tokens for it [RFC 9728], and takes access tokens [RFC 9068] that were issued for it alone. Keys are
read from the metadata of the issuer [RFC 8414; OpenID Connect Discovery].
"""

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

try:
    import httpx
    import jwt
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route
except ImportError as error:
    from crabpath_server import explain_missing

    raise explain_missing(error) from error

from crabpath_retrievers.core.feedback import validate_user
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import InvalidInputError, ServiceError, TokenError
from crabpath_server.access import Grant, is_loopback, read_sent_name
from crabpath_server.room import Rate
from crabpath_server.tokens import ALL_NAMESPACES, RIGHTS

_log = logging.getLogger(__name__)
_WELL_KNOWN = "/.well-known/oauth-protected-resource"
# None with a shared secret: whoever knows a public key could sign by it.
_ALGORITHMS = [
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
]
_KEY_TYPES = {"RSA", "EC", "OKP"}
_NEEDED = ["iss", "aud", "exp", "sub"]
_CLOCK_SECONDS = 30.0  # that clocks may differ by
_KEEP_SECONDS = 600.0  # until keys are read again, since some may have been withdrawn
_FETCHES = 6  # a minute, at most: tokens name any key
_FETCH_SECONDS = 5.0
_FETCH_BYTES = 1 << 18


class Issuer:
    """An authorisation server whose tokens a server takes.

    A token grants the rights that its scopes name (``scope`` or ``scp``: ``read``, ``feedback``,
    ``teach``, ``write``, ``admin``), in the namespaces of one of its claims. Its feedback is that
    of its subject.
    """

    def __init__(self, url: str, audience: str, *, namespace: str = "sub") -> None:
        """Trust an issuer.

        Args:
            url: Its address, as tokens say it in ``iss``.
            audience: The address of this server at which clients know it, such as
                ``https://memory.example/mcp``; tokens must name it in ``aud``.
            namespace: The claim that names the namespace of a token, or several in a list.

        Raises:
            InvalidInputError: An address cannot be used.
        """
        self._url = _require_safe(url, "issuer")
        self._audience = _require_safe(audience, "audience")
        self._claim, self._keys = namespace, _Keys(self._url)
        parts = urlsplit(audience)
        self._path = f"{_WELL_KNOWN}{parts.path.rstrip('/')}"
        self.metadata_url = f"{parts.scheme}://{parts.netloc}{self._path}"

    def make_routes(self) -> list[Route]:
        """Make the routes at which clients read who issues tokens; they need none."""
        answer = JSONResponse(
            {
                "resource": self._audience,
                "authorization_servers": [self._url],
                "scopes_supported": list(RIGHTS),
                "bearer_methods_supported": ["header"],
                "resource_name": "CrabPath",
            }
        )

        async def describe(_request: Request) -> JSONResponse:
            return answer

        return [Route(path, describe) for path in dict.fromkeys((_WELL_KNOWN, self._path))]

    async def prepare(self, token: str) -> None:
        """Fetch the keys of the issuer where that of a token is not known, or they are old."""
        if (key := _read_key_id(token)) is not ...:
            await self._keys.fetch_for(key)

    def verify(self, token: str) -> Grant:
        """Verify a token, by keys that :meth:`prepare` has fetched.

        Raises:
            TokenError: It is not one of the issuer for this server, or has expired.
            ServiceError: The issuer has not answered yet.
        """
        key_id = _read_key_id(token)
        if key_id is ...:
            msg = "this token is unknown here: ask whoever runs the server for one"
            raise TokenError(msg)
        try:
            claims = jwt.decode(
                token,
                self._keys.find(key_id),
                algorithms=_ALGORITHMS,
                audience=self._audience,
                issuer=[self._url, f"{self._url.rstrip('/')}/"],
                leeway=_CLOCK_SECONDS,
                options={"require": _NEEDED},
            )
            return self._to_grant(claims)
        except jwt.ExpiredSignatureError:
            msg = "this token has expired: get another one from its issuer"
            raise TokenError(msg) from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            msg = f"this token cannot be used here: {error}"
            raise TokenError(msg) from None

    def _to_grant(self, claims: Mapping[str, Any]) -> Grant:
        """Make the grant of verified claims; ``ValueError`` where they cannot be used."""
        user, named = validate_user(read_sent_name(claims["sub"])), claims.get(self._claim)
        names = [named] if isinstance(named, str) else named
        if not (isinstance(names, list) and names and all(isinstance(n, str) for n in names)):
            msg = f"its claim {self._claim!r} names no namespace"
            raise InvalidInputError(msg)
        if any(ALL_NAMESPACES in name for name in names):  # which would be a pattern
            msg = f"its claim {self._claim!r} has a name with '*'"
            raise InvalidInputError(msg)
        scopes = claims.get("scope", claims.get("scp", ""))
        words = scopes.split() if isinstance(scopes, str) else scopes
        rights = frozenset(right for right in RIGHTS if isinstance(words, list) and right in words)
        return Grant(
            tuple(map(read_sent_name, names)),
            rights,
            float(claims["exp"]),
            token=f"oauth {user}",
            user=user,
            is_issued=True,
        )


class _Keys:
    """The public keys of an issuer by their ids, fetched when one is missing, and now and then."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._known: dict[str | None, jwt.PyJWK] = {}
        self._fetched = float("-inf")
        self._rate = Rate(_FETCHES, 60.0)
        self._thread = ThreadPoolExecutor(1, "crabpath-keys")
        self._fetching: Future[None] | None = None

    def find(self, key_id: str | None) -> jwt.PyJWK:
        """Find a key; ``ValueError`` where there is none."""
        known = self._known
        if not known:
            msg = "the keys of the issuer of tokens are not known yet: try again"
            raise ServiceError(msg)
        if key_id is None and len(known) == 1:
            return next(iter(known.values()))
        if key_id not in known:
            msg = "its issuer has no such key"
            raise InvalidInputError(msg)
        return known[key_id]

    async def fetch_for(self, key_id: str | None) -> None:
        """Fetch the keys where one is missing or they are old; all callers wait for one fetch."""
        is_known = key_id in self._known or (key_id is None and bool(self._known))
        if is_known and time.monotonic() - self._fetched < _KEEP_SECONDS:
            return
        fetching = self._fetching
        if fetching is None or fetching.done():
            if self._rate.take(time.monotonic()) > 0:
                return
            fetching = self._fetching = self._thread.submit(self._fetch)
        await asyncio.shield(asyncio.wrap_future(fetching))

    def _fetch(self) -> None:
        """Read the keys; those known before stay where that fails."""
        try:
            with httpx.Client(timeout=_FETCH_SECONDS, follow_redirects=False) as http:
                place = _require_safe(_find_metadata(http, self._issuer)["jwks_uri"], "jwks_uri")
                keys = jwt.PyJWKSet.from_dict(_read_json(http, place)).keys
        except (httpx.HTTPError, jwt.PyJWTError, ValueError, LookupError, TypeError) as error:
            _log.warning("the keys of the issuer of tokens cannot be read: %s", error)
            return
        self._known = {
            key.key_id: key
            for key in keys
            if key.key_type in _KEY_TYPES and key.public_key_use in {None, "sig"}
        }
        self._fetched = time.monotonic()


def _find_metadata(http: httpx.Client, issuer: str) -> dict[str, Any]:
    """Read what an issuer publishes of itself."""
    parts, base = urlsplit(issuer), issuer.rstrip("/")
    path = parts.path.rstrip("/")
    places = (
        f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{path}",
        f"{base}/.well-known/openid-configuration",
    )
    for place in places:
        try:
            found = _read_json(http, place)
            if str(found["issuer"]).rstrip("/") == base and "jwks_uri" in found:
                return found
        except (ValueError, LookupError, TypeError):
            _log.debug("%s has no metadata of the issuer", place)
    msg = f"neither {places[0]} nor {places[1]} has its metadata"
    raise ValueError(msg)


def _read_json(http: httpx.Client, url: str) -> dict[str, Any]:
    """Read a JSON object of bounded size in bounded time; ``ValueError`` for anything else."""
    until, body = time.monotonic() + _FETCH_SECONDS, bytearray()
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    with http.stream("GET", url, headers=headers) as response:
        if response.status_code != httpx.codes.OK:
            msg = f"{url} answers with status {response.status_code}"
            raise ValueError(msg)
        for part in response.iter_raw():
            body += part
            if len(body) > _FETCH_BYTES or time.monotonic() > until:
                msg = f"{url} is larger than {_FETCH_BYTES:,} bytes, or comes too slowly"
                raise ValueError(msg)
    found = json.loads(body)
    if not isinstance(found, dict):
        msg = f"{url} is no JSON object"
        raise TypeError(msg)
    return found


def _read_key_id(token: str) -> Any:
    """Read the id of the key that a token names, None without one; ``...`` of no JWT."""
    try:
        return jwt.get_unverified_header(token).get("kid")
    except (jwt.PyJWTError, ValueError, RecursionError):  # of a header that is nested deeply
        return ...


def _require_safe(url: object, what: str) -> str:
    """Check that an address is one of HTTPS, or of this machine."""
    if isinstance(url, str):
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
        except ValueError:
            parts, host = urlsplit(""), ""
        safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
        if host and safe and not (parts.query or parts.fragment or '"' in url or "\\" in url):
            return url
    msg = f"the {what} must be an address with https://, not {format_value(url)}"
    raise InvalidInputError(msg)
