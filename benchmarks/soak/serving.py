"""``crabpath serve`` as a process that is asked, stopped and started again."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

_PATIENCE = 120.0  # seconds that it may take to become ready, and to end
_PROBE_SECONDS = 0.1
_PROGRAM = (sys.executable, "-m", "crabpath_retrievers", "serve", "--host", "127.0.0.1")


class ServerProcess:
    """A server at a port of its own.

    Attributes:
        address: Its URL.
        log: File of its log.
    """

    def __init__(self, store: str, tokens: Path, embeddings: str, *options: str) -> None:
        """Choose a port, and start nothing yet; the log is kept beside the tokens."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.log = tokens.with_name(f"server-{self.port}.log")
        given = ("--store", store, "--tokens", str(tokens), "--embeddings", embeddings)
        self._command = (*_PROGRAM, "--port", str(self.port), *given, *options)

    def start(self) -> None:
        """Start it, and wait until it is ready.

        Raises:
            RuntimeError: It ended, or took too long.
        """
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        end = time.monotonic() + _PATIENCE
        while not self.is_ready():
            if self.has_ended or time.monotonic() > end:
                msg = f"a server did not become ready: {self.log.read_text()[-2000:]}"
                raise RuntimeError(msg)
            time.sleep(_PROBE_SECONDS)

    def is_ready(self) -> bool:
        """What ``/ready`` answers."""
        try:
            return httpx.get(f"{self.address}/ready", timeout=10).is_success
        except httpx.HTTPError:
            return False

    @property
    def has_ended(self) -> bool:
        """Whether the process is dead."""
        return self._process.poll() is not None

    def stop(self) -> int:
        """End it as a deployment does; return its exit code."""
        self._process.terminate()
        return self._process.wait(_PATIENCE)

    def kill(self) -> None:
        """End it at once, if it was started."""
        if hasattr(self, "_process"):
            self._process.kill()
            self._process.wait()
