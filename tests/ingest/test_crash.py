"""SIGKILL at any point of an ingest or a sync, and a failing index, lose and duplicate nothing."""

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import Feedback
from crabpath_retrievers.crabpath import CrabPath

HERE = Path(__file__).parent
SAMPLE = HERE.parents[1] / "examples" / "hotpotqa_sample" / "corpus.jsonl"
ADDED = "This paragraph was put in later, and is so long that it makes a chunk of its own. " * 2


def take(count):
    """Real passages with a paragraph per sentence, as keyword arguments of documents."""
    with SAMPLE.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(count), strict=False)]
    return [
        {
            "id": row["_id"],
            "page_content": row["text"].replace(". ", ".\n\n"),
            "metadata": {"title": row["title"]},
        }
        for row in rows
    ]


def edit(rows):
    """The same documents, every third with a new first paragraph and without its end."""
    changed = [dict(row) for row in rows]
    for row in changed[::3]:
        row["page_content"] = f"{ADDED}\n\n{row['page_content'][:-100]}"
    return changed


OLD, NEW = take(12), edit(take(12))
MESSAGES = [{"page_content": f"message {n}", "metadata": {"source": "slack"}} for n in range(60)]


@pytest.fixture
def opened(embedder, crash_settings):
    """Opens a memory in this process, which recovers it."""
    return lambda place, **given: CrabPath.open(
        place, embeddings=embedder, settings=crash_settings, **given
    )


def add(memory, rows):
    memory.add_documents([Document(**row) for row in rows])


def read_chunks(memory):
    """Chunk ids by document."""
    found = defaultdict(set)
    for chunk in memory.store.catalog.find_chunks(ids=memory.store.catalog.all_ids()):
        found[chunk.document].add(chunk.id)
    return found


def crash(folder, given, steps):
    """Copies of the memory "old" whose ingest was killed, by the step at which it was."""
    argument = folder / "given.json"
    argument.write_text(json.dumps(given), encoding="utf-8")
    places = {step: folder / step.replace(":", "-") for step in steps}
    for place in places.values():
        shutil.copytree(folder / "old", place)
    jobs = [str(value) for pair in places.items() for value in pair]
    command = [sys.executable, str(HERE / "crash_child.py"), str(argument), *jobs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return places


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "steps"),
    [
        pytest.param(
            OLD[:1],
            take(24),
            ["staged", "indexed", "published", "linked", "staged:3", "indexed:3", "published:3"],
            id="new documents",
        ),
        pytest.param(
            OLD,
            NEW,
            ["staged", "indexed", "published", "linked", "emptied", "moved", "linked:2"],
            id="update",
        ),
        pytest.param(
            MESSAGES[:20],
            MESSAGES[20:],
            ["staged:2", "indexed:2", "published:2", "linked:2"],
            id="messages of one source",
        ),
        pytest.param(
            OLD[:1],
            take(24),
            ["outside:0.02", "outside:0.06", "outside:0.12"],
            id="any moment",
        ),
    ],
)
def test_a_killed_ingest_is_finished(tmp_path, opened, contents, joined, old, new, steps):
    """Every document is old or new, or has some of its messages; adding again brings the rest."""
    with opened(tmp_path / "old") as memory:
        add(memory, old)
        before = read_chunks(memory)
    shutil.copytree(tmp_path / "old", tmp_path / "reference")
    with opened(tmp_path / "reference") as memory:
        for start in range(0, len(new), 20):
            add(memory, new[start : start + 20])
        after, edges = read_chunks(memory), joined(memory)
    for step, directory in crash(tmp_path, new, steps).items():
        with opened(directory) as memory:
            contents(memory)
            found = read_chunks(memory)
            if not step.startswith("outside"):
                assert before != found, step
                assert old is OLD or found != after, step
            for document, chunks in found.items():
                if document == "slack":
                    assert before[document] < chunks < after[document], step
                else:
                    assert chunks in (before[document], after[document]), step
            add(memory, new)
            contents(memory)
            assert (read_chunks(memory), joined(memory)) == (after, edges), step


TEXT = "Topic {n} is described at length here, with {n} examples of {n} kinds and no more."
BEFORE = {f"{n}.md": TEXT.format(n=n) for n in range(8)}
AFTER = {
    **{f"{n}.md": TEXT.format(n=n) for n in range(3)},
    "3.md": TEXT.format(n=3).replace("examples", "samples"),
    "new 4.md": TEXT.format(n=4),
    "9.md": "Something else altogether, which nobody has ever written down before.",
}


def write(folder, texts):
    """Make a folder hold these files and no others."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)


def read_sections(memory, docs):
    """Id of the section of each file."""
    found = memory.store.catalog.find_under_source(docs.as_posix())
    return {Path(section.source).name: section.id for section in found}


@pytest.mark.slow
def test_a_killed_sync_is_finished(tmp_path, opened, contents):
    """What was staged was meant; the next sync completes it, and what was learned stays."""
    docs = tmp_path / "docs"
    write(docs, BEFORE)
    with opened(tmp_path / "old") as memory:
        memory.sync(docs)
        old = read_sections(memory, docs)
        turn = memory.retrieve("examples of topic 5 and of topic 3", k=3).turn
        memory.record(Feedback(turn.id, 1.0, used=[old["5.md"], old["3.md"]]))
        learned = memory.info()["learned_weights"]
    write(docs, AFTER)
    steps = ["staged", "indexed", "published", "emptied"]
    for step, directory in crash(tmp_path, str(docs), steps).items():
        with opened(directory) as memory:
            contents(memory)
            assert set(read_sections(memory, docs)) == set(AFTER), step
            assert not memory.sync(docs), step
            new = read_sections(memory, docs)
            assert (new["3.md"], new["new 4.md"]) == (old["3.md"], old["4.md"]), step
            facts = memory.info()
            assert (facts["learned_weights"], facts["retired"]) == (learned, 3), step


def fail(*_values):
    msg = "full"
    raise OSError(msg)


@pytest.mark.parametrize("method", ["upsert", "delete"])
def test_an_index_that_fails_loses_nothing(
    open_memory, crash_settings, contents, joined, monkeypatch, method
):
    """Its error is handed on, and the next add finishes what it left, also twice."""
    reference, memory = (open_memory(ingest=crash_settings.ingest) for _ in range(2))
    for rows in OLD, NEW:
        add(reference, rows)
    add(memory, OLD)
    with monkeypatch.context() as broken:
        broken.setattr(memory.index, method, fail)
        for _ in range(2):
            with pytest.raises(OSError, match="full"):
                add(memory, NEW)
    add(memory, NEW)
    assert contents(memory) == contents(reference)
    assert joined(memory) == joined(reference)


@pytest.mark.parametrize("method", ["upsert", "delete"])
def test_a_sync_whose_index_fails_loses_nothing(
    open_memory, tmp_path, contents, monkeypatch, method
):
    memory, docs = open_memory(), tmp_path / "docs"
    write(docs, BEFORE)
    memory.sync(docs)
    write(docs, AFTER)
    with monkeypatch.context() as broken:
        broken.setattr(memory.index, method, fail)
        with pytest.raises(OSError, match="full"):
            memory.sync(docs)
    memory.sync(docs)
    contents(memory)
    assert set(read_sections(memory, docs)) == set(AFTER)
    assert memory.info()["retired"] == 3


@pytest.mark.parametrize("way", ["add_documents", "sync"])
def test_an_embedder_that_fails_leaves_no_trace(memory, embedder, contents, monkeypatch, way):
    """Nothing is staged before it is embedded."""
    write_documents = getattr(memory, way)
    write_documents([Document("old", id="a")])
    with monkeypatch.context() as broken:
        broken.setattr(embedder, "embed_documents", fail)
        with pytest.raises(OSError, match="full"):
            write_documents([Document("new", id="a"), Document("other", id="b")])
    assert contents(memory) == {"a": "old"}
    write_documents([Document("new", id="a"), Document("other", id="b")])
    assert contents(memory) == {"a": "new", "b": "other"}
