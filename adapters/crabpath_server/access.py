"""Who may do what: bearer tokens, and the namespaces and rights that each grants.

Tokens are kept as hashes. A token has 256 random bits, so that a plain SHA-256 cannot be reversed.
"""

import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import unquote

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from crabpath_retrievers.config.base import explain_first_error
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE
from crabpath_retrievers.core.query import parse_namespace
from crabpath_retrievers.errors import (
    ConfigurationError,
    CrabPathError,
    ForbiddenError,
    InvalidInputError,
    TokenError,
)

Right = Literal["read", "feedback", "write", "admin"]
"""What a token allows; none of them includes another one."""

RIGHTS: tuple[Right, ...] = get_args(Right)
ALL_NAMESPACES = "*"
ENVIRONMENT_VARIABLE = "CRABPATH_TOKENS"

_log = logging.getLogger(__name__)
_LOOPBACK_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights of the sender of a request.

    Attributes:
        namespaces: Namespaces, the usual one first; ``("*",)`` for all.
        rights: Some of ``read``, ``feedback``, ``write`` and ``admin``.
        expires: End of its validity in seconds since the epoch; None for none.
        giver: Who gives feedback that names no user: the token, by the first 16 digits of its hash;
            None without a token.
    """

    namespaces: tuple[str, ...]
    rights: frozenset[str]
    expires: float | None = None
    giver: str | None = None

    @property
    def has_all_namespaces(self) -> bool:
        """Whether every namespace is granted."""
        return ALL_NAMESPACES in self.namespaces

    def require(self, right: str) -> None:
        """Refuse a request that these rights do not allow."""
        if right not in self.rights:
            msg = f"this token does not grant the right {right!r}: use one that does"
            raise ForbiddenError(msg)

    def choose_namespace(self, header: str | None) -> str:
        """The namespace of a request.

        Args:
            header: The header ``CrabPath-Namespace``, in which all but ASCII is percent-encoded;
                None for the first namespace of the token.
        """
        if header is None:
            first = self.namespaces[0]
            return DEFAULT_NAMESPACE if first == ALL_NAMESPACES else first
        try:
            name = parse_namespace(unquote(header.encode("ascii").decode(), errors="strict"))
        except UnicodeError:
            msg = "the header CrabPath-Namespace must be percent-encoded UTF-8"
            raise InvalidInputError(msg) from None
        if not self.has_all_namespaces and name not in self.namespaces:
            msg = f"this token does not grant the namespace {name!r}: leave the header out"
            raise ForbiddenError(msg)
        return name


_EVERYTHING = Grant((ALL_NAMESPACES,), frozenset(RIGHTS))


class _TokenEntry(BaseModel):
    """One token as it is stored."""

    model_config = ConfigDict(extra="forbid")

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    namespaces: list[str] = Field(min_length=1)
    rights: list[Right] = Field(min_length=1)
    expires: AwareDatetime | None = None

    def to_grant(self) -> Grant:
        names = tuple(n if n == ALL_NAMESPACES else parse_namespace(n) for n in self.namespaces)
        until = None if self.expires is None else self.expires.timestamp()
        return Grant(names, frozenset(self.rights), until, f"token {self.sha256[:16]}")


_ENTRIES = TypeAdapter(list[_TokenEntry])


@dataclass(slots=True)
class Access:
    """The tokens of a server.

    Make one with :meth:`from_file`, :meth:`from_environment` or :meth:`open_on_loopback`.
    """

    _grants: dict[str, Grant] | None
    _file: Path | None = None
    _version: tuple[int, int] = (0, 0)

    @property
    def needs_token(self) -> bool:
        """Whether requests must carry a token.

        Otherwise the server answers programs of its own machine only, and in a browser only the
        page that it delivered itself.
        """
        return self._grants is not None

    @classmethod
    def from_file(cls, path: str | Path) -> "Access":
        """Read tokens from a JSON file, again whenever it changes.

        Raises:
            ConfigurationError: It cannot be read or used, or others than its owner may read it.
        """
        file = Path(path).expanduser()
        version, text = _read_private(file)
        return cls(_parse_tokens(text, str(file)), file, version)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Access | None":
        """Read tokens from ``CRABPATH_TOKENS``, JSON as in a file; None where it is not set.

        Raises:
            ConfigurationError: It cannot be used.
        """
        text = environment.get(ENVIRONMENT_VARIABLE)
        return None if text is None else cls(_parse_tokens(text, ENVIRONMENT_VARIABLE))

    @classmethod
    def open_on_loopback(cls) -> "Access":
        """Grant everything, without a token, to programs of this machine."""
        return cls(None)

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
            raise TokenError(msg)
        self._reload_if_changed()
        grant = self._grants.get(hash_token(token))
        if grant is None:
            msg = "this token is unknown here: ask whoever runs the server for one"
            raise TokenError(msg)
        if grant.expires is not None and grant.expires <= datetime.now(timezone.utc).timestamp():
            msg = "this token has expired: ask whoever runs the server for another one"
            raise TokenError(msg)
        return grant

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
        if self._file is None:
            return
        try:
            if _read_version(self._file) != self._version:
                version, text = _read_private(self._file)
                self._grants, self._version = _parse_tokens(text, str(self._file)), version
        except FileNotFoundError:
            self._grants, self._version = {}, (0, 0)
        except (OSError, ConfigurationError) as error:
            _log.warning("the tokens stay as they were: %s", error)


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


def hash_token(token: str) -> str:
    """Hash a token for storage."""
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def add_token(
    path: str | Path,
    namespaces: list[str],
    rights: list[str],
    expires: str | None = None,
) -> str:
    """Add a new token to a file, which is created with mode 0600 where there is none.

    Args:
        path: The file.
        namespaces: Namespaces that it grants, the usual one first; ``*`` for all.
        rights: Rights that it grants.
        expires: Time until which it is valid, in ISO 8601 with a time zone; None for ever.

    Returns:
        The token. It is kept nowhere: only its hash is.

    Raises:
        InvalidInputError: A namespace, a right or the time is not one.
        ConfigurationError: The file cannot be used.
    """
    file, token = Path(path).expanduser(), secrets.token_urlsafe(32)
    entry: dict[str, Any] = {
        "sha256": hash_token(token),
        "namespaces": namespaces,
        "rights": rights,
    }
    if expires is not None:
        entry["expires"] = expires
    entries: list[Any] = []
    if file.exists():
        _, old = _read_private(file)
        _parse_tokens(old, str(file))
        entries = json.loads(old)
    text = json.dumps([*entries, entry], indent=2)
    _parse_tokens(text, "the new token", InvalidInputError)
    new = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        new.touch(mode=0o600, exist_ok=False)
        new.write_text(f"{text}\n", encoding="utf-8")
        new.replace(file)
    except OSError as error:
        new.unlink(missing_ok=True)
        msg = f"the tokens in {file} cannot be written: {error}"
        raise ConfigurationError(msg) from error
    return token


def _read_private(file: Path) -> tuple[tuple[int, int], str]:
    """Read version and text of a file; refuse one that others than its owner may read."""
    try:
        version = _read_version(file)
        if os.name == "posix" and stat.S_IMODE(file.stat().st_mode) & 0o077:
            msg = f"others than its owner may use {file}: chmod 600 {file}"
            raise ConfigurationError(msg)
        return version, file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the tokens in {file} cannot be read: {error}"
        raise ConfigurationError(msg) from error


def _read_version(file: Path) -> tuple[int, int]:
    state = file.stat()
    return state.st_mtime_ns, state.st_ino


def _parse_tokens(
    text: str, where: str, refusal: type[CrabPathError] = ConfigurationError
) -> dict[str, Grant]:
    try:
        return {entry.sha256: entry.to_grant() for entry in _ENTRIES.validate_json(text)}
    except ValidationError as error:
        msg = f"{where} cannot be used: {explain_first_error(error)}"
        raise refusal(msg) from None
    except InvalidInputError as error:
        msg = f"{where} cannot be used: {error}"
        raise refusal(msg) from None


def _may_be_loopback(client: str) -> bool:
    try:
        return ip_address(client).is_loopback
    except ValueError:  # a socket of the file system, or a test client
        return True
