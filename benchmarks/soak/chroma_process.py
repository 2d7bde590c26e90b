"""A real Chroma server for tests and checks."""

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import chromadb
from chromadb.api import ClientAPI


class ChromaServer:
    """A Chroma server of its own process on a free port."""

    def __init__(self, path: Path) -> None:
        """Start it and wait until it answers."""
        self._clients: list[Any] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        program = Path(sys.executable).with_name("chroma")
        options = ["--path", str(path), "--host", "127.0.0.1", "--port", str(self.port)]
        self._process = subprocess.Popen(
            [program, "run", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait()

    def client(self, port: int | None = None) -> ClientAPI:
        """A new client, through a proxy at ``port`` if given, which :meth:`disconnect` closes."""
        opened = chromadb.HttpClient(host="127.0.0.1", port=port or self.port)
        self._clients.append(opened)
        return opened

    def disconnect(self) -> None:
        """Close the sockets of all clients."""
        for opened in self._clients:
            opened._server._session.close()  # chromadb 1.5 leaves them open in its own close

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait(timeout=30)

    def _wait(self) -> None:
        """Wait until it serves its database: a client that comes earlier leaves a socket open."""
        place = f"http://127.0.0.1:{self.port}/api/v2/tenants/default_tenant/databases"
        for _ in range(300):
            try:
                urlopen(f"{place}/default_database", timeout=10).close()  # noqa: S310  http
            except OSError as error:
                if isinstance(error, HTTPError):
                    error.close()
                time.sleep(0.1)
            else:
                return
        msg = "the Chroma server did not start"
        raise TimeoutError(msg)
