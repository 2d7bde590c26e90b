"""The commands that move a memory, as a user runs them."""

import json

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from learned_memory import EMBEDDINGS, answered, corpus, teach
from typer.testing import CliRunner

from benchmarks.soak.chroma_process import ChromaServer
from crabpath_retrievers import CrabPath
from crabpath_retrievers.cli import app
from crabpath_retrievers.errors import InvalidInputError, StoreUnavailableError


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """Runs a command beside an embedded memory that has learned, in ``here``."""
    with CrabPath.open(tmp_path / "here", embeddings=EMBEDDINGS) as memory:
        memory.add_documents(corpus(), split=False)
        teach(memory)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def read(result):
    """The JSON that a command printed."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def asked(place, **options):
    """What a memory answers."""
    with CrabPath.open(place, embeddings=EMBEDDINGS, **options) as memory:
        return answered(memory)


@pytest.mark.slow
def test_export_and_import(cli):
    """A whole memory, then what a namespace has learned; for programs and for people."""
    with CrabPath.open("here", embeddings=EMBEDDINGS) as _serving:
        assert read(cli("transfer", "export", "here", "all", "--json"))["rows"]["nodes"] == 41
        assert "MB" in cli("transfer", "export", "here", "mind", "-n", "default").stdout
    assert read(cli("transfer", "import", "all", "there", "--json"))["namespace"] is None
    assert "was there before" in cli("transfer", "import", "all", "there").stdout
    assert asked("there") == asked("here")
    refused = cli("transfer", "import", "mind", "there")
    assert refused.exit_code == 2
    assert "replace it, or import it under another name" in " ".join(refused.stderr.split())
    guest = read(cli("transfer", "import", "mind", "there", "--as", "guest", "--json"))
    assert guest["namespace"] == "guest"
    assert cli("transfer", "import", "all", "there", "-n", "default", "--replace").exit_code == 0
    with CrabPath.open("few", embeddings=EMBEDDINGS) as few:
        few.add_documents(corpus(10), split=False)
    told = cli("transfer", "import", "mind", "few")
    assert told.exit_code == 0
    assert "documents that this memory does not hold" in " ".join(told.stderr.split())
    assert cli("transfer", "import", "mind", "nowhere").exit_code == 2
    assert cli("transfer", "export", "nowhere", "x").exit_code == 2


@pytest.mark.slow
def test_from_an_embedded_chroma_to_a_server(cli, tmp_path):
    """One command each: beside the graph store, then with it to another place."""
    before = asked("here")
    server = ChromaServer(tmp_path / "server")
    try:
        url = f"http://127.0.0.1:{server.port}"
        moved = read(cli("transfer", "migrate", "here", "here", "--vectors", url, "--json"))
        assert moved["rows"] == {"vectors": 40}
        assert asked("here", vectors=url) == before
        there = ("there", "--vectors", f"{url}/another", "--json")
        assert read(cli("transfer", "migrate", "here", *there))["rows"]["nodes"] == 41
        assert asked("there", vectors=f"{url}/another") == before
        taken = cli("transfer", "migrate", "here", "third", "--vectors", url)
        assert taken.exit_code == 2
        assert "holds 40 vectors already" in " ".join(taken.stderr.split())
    finally:
        server.disconnect()
        server.stop()
    with pytest.raises(StoreUnavailableError, match="is the Chroma server running"):
        asked("here", vectors=url)


@pytest.mark.parametrize("url", ["ftp://localhost", "http://", "http://localhost:port"])
def test_an_odd_url_of_vectors(tmp_path, url):
    """It is refused by name."""
    fake = DeterministicFakeEmbedding(size=4)
    with pytest.raises(InvalidInputError, match="is no URL of a Chroma server"):
        CrabPath.open(tmp_path, embeddings=fake, vectors=url)
