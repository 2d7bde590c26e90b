"""Adding, asking and forgetting documents from a shell: output, JSON, exit codes."""

import logging
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath
from tests.seams import stop_after

DEPLOY = (
    "# Deploying\n\nCheck CI first, then read the [manifest](manifest.md).\n\n"
    "## Rollback\n\nUndo.\n"
)


@pytest.fixture(autouse=True)
def docs(tmp_path):
    """A folder with two documents, a blank one, a binary file and a hidden one."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "deploy.md").write_text(DEPLOY)
    (folder / "manifest.md").write_text("# Manifest\n\nThe manifest lists images.\n")
    (folder / "blank.md").write_text("\n")
    (folder / "image.bin").write_bytes(b"\x00\x01")
    (folder / ".hidden.md").write_text("# Secret\n\nNot to be read.\n")
    return folder


@pytest.mark.slow
def test_a_day_with_the_command_line(cli, read, refuse, docs, caplog):
    """Each step in JSON, then in tables for people; only what changed is written again."""
    added = read("add", "docs")
    assert (added["documents"], added["added"], added["skipped"]) == (
        2,
        3,
        {"docs/image.bin": "not a text file"},
    )
    (line,) = [r.getMessage() for r in caplog.records if r.name.startswith("crabpath")]
    assert line == "1 of 3 documents have no text, left out: 'docs/blank.md'"
    said = " ".join(cli("add", "docs").stdout.split())
    assert said.endswith("3 unchanged, 1 without text left out")
    answer = read("query", "which images are listed?", "-k", "1", "--namespace", "alice")
    assert answer["documents"][0]["source"] == "docs/manifest.md"
    explanation = read("explain", answer["turn_id"])
    assert explanation["documents"][0]["contributions"]["similarity"] > 0
    facts = read("info")
    assert (facts["nodes"], facts["edges"]["link"], facts["turns"]) == (3, 1, 1)
    read("forget", "--namespace", "alice")
    facts = read("info")
    assert (facts["nodes"], facts["namespaces"], facts["turns"]) == (3, {}, 0)

    shown = cli("query", "how do I deploy?").output
    ids = {node["id"] for node in read("list")}
    assert "Deploying" in shown
    assert {"Check CI first, then read the manifest.", "docs/deploy.md"} | ids <= {
        line.strip() for line in shown.splitlines()
    }
    assert "similarity" in cli("explain", shown.strip().split()[-1]).output
    assert "sibling 2" in cli("info").output.replace("\n", " ")
    for command in (("query", "  "), ("explain", "nope"), ("forget",)):
        assert refuse(*command)

    (docs / "deploy.md").write_text(DEPLOY.replace("Undo.", "Run the rollback script."))
    again = read("add", "docs")
    assert (again["added"], again["removed"], again["unchanged"]) == (1, 1, 2)
    (docs / "deploy.md").write_text("# Deploying\n\nAsk Ann.\n")
    again = read("add", "docs/deploy.md")
    assert (again["removed"] + again["updated"], again["added"] + again["updated"]) == (2, 1)
    assert "1 chunks deleted" in cli("forget", "--source", "docs/deploy.md").output
    assert read("forget", "--source", "docs/manifest.md")["removed"] == 1
    assert read("info")["nodes"] == 0


def test_listing_what_is_there(cli, read, refuse):
    """Chunks, sources, turns and notes, each with the ids that other commands take."""
    read("add", "docs")
    for namespace in ("default", "ann"):
        turn = read("query", "rollback", "-k", "1", "-n", namespace)
    used = turn["documents"][0]["id"]
    assert (
        read("feedback", turn["turn_id"], "--outcome", "1", "--used", used)["status"] == "applied"
    )
    note = read("teach", "Ask Ann.\nOr Bob.", "-n", "ann")["id"]
    found = read("list")
    assert [node["source"] for node in found] == ["docs/deploy.md"] * 2 + ["docs/manifest.md"]
    assert found[1] == {
        "id": used,
        "title": "Deploying › Rollback",
        "source": "docs/deploy.md",
        "content": "## Rollback\n\nUndo.",
        "metadata": {"source": "docs/deploy.md"},
    }
    assert read("list", "--source", "docs/manifest.md") == found[2:]
    assert read("list", "--sources") == {"docs/deploy.md": 2, "docs/manifest.md": 1}
    (asked,) = read("list", "--turns", "-n", "ann")
    assert (asked["id"], asked["documents"], asked["query"]) == (
        turn["turn_id"],
        [used],
        "rollback",
    )
    assert asked["feedback_id"]
    (taught,) = read("list", "--notes", "-n", "ann")
    assert (taught["id"], taught["kind"], taught["text"]) == (note, "teaching", "Ask Ann.\nOr Bob.")
    for options, line in (
        ((), f"{used} docs/deploy.md Undo."),
        (("--sources",), "2 docs/deploy.md"),
        (("--turns", "-n", "ann"), "yes rollback"),
        (("--notes", "-n", "ann"), f"{note} teaching Ask Ann."),
        (("--notes",), "nothing in namespace default"),
        (("--limit", "2"), "the first 2; raise --limit for more"),
    ):
        assert line in " ".join(cli("list", *options).stdout.split()), options
    drawn = read("transfer", "graphml", "memory", "graph.graphml", "--around", note, "-n", "ann")
    assert note in Path(drawn["path"]).read_text()
    assert "at most one" in refuse("list", "--notes", "--turns")
    assert "limit" in refuse("list", "--limit", "0")


def test_forgetting_what_is_not_there(cli, read, refuse):
    """Is no error, and is said; what is there beside it is deleted."""
    read("add", "docs")
    (known, *_) = (node["id"] for node in read("list"))
    for what in (("nope",), ("--source", "docs"), ("-n", "eve")):
        done = cli("forget", *what)
        assert (done.exit_code, f"Nothing was there of {what[-1]!r}" in done.stdout) == (0, True)
    assert "is in no memory" in refuse("forget", "--source", "bad\udcff.md")
    assert read("info")["nodes"] == 3
    assert read("forget", known, "nope")["unknown"] == ["nope"]
    assert read("info")["nodes"] == 2
    assert read("forget", known)["removed"] == 0


def test_an_add_that_is_stopped_says_what_is_in(read, refuse, docs, monkeypatch):
    """With the exit code of a stopped program; the same command goes on."""
    for n in range(40):
        (docs / f"page{n}.md").write_text(f"Page {n}.")

    def stop():
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        stop_after("stage_nodes", 2, stop, patched)
        stopped = refuse("add", "docs", code=130)
    assert stopped.endswith("Stopped: 16 of 43 new chunks are in; run it again to go on")
    again = read("add", "docs")
    assert (again["added"], again["unchanged"]) == (0, 43)  # the second batch was staged


def test_follow_up_lines_name_the_store(cli, monkeypatch):
    """Where the option named it: what is printed can be copied."""
    with CrabPath.open("two words", embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        memory.add_documents([Document("Something about apples.")])
    embedder = lambda _: DeterministicFakeEmbedding(size=16)  # noqa: E731
    monkeypatch.setattr("langchain.embeddings.init_embeddings", embedder)
    asked = ("query", "apples", "--embeddings", "fake:16")
    shown = " ".join(cli(*asked, "--store", "two words").stdout.split())
    assert "--used ID --store 'two words' Why:" in shown
    assert shown.endswith("--store 'two words'")
    monkeypatch.setenv("CRABPATH_STORE", "two words")
    assert "--store" not in cli(*asked).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("query", "anything"), 2, "there is no memory"),
        (("add", "nowhere"), 2, "does not exist"),
        (("info", "--store", "mysql://host/db"), 1, "is not supported"),
        (("info", "--store", "postgresql://127.0.0.1:1/none", "--vectors", "v"), 1, "reached"),
    ],
)
def test_errors_are_one_sentence_and_an_exit_code(refuse, arguments, code, sentence):
    """2 for unusable input, 1 for a store or environment problem; no traceback."""
    assert sentence in refuse(*arguments, code=code)


HOSTILE = "\x1b]0;pwned\x07\x1b[2J\x9b31m\x7f\u202e\u2066\r"
CONTROLS = set(HOSTILE) - set("]0;pwned[2J31m")


@pytest.mark.slow
def test_nothing_gives_orders_to_the_terminal(cli, read, monkeypatch, capsys):
    """Titles, ids, names, questions and messages are shown, their control characters are not."""
    team = f"team{HOSTILE}"
    with CrabPath.open("memory", embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        named = {"title": f"T{HOSTILE}", "source": f"s{HOSTILE}"}
        memory.add_documents([Document(f"apple{HOSTILE}", id=f"d{HOSTILE}", metadata=named)])
        turn = memory.retrieve(f"apple{HOSTILE}", namespace=team).turn.id
        memory.namespaces.snapshot(team, f"snap{HOSTILE}")
        memory.namespaces.freeze(f"cold{HOSTILE}")
    for command in (
        ("explain", turn),
        ("explain", f"nothing{HOSTILE}"),
        ("info",),
        ("list",),
        ("list", "--sources"),
        ("list", "--turns", "-n", team),
        ("info", "-s", f"nowhere{HOSTILE}"),
        ("history", "list"),
        ("doctor", "memory"),
        ("health", "memory", "-n", team),
        ("regions", "-n", team),
        ("history", "freeze", "-n", team),
        ("transfer", "import", f"nothing{HOSTILE}", "elsewhere"),
    ):
        assert not CONTROLS & set(cli(*command).output), command
    assert "apple\ufffd]0;pwned\ufffd\ufffd[2J" in cli("explain", turn).output
    # JSON is read as it was written, and no control character stands in it.
    assert read("explain", turn)["documents"][0]["title"] == f"T{HOSTILE}"
    assert not (CONTROLS - {"\x7f"}) & set(cli("explain", turn, "--json").stdout)
    # What the library logs while a command runs is printed as everything else is.
    capsys.readouterr()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logging.getLogger("crabpath_retrievers").warning("left out: %s", HOSTILE)
    assert "left out: \ufffd]0;pwned" in capsys.readouterr().err
