"""Past sessions are gone through once, line by line, whatever interrupts it."""

import json
import stat
import subprocess
import sys

import pytest
import tables
from langchain_core.documents import Document
from learned_memory import EMBEDDINGS, corpus
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, StoreError
from crabpath_retrievers.cli import app
from crabpath_retrievers.vectors import embedder
from tests.seams import get_services

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
        ('{"query": "x", "irrelevant": ["a"]}', "it has irrelevant, but no outcome"),
        ('{"query": "x", "relevant": []}', "it has relevant, but no outcome"),
        ('{"inputs": {"top_k": 3}}', "its inputs hold no question"),
        ('{"inputs": "x", "parent_run_id": "p"}', "it is a step of another run"),
        (
            '{"inputs": "x", "feedback": [{"key": "user_score", "score": 5}]}',
            "score must be a number",
        ),
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
def test_an_interrupted_replay_leaves_nothing_half_done(
    memory, sessions, tmp_path, monkeypatch, name
):
    """Cut off before or after a line was learned from: neither its turn nor a lesson is kept."""
    kept, recorder = tmp_path / name if name else None, type(get_services(memory).recorder)
    record = recorder.record

    def fail(*_arguments):
        message = "gone"
        raise StoreError(message)

    for step in (fail, lambda *given: (record(*given), fail())):
        monkeypatch.setattr(recorder, "record", step)
        with pytest.raises(StoreError, match="gone"):
            memory.learning.replay(sessions, checkpoint=kept)
        monkeypatch.undo()
        assert memory.info()["namespaces"] == {}
    assert memory.learning.replay(sessions, checkpoint=kept) == (5, 4, 0, 0, (), ())
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


def relevant_of(memory, namespace):
    """What was said of the questions of a namespace, by question."""
    questions = {one.id: one.query for one in memory.turns(namespace=namespace)}
    read = memory.store.learned.get_feedback
    said = [read(one.feedback_id).feedback for one in memory.learning.feedback(namespace=namespace)]
    return {
        questions[one.turn_id]: (one.outcome, None if one.relevant is None else [*one.relevant])
        for one in said
    }


def test_a_line_without_an_outcome_is_a_success_where_it_says_what_is_relevant(memory, sessions):
    sessions.write_text(lines({"question": QUESTION, "relevant": ["c"]}))
    assert memory.learning.replay(sessions, namespace="past") == (1, 1, 0, 0, (), ())
    sessions.write_text(lines({"query": QUESTION, "relevant": ["c"], "outcome": "up"}))
    memory.learning.replay(sessions, namespace="said")
    assert relevant_of(memory, "past") == relevant_of(memory, "said")
    assert memory.retrieve(QUESTION, namespace="past").documents[0].node.id == "c"


TABLE = """\ufeffID;Question;Relevant;Outcome;Answer
1;"Which fruit
is red?";a|c;;
2;Sky?;"b
c";-1;Blue.
3;Grass?;;up;
4;Too;many;;cells;here

5;Moon?;c;5;
6;Sea?;;;
"""


def test_rows_of_a_table_are_lines(memory, tmp_path):
    """With any delimiter; columns of other names and empty cells say nothing."""
    for place, delimiter in enumerate(";,\t"):
        path = tmp_path / f"log{place}.CSV"
        path.write_text(TABLE.replace(";", delimiter), encoding="utf-8")
        done = memory.learning.replay(path, namespace=f"table{place}", skip_bad=True)
        assert (done.asked, done.learned, [one.line for one in done.bad]) == (4, 3, [7, 9])
        assert "it has 6 cells, and the first row 5" in done.bad[0].why
        said = relevant_of(memory, f"table{place}")
        assert said["Which fruit\nis red?"] == (1.0, ["a", "c"])
        assert said["Sky?"] == (-1.0, ["b", "c"])
        assert said["Grass?"] == (1.0, None)
        again = memory.learning.replay(path, namespace=f"table{place}", skip_bad=True)
        assert (again.asked, again.before) == (0, 4)


def test_tables_that_cannot_be_used(memory, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("text,relevant\nSky?,b\n")
    with pytest.raises(InvalidInputError, match="has no column query or question"):
        memory.learning.replay(path)
    path.write_bytes(b'query,relevant\nSk\xff?,b\nSky?,b\n"Sea?,b\nMoon?,b\n')
    done = memory.learning.replay(path, skip_bad=True)
    assert (done.learned, [one.line for one in done.bad]) == (1, [2, 5])
    assert [one.why[:12] for one in done.bad] == ["it is not UT", "it is not CS"]


def test_runs_that_langsmith_exported_are_lines(memory, sessions):
    """The last feedback of a key that counts, its correction, or the mean of the scores."""
    human = {"type": "human", "content": "Grass?"}
    runs = [
        {"inputs": {"question": "Sky?"}, "feedback": [{"key": "user_score", "score": 1}]},
        {
            "inputs": {"messages": [[{"kwargs": human}, {"type": "ai", "content": "Green."}]]},
            "outputs": {"output": "Green."},
            "feedback": [
                {"key": "user_score", "score": 1},
                {"key": "correctness", "score": 0, "correction": "Yellow in summer."},
                {"key": "latency", "score": 1},
            ],
        },
        {
            "inputs": {"input": {"query": QUESTION}},
            "feedback": [{"key": "correctness", "correction": {"documents": [{"id": "c"}]}}],
        },
        {"inputs": "Sea?", "feedback_stats": {"user_score": {"n": 2, "avg": 0.75}}},
        {"inputs": {"text": "Moon?"}, "id": "r", "feedback": None},
    ]
    sessions.write_text(lines(*runs))
    assert memory.learning.replay(sessions, namespace="past") == (5, 4, 0, 0, (), ())
    assert relevant_of(memory, "past") == {
        "Sky?": (1.0, None),
        "Grass?": (-1.0, None),
        QUESTION: (1.0, ["c"]),
        "Sea?": (0.5, None),
    }
    assert memory.retrieve("Grass?", namespace="past").documents[0].node.content == (
        'Correction of the answer to "Grass?":\nYellow in summer.'
    )


def test_documents_are_named_by_title_and_those_that_are_gone_teach_nothing(open_memory, sessions):
    """A dry run tells both, and writes nothing."""
    twins = [Document("Pears.", id=name, metadata={"title": "Pear"}) for name in ("p1", "p2")]
    guide = Document("Plums are blue.", id="g", metadata={"title": "Plum", "source": "plum.md"})
    with open_memory() as memory:
        memory.add_documents([*twins, guide], split=False)
        memory.teach("Quinces are yellow.", id="own", namespace="past")
        asked = [["g"], ["plum.md"], ["Plum"], ["gone", "Plum"], ["gone"], ["Pear"], ["own"]]
        sessions.write_text(
            lines(*({"query": f"Fruit {n}?", "relevant": ids} for n, ids in enumerate(asked)))
            + lines({"query": "Sky?"}, {"query": 5})
        )
        before = memory.info()
        found = memory.learning.check_replay(sessions, namespace="past")
        assert memory.info() == before
        assert found[:2] == (8, 5)
        assert [one.line for one in found.unmatched] == [5, 6]
        assert "no document with the id, source or title 'gone'" in found.unmatched[0].why
        assert "2 documents have the title 'Pear': give their ids" in found.unmatched[1].why
        assert [one.line for one in found.bad] == [9]
        done = memory.learning.replay(sessions, namespace="past", skip_bad=True)
        assert (done.asked, done.learned, done.bad) == (6, 5, found.bad)
        assert done.refused == found.unmatched
        assert {tuple(ids) for _, ids in relevant_of(memory, "past").values() if ids} == {
            ("g",),
            ("gone", "g"),
            ("own",),
        }
        memory.forget(ids=["g"])
        assert memory.learning.check_replay(sessions, namespace="past").matched == 1


def test_a_line_that_calls_an_unknown_document_irrelevant_teaches_nothing(memory, sessions):
    memory.add_documents([Document("Two weeks.", id="refunds")])
    bad = {"query": "Is it back?", "outcome": -1, "irrelevant": ["gone"]}
    sessions.write_text(lines(bad, {**bad, "query": QUESTION, "irrelevant": ["refunds"]}))
    (said,) = memory.learning.check_replay(sessions).unmatched
    assert (said.line, "title 'gone'" in said.why) == (1, True)
    done = memory.learning.replay(sessions, namespace="past")
    assert (done.learned, done.refused) == (1, (said,))


def test_names_of_one_document_on_both_sides_are_refused_in_their_line(memory, sessions):
    """By id and by title: the dry run says so, and the lines after it are learned."""
    memory.add_documents([Document("Two weeks.", id="refunds", metadata={"title": "Refunds"})])
    both = {"outcome": -1, "relevant": ["refunds"], "irrelevant": ["Refunds"]}
    good = {"query": QUESTION, "relevant": ["refunds"]}
    sessions.write_text(lines({"query": "Is it back?", **both}, good))
    (said,) = memory.learning.check_replay(sessions).unmatched
    assert (said.line, "on one side only" in said.why) == (1, True)
    done = memory.learning.replay(sessions, namespace="past")
    assert (done.learned, done.refused) == (1, (said,))


def test_the_dry_run_of_the_command(tmp_path, monkeypatch, sessions):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embedder, "load_default_embeddings", lambda: EMBEDDINGS)
    with CrabPath.open("memory") as memory:
        memory.add_documents(corpus(3), split=False)
    good = [{"query": QUESTION, "relevant": ["Page 1"]}] * 3
    gone = [{"query": QUESTION, "relevant": ["gone"]}] * 12
    sessions.write_text(lines(*good, *gone) + "{\n")
    found = CliRunner().invoke(app, ["replay", "memory", str(sessions), "--dry-run"])
    said = " ".join(found.output.split())
    assert found.exit_code == 0
    assert "15 can be replayed: 3 name relevant documents of this memory, 12 only others" in said
    assert "Unknown line 13" in said
    assert "Unknown are 2 more" in said
    assert "Unusable line 16: it is not JSON" in said
    with CrabPath.open("memory") as memory:
        assert memory.info()["namespaces"] == {}


@pytest.mark.slow
def test_a_killed_replay_goes_on_where_it_was(tmp_path, sessions):
    """Whatever was committed is neither lost nor doubled, with a checkpoint and without."""
    questions = [{"query": f"Which fruit is number {n}?", "relevant": ["d1"]} for n in range(400)]
    sessions.write_text(lines(*questions))
    code = (
        "import sys; sys.path[:0] = sys.argv[3:]\n"
        "from learned_memory import EMBEDDINGS, corpus\n"
        "from crabpath_retrievers import CrabPath\n"
        "with CrabPath.open(sys.argv[1], embeddings=EMBEDDINGS) as memory:\n"
        "    memory.add_documents(corpus(3), split=False)\n"
        "    print('begun', flush=True)\n"
        "    memory.learning.replay(sys.argv[2], checkpoint=sys.argv[2] + '.done')\n"
    )
    place, kept = tmp_path / "memory", tmp_path / "sessions.jsonl.done"
    command = [sys.executable, "-c", code, str(place), str(sessions), *sys.path]
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            lines_before = json.loads(kept.read_text())["line"] if kept.exists() else 0
            while not kept.exists() or json.loads(kept.read_text())["line"] == lines_before:
                assert process.poll() is None
            process.kill()
    with CrabPath.open(place, embeddings=EMBEDDINGS) as memory:
        done = memory.learning.replay(sessions, checkpoint=kept)
        assert done.asked + done.before == 400
        assert 0 < done.asked < 400
        assert memory.info()["namespaces"] == {"default": 400}
        assert len(memory.learning.feedback(limit=1000)) == 400
        assert memory.store.learned.get_state("default").version == 400
        assert memory.learning.replay(sessions).before == 400
