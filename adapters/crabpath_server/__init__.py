"""The HTTP server: ``crabpath serve``, or :func:`create_app` under a server of your own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from crabpath_retrievers import __version__ as _base_version
from crabpath_retrievers.core.extras import require_same_version
from crabpath_retrievers.errors import MissingExtraError

if TYPE_CHECKING:
    from crabpath_server.access import Access, Grant
    from crabpath_server.app import Limits, create_app
    from crabpath_server.logs import start_logging
    from crabpath_server.oauth import Issuer
    from crabpath_server.tokens import add_token, create_token, list_tokens

__version__ = "0.1.0"

__all__ = [
    "Access",
    "Grant",
    "Issuer",
    "Limits",
    "add_token",
    "create_app",
    "create_token",
    "list_tokens",
    "start_logging",
]

require_same_version(__name__, __version__, _base_version)

# Imported at first use: the client needs none of what the server needs.
_LAZY = {
    "Access": "access",
    "Grant": "access",
    "Issuer": "oauth",
    "add_token": "tokens",
    "create_token": "tokens",
    "list_tokens": "tokens",
    "Limits": "app",
    "create_app": "app",
    "start_logging": "logs",
}


def explain_missing(error: ImportError) -> MissingExtraError:
    """Name the extra that brings what a module of the server failed to import."""
    needed = str(error.name).partition(".")[0]
    msg = f"the server needs {needed}: pip install --upgrade 'crabpath-retrievers[server]'"
    return MissingExtraError(msg)


def _require_server() -> None:
    """Say which extra is missing, before a module of the server fails without it."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
        from mcp.server import MCPServer  # noqa: F401  new in release 2
    except ImportError as error:
        raise explain_missing(error) from error


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    _require_server()
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
