"""Commands that serve: ``serve``, ``explore``, ``mcp`` and ``token``."""

import logging
import socket
import threading
import webbrowser
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column
from typing_extensions import Unpack

from crabpath_retrievers.cli.commands import (
    DEFAULT_STORE,
    DEMO_STORE,
    Commands,
    Namespace,
    Output,
    QueryFlags,
    Store,
    add_group,
    add_programs,
    errors,
    make_table,
    parse_time,
)
from crabpath_retrievers.core.extras import require_extra
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE
from crabpath_retrievers.core.query import is_url
from crabpath_retrievers.core.text import format_time
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import InvalidInputError, NotFoundError, ServiceError
from crabpath_server.logs import LogFormat, LogLevel, start_logging

if TYPE_CHECKING:
    from crabpath_server import Access, Issuer

_log = logging.getLogger(__name__)
_PORT = 8765

OptionalStore = Annotated[
    str | None,
    typer.Option(
        "--store",
        "-s",
        envvar="CRABPATH_STORE",
        help=f"Directory or database URL; without it {DEFAULT_STORE}, or else that of the demo.",
    ),
]
Host = Annotated[str, typer.Option(help="Address to listen on; any but this machine needs tokens.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")]
Tokens = Annotated[
    Path | None,
    typer.Option(help="File of tokens of crabpath token create; or CRABPATH_TOKENS with its JSON."),
]


def run_serve(  # noqa: PLR0913, PLR0917  each is an option of the command
    store: Store = DEFAULT_STORE,
    host: Host = "127.0.0.1",
    port: Port = _PORT,
    tokens: Tokens = None,
    oauth_issuer: Annotated[
        str | None, typer.Option(help="Address of an authorisation server whose tokens count, too.")
    ] = None,
    oauth_audience: Annotated[
        str | None, typer.Option(help="Address of this server's /mcp, as clients know it.")
    ] = None,
    oauth_namespace: Annotated[
        str, typer.Option(help="Claim of its tokens that names the namespace.")
    ] = "sub",
    log_level: Annotated[
        LogLevel, typer.Option(help="The least important lines of the log.")
    ] = LogLevel.info,
    log_format: Annotated[
        LogFormat, typer.Option(help="The form of its lines; json and logfmt are for programs.")
    ] = LogFormat.text,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log each request, not only those that fail.")
    ] = False,
    **opening: Unpack[QueryFlags],
) -> None:
    """Serve a memory over HTTP, until SIGTERM or Ctrl-C."""
    if (oauth_issuer is None) != (oauth_audience is None):
        msg = "--oauth-issuer and --oauth-audience belong together: give both"
        raise InvalidInputError(msg)
    require_extra("server", "the server")
    issuer = None
    if oauth_issuer is not None and oauth_audience is not None:
        from crabpath_server.oauth import Issuer

        issuer = Issuer(oauth_issuer, oauth_audience, namespace=oauth_namespace)
    start_logging(log_format, log_level, has_requests=access_log)
    _serve(store, host, port, tokens, opening, issuer=issuer, log_format=log_format)


def run_explore(
    store: OptionalStore = None,
    host: Host = "127.0.0.1",
    port: Port = 0,
    tokens: Tokens = None,
    **opening: Unpack[QueryFlags],
) -> None:
    """Serve a memory, and open its page in the browser."""
    place = _choose_memory() if store is None else store
    _serve(place, host, port, tokens, opening, open_page=webbrowser.open)


def _choose_memory() -> str:
    """Choose the memory in this directory, or else the one that the demo left."""
    for place in (DEFAULT_STORE, DEMO_STORE):
        if (Path(place) / "graph.sqlite").is_file():
            return place
    msg = (
        "there is no memory here: make one with crabpath demo or crabpath add FILES, "
        "or name one: crabpath explore STORE"
    )
    raise NotFoundError(msg)


def run_mcp(
    store: Store = DEFAULT_STORE,
    namespace: Namespace = DEFAULT_NAMESPACE,
    k: Annotated[int, typer.Option("-k", min=1, help="Documents that a search returns.")] = 8,
    **opening: Unpack[QueryFlags],
) -> None:
    """Serve a memory to a program such as Claude Desktop: MCP over standard input and output."""
    require_extra("server", "the server")
    from crabpath_server.mcp import create_local_server
    from crabpath_server.probe import Probe

    with CrabPath.open(store, create=False, **opening) as memory:
        probe = Probe(memory)
        probe.warm_up()
        try:
            create_local_server(memory, namespace, k=k).run("stdio")
        finally:
            probe.finish()


def _serve(
    store: str,
    host: str,
    port: int,
    tokens: Path | None,
    opening: QueryFlags,
    open_page: Callable[[str], object] | None = None,
    issuer: "Issuer | None" = None,
    log_format: LogFormat = LogFormat.text,
) -> None:
    require_extra("server", "the server")
    from crabpath_server.app import create_app, run_app

    access = _find_access(tokens, host, issuer)
    with (
        CrabPath.open(store, create=False, **opening) as memory,
        _listen(host, port) as listening,
    ):
        name = f"[{host}]" if ":" in host else host
        url = f"http://{name}:{listening.getsockname()[1]}"
        who = "with a token" if access.needs_token else "for programs of this machine, no token"
        place = memory.store.name if is_url(store) else store  # without password
        if log_format is LogFormat.text:
            errors.print(f"Serving {escape(place)} at {url} ({who}); Ctrl-C ends it", style="dim")
        else:  # each line of standard error is one of the log
            _log.info("serving %s at %s", place, url)
        if open_page is not None:
            threading.Thread(target=open_page, args=(url,), daemon=True).start()
        run_app(create_app(memory, access=access), listening)


def _find_access(tokens: Path | None, host: str, issuer: "Issuer | None") -> "Access":
    """Read the tokens of a server; without any, it may listen on this machine only."""
    from crabpath_server.access import Access, is_loopback

    access = Access.from_environment() if tokens is None else Access.from_file(tokens)
    if issuer is not None:
        return Access.from_issuer(issuer, access)
    if access is not None:
        return access
    if not is_loopback(host):
        msg = (
            f"without tokens only this machine is served, not {host}: make some with "
            "crabpath token create, and give --tokens tokens.json"
        )
        raise InvalidInputError(msg)
    return Access.open_on_loopback()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        msg = f"cannot listen on {host}:{port} ({error.strerror or error}): give another --port"
        raise ServiceError(msg) from error


TokenFile = Annotated[Path, typer.Option(help="File of tokens.")]
TokenId = Annotated[str, typer.Argument(help="Id of the token.", metavar="ID")]


def create_access_token(
    name: Annotated[str, typer.Argument(help="Name of the token, for people.", metavar="NAME")],
    file: Annotated[Path, typer.Option(help="File of tokens; it is made where there is none.")],
    namespace: Annotated[
        list[str],
        typer.Option(
            "--namespace",
            "-n",
            help="Namespaces, the default one first; * stands for any characters.",
        ),
    ],
    rights: Annotated[
        str, typer.Option(help="Some of read, feedback, teach, write and admin, with commas.")
    ] = "read,feedback",
    expires: Annotated[
        str | None, typer.Option(help="ISO 8601 time until which it is valid.")
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="User of all its feedback; else requests name one.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Requests a minute; else 6,000.")
    ] = None,
    feedbacks: Annotated[
        int | None, typer.Option(min=0, help="Feedbacks, notes and undos an hour; else 3,600.")
    ] = None,
) -> Output:
    """Add a token to a file, and print it once: only its hash is kept."""
    from crabpath_server.tokens import create_token

    found = parse_time("--expires", expires)  # in the zone of this machine unless it has one
    until = None if found is None else found.astimezone()
    if until is not None and until <= datetime.now(tz=timezone.utc):
        msg = f"--expires {expires} is in the past: give a later time, or none"
        raise InvalidInputError(msg)
    token = create_token(
        file,
        namespace,
        [right.strip() for right in rights.split(",")],
        until,
        name=name,
        user=user,
        requests_per_minute=requests,
        feedbacks_per_hour=feedbacks,
    )
    return Output(token._asdict(), [escape(token.secret)])


def list_access_tokens(file: TokenFile) -> Output:
    """List the tokens of a file."""
    from crabpath_server.tokens import list_tokens

    entries = list_tokens(file)
    named = ("name", "rights", "namespaces", "user", "expires", "limits")
    columns = (Column("id", no_wrap=True), *named)
    rows = [
        (
            entry.id,
            entry.name,
            ", ".join(entry.rights),
            ", ".join(entry.namespaces),
            entry.user or "",
            "" if entry.expires is None else format_time(entry.expires.timestamp()),
            ", ".join(
                f"{number:,}/{unit}"
                for number, unit in (
                    (entry.requests_per_minute, "min"),
                    (entry.feedbacks_per_hour, "h"),
                )
                if number is not None
            ),
        )
        for entry in entries
    ]
    data = [entry.model_dump(mode="json", exclude={"sha256"}) for entry in entries]
    return Output(data, [make_table(columns, rows)])


def revoke_access_token(token: TokenId, file: TokenFile) -> Output:
    """Delete a token from a file; servers that read it refuse the token within a second."""
    from crabpath_server.tokens import revoke_token

    entry = revoke_token(file, token)
    done = f"{token} ({entry.name}) is revoked; crabpath undo --token {token} undoes its feedback"
    return Output(entry.model_dump(mode="json", exclude={"sha256"}), [escape(done)])


def rotate_access_token(token: TokenId, file: TokenFile) -> Output:
    """Replace the secret of a token, and print it once; the former one ends."""
    from crabpath_server.tokens import rotate_token

    made = rotate_token(file, token)
    return Output(made._asdict(), [escape(made.secret)])


def register(app: typer.Typer) -> None:
    """Add the commands."""
    tokens: Commands = {
        "create": create_access_token,
        "list": list_access_tokens,
        "revoke": revoke_access_token,
        "rotate": rotate_access_token,
    }
    add_group(app, "Operate", "token", "Tokens for those who use a server.", tokens)
    add_programs(app, "Operate", {"serve": run_serve, "explore": run_explore, "mcp": run_mcp})
