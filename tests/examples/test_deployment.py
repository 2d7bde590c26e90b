"""What compose.yaml and kubernetes.yaml start, started here: every command with its environment.

Containers themselves are not started, for want of an engine.
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from typer.main import get_command
from werkzeug import Response

from benchmarks.soak.chroma_process import ChromaServer
from crabpath_retrievers.cli import app as command_line
from crabpath_retrievers.storage import GraphStore

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
COMPOSE = yaml.safe_load((EXAMPLES / "compose.yaml").read_text(encoding="utf-8"))["services"]
KUBERNETES = list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text(encoding="utf-8")))
STARTED = ("api", "learner", "maintainer")
USED = "Change log"


class Composition:
    """The services of compose.yaml as processes: as it names them, but for where servers are.

    Attributes:
        port: Port of the service.
        url: URL of its database.
    """

    def __init__(self, servers: dict[str, str], given: dict[str, str]) -> None:
        """Start nothing yet.

        Args:
            servers: What to write for each address in the file.
            given: Environment of the shell that starts it.
        """
        self.url = servers["postgresql+psycopg://crabpath:secret@postgres/crabpath"]
        self._given = given
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self._servers = {**servers, "localhost:8000": f"127.0.0.1:{self.port}"}

    def environment(self, name: str) -> dict[str, str]:
        """The environment of a service, after Compose's rules for variables."""
        own = {key: self._fill(value) for key, value in COMPOSE[name]["environment"].items()}
        return {**os.environ, "PYTHONPATH": str(ROOT), **own}

    def _fill(self, text: str) -> str:
        def put(match: re.Match[str]) -> str:
            name, default = match["name"], match["default"]
            if default is None:
                return self._given[name]  # marked as required with ":?"
            return self._given.get(name) or default

        filled = re.sub(r"\$\{(?P<name>\w+):(?:\?|-(?P<default>[^}]*))\}", put, text)
        assert "$" not in filled
        for written, here in self._servers.items():
            filled = filled.replace(written, here)
        return filled

    def command(self, name: str) -> list[str]:
        """The command of a service."""
        program, *options = shlex.split(COMPOSE[name]["command"])
        module = {"uvicorn": "uvicorn", "crabpath": "crabpath_retrievers"}[program]
        port = ["--port", str(self.port)] if program == "uvicorn" else []
        return [sys.executable, "-m", module, *options, *port]

    @contextmanager
    def started(self, name: str) -> Iterator[subprocess.Popen[str]]:
        """A service while it runs; afterwards it was stopped as Compose stops it."""
        process = subprocess.Popen(
            self.command(name),
            cwd=ROOT,
            env=self.environment(name),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=30)

    def is_healthy(self, name: str) -> bool:
        """Whether the health check of a service succeeds."""
        python, *options = shlex.split(self._fill(COMPOSE[name]["healthcheck"]["test"]))
        assert python == "python"
        check = [sys.executable, *options]
        return subprocess.run(check, capture_output=True, timeout=30, check=False).returncode == 0


def wait_until(holds: Callable[[], Any], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.2)


@pytest.fixture
def chroma(tmp_path) -> Iterator[ChromaServer]:
    server = ChromaServer(tmp_path / "vectors")
    yield server
    server.disconnect()
    server.stop()


@pytest.fixture(params=["", "http://chroma:8000"])
def composition(request, httpserver, chat_server, embeddings) -> Composition:
    """Over a PostgreSQL, a Chroma server or pgvector, and an embedding server on this machine."""

    def embed(request):
        vectors = embeddings.embed_documents(json.loads(request.get_data())["input"])
        data = [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]
        body = {"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1}}
        return Response(json.dumps(body), content_type="application/json")

    httpserver.expect_request("/v1/embeddings", method="POST").respond_with_handler(embed)
    url = request.getfixturevalue("postgres_url" if request.param else "pgvector_url")
    servers = {"postgresql+psycopg://crabpath:secret@postgres/crabpath": url}
    if request.param:
        port = request.getfixturevalue("chroma").port
        servers["http://chroma:8000"] = f"http://127.0.0.1:{port}"
    given = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": chat_server.url}
    more = {"POSTGRES_PASSWORD": "secret", "CRABPATH_VECTORS": request.param}
    return Composition(servers, {**given, **more})


@pytest.mark.slow
def test_the_services_of_compose_answer_and_learn(composition):
    """Two workers answer, the learner learns of it, the maintainer runs, and all of them stop."""
    with ExitStack() as stack:
        api = stack.enter_context(composition.started("api"))
        wait_until(lambda: composition.is_healthy("api") or api.poll() is not None)
        assert api.poll() is None
        workers = psutil.Process(api.pid).children()
        assert sum("spawn" in " ".join(child.cmdline()) for child in workers) >= 2
        learner = stack.enter_context(composition.started("learner"))
        maintainer = stack.enter_context(composition.started("maintainer"))
        client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{composition.port}"))
        asked = {"question": "Who must I name?", "user": "ann"}
        for _ in range(6):  # connections are shared out among the workers
            with httpx.Client(base_url=client.base_url, timeout=30) as one:
                answer = one.get("/ask", params=asked).raise_for_status().json()
                thumb = {"turn_id": answer["turn_id"], "up": True, "used": [USED], "user": "ann"}
                said = one.post("/thumb", json=thumb).raise_for_status().json()
            assert said["status"] == "waiting"
        store = stack.enter_context(_opened(composition.url))
        wait_until(lambda: store.learned.count_feedback()["waiting"] == 0, 60)
        assert store.learned.count_feedback()["applied"] == 6
        assert store.walk.get_clock("ann").turn == 6
        again = client.get("/ask", params=asked, timeout=30).json()
        assert again["pages"][0]["id"] == USED
        assert maintainer.poll() is None
        first = maintainer.stdout.readline()
        assert first.split()[:2] == ["step", "looked"]
        for process in (maintainer, learner, api):
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=30)
            if process is learner:
                assert "6 applied, 0 refused, 0 waiting" in said
            assert process.returncode in (0, -signal.SIGTERM)


@contextmanager
def _opened(url: str) -> Iterator[GraphStore]:
    store = GraphStore(url)
    yield store
    store.close()


def test_every_service_is_one_that_was_tried():
    """Those with a command are started above; the others are servers of others."""
    own = {name for name, service in COMPOSE.items() if "command" in service}
    assert own == set(STARTED)
    assert {name: COMPOSE[name]["image"].split(":")[0] for name in set(COMPOSE) - own} == {
        "postgres": "pgvector/pgvector",
        "chroma": "chromadb/chroma",
    }


def _containers() -> Iterator[dict[str, Any]]:
    for resource in KUBERNETES:
        spec = resource.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        yield from spec.get("template", {}).get("spec", {}).get("containers", ())


def test_kubernetes_runs_what_compose_runs():
    """The same programs with the same environment; replicas stand for workers."""
    containers = {container["name"]: container for container in _containers()}
    assert containers.keys() == set(STARTED)
    (shared,) = [r["data"] for r in KUBERNETES if r["kind"] == "ConfigMap"]
    for name, container in containers.items():
        parts = [*container["command"]]
        written = [part for part in shlex.split(COMPOSE[name]["command"]) if part != "2"]
        written = [part for part in written if part not in ("--workers", "--every", "1d")]
        assert parts == written
        known = {one["name"] for one in container["env"]}
        known |= shared.keys() if "envFrom" in container else set()
        asked = COMPOSE[name]["environment"].keys() - {"CRABPATH_VECTORS"}
        assert asked <= known
    replicas = [r["spec"]["replicas"] for r in KUBERNETES if r["kind"] == "Deployment"]
    assert replicas == [2, 1]


def test_commands_of_kubernetes_exist():
    for container in _containers():
        program, name, *options = container["command"]
        if program == "crabpath":
            command = get_command(command_line).commands[name]
            known = {option for one in command.params for option in one.opts}
            assert {option for option in options if option.startswith("-")} <= known


def test_probes_ask_what_the_service_answers():
    """The paths are routes of the example; what tells that it lives asks no store."""
    (api,) = [container for container in _containers() if container["name"] == "api"]
    probes = {kind: api[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")}
    assert {probe["port"] for probe in probes.values()} == {api["ports"][0]["containerPort"]}
    source = (EXAMPLES / "09_fastapi_thumb.py").read_text(encoding="utf-8")
    for kind in ("startup", "readiness"):
        assert f'@app.get("{probes[kind]["path"]}")' in source
    assert probes["liveness"]["path"] == "/openapi.json"  # FastAPI's own, which asks no store
