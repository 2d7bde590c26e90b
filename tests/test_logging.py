"""What the library logs, and what others log on its behalf."""

import logging

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, CrabPathRetriever, Feedback

FAKE = DeterministicFakeEmbedding(size=32)


@pytest.fixture
def memory(tmp_path):
    """One page with a link."""
    page = Document("# One\n\nTwo [three](x.md).", metadata={"source": "a.md"})
    with CrabPath.open(tmp_path / "memory", embeddings=FAKE) as memory:
        memory.add_documents([page])
        yield memory


def messages(caplog, level: int) -> list[str]:
    """What this library logged at one level."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == level and record.name.startswith("crabpath_retrievers.")
    ]


def test_opening_ingest_learning_and_maintenance_are_told(tmp_path, caplog):
    """One INFO line each, with counts and milliseconds."""
    with (
        caplog.at_level(logging.INFO, logger="crabpath_retrievers"),
        CrabPath.open(tmp_path / "memory", embeddings=FAKE) as memory,
    ):
        memory.add_documents([Document(page_content="One."), Document(page_content="Two.")])
        turn = memory.retrieve("one?").turn
        memory.record(Feedback(turn.id, 1.0))
        memory.maintenance.run(["fade"])
    opened, ingested, learned, maintained = messages(caplog, logging.INFO)  # none for a turn
    assert opened.startswith("opened sqlite")
    assert "with 0 chunks" in opened
    assert ingested.startswith("ingest of 2 chunks: 2 added, 0 updated, 0 removed, 0 unchanged")
    assert learned.startswith("learned from feedback ")
    assert maintained.startswith("maintenance changed fade 0 in ")
    assert all(message.endswith(" ms") for message in messages(caplog, logging.INFO))


def test_what_is_not_learned_is_warned_of(memory, caplog):
    """Whoever ignores the receipt still learns of it."""
    receipt = CrabPathRetriever(memory=memory).record("\x1b[2J", 1.0, strict=False)
    turn = memory.retrieve("thing 1?").turn
    assert memory.record(Feedback(turn.id, 1.0, used=["unheard of"])).status == "refused"
    refused, unknown = messages(caplog, logging.WARNING)
    assert receipt.status == "refused"
    assert repr("\x1b[2J") in refused
    assert receipt.note in refused
    assert "unheard of" in unknown


@pytest.mark.slow
def test_other_libraries_do_not_flood_a_log_at_debug(tmp_path, request, caplog, monkeypatch):
    """Parsing and locking stay quiet, unless the application has set their level."""
    caplog.set_level(logging.DEBUG)
    request.getfixturevalue("memory")
    assert not [r for r in caplog.records if r.name.split(".")[0] in {"filelock", "markdown_it"}]
    monkeypatch.setattr(logging.getLogger("filelock"), "level", logging.DEBUG)
    CrabPath.open(tmp_path / "other", embeddings=FAKE).close()
    assert logging.getLogger("filelock").level == logging.DEBUG
