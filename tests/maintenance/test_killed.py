"""A maintenance that is killed at any moment loses nothing; the next one finishes it."""

import subprocess
import sys

import pytest

from crabpath_retrievers.core.changes import AdjustWeights, AdvanceClock, WeightDelta
from crabpath_retrievers.core.graph import EdgeKind

pytestmark = pytest.mark.slow

PROGRAM = """
import os, sys
from crabpath_retrievers import Settings
from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.maintenance import MaintenanceRunner
from crabpath_retrievers.storage import GraphStore

store = GraphStore(sys.argv[1])
left, apply = int(sys.argv[2]), store.apply

def killed(changes):
    global left
    if not left:
        os._exit(9)
    left -= 1
    apply(changes)

store.apply = killed
settings = Settings(maintenance=MaintenanceSettings(batch_size=2))
MaintenanceRunner(store, settings).run(["fade", "prune"])
"""


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_the_next_one_finishes_it(memory, location, batches):
    """What was done stays done, what was not is done then; strong weights stay throughout."""
    keys = list(memory.store.learned.keys([f"d{n}" for n in range(12)]).values())
    weak = [WeightDelta(keys[0], key, EdgeKind.CO_USED, 0.1) for key in keys[1:]]
    strong = [WeightDelta(keys[1], key, EdgeKind.CO_USED, 0.9) for key in keys[2:]]
    changes = [AdjustWeights("ann", (*weak, *strong), "cause"), AdvanceClock("ann", exponent=2.0)]
    memory.store.apply(changes)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, location, str(batches)], check=False, timeout=120
    )
    assert done.returncode == 9
    left = memory.store.learned.weights("ann", keys)
    assert len(left) == len(weak) + len(strong) - 2 * batches
    report = memory.maintenance.run(["prune"])
    assert report.total_changed == len(left) - len(strong)
    assert len(memory.store.learned.weights("ann", keys)) == len(strong)
