"""The explorer, a static page that shows what a memory does, and the page of the REST API."""

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

_FILES = Path(__file__).parent / "explorer"
# Scripts and styles come from files of this server alone, so that markup from a document would not
# run even if it got into the page.
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


class _PageFiles(StaticFiles):
    async def get_response(self, path: str, scope: MutableMapping[str, Any]) -> Response:
        """Return a file, with the headers of the page."""
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response


async def _send_page(_request: Request) -> Response:
    return FileResponse(_FILES / "index.html", headers=_HEADERS)


def make_page_routes(api: str) -> list[BaseRoute]:
    """Make routes for the page at ``/``, ``api`` at ``/docs``, and their files, all public."""
    return [
        Route("/", _send_page),
        Route("/docs", lambda _: HTMLResponse(api, headers=_HEADERS)),
        Mount("/static", _PageFiles(directory=_FILES)),
    ]
