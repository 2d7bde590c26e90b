"""A memory behind the HTTP server, on this machine."""

import socket
import threading
from contextlib import contextmanager

import uvicorn

from crabpath_retrievers.server import create_app


@contextmanager
def serve(memory, **options):
    """URL of a server; ``options`` are those of ``create_app``."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = create_app(memory, **options)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
