"""A real server in this process."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

RIGHTS = ("read", "feedback", "teach", "write", "admin")
"""All that a token may allow."""


@contextmanager
def running(app) -> Iterator[str]:
    """A real server in a thread; yields its address."""
    config = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
