"""SIGKILL at any step of a sync leaves the source as it was or as it is, and loses nothing."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crabpath_retrievers import Feedback
from crabpath_retrievers.crabpath import CrabPath

pytestmark = pytest.mark.slow

CHILD = Path(__file__).parent / "crash_child.py"
STEPS = ["staged", "indexed", "published", "emptied"]
TEXT = "Topic {n} is described at length here, with {n} examples of {n} kinds and no more."


def write(folder, texts):
    """Make a folder hold these files and no others."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)


BEFORE = {f"{n}.md": TEXT.format(n=n) for n in range(8)}
AFTER = {
    **{f"{n}.md": TEXT.format(n=n) for n in range(3)},
    "3.md": TEXT.format(n=3).replace("examples", "samples"),
    "new 4.md": TEXT.format(n=4),
    "9.md": "Something else altogether, which nobody has ever written down before.",
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Folder of the source; the memory before; memories whose sync was killed, by step."""
    place = tmp_path_factory.mktemp("killed")
    return place, place / "docs", {step: place / step for step in STEPS}


@pytest.fixture
def opened(embedder, crash_settings):
    """Opens a memory in this process, which recovers it."""
    return lambda place: CrabPath.open(place, embeddings=embedder, settings=crash_settings)


def by_source(memory, docs):
    """Id of the section of each file."""
    return {
        Path(k.source).name: k.id for k in memory.store.catalog.find_under_source(docs.as_posix())
    }


def test_a_killed_sync_is_finished(killed, opened, held):
    """Each killed sync is undone or done as a whole; the next one completes it as ever."""
    place, docs, memories = killed
    write(docs, BEFORE)
    with opened(place / "old") as memory:
        memory.sync(docs)
        old = by_source(memory, docs)
        turn = memory.retrieve("examples of topic 5 and of topic 3", k=3).turn
        memory.record(Feedback(turn.id, 1.0, used=[old["5.md"], old["3.md"]]))
        learned = memory.info()["learned_weights"]
    for directory in memories.values():
        shutil.copytree(place / "old", directory)
    write(docs, AFTER)
    given = place / "docs.json"
    given.write_text(json.dumps(str(docs)))
    jobs = [str(value) for pair in memories.items() for value in pair]
    command = [sys.executable, str(CHILD), str(given), *jobs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for step, directory in memories.items():
        with opened(directory) as memory:
            held(memory)
            assert set(by_source(memory, docs)) == set(AFTER), step  # staged means meant
            assert not memory.sync(docs), step
            new = by_source(memory, docs)
            assert (new["3.md"], new["new 4.md"]) == (old["3.md"], old["4.md"]), step
            facts = memory.info()
            assert (facts["learned_weights"], facts["retired"]) == (learned, 3), step


@pytest.mark.parametrize("method", ["upsert", "delete"])
def test_an_index_that_fails_loses_nothing(tmp_path, opened, held, monkeypatch, method):
    """Its error is handed on, and the next sync finishes what was meant."""
    docs = tmp_path / "docs"
    write(docs, BEFORE)
    with opened(tmp_path / "memory") as memory:
        memory.sync(docs)
        write(docs, AFTER)

        def fail(*_columns):
            msg = "the index is full"
            raise OSError(msg)

        with monkeypatch.context() as broken:
            broken.setattr(memory.index, method, fail)
            with pytest.raises(OSError, match="the index is full"):
                memory.sync(docs)
        memory.sync(docs)
        held(memory)
        assert set(by_source(memory, docs)) == set(AFTER)
        assert memory.info()["retired"] == 3
