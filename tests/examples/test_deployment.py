"""Files of ``examples/deploy``: rendered, validated, linted, and every command started here.

Containers themselves are not started, for want of an engine. ``python
tests/examples/test_deployment.py`` renders ``kubernetes.yaml`` anew.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from langchain_core.documents import Document
from typer.main import get_command

from crabpath_retrievers import CrabPath, __version__
from crabpath_retrievers.cli import app as command_line
from crabpath_retrievers.storage import GraphStore

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
KUBERNETES = (DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")
RESOURCES = list(yaml.safe_load_all(KUBERNETES))
STARTED = ("memory", "server", "learner", "maintainer")
PAGES = {"log": "Name the release manager in the change log.", "tea": "Tea is in the kitchen."}
HEAD = """\
# The chart of examples/deploy/chart with its own values, rendered for kubectl:
#
#     kubectl create secret generic crabpath --from-file=tokens=tokens.json \\
#         --from-literal=store=postgresql://crabpath:PASSWORD@postgres/crabpath
#     kubectl apply -f examples/deploy/kubernetes.yaml
"""


def render(values: dict[str, Any] | None = None) -> str:
    """Render the chart to one file of resources, as Helm does."""
    helm = pytest.importorskip("helm_python")
    with helm.Chart.load(DEPLOY / "chart") as chart:
        found = sorted(chart.render(values=values, name="crabpath").items())
    return "---\n".join(text.strip() + "\n" for name, text in found if name.endswith(".yaml"))


def list_pods(resources: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for resource in resources:
        spec = resource["spec"]
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield spec["template"]["spec"]


CONTAINERS = {
    container["name"]: container
    for pod in list_pods(RESOURCES)
    for container in (*pod.get("initContainers", ()), *pod["containers"])
}


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def start(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process while it runs; afterwards it was stopped as orchestrators stop it."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


class Composition:
    """The services of compose.yaml as processes: as it names them, but for where servers are.

    Attributes:
        port: Port of the server.
    """

    def __init__(self, url: str, given: dict[str, str]) -> None:
        """Start nothing yet; ``given`` is the environment of the shell."""
        self.port = find_port()
        self._given = given
        self._servers = {
            "postgresql://crabpath:secret@postgres/crabpath": url,
            "localhost:8765": f"127.0.0.1:{self.port}",
        }

    def _fill(self, text: str) -> str:
        filled = re.sub(r"\$\{(\w+):\?\}", lambda match: self._given[match[1]], text)
        for written, here in self._servers.items():
            filled = filled.replace(written, here)
        return filled

    @contextmanager
    def started(self, name: str) -> Iterator[subprocess.Popen[str]]:
        """A service while it runs; afterwards it was stopped as Compose stops it."""
        program, *options = shlex.split(COMPOSE[name]["command"])
        module = {"python": [], "crabpath": ["-m", "crabpath_retrievers"]}[program]
        port = ["--port", str(self.port)] if name == "server" else []
        own = {key: self._fill(value) for key, value in COMPOSE[name]["environment"].items()}
        with start([sys.executable, *module, *options, *port], own) as process:
            yield process

    def is_healthy(self) -> bool:
        """Whether the health check of the server succeeds."""
        python, *options = shlex.split(self._fill(COMPOSE["server"]["healthcheck"]["test"]))
        assert python == "python"
        check = [sys.executable, *options]
        return subprocess.run(check, capture_output=True, timeout=30, check=False).returncode == 0


def wait_until(holds: Callable[[], Any], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.2)


@pytest.fixture
def tokens(tmp_path) -> tuple[str, str]:
    """A token of everything, made as the head of compose.yaml says; and the file of it."""
    file = tmp_path / "tokens.json"
    head = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    (made,) = re.findall(r"# +crabpath (token .*)", head)
    command = shlex.split(made.replace("tokens.json", str(file)))
    printed = subprocess.run(
        [sys.executable, "-m", "crabpath_retrievers", *command, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(printed.stdout)["secret"], file.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_services_of_compose_answer_and_learn(pgvector_url, tokens):
    """Over an empty database: made, filled, asked and taught with a token, and stopped."""
    token, file = tokens
    given = {"POSTGRES_PASSWORD": "secret", "CRABPATH_TOKENS": file}
    composition = Composition(pgvector_url, given)
    with ExitStack() as stack:
        for _ in range(2):  # a restart of all finds the memory as it is
            with composition.started("memory") as made:
                assert made.wait(timeout=120) == 0
        server = stack.enter_context(composition.started("server"))
        wait_until(lambda: composition.is_healthy() or server.poll() is not None)
        assert server.poll() is None
        learner = stack.enter_context(composition.started("learner"))
        maintainer = stack.enter_context(composition.started("maintainer"))
        address = f"http://127.0.0.1:{composition.port}/v1"
        assert httpx.get(f"{address}/session").status_code == 401
        headers = {"Authorization": f"Bearer {token}"}
        client = stack.enter_context(httpx.Client(base_url=address, headers=headers, timeout=60))
        pages = [{"id": name, "text": text} for name, text in PAGES.items()]
        client.post("/documents", json={"documents": pages}).raise_for_status()
        answer = client.post("/query", json={"text": "Who must I name?"}).raise_for_status().json()
        thumb = {"turn_id": answer["turn_id"], "outcome": "up", "used": ["log"]}
        said = client.post("/feedback", json=thumb).raise_for_status().json()
        assert said["status"] == "applied"
        store = GraphStore(pgvector_url)
        stack.callback(store.close)
        assert store.learned.count_feedback()["applied"] == 1
        assert maintainer.stdout.readline().split()[:2] == ["step", "looked"]
        for name, process in (("maintainer", maintainer), ("learner", learner), ("server", server)):
            assert process.poll() is None
            resident = psutil.Process(process.pid).memory_info().rss
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
            assert process.returncode in (0, -signal.SIGTERM)
            resources = CONTAINERS[name]["resources"]
            asked, most = (int(resources[which]["memory"][:-2]) for which in ("requests", "limits"))
            assert resources["limits"]["memory"].endswith("Gi")
            assert resident < asked * 2**20  # an empty memory needs what is requested
            assert asked * 2 <= most * 1024


def test_every_service_is_one_that_was_tried():
    """Those with a command are started above; the other is a server of others."""
    own = {name for name, service in COMPOSE.items() if "command" in service}
    assert own == set(STARTED)
    assert set(COMPOSE) - own == {"postgres"}
    assert COMPOSE["postgres"]["image"].startswith("pgvector/pgvector:")


def test_kubernetes_is_the_rendered_chart():
    assert render() == KUBERNETES.removeprefix(HEAD)
    assert KUBERNETES.startswith(HEAD)


def test_the_files_name_this_release():
    chart = yaml.safe_load((DEPLOY / "chart" / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == __version__
    images = {CONTAINERS[name]["image"] for name in STARTED}
    assert {*images, *(COMPOSE[name]["image"] for name in STARTED)} == {f"crabpath:{__version__}"}


EVERYTHING = {
    "embeddings": "openai:text-embedding-3-small",
    "envSecret": "api",
    "networkPolicy": {
        "from": [{"podSelector": {"matchLabels": {"app": "gateway"}}}],
        "postgres": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
    },
}


@pytest.mark.parametrize("values", [{}, EVERYTHING, {"networkPolicy": {"enabled": False}}])
def test_the_chart_makes_what_kubernetes_knows(values):
    """Every key and value, by the schema of an older and of the newest release that is known."""
    schema = pytest.importorskip("kubernetes_validate")
    helm = pytest.importorskip("helm_python")
    report = helm.lint(DEPLOY / "chart", values, strict=True)
    assert report["errors"] == [m for m in report["messages"] if m["severity"] > 1] == []
    resources = list(yaml.safe_load_all(render(values)))
    for resource in resources:
        for release in ("1.29", schema.latest_version()):
            schema.validate(resource, release, strict=True)
    kinds = {resource["kind"] for resource in resources}
    assert ("NetworkPolicy" in kinds) == (values != {"networkPolicy": {"enabled": False}})
    (server,) = [pod for pod in list_pods(resources) if "initContainers" in pod]
    names = {one["name"] for one in server["containers"][0]["env"]}
    assert ("CRABPATH_EMBEDDINGS" in names) == (values is EVERYTHING)
    assert ("envFrom" in server["containers"][0]) == (values is EVERYTHING)


def test_kubernetes_runs_what_compose_runs():
    """The same programs with the same environment; a schedule stands for ``--every``."""
    assert CONTAINERS.keys() == set(STARTED)
    for name, container in CONTAINERS.items():
        written = shlex.split(COMPOSE[name]["command"])
        if name == "maintainer":
            written = written[: written.index("--every")]
        assert container["command"] == written
        known = {one["name"] for one in container["env"]}
        assert known == COMPOSE[name]["environment"].keys()
        program, command, *options = container["command"]
        if program == "crabpath":
            found = {
                option
                for one in get_command(command_line).commands[command].params
                for option in one.opts
            }
            assert {option for option in options if option.startswith("-")} <= found


def test_no_pod_may_more_than_it_needs():
    """Pod security of the level "restricted", and a root that cannot be written."""
    for pod in list_pods(RESOURCES):
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["readOnlyRootFilesystem"] is True
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"].keys() == {"requests", "limits"}
    for name in STARTED:
        assert COMPOSE[name]["read_only"]
        assert COMPOSE[name]["cap_drop"] == ["ALL"]
    kinds = {(resource["kind"], resource["metadata"]["name"]) for resource in RESOURCES}
    assert {("PodDisruptionBudget", "crabpath-server"), ("NetworkPolicy", "crabpath")} <= kinds
    selected = {}
    for resource in RESOURCES:
        spec = resource["spec"]
        if resource["kind"] in ("Service", "PodDisruptionBudget", "Deployment"):
            chosen = spec["selector"]
            selected[resource["kind"], resource["metadata"]["name"]] = chosen.get(
                "matchLabels", chosen
            )
    assert selected["Service", "crabpath"] == selected["Deployment", "crabpath-server"]
    assert selected["PodDisruptionBudget", "crabpath-server"] == selected["Service", "crabpath"]


def test_probes_ask_what_the_server_answers_without_a_token():
    server = CONTAINERS["server"]
    (port,) = server["ports"]
    paths = {}
    for kind in ("startup", "readiness", "liveness"):
        asked = server[f"{kind}Probe"]["httpGet"]
        assert asked["port"] == port["name"]
        paths[kind] = asked["path"]
    assert paths == {"startup": "/ready", "readiness": "/ready", "liveness": "/health"}
    described = json.loads((ROOT / "docs/reference/openapi.json").read_text(encoding="utf-8"))
    assert set(paths.values()) <= described["paths"].keys()
    assert port["containerPort"] == 8765
    assert "preStop" in server["lifecycle"]


def test_the_image_has_the_packages_and_runs_as_nobody():
    """Its instructions copy what exists, and a linter of Dockerfiles finds nothing."""
    file = DEPLOY / "Dockerfile"
    text = file.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources)
    (default,) = re.findall(r"^ARG EMBEDDER=(.*)$", text, re.MULTILINE)
    assert (ROOT / default / "pyproject.toml").is_file()
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["10001:10001"]
    (command,) = re.findall(r"^CMD (.*)$", text, re.MULTILINE)
    assert json.loads(command) == CONTAINERS["server"]["command"]
    found = subprocess.run(
        [find_program("hadolint"), str(file)], capture_output=True, text=True, check=False
    )
    assert found.stdout == ""


def find_program(name: str) -> str:
    """The path of a program of the environment; its test is skipped where it is not there."""
    place = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    return place or pytest.skip(f"{name} is not installed")


@contextmanager
def started_proxy(folder: Path, ports: list[int]) -> Iterator[tuple[str, ssl.SSLContext]]:
    """The proxy of the Caddyfile before two workers: its address, and a context that trusts it."""
    port = find_port()
    rules = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    for written, here in zip(("127.0.0.1:8765", "127.0.0.1:8766"), ports, strict=True):
        assert written in rules
        rules = rules.replace(written, f"127.0.0.1:{here}")
    # A certificate of its own in the place of a public one.
    own = (
        f"admin off\nskip_install_trust\nauto_https disable_redirects\nstorage file_system {folder}"
    )
    site = f"https://localhost:{port} {{\ntls internal\n"
    file = folder / "Caddyfile"
    file.write_text(f"{{\n{own}\n}}\n" + rules.replace("memory.example {\n", site))
    command = [find_program("caddy"), "run", "--config", str(file), "--adapter", "caddyfile"]
    root = folder / "pki" / "authorities" / "local" / "root.crt"
    with start(command, {"HOME": str(folder)}) as proxy:
        wait_until(lambda: root.exists() or proxy.poll() is not None, 30)
        yield f"https://localhost:{port}", ssl.create_default_context(cafile=str(root))


@pytest.mark.slow
def test_two_workers_behind_tls_are_restarted_one_after_the_other(pgvector_url, tokens, tmp_path):
    """As the unit of systemd starts them, behind the proxy of the Caddyfile: no request fails."""
    token, file = tokens
    private = tmp_path / "tokens.json"
    assert private.read_text(encoding="utf-8") == file
    unit = (DEPLOY / "crabpath@.service").read_text(encoding="utf-8")
    (written,) = re.findall(r"^ExecStart=/opt/crabpath/bin/crabpath (.*)$", unit, re.MULTILINE)
    ports = [find_port(), find_port()]

    def command(port: int) -> list[str]:
        own = written.replace("%i", str(port)).replace("/etc/crabpath/tokens.json", str(private))
        return [sys.executable, "-m", "crabpath_retrievers", *shlex.split(own)]

    def is_ready(port: int) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/ready", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    with CrabPath.open(pgvector_url, vectors="pgvector") as memory:
        memory.add_documents([Document(text, id=name) for name, text in PAGES.items()])
    environment, headers = {"CRABPATH_STORE": pgvector_url}, {"Authorization": f"Bearer {token}"}
    answers, done = list[int](), threading.Event()
    with started_proxy(tmp_path, ports) as (address, trust), ExitStack() as stack:
        workers = [stack.enter_context(start(command(port), environment)) for port in ports]
        wait_until(lambda: all(map(is_ready, ports)))
        time.sleep(2)  # until the proxy has asked, too
        options = {"base_url": address, "verify": trust, "headers": headers, "timeout": 30}
        with httpx.Client(**options) as client:
            body = {"text": "Who must I name?"}
            with client.stream(
                "POST", "/v1/query", json=body, headers={"Accept": "text/event-stream"}
            ) as stream:
                events = [line for line in stream.iter_lines() if line.startswith("event:")]
            assert events[0] == "event: hop"
            assert events[-1] == "event: answer"
            plain = client.get("/v1/session", headers={"Authorization": ""})
            assert plain.status_code == 401

        def ask() -> None:
            while not done.is_set():
                with httpx.Client(**options) as one:
                    for _ in range(3):
                        answers.append(one.post("/v1/query", json=body).status_code)

        with ThreadPoolExecutor(2) as pool:
            asking = [pool.submit(ask) for _ in range(2)]
            try:
                for number, port in enumerate(ports):
                    workers[number].send_signal(signal.SIGTERM)
                    workers[number].communicate(timeout=60)
                    workers[number] = stack.enter_context(start(command(port), environment))
                    wait_until(lambda port=port: is_ready(port))
                    time.sleep(2)
            finally:
                done.set()
            for one in asking:
                one.result()
    assert len(answers) > 20
    assert set(answers) == {200}


def test_the_unit_is_one_that_systemd_accepts(tmp_path):
    """With a program that is here in the place of CrabPath's."""
    unit = (DEPLOY / "crabpath@.service").read_text(encoding="utf-8")
    for line in re.findall(r"^Exec\w+=(\S+)", unit, re.MULTILINE):
        unit = unit.replace(line, "/bin/true")
    file = tmp_path / "crabpath@8765.service"
    file.write_text(unit, encoding="utf-8")
    command = [find_program("systemd-analyze"), "verify", str(file)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


if __name__ == "__main__":
    (DEPLOY / "kubernetes.yaml").write_text(HEAD + render(), encoding="utf-8")
