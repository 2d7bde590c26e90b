"""A merge or split that is killed at any moment: the next open mends it."""

import subprocess
import sys
from pathlib import Path

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import Settings
from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.errors import StoreLockedError
from crabpath_retrievers.maintenance import MaintenanceRunner
from crabpath_retrievers.storage import GraphStore

pytestmark = pytest.mark.slow

RULES = MaintenanceSettings(split_above_chars=600, split_part_chars=400)
MANUAL = f"# Cats\n\n{'Cats sleep on roofs. ' * 18}\n\n# Dogs\n\n{'Dogs bark at night. ' * 18}"
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[5])
from conftest import Bag
from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.config.maintenance import MaintenanceSettings

settings = Settings(
    maintenance=MaintenanceSettings(split_above_chars=600, split_part_chars=400)
)
location, vectors, step, left = *sys.argv[1:4], int(sys.argv[4])
memory = CrabPath.open(location, embeddings=Bag(), vectors=vectors, settings=settings)

def counted(of, name):
    work = getattr(of, name)
    def killed(*given):
        global left
        if not left:
            os._exit(9)
        left -= 1
        return work(*given)
    setattr(of, name, killed)

counted(memory.store, "apply")
counted(memory.index, "upsert")
counted(memory.index, "delete")
memory.maintenance.run([step])
"""


def ids(memory, question="cats sleep and dogs bark"):
    """What a query returns."""
    answer = memory.retrieve(question, k=6, record=False)
    return {item.node.id for item in answer.documents}


def killed(location, tmp_path, step, work):
    """The exit code of a process that dies after so many writes to the store or the index."""
    given = [location, str(tmp_path / "chroma"), step, str(work), str(Path(__file__).parent)]
    program = [sys.executable, "-c", PROGRAM, *given]
    return subprocess.run(program, check=False, timeout=120).returncode


@pytest.mark.parametrize("work", range(3))
def test_a_killed_merge(twins, opening, location, tmp_path, work):
    """Before the transaction nothing happened; after it, the index is made up for."""
    twins.close()
    assert killed(location, tmp_path, "merge", work) == 9
    with opening() as memory:
        assert not memory.store.catalog.has_unfinished_ingest()
        assert memory.maintenance.run(["merge"]).total_changed == (1 if work == 0 else 0)
        assert ids(memory, "how do I deploy the service") == {"new", "panda", "rows"}
        assert memory.index.find_existing(["new", "old"]) == {"new"}
        assert memory.index.count() == 3


@pytest.mark.parametrize("work", range(6))
def test_a_killed_split(opening, location, tmp_path, work):
    """Staged it is finished, before that it is as it was; no text is there twice."""
    settings = Settings().replace(maintenance=RULES)
    with opening(settings=settings) as memory:
        memory.add_documents([Document(MANUAL, id="manual")], split=False)
    assert killed(location, tmp_path, "split", work) == 9
    with opening(settings=settings) as memory:
        assert not memory.store.catalog.has_unfinished_ingest()
        found = ids(memory)
        assert (found == {"manual"}) == (work == 0)
        assert memory.index.find_existing([*found]) == found
        assert memory.index.count() == len(found)
        changed = memory.maintenance.run(["split"]).total_changed
        assert changed == (1 if work == 0 else 0)
        assert len(ids(memory)) == 2
        assert memory.index.count() == 2


def test_killed_beside_the_index(twins, opening, location):
    """The store alone was merged, then all processes died: the next open mends the index."""
    store = GraphStore(location)
    run = MaintenanceRunner(store, twins.settings).run(["merge"]).run
    store.close()
    assert twins.index.find_existing(["old"]) == {"old"}
    twins.close()
    with opening() as memory:
        assert memory.index.find_existing(["old"]) == set()
        memory.maintenance.undo(run)
        assert memory.index.find_existing(["old"]) == {"old"}


def test_started_twice(twins, location):
    """The second one does nothing; taken back twice, it is taken back once."""
    other = GraphStore(location)
    with other.hold_ingest_lock(), pytest.raises(StoreLockedError):
        twins.maintenance.run(["merge"])
    run = twins.maintenance.run(["merge"]).run
    assert MaintenanceRunner(other, twins.settings).run(["merge"]).total_changed == 0
    for store in (other, twins.store):
        MaintenanceRunner(store, twins.settings).undo(run)
    assert twins.store.catalog.resolve_aliases(["new", "old"]) == {}
    other.close()
