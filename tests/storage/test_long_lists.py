"""Long lists of values: found whole, and kept by no connection."""

from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath

ODD = 'sky\'s "limit" 東\\'  # quotes, another script, a backslash


def read_resident():
    """Resident memory of this process in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    return pytest.skip("this system does not say it")


@pytest.mark.slow
def test_lists_of_many_lengths_leave_no_memory_behind():
    """The driver of SQLite keeps 128 statements, each with its values."""
    with CrabPath.open(embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        memory.add_documents([Document("The sky is blue.", id=ODD)], split=False, progress=None)

        def find(length):
            return memory.get_by_ids([ODD, *(f"{n:040}" for n in range(length))])

        find(7000)
        before = read_resident()
        for length in range(6000, 6130):
            assert [document.id for document in find(length)] == [ODD]
        assert read_resident() - before < 40
