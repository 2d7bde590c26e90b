"""A real Chroma server for tests and checks."""

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

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

    def client(self) -> ClientAPI:
        """A new client, which :meth:`disconnect` closes."""
        opened = chromadb.HttpClient(host="127.0.0.1", port=self.port)
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
        for _ in range(300):
            try:
                self.client()
            except ValueError:
                time.sleep(0.1)
            else:
                return
        msg = "the Chroma server did not start"
        raise TimeoutError(msg)
