"""The HTTP server: ``crabpath serve``, or :func:`create_app` under a server of your own."""

from crabpath_retrievers.errors import MissingExtraError

try:
    import starlette  # noqa: F401  only to say which extra is missing
    import uvicorn  # noqa: F401
    from mcp.server import MCPServer  # noqa: F401  new in release 2
except ImportError as error:
    needed = str(error.name).partition(".")[0]
    msg = f"the server needs {needed}: pip install --upgrade 'crabpath-retrievers[server]'"
    raise MissingExtraError(msg) from error

from crabpath_retrievers.server.access import Access, Grant, add_token
from crabpath_retrievers.server.app import Limits, create_app

__all__ = ["Access", "Grant", "Limits", "add_token", "create_app"]
