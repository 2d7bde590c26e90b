"""Who may do what: bearer tokens, and the namespaces and rights that each grants.

Tokens are those of a file (:mod:`crabpath_server.tokens`), or of an authorisation server
(:mod:`crabpath_server.oauth`).
"""

import logging
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE
from crabpath_retrievers.core.query import parse_namespace
from crabpath_retrievers.core.text import format_value, to_storable
from crabpath_retrievers.errors import (
    ConfigurationError,
    ForbiddenError,
    InvalidInputError,
    TokenError,
)
from crabpath_server.tokens import (
    ALL_NAMESPACES,
    RIGHTS,
    TokenEntry,
    Version,
    hash_token,
    parse_tokens,
    read_private,
    read_version,
)

if TYPE_CHECKING:
    from starlette.routing import Route

ENVIRONMENT_VARIABLE = "CRABPATH_TOKENS"

_log = logging.getLogger(__name__)
_LOOPBACK_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)


class MissingTokenError(TokenError):
    """A request that needs a token has none."""


class MissingRightError(ForbiddenError):
    """A token does not grant a right.

    Attributes:
        grant: What it grants.
        right: The right.
    """

    def __init__(self, grant: "Grant", right: str, what: str = "") -> None:
        """Name the right, and ``what`` needs it where a request may do without."""
        whose = f"{what} needs the right {right!r}, which this token does not grant"
        usual = f"this token does not grant the right {right!r}"
        super().__init__(f"{whose if what else usual}: use one that does")
        self.grant, self.right = grant, right


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights of the sender of a request.

    Attributes:
        namespaces: Namespaces, the usual one first; ``*`` in one stands for any characters.
        rights: Some of ``read``, ``feedback``, ``teach``, ``write`` and ``admin``.
        expires: End of its validity in seconds since the epoch; None for none.
        token: Id of the token, which is stored with all that it changes; None without one.
        user: The user of all its feedback; None where requests may name one.
        requests_per_minute, feedbacks_per_hour: Its own limits; None for those of the server.
        is_issued: Whether an authorisation server issued the token, which may grant more.
    """

    namespaces: tuple[str, ...]
    rights: frozenset[str]
    expires: float | None = None
    token: str | None = None
    user: str | None = None
    requests_per_minute: int | None = None
    feedbacks_per_hour: int | None = None
    is_issued: bool = False

    @property
    def has_all_namespaces(self) -> bool:
        """Whether every namespace is granted."""
        return ALL_NAMESPACES in self.namespaces

    def has_namespace(self, name: str) -> bool:
        """Whether a namespace is granted."""
        return any(_match(name, pattern) for pattern in self.namespaces)

    def require(self, right: str, what: str = "") -> None:
        """Refuse a request that these rights do not allow; ``what`` of it needs the right."""
        if right not in self.rights:
            raise MissingRightError(self, right, what)

    def choose_namespace(self, header: str | None) -> str:
        """Choose the namespace of a request.

        Args:
            header: The header ``CrabPath-Namespace``, in which all but ASCII is percent-encoded;
                None for the first namespace of the token.
        """
        if header is None:
            first = self.namespaces[0]
            return DEFAULT_NAMESPACE if first == ALL_NAMESPACES else first
        try:
            name = read_sent_name(unquote(header.encode("ascii").decode(), errors="strict"))
        except UnicodeError:
            msg = "the header CrabPath-Namespace must be percent-encoded UTF-8"
            raise InvalidInputError(msg) from None
        if not self.has_namespace(name):
            msg = f"this token does not grant the namespace {name!r}: leave the header out"
            raise ForbiddenError(msg)
        return name

    def choose_user(self, given: str | None) -> str | None:
        """Choose the user of a feedback: that of the token, else the given one, else the token."""
        if self.user is None:
            named = None if self.token is None else f"token {self.token}"
            return named if given is None else given
        if given not in {None, self.user}:
            msg = f"this token gives feedback as {self.user!r} only: leave user out"
            raise ForbiddenError(msg)
        return self.user


def read_sent_name(name: str) -> str:
    """Read the name of a namespace or user that a sender gives, as it is stored.

    Raises:
        InvalidInputError: A part of it is not stored, so that it would be another name.
    """
    stored = parse_namespace(name)
    if name != to_storable(name).strip():
        msg = f"a name has no spaces around it, and no NUL or lone surrogates: {format_value(name)}"
        raise InvalidInputError(msg)
    return stored


def _match(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern, in which only ``*`` has a meaning."""
    if "*" not in pattern:
        return name == pattern
    return fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))


_EVERYTHING = Grant((ALL_NAMESPACES,), frozenset(RIGHTS))


def _make_grants(entries: Iterable[TokenEntry]) -> dict[str, Grant]:
    """Map hashes of secrets to grants."""
    return {
        entry.sha256: Grant(
            tuple(entry.namespaces),
            frozenset(entry.rights),
            None if entry.expires is None else entry.expires.timestamp(),
            entry.id,
            entry.user,
            entry.requests_per_minute,
            entry.feedbacks_per_hour,
        )
        for entry in entries
    }


class TokenIssuer(Protocol):
    """An authorisation server, as :class:`crabpath_server.oauth.Issuer`."""

    metadata_url: str
    """Where clients read who issues tokens for this server."""

    def make_routes(self) -> "list[Route]":
        """Make the routes at which clients read who issues tokens."""

    async def prepare(self, token: str) -> None:
        """Fetch what is missing to verify a token."""

    def verify(self, token: str) -> Grant:
        """Verify a token; raises ``TokenError``."""


@dataclass(slots=True)
class Access:
    """The tokens of a server.

    Make one with :meth:`from_file`, :meth:`from_environment`, :meth:`from_issuer` or
    :meth:`open_on_loopback`.
    """

    _grants: dict[str, Grant] | None
    _file: Path | None = None
    _version: Version = (0, 0, 0)
    _check_seconds: float = 1.0
    _checked: float = 0.0
    issuer: TokenIssuer | None = None

    @property
    def needs_token(self) -> bool:
        """Whether requests must carry a token.

        Otherwise the server answers programs of its own machine only, and in a browser only the
        page that it delivered itself.
        """
        return self._grants is not None

    @classmethod
    def from_file(cls, path: str | Path, *, check_seconds: float = 1.0) -> "Access":
        """Read tokens from a JSON file, again when it has changed.

        Args:
            path: The file.
            check_seconds: Seconds between two looks whether it has.

        Raises:
            ConfigurationError: It cannot be read or used, or others than its owner may read it.
        """
        file = Path(path).expanduser()
        version, text = read_private(file)
        grants = _make_grants(parse_tokens(text, str(file)))
        return cls(grants, file, version, check_seconds, time.monotonic())

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Access | None":
        """Read tokens from ``CRABPATH_TOKENS``, JSON as in a file; None where it is not set.

        Raises:
            ConfigurationError: It cannot be used.
        """
        text = environment.get(ENVIRONMENT_VARIABLE)
        if text is None:
            return None
        return cls(_make_grants(parse_tokens(text, ENVIRONMENT_VARIABLE)))

    @classmethod
    def from_issuer(cls, issuer: TokenIssuer, beside: "Access | None" = None) -> "Access":
        """Take tokens of an authorisation server, and those of a file ``beside`` them."""
        access = cls({}) if beside is None else beside
        access.issuer = issuer
        return access

    @classmethod
    def open_on_loopback(cls) -> "Access":
        """Grant everything, without a token, to programs of this machine."""
        return cls(None)

    async def prepare(self, token: str | None) -> None:
        """Get ready to authorise a token: its issuer may have new keys."""
        if token is not None and self.issuer is not None:
            await self.issuer.prepare(token)

    def authorise(self, token: str | None) -> Grant:
        """Find the rights of the bearer of a token.

        Args:
            token: The token itself; None where the request bears none.

        Raises:
            TokenError: It is missing, unknown or expired.
        """
        if self._grants is None:
            return _EVERYTHING
        if token is None:
            msg = "this server needs a token: send the header Authorization: Bearer TOKEN"
            raise MissingTokenError(msg)
        self._reload_if_changed()
        grant = self._grants.get(hash_token(token))
        if grant is None and self.issuer is not None:
            return self.issuer.verify(token)
        if grant is None:
            msg = "this token is unknown here: ask whoever runs the server for one"
            raise TokenError(msg)
        if grant.expires is not None and grant.expires <= datetime.now(timezone.utc).timestamp():
            msg = "this token has expired: ask whoever runs the server for another one"
            raise TokenError(msg)
        return grant

    def make_challenge(self, error: Exception) -> str | None:
        """Write the header ``WWW-Authenticate`` of an error (RFC 6750, RFC 9728); None for others.

        It says where clients learn who issues tokens, and which scopes to ask for.
        """
        known = {} if self.issuer is None else {"resource_metadata": self.issuer.metadata_url}
        if isinstance(error, TokenError):
            told = {} if isinstance(error, MissingTokenError) else {"error": "invalid_token"}
            asked = {"scope": "read feedback", **known} if known else {}
            return _write_challenge({**told, **asked})
        if isinstance(error, MissingRightError) and error.grant.is_issued:
            rights = {*error.grant.rights, error.right}
            scope = " ".join(right for right in RIGHTS if right in rights)
            return _write_challenge({"error": "insufficient_scope", "scope": scope, **known})
        return None

    def require_local(self, client: str | None, host: str | None, origin: str | None) -> None:
        """Without tokens, refuse requests from elsewhere, and from pages of other origins.

        An attacker can let the name of a web page resolve to this machine; its requests then come
        from here, but name that page as their host.

        Args:
            client: Address of the sender; None or a text that is no address is not checked.
            host: The header ``Host``.
            origin: The header ``Origin``; None where there is none.
        """
        if self.needs_token:
            return
        if client is not None and not _may_be_loopback(client):
            msg = "without tokens this server answers programs of its own machine only"
            raise ForbiddenError(msg)
        if host is None or not _LOOPBACK_HOST.fullmatch(host):
            msg = "without tokens the header Host must name this machine: use http://127.0.0.1"
            raise ForbiddenError(msg)
        own = (f"http://{host}".lower(), f"https://{host}".lower())
        if origin is not None and origin.lower() not in own:
            msg = "pages of other origins may not use this server"
            raise ForbiddenError(msg)

    def _reload_if_changed(self) -> None:
        """Read the file again if it has changed.

        If it cannot be used, the old tokens stay; if it was deleted, nothing is granted.
        """
        now = time.monotonic()
        if self._file is None or now - self._checked < self._check_seconds:
            return
        self._checked = now
        try:
            if read_version(self._file) != self._version:
                version, text = read_private(self._file)
                self._grants = _make_grants(parse_tokens(text, str(self._file)))
                self._version = version
                _log.info("the file %s has %d tokens now", self._file, len(self._grants))
        except FileNotFoundError:
            if self._grants:
                _log.error("the file of tokens %s is gone: no token is valid", self._file)
            self._grants, self._version = {}, (0, 0, 0)
        except (OSError, ConfigurationError) as error:
            _log.warning("the tokens stay as they were: %s", error)


def _write_challenge(fields: Mapping[str, str]) -> str:
    written = ", ".join(f'{name}="{value}"' for name, value in fields.items())
    return f"Bearer {written}".strip()


def is_loopback(host: str) -> bool:
    """Whether a listening address can only be reached from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(headers: Mapping[str, str]) -> str | None:
    """Read the token of a request; None without one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def _may_be_loopback(client: str) -> bool:
    try:
        return ip_address(client).is_loopback
    except ValueError:  # a socket of the file system, or a test client
        return True
