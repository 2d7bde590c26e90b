"""A network between a store and its server that tests can cut."""

import socket
import threading
import time
from contextlib import suppress


class Proxy:
    """A TCP relay in front of a server that can be cut and mended, or say nothing for a while.

    Attributes:
        silent: While it is set connections are accepted and nothing is passed on.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        """Listen on a free port and relay to ``target``."""
        self._target, self._open = target, []
        self.silent = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            upstream = socket.create_connection(self._target)
            self._open += [client, upstream]
            for pipe in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._pump, args=pipe, daemon=True).start()

    def cut(self) -> None:
        """Stop listening and break every connection."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # ends the reads that wait on it
            connection.close()
        self._open.clear()

    def mend(self) -> None:
        """Listen on the same port again."""
        self._server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                while self.silent.is_set():
                    time.sleep(0.01)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return
