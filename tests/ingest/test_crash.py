"""A kill at any step of an ingest or a sync, and a failing index, lose and duplicate nothing."""

import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest
from langchain_core.documents import Document
from passages import read_rows

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.config import IngestSettings

# Several chunks a document, several batches.
SETTINGS = Settings(ingest=IngestSettings(chunk_size=200, chunk_overlap=0, batch_size=16))
ADDED = "This paragraph was put in later, and is so long that it makes a chunk of its own. " * 2
MESSAGES = [Document(f"message {n}", metadata={"source": "slack"}) for n in range(60)]


def take(count, *, edited=False):
    """Passages with a paragraph per sentence; every third may have a new beginning and end."""
    texts = [row["text"].replace(". ", ".\n\n") for row in read_rows("corpus.jsonl", count)]
    for number in range(0, count if edited else 0, 3):
        texts[number] = f"{ADDED}\n\n{texts[number][:-100]}"
    return [Document(text, id=f"d{number}") for number, text in enumerate(texts)]


@pytest.fixture
def opened(embedder):
    """Opens a memory in this process, which recovers it."""
    return lambda place: CrabPath.open(place, embeddings=embedder, settings=SETTINGS)


def read_chunks(memory):
    """Chunk ids by document."""
    found = defaultdict(set)
    for chunk in memory.store.catalog.find_chunks(ids=memory.store.catalog.all_ids()):
        found[chunk.document].add(chunk.id)
    return found


def copy_after_each_step(memory, place):
    """Copies of the directory of a memory, which grow with each step: what a kill leaves.

    A step is a transaction, or half of the vectors that are written at once.
    """
    copies = []
    apply, upsert = memory.store.apply, memory.index.upsert

    def copy():
        copies.append(shutil.copytree(place, place.with_name(f"after {len(copies)} steps")))

    def apply_and_copy(changes):
        found = apply(changes)
        copy()
        return found

    def upsert_in_halves(*columns):
        upsert(*(column[: len(column) // 2] for column in columns))
        copy()
        upsert(*columns)

    memory.store.apply, memory.index.upsert = apply_and_copy, upsert_in_halves
    return copies


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [(take(1), take(20)), (take(20), take(20, edited=True)), (MESSAGES[:20], MESSAGES[20:])],
    ids=["new documents", "update", "messages of one source"],
)
def test_a_killed_ingest_is_finished(tmp_path, opened, contents, joined, old, new):
    """Every document is old or new, or has some of its messages; adding again brings the rest."""
    place = tmp_path / "memory"
    with opened(place) as memory:
        memory.add_documents(old)
        before = read_chunks(memory)
        copies = copy_after_each_step(memory, place)
        memory.add_documents(new)
        after, edges = read_chunks(memory), joined(memory)
    assert len(copies) > 6
    for copy in copies:
        with opened(copy) as memory:
            contents(memory)
            found = read_chunks(memory)
            assert found != before, copy
            for document, chunks in found.items():
                if document == "slack":
                    assert before[document] < chunks <= after[document], copy
                else:
                    assert chunks in (before[document], after[document]), copy
            memory.add_documents(new)
            contents(memory)
            assert (read_chunks(memory), joined(memory)) == (after, edges), copy


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
    """What was staged was meant; opening completes it, and what was learned stays."""
    docs, place = tmp_path / "docs", tmp_path / "memory"
    write(docs, BEFORE)
    with opened(place) as memory:
        memory.sync(docs)
        old = read_sections(memory, docs)
        turn = memory.retrieve("examples of topic 5 and of topic 3", k=3).turn
        memory.record(Feedback(turn.id, 1.0, used=[old["5.md"], old["3.md"]]))
        learned = memory.info()["learned_weights"]
        write(docs, AFTER)
        copies = copy_after_each_step(memory, place)
        memory.sync(docs)
    assert len(copies) > 3
    for copy in copies:
        with opened(copy) as memory:
            contents(memory)
            assert set(read_sections(memory, docs)) == set(AFTER), copy
            assert not memory.sync(docs), copy
            new = read_sections(memory, docs)
            assert (new["3.md"], new["new 4.md"]) == (old["3.md"], old["4.md"]), copy
            facts = memory.info()
            assert (facts["learned_weights"], facts["retired"]) == (learned, 3), copy


CHILD = """
import sys
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from crabpath_retrievers import CrabPath
memory = CrabPath.open(sys.argv[1], embeddings=DeterministicFakeEmbedding(size=16))
print("begun", flush=True)
for n in range(10**6):
    memory.add_documents([Document(f"{i} of {n}", id=f"d{n} {i}") for i in range(50)])
    print(n, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.1, 0.5])
def test_a_process_that_is_killed_loses_nothing_that_it_reported(
    tmp_path, embedder, contents, seconds
):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, tmp_path / "m"], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "begun\n"
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    reported = child.communicate()[0].split()
    with CrabPath.open(tmp_path / "m", embeddings=embedder) as memory:
        assert {f"d{n} 49" for n in reported} <= set(contents(memory))


def fail(*_values):
    msg = "full"
    raise OSError(msg)


@pytest.mark.parametrize("method", ["upsert", "delete"])
def test_an_index_that_fails_loses_nothing(open_memory, contents, joined, monkeypatch, method):
    """Its error is handed on, and the next add finishes what it left, also twice."""
    reference, memory = (open_memory(ingest=SETTINGS.ingest) for _ in range(2))
    old, new = take(12), take(12, edited=True)
    for documents in old, new:
        reference.add_documents(documents)
    memory.add_documents(old)
    with monkeypatch.context() as broken:
        broken.setattr(memory.index, method, fail)
        for _ in range(2):
            with pytest.raises(OSError, match="full"):
                memory.add_documents(new)
    memory.add_documents(new)
    assert contents(memory) == contents(reference)
    assert joined(memory) == joined(reference)


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
