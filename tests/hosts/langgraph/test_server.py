"""The LangGraph applications under ``langgraph dev``: the real server, asked over HTTP."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import minilm
import pytest
from host_answers import CORRECTION, QUESTION
from langgraph_sdk import get_sync_client
from langgraph_sdk.errors import AuthenticationError

from crabpath_retrievers import CrabPath, CrabPathRetriever
from langgraph_crabpath import CrabPathStore

pytestmark = pytest.mark.slow

pytest.importorskip("langgraph_api", reason="langgraph-cli[inmem] needs Python 3.11")

GRAPHS = Path(__file__).parents[3] / "graphs"


OFFLINE = {
    "LANGSMITH_TRACING": "false",
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
}


@contextmanager
def serve(tmp_path, chat_server, passages, **config) -> Iterator[str]:
    """The address of a server over copies of the applications and a memory of the passages."""
    memory, log, folder = tmp_path / "memory", tmp_path / "server.log", tmp_path / "graphs"
    CrabPathRetriever.from_documents(passages, minilm.shared(), path=memory).memory.close()
    shutil.copytree(GRAPHS, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    applications = json.loads((folder / "langgraph.json").read_text(encoding="utf-8"))
    (folder / "langgraph.json").write_text(json.dumps(applications | config), encoding="utf-8")
    environment = {
        **os.environ,
        **OFFLINE,
        "CRABPATH_STORE": str(memory),
        "CRABPATH_USER_TOKENS": "bob=b, ann=a",
        "OPENAI_BASE_URL": chat_server.url,
        "OPENAI_API_KEY": "x",
    }
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ["--no-browser", "--no-reload", "--port", str(port)]
    command = [sys.executable, "-m", "langgraph_cli", "dev", *options]
    with (
        log.open("wb") as out,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out) as server,
    ):
        try:
            address, until = f"http://127.0.0.1:{port}", time.monotonic() + 120
            while not answers(address):
                assert server.poll() is None, log.read_text(encoding="utf-8")
                assert time.monotonic() < until, log.read_text(encoding="utf-8")
                time.sleep(0.2)
            yield address
        finally:
            server.terminate()


def answers(address):
    """Whether the server is up."""
    try:
        return httpx.get(f"{address}/ok").is_success
    except httpx.TransportError:
        return False


def test_every_application_runs_under_the_development_server(tmp_path, passages, chat_server):
    """Each is asked over HTTP; the server notices what blocks its event loop, and they do not."""
    chat_server.says = lambda body: (
        {"outcome": 1, "used": ["h1"]} if "response_format" in body else "Yes."
    )
    with (
        serve(tmp_path, chat_server, passages) as address,
        get_sync_client(url=address, api_key=None) as client,
    ):

        def run(graph, thread=None, **given):
            return client.runs.wait(thread, graph, raise_error=False, **given)

        rag = run("rag", input={"question": QUESTION}, context={"user_id": "ann"})
        assert (rag["answer"], rag["feedback"]["status"]) == ("Yes.", "applied")
        assert rag["documents"][0]["metadata"]["crabpath"]["namespace"] == "ann"

        thread = client.threads.create()["thread_id"]
        asked = {"question": QUESTION}
        bob = {"context": {"user_id": "bob"}}
        stream = client.runs.stream(
            thread, "human_feedback", input=asked, stream_mode="custom", **bob
        )
        events = [part.data["type"] for part in stream if part.event == "custom"]
        assert (events[0], events[-1]) == ("crabpath_hop", "crabpath_retrieved")
        waiting = client.threads.get(thread)
        assert waiting["status"] == "interrupted"
        resumed = run(
            "human_feedback", thread, command={"resume": {"correction": CORRECTION}}, **bob
        )
        assert resumed["feedback"]["status"] == "applied"

        # Without authentication and without context the server says that user "" asks.
        messages = {"messages": [{"role": "user", "content": QUESTION}]}
        for graph, kept, given in (
            ("rag", "documents", asked),
            ("human_feedback", "documents", asked),
            ("agent", "crabpath_documents", messages),
        ):
            nobody = run(graph, client.threads.create()["thread_id"], input=given)
            assert nobody[kept][0]["metadata"]["crabpath"]["namespace"] == "default"

        assert run("maintenance", input={"dry_run": True})["report"]["dry_run"]
        report = run("learn", input={})
        assert set(report["memory"]["namespaces"]) == {"ann", "bob", "default"}
        assert report["memory"]["notes"] == 1

        for name in ("rag", "agent", "human_feedback", "learn", "maintenance"):
            (assistant,) = client.assistants.search(graph_id=name)
            schemas = client.assistants.get_schemas(assistant["assistant_id"])
            assert schemas["input_schema"]["properties"]


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def test_an_authenticated_user_cannot_take_another_name(tmp_path, passages, chat_server):
    claimed = {"user_id": "bob", "langgraph_auth_user": {"identity": "bob"}}
    with (
        serve(tmp_path, chat_server, passages, auth={"path": "./auth.py:auth"}) as address,
        get_sync_client(url=address, api_key=None, headers=bearer("a")) as client,
        get_sync_client(url=address, api_key=None, headers=bearer("c")) as stranger,
    ):
        with pytest.raises(AuthenticationError):
            stranger.assistants.search()
        result = client.runs.wait(
            None, "rag", input={"question": QUESTION}, config={"configurable": claimed}
        )
    assert result["documents"][0]["metadata"]["crabpath"]["namespace"] == "ann"


def test_a_server_keeps_items_in_a_memory(tmp_path, passages, chat_server):
    """What a client puts by HTTP is found by meaning, and outlives the server."""
    ann, bob = ("memories", "ann"), ("memories", "bob")
    store = {"path": "./store.py:store"}
    with (
        serve(tmp_path, chat_server, passages, store=store) as address,
        get_sync_client(url=address, api_key=None) as client,
    ):
        client.store.put_item(ann, key="tea", value={"content": "Ann drinks green tea"})
        client.store.put_item(ann, key="sport", value={"content": "Ann runs on Sundays"})
        client.store.put_item(bob, key="tea", value={"content": "Bob drinks green tea"})
        found = client.store.search_items(ann, query="Which drink?")["items"]
        assert [item["key"] for item in found] == ["tea", "sport"]
        assert client.store.list_namespaces(["memories"])["namespaces"] == [[*ann], [*bob]]
        client.store.delete_item(ann, key="tea")
        assert client.store.get_item(bob, key="tea")["value"]["content"] == "Bob drinks green tea"
    with CrabPath.open(tmp_path / "graphs" / "items", create=False) as memory:
        kept = CrabPathStore(memory)
        assert [item.key for item in kept.search(ann)] == ["sport"]
        turn = found[0]["turn_id"]
        (receipt,) = kept.record(turn, "up")
        assert receipt.status == "applied"
