"""A maintenance that is killed at any moment loses nothing; the next one finishes it."""

import subprocess
import sys
from pathlib import Path

import maintained
import pytest
from langchain_core.documents import Document
from maintained import delta

from crabpath_retrievers.core.changes import AdjustWeights, AdvanceClock

PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
from maintained import Bag
from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.config.maintenance import MaintenanceSettings

rules = MaintenanceSettings(batch_size=2)
location, vectors, left, steps = *sys.argv[2:4], int(sys.argv[4]), sys.argv[5:]
memory = CrabPath.open(
    location, embeddings=Bag(), vectors=vectors, settings=Settings(maintenance=rules)
)

def count(of, name):
    work = getattr(of, name)
    def killed(*given):
        global left
        if not left:
            os._exit(9)
        left -= 1
        return work(*given)
    setattr(of, name, killed)

for of, name in ((memory.store, "apply"), (memory.index, "upsert"), (memory.index, "delete")):
    count(of, name)
memory.maintenance.run(steps)
"""


@pytest.fixture
def kill(location, tmp_path):
    """Runs steps in a process that dies after so many writes to the store or the index."""

    def kill(work, *steps):
        stubs, chroma = Path(maintained.__file__).parent, tmp_path / "chroma"
        program = [sys.executable, "-c", PROGRAM, stubs, location, chroma, str(work), *steps]
        assert subprocess.run(program, check=False, timeout=120).returncode == 9

    return kill


@pytest.mark.slow
@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_killed_prune(open_chroma, kill, batches):
    """What was done stays done, what was not is done then; strong weights stay throughout."""
    with open_chroma() as memory:
        names = [f"d{n}" for n in range(12)]
        memory.add_documents([Document(f"Text of {n}.", id=n) for n in names], split=False)
        weak = [delta(memory, "d0", name, 0.1) for name in names[1:]]
        strong = [delta(memory, "d1", name, 0.9) for name in names[2:]]
        learned = AdjustWeights("ann", (*weak, *strong), "cause")
        memory.store.apply([learned, AdvanceClock("ann", exponent=2.0)])
        keys = list(memory.store.learned.keys(names).values())
    kill(batches, "fade", "prune")
    with open_chroma() as memory:
        left = memory.store.learned.weights("ann", keys)
        assert len(left) == len(weak) + len(strong) - 2 * batches
        assert memory.maintenance.run(["prune"]).total_changed == len(left) - len(strong)
        assert len(memory.store.learned.weights("ann", keys)) == len(strong)
