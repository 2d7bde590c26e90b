"""The file of tokens: entries, how they are read, and how people change them.

Only hashes of the secrets are kept. A secret has 256 random bits, so that a plain SHA-256 cannot
be reversed.
"""

import json
import os
import secrets
import stat
from collections.abc import Callable
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar, get_args

from filelock import FileLock
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from crabpath_retrievers.config.base import explain_first_error
from crabpath_retrievers.core.feedback import validate_user
from crabpath_retrievers.core.query import parse_namespace
from crabpath_retrievers.errors import (
    ConfigurationError,
    CrabPathError,
    InvalidInputError,
    NotFoundError,
)

Right = Literal["read", "feedback", "teach", "write", "admin"]
"""What a token allows; none of them includes another one."""

ALL_NAMESPACES = "*"

RIGHTS: tuple[Right, ...] = get_args(Right)

T = TypeVar("T")
Version = tuple[int, int, int]
_WAIT_SECONDS = 10.0  # for another command that changes the file


def _require_usual(names: list[str]) -> list[str]:
    """Refuse a pattern as the namespace of requests that name none."""
    if names[0] != ALL_NAMESPACES and "*" in names[0]:
        msg = (
            f"the first of namespaces must be a name or '*', since requests may name none: {names}"
        )
        raise InvalidInputError(msg)
    return names


class TokenEntry(BaseModel):
    """One token as it is kept."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    name: str = Field("", max_length=200)
    namespaces: Annotated[
        list[Annotated[str, AfterValidator(parse_namespace)]],
        Field(min_length=1),
        AfterValidator(_require_usual),
    ]
    rights: list[Right] = Field(min_length=1)
    expires: AwareDatetime | None = None
    user: Annotated[str, AfterValidator(validate_user)] | None = None
    requests_per_minute: int | None = Field(None, ge=1, le=1_000_000)
    feedbacks_per_hour: int | None = Field(None, ge=0, le=1_000_000)


class NewToken(NamedTuple):
    """A token that was just made.

    Attributes:
        id: Its id, which lists and feedback show.
        secret: What its bearer sends. It is kept nowhere: only its hash is.
    """

    id: str
    secret: str


_ENTRIES = TypeAdapter(list[TokenEntry])


def hash_token(secret: str) -> str:
    """Hash a secret for storage."""
    return sha256(secret.encode("utf-8", "replace")).hexdigest()


def parse_tokens(
    text: str, where: str, refusal: type[CrabPathError] = ConfigurationError
) -> list[TokenEntry]:
    """Parse the JSON of tokens; ``where`` it comes from is named in the error."""
    try:
        entries = _ENTRIES.validate_json(text)
    except ValidationError as error:
        msg = f"{where} cannot be used: {explain_first_error(error)}"
        raise refusal(msg) from None
    for values in ([one.id for one in entries], [one.sha256 for one in entries]):
        if twice := next((value for value in values if values.count(value) > 1), None):
            msg = f"{where} cannot be used: two tokens have {twice}, remove one"
            raise refusal(msg)
    return entries


def read_version(file: Path) -> Version:
    """Read a value that changes when a file does."""
    state = file.stat()
    return state.st_mtime_ns, state.st_ino, state.st_size


def read_private(file: Path) -> tuple[Version, str]:
    """Read version and text of a file; refuse one that others than its owner may read.

    Raises:
        ConfigurationError: It cannot be read, or others may read it.
    """
    try:
        version = read_version(file)
        if os.name == "posix" and stat.S_IMODE(file.stat().st_mode) & 0o077:
            msg = f"others than its owner may use {file}: chmod 600 {file}"
            raise ConfigurationError(msg)
        return version, file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the tokens in {file} cannot be read: {error}"
        raise ConfigurationError(msg) from error


def list_tokens(path: str | Path) -> list[TokenEntry]:
    """List the tokens of a file, the oldest first.

    Raises:
        ConfigurationError: The file cannot be used.
    """
    file = Path(path).expanduser()
    return parse_tokens(read_private(file)[1], str(file))


def create_token(
    path: str | Path,
    namespaces: list[str],
    rights: list[str],
    expires: datetime | str | None = None,
    *,
    name: str = "",
    user: str | None = None,
    requests_per_minute: int | None = None,
    feedbacks_per_hour: int | None = None,
) -> NewToken:
    """Add a new token to a file, which is created with mode 0600 where there is none.

    Args:
        path: The file.
        namespaces: Namespaces that it grants: first the one of requests that name none. ``*``
            stands for any characters in the others, and alone for all namespaces.
        rights: Rights that it grants.
        expires: Time until which it is valid, in ISO 8601 with a time zone; None for ever.
        name: Its name for people.
        user: The user of all its feedback; None lets requests name one.
        requests_per_minute: Most requests a minute; None for the default of the server.
        feedbacks_per_hour: Most feedbacks, notes and undos an hour; None as above.

    Raises:
        InvalidInputError: A value cannot be used.
        ConfigurationError: The file cannot be used.
    """
    token = NewToken(secrets.token_hex(6), secrets.token_urlsafe(32))
    given = {
        "id": token.id,
        "name": name,
        "sha256": hash_token(token.secret),
        "namespaces": namespaces,
        "rights": rights,
        "expires": expires.isoformat() if isinstance(expires, datetime) else expires,
        "user": user,
        "requests_per_minute": requests_per_minute,
        "feedbacks_per_hour": feedbacks_per_hour,
    }
    (new,) = parse_tokens(json.dumps([given]), "the new token", InvalidInputError)

    def add(entries: list[TokenEntry]) -> NewToken:
        entries.append(new)
        return token

    return _change(path, add, is_new=True)


def add_token(
    path: str | Path, namespaces: list[str], rights: list[str], expires: str | None = None
) -> str:
    """Add a token as :func:`create_token`, and return its secret."""
    return create_token(path, namespaces, rights, expires).secret


def revoke_token(path: str | Path, id: str) -> TokenEntry:  # noqa: A002  as it is called
    """Delete a token from a file, and return its entry.

    Raises:
        NotFoundError: The file has no token with this id.
        ConfigurationError: The file cannot be used.
    """
    return _change(path, lambda entries: entries.pop(_find(entries, id)))


def rotate_token(path: str | Path, id: str) -> NewToken:  # noqa: A002  as it is called
    """Give a token another secret; the former one ends.

    Raises:
        NotFoundError: The file has no token with this id.
        ConfigurationError: The file cannot be used.
    """
    secret = secrets.token_urlsafe(32)

    def replace(entries: list[TokenEntry]) -> NewToken:
        place = _find(entries, id)
        entries[place] = entries[place].model_copy(update={"sha256": hash_token(secret)})
        return NewToken(id, secret)

    return _change(path, replace)


def _find(entries: list[TokenEntry], id: str) -> int:  # noqa: A002
    for place, entry in enumerate(entries):
        if entry.id == id:
            return place
    msg = f"there is no token {id!r}: crabpath token list shows the ids"
    raise NotFoundError(msg)


def _change(
    path: str | Path, change: Callable[[list[TokenEntry]], T], *, is_new: bool = False
) -> T:
    """Change the entries of a file, which is replaced as a whole."""
    file = Path(path).expanduser().resolve()
    new = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        with FileLock(f"{file}.lock", timeout=_WAIT_SECONDS, mode=0o600):
            entries = [] if is_new and not file.exists() else list_tokens(file)
            result = change(entries)
            text = _ENTRIES.dump_json(entries, indent=2, exclude_defaults=True)
            with open(new, "xb", opener=_open_private) as written:
                if file.exists() and os.name == "posix":  # root changes it for the server's user
                    os.fchown(written.fileno(), file.stat().st_uid, file.stat().st_gid)
                written.write(text + b"\n")
                written.flush()
                os.fsync(written.fileno())
            new.replace(file)
    except (OSError, TimeoutError) as error:
        new.unlink(missing_ok=True)
        msg = f"the tokens in {file} cannot be written: {error}"
        raise ConfigurationError(msg) from error
    return result


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
