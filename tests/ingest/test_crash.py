"""SIGKILL at any point of an ingest loses and duplicates nothing."""

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from langchain_core.documents import Document

from crabpath_retrievers.crabpath import CrabPath

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SAMPLE = HERE.parents[1] / "examples" / "hotpotqa_sample" / "corpus.jsonl"
ADDED = "This paragraph was put in later, and is so long that it makes a chunk of its own. " * 2
# Right after a step, or with half of the vectors written; "outside" at any moment.
STEPS = ["staged", "indexed", "published", "linked", "staged:3", "indexed:3", "published:3"]
OUTSIDE = ["outside:0.02", "outside:0.06", "outside:0.12"]
UPDATES = ["staged", "indexed", "published", "linked", "emptied", "moved", "linked:2"]


def sample(count):
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


def edited(rows):
    """The same documents, every third with a new first paragraph and without its end."""
    changed = [dict(row) for row in rows]
    for row in changed[::3]:
        row["page_content"] = f"{ADDED}\n\n{row['page_content'][:-100]}"
    return changed


FIRST, OLD, NEW = sample(24), sample(12), edited(sample(12))


def crash(folder, rows, steps):
    """Directories of ingests that were killed, by the step at which they were."""
    given = folder / "documents.json"
    given.write_text(json.dumps(rows), encoding="utf-8")
    places = {step: folder / step.replace(":", "-") for step in steps}
    jobs = [str(value) for pair in places.items() for value in pair]
    command = [sys.executable, str(HERE / "crash_child.py"), str(given), *jobs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return places


def whole(memory):
    """Chunk ids by document."""
    found = defaultdict(set)
    for chunk in memory.store.catalog.find_chunks(ids=memory.store.catalog.all_ids()):
        found[chunk.document].add(chunk.id)
    return found


@pytest.fixture
def opened(embedder, crash_settings):
    """Opens a memory in this process, which recovers it."""

    def open_memory(directory):
        return CrabPath.open(directory, embeddings=embedder, settings=crash_settings)

    return open_memory


@pytest.fixture
def add():
    """Adds documents given as keyword arguments."""

    def add_rows(memory, rows):
        memory.add_documents([Document(**row) for row in rows])

    return add_rows


@pytest.fixture
def reference(tmp_path, opened, joined, add):
    """Chunks by document and edges of an ingest that nothing interrupts."""

    def ingest(*versions):
        with opened(tmp_path / "reference") as memory:
            for rows in versions:
                add(memory, rows)
            return whole(memory), joined(memory)

    return ingest


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Directories of first ingests, by the step at which they were killed."""
    return crash(tmp_path_factory.mktemp("killed"), FIRST, [*STEPS, *OUTSIDE])


def test_a_killed_ingest_is_finished_by_the_next_open(killed, opened, reference, held, joined, add):
    """After the kill every document is whole or absent, and adding again completes the rest."""
    chunks, edges = reference(FIRST)
    for step, directory in killed.items():
        with opened(directory) as memory:
            held(memory)
            found = whole(memory)
            assert all(found[document] == chunks[document] for document in found), step
            assert step in OUTSIDE or 0 < len(found) < len(chunks), step
            add(memory, FIRST)
            held(memory)
            assert whole(memory) == chunks, step
            assert joined(memory) == edges, step


def test_a_killed_batch_of_one_source_loses_no_other(tmp_path, opened, held, joined, add):
    """What was there stays, what was staged is finished, and adding again brings the rest once."""
    rows = [{"page_content": f"message {n}", "metadata": {"source": "slack"}} for n in range(60)]
    with opened(tmp_path / "old") as memory:
        for start in range(0, 60, 20):
            add(memory, rows[start : start + 20])
        whole_edges = joined(memory)
        memory.forget([i for i, text in held(memory).items() if int(text[8:]) >= 20])
    steps = ["staged:2", "indexed:2", "published:2", "linked:2"]
    for step in steps:
        shutil.copytree(tmp_path / "old", tmp_path / step.replace(":", "-"))
    for step, directory in crash(tmp_path, rows[20:], steps).items():
        with opened(directory) as memory:
            assert 20 < len(held(memory)) < 60, step
            add(memory, rows[20:])
            assert sorted(held(memory).values()) == sorted(r["page_content"] for r in rows), step
            assert joined(memory) == whole_edges, step


@pytest.fixture
def killed_updates(tmp_path, opened, add):
    """Directories that held OLD, by the step at which the update to NEW was killed."""
    with opened(tmp_path / "old") as memory:
        add(memory, OLD)
    for step in UPDATES:
        shutil.copytree(tmp_path / "old", tmp_path / step.replace(":", "-"))
    return crash(tmp_path, NEW, UPDATES)


def test_a_killed_update_leaves_each_document_old_or_new(
    killed_updates, tmp_path, opened, reference, held, joined, add
):
    """No reader ever finds half of an updated document, and repeating the update completes it."""
    after, edges = reference(OLD, NEW)
    with opened(tmp_path / "old") as memory:
        before = whole(memory)
    assert before != after
    for step, directory in killed_updates.items():
        with opened(directory) as memory:
            held(memory)
            for document, found in whole(memory).items():
                assert found in (before[document], after[document]), step
            add(memory, NEW)
            held(memory)
            assert whole(memory) == after, step
            assert joined(memory) == edges, step


@pytest.mark.parametrize("method", ["upsert", "delete"])
def test_an_index_that_fails_loses_nothing(
    tmp_path, opened, reference, held, joined, add, monkeypatch, method
):
    """An error of the vector index is handed on, and the next add finishes what it left."""
    chunks, edges = reference(OLD, NEW)
    with opened(tmp_path / "memory") as memory:
        add(memory, OLD)

        def fail(*_columns):
            msg = "the index is full"
            raise OSError(msg)

        with monkeypatch.context() as broken:
            broken.setattr(memory.index, method, fail)
            for _ in range(2):  # the second attempt meets what the first one left
                with pytest.raises(OSError, match="the index is full"):
                    add(memory, NEW)
        add(memory, NEW)
        held(memory)
        assert whole(memory) == chunks
        assert joined(memory) == edges


def test_an_embedder_that_fails_leaves_no_trace(opened, tmp_path, embedder, held, monkeypatch):
    """Nothing is staged before it is embedded."""
    with opened(tmp_path / "memory") as memory:
        memory.add_documents([Document("old", id="a")])

        def fail(_texts):
            msg = "no tokens left"
            raise RuntimeError(msg)

        with monkeypatch.context() as broken:
            broken.setattr(embedder, "embed_documents", fail)
            with pytest.raises(RuntimeError, match="no tokens left"):
                memory.add_documents([Document("new", id="a"), Document("other", id="b")])
        assert held(memory) == {"a": "old"}
