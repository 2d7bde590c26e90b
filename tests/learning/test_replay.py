"""Past sessions are gone through once, line by line, whatever interrupts it."""

import json
import stat

import pytest
import tables
from learned_memory import EMBEDDINGS, corpus
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, StoreError
from crabpath_retrievers.cli import app
from crabpath_retrievers.learning.recorder import Recorder
from crabpath_retrievers.vectors import embedder

QUESTION = "Which fruit is red?"
SESSIONS = [
    {"session": "one", "query": QUESTION, "outcome": 1, "used": ["a"], "time": 1.5},
    {"session": 2, "query": "Sky?", "outcome": -0.5, "used": ["b"], "time": "2026-11-01T08:00:00Z"},
    {"query": "Grass?", "task_type": "garden"},
    {"query": QUESTION, "outcome": 1.0, "answer": "Apples are red fruit.", "session": None},
    {"query": "Grass?", "outcome": -1, "used": "c", "correction": "Grass may be yellow."},
]


def lines(*objects) -> str:
    """A file of JSON lines."""
    return "".join(f"{json.dumps(one)}\n" for one in objects)


@pytest.fixture
def sessions(tmp_path):
    """Sessions of the past."""
    path = tmp_path / "sessions.jsonl"
    path.write_text(lines(*SESSIONS))
    return path


def test_it_learns_what_a_host_would_have_taught(memory, sessions, state_of, assert_same):
    done = memory.learning.replay(sessions, namespace="past")
    assert done == (5, 4, 0, 0, (), ())
    for one in SESSIONS:
        turn = memory.retrieve(one["query"], namespace="host", task_type=one.get("task_type")).turn
        if "outcome" in one:
            said = {n: one[n] for n in ("used", "answer", "correction") if n in one}
            memory.record(Feedback(turn.id, one["outcome"], **said))
    past, host = (state_of(memory, name) for name in ("past", "host"))
    for table in ("clock", tables.usage.name, "mean", "precision", "baseline"):
        assert_same({table: past[table]}, {table: host[table]})
    assert memory.store.turns.get(memory.store.turns.latest("past")).query == "Grass?"


def test_it_learns_what_was_relevant(memory, sessions, state_of, assert_same):
    said = {"outcome": -1, "used": [], "relevant": ["c"], "irrelevant": ["a"]}
    sessions.write_text(lines({"query": QUESTION, **said}))
    assert memory.learning.replay(sessions, namespace="past") == (1, 1, 0, 0, (), ())
    memory.record(Feedback(memory.retrieve(QUESTION, namespace="host").turn.id, **said))
    past, host = (state_of(memory, name) for name in ("past", "host"))
    for table in ("clock", tables.usage.name, "mean", "precision", "baseline"):
        assert_same({table: past[table]}, {table: host[table]})
    assert memory.retrieve(QUESTION, namespace="past").documents[0].node.id == "c"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "it is not JSON"),
        ("[1]", "it is not a JSON object"),
        ("\udcff\udcfe", "it is not JSON"),
        ('{"outcome": 1}', "the query is empty"),
        ('{"query": 5}', "the query must be a text, not int"),
        ('{"query": "x", "outcome": 3}', "outcome must be a number from -1"),
        ('{"query": "x", "outcom": 1}', "it has an unknown field 'outcom': use"),
        ('{"query": "x", "used": ["a"]}', "it has used, but no outcome"),
        ('{"query": "x", "relevant": ["a"]}', "it has relevant, but no outcome"),
        ('{"query": "x", "outcome": 1, "used": 5}', "used must be a list"),
        ('{"query": "x", "outcome": 1, "answer": 5}', "answer must be a text"),
        ('{"query": "x", "task_type": ""}', "task_type must be a text of 1 to 200"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_learned(memory, sessions, line, why):
    text = line.encode(errors="surrogateescape")
    good = sessions.read_bytes().splitlines(keepends=True)
    sessions.write_bytes(b"".join([good[0], b"\n", text, b"\n", *good[1:]]))
    before = memory.info()
    with pytest.raises(InvalidInputError, match=f"line 3 of .*sessions.jsonl: {why}"):
        memory.learning.replay(sessions)
    assert memory.info() == before
    done = memory.learning.replay(sessions, skip_bad=True)
    assert done[:2] == (5, 4)
    assert [trouble.line for trouble in done.bad] == [3]


def test_who_may_not_or_does_not_learn(open_memory, sessions):
    """A frozen namespace refuses each line with the reason; where others learn they wait."""
    with open_memory(apply="external") as memory:
        assert memory.learning.replay(sessions)[:3] == (5, 0, 4)
        assert memory.learning.learn_waiting().applied == 4
    with open_memory() as memory:
        memory.namespaces.freeze("ada")
        done = memory.learning.replay(sessions, namespace="ada")
        assert (done.asked, done.learned, len(done.refused)) == (5, 0, 4)
        assert "frozen" in done.refused[0].why


@pytest.mark.parametrize("name", [None, "checkpoint"])
def test_an_interrupted_line_is_not_asked_again(memory, sessions, tmp_path, monkeypatch, name):
    """Cut off before or after it was learned from: only what is missing is made up for."""
    kept, record = tmp_path / name if name else None, Recorder.record

    def fail(*_arguments):
        message = "gone"
        raise StoreError(message)

    for step in (fail, lambda *given: (record(*given), fail())):
        monkeypatch.setattr(Recorder, "record", step)
        with pytest.raises(StoreError, match="gone"):
            memory.learning.replay(sessions, checkpoint=kept)
        monkeypatch.undo()
    assert memory.learning.replay(sessions, checkpoint=kept) == (4, 3, 0, 1, (), ())
    assert memory.info()["namespaces"] == {"default": 5}


@pytest.mark.parametrize("name", [None, "checkpoint"])
def test_again_it_changes_nothing(memory, sessions, host, tmp_path, name):
    """Not even turns; lines added since are gone through. A checkpoint is private."""
    kept = tmp_path / name if name else None
    memory.learning.replay(sessions, checkpoint=kept)
    before = memory.info()
    assert memory.learning.replay(sessions, checkpoint=kept) == (0, 0, 0, 5, (), ())
    assert memory.info() == before
    with sessions.open("a") as file:
        file.write("\n" + lines(SESSIONS[0]))
    assert memory.learning.replay(sessions, checkpoint=kept) == (1, 1, 0, 5, (), ())
    assert host.learned() == 5
    if kept:
        assert json.loads(kept.read_text())["line"] == 7
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    else:
        assert memory.learning.replay(sessions, namespace="other")[:2] == (6, 5)


def test_files_that_cannot_be_used(memory, sessions, tmp_path):
    """No sessions, the checkpoint of other sessions or another namespace, none, and no place."""
    kept = tmp_path / "checkpoint"

    def refuse(why, path=sessions, **options):
        with pytest.raises(InvalidInputError, match=why):
            memory.learning.replay(path, **{"checkpoint": kept, **options})

    refuse(r"no.jsonl cannot be read .No such file", tmp_path / "no.jsonl", checkpoint=None)
    memory.learning.replay(sessions, checkpoint=kept)
    refuse("belongs to other sessions, another memory", namespace="other")
    for others in ([SESSIONS[1], *SESSIONS[1:]], SESSIONS[:2]):
        sessions.write_text(lines(*others))
        refuse("belongs to other sessions, another memory")
    for text in ("", "{", "[]", '{"line": "x"}', '{"page": 1}'):
        kept.write_text(text)
        refuse("is not a checkpoint of a replay")
    refuse(r"checkpoint .* cannot be written", checkpoint=tmp_path / "no" / "folder")


def test_the_command(tmp_path, monkeypatch, sessions):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embedder, "load_default_embeddings", lambda: EMBEDDINGS)
    with CrabPath.open("memory") as memory:
        memory.add_documents(corpus(3), split=False)
    with sessions.open("a") as file:
        file.write("{\n")
    run = CliRunner().invoke
    refused = run(app, ["replay", "memory", str(sessions)])
    assert refused.exit_code == 2
    assert "it is not JSON" in " ".join(refused.stderr.split())
    done = run(
        app, ["replay", "memory", str(sessions), "--skip-bad", "--json", "--checkpoint", "c"]
    )
    found = json.loads(done.stdout)
    assert (found["asked"], found["bad"][0]["line"]) == (5, 6)
    again = run(app, ["replay", "memory", str(sessions), "--skip-bad"])
    assert "0 asked, 0 learned from, 0 waiting, 5 replayed before" in " ".join(again.stdout.split())
    assert "Unusable line 6" in " ".join(again.stderr.split())
