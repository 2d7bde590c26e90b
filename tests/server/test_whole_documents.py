"""Whole documents over REST and MCP have the text that was added, each part of it once.

The words are those of the text, in their order; white space may differ where two chunks meet.
"""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_text_splitters import CharacterTextSplitter, RecursiveCharacterTextSplitter
from mcp import Client
from starlette.testclient import TestClient

from crabpath_retrievers import CrabPath
from crabpath_retrievers.config import IngestSettings, Settings
from crabpath_server import create_app
from crabpath_server.mcp import create_local_server

TABLE = "| a | b |\n|---|---|\n"
PARTS = [
    "One sentence that is not long.",
    "word " * 90,
    "丈下三丌三丕" * 70,
    "\n".join(f"line {n % 3}" for n in range(40)),
    TABLE + "".join(f"| row {n % 7} | {n} |\n" for n in range(60)),
    TABLE,
    "# Setup\n\nRun it.",
    "```\n" + "    code  here\n" * 20 + "```",
    "a" * 300,
    "odd\x0c and\u2028new\u3000lines " * 12,
]
TEXTS = st.builds(
    lambda parts, joint: joint.join(parts),
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=25),
    st.sampled_from(["\n\n", "\n", " ", "\r\n\r\n"]),
)
MANUAL = "\n\n".join(f"Step {n}: turn the valve {n} times, then wait." for n in range(200))


@pytest.fixture
def memory():
    with CrabPath.open(embeddings=DeterministicFakeEmbedding(size=16)) as opened:
        yield opened


@pytest.fixture
def read(memory):
    """Reads the text of a whole document over REST."""
    client = TestClient(create_app(memory), base_url="http://127.0.0.1")

    def read_text(name: str) -> str:
        answer = client.get(f"/v1/documents/{name}")
        assert answer.status_code == 200, answer.text
        return answer.json()["text"]

    return read_text


@example([MANUAL])
@example([MANUAL, MANUAL.replace("Step 99:", "Step 99, which is new and much longer: " * 9)])
@example(["x" * 3000, "\n\n".join([PARTS[1]] * 12)])
@given(st.lists(TEXTS, min_size=1, max_size=2))
@settings(max_examples=6, deadline=None)
@pytest.mark.parametrize(
    ("kind", "size", "overlap"),
    [("text/markdown", 1200, 100), ("text/plain", 1200, 100), ("text/markdown", 300, 40)],
)
def test_a_whole_document_has_the_text_that_was_added(kind, size, overlap, versions):
    """Whatever repeats in it, and however it was edited since."""
    parts = Settings(ingest=IngestSettings(chunk_size=size, chunk_overlap=overlap))
    embeddings = DeterministicFakeEmbedding(size=16)
    with CrabPath.open(embeddings=embeddings, settings=parts) as memory:
        client = TestClient(create_app(memory), base_url="http://127.0.0.1")
        for text in versions:
            memory.add_documents([Document(text, id="x", metadata={"content_type": kind})])
            whole = client.get("/v1/documents/x").json()
            assert whole["text"].split() == text.split()
            chunks = [chunk["text"] for chunk in whole["chunks"]]
            assert len(chunks) == len(set(chunks))


async def test_pages_follow_on(memory, read):
    text = f"{MANUAL}\n\n{MANUAL.upper()}\n\n{MANUAL}\n\nThe end."
    memory.add_documents([Document(text, id="manual")])
    pages, count = [], 1
    async with Client(create_local_server(memory, "ann")) as client:
        while len(pages) < count:
            arguments = {"id": "manual", "page": len(pages) + 1}
            found = (await client.call_tool("fetch", arguments)).structured_content
            pages.append(found["text"])
            count = found["pages"]
        (resource,) = (await client.read_resource("crabpath://documents/manual")).contents
    assert count > 1
    assert "".join(pages) == resource.text == read("manual")
    assert resource.text.split() == text.split()


@pytest.mark.parametrize(
    "splitter",
    [
        CharacterTextSplitter(separator="\n\n", chunk_size=300, chunk_overlap=100),
        CharacterTextSplitter(separator=":", chunk_size=300, chunk_overlap=0),
    ],
)
def test_a_splitter_that_is_given(memory, read, splitter):
    memory.add_documents([Document(MANUAL, id="given")], splitter=splitter)
    assert read("given").split() == MANUAL.split()


def test_chunks_that_say_where_they_begin(memory, read):
    splitter = RecursiveCharacterTextSplitter(
        chunk_size=300, chunk_overlap=150, add_start_index=True
    )
    memory.add_documents(splitter.split_documents([Document(MANUAL, metadata={"source": "cut"})]))
    assert read("cut").split() == MANUAL.split()


def test_pages_of_one_source_stay_apart(memory, read):
    """A text that one page ends and the next one begins with is of both."""
    texts = [f"{line} {MANUAL[:1150]} The foot of the page." for line in ("A", "The foot of the")]
    pages = [Document(t, metadata={"source": "m", "page": n}) for n, t in enumerate(texts)]
    memory.add_documents(pages)
    assert read("m").split() == " ".join(texts).split()


def test_a_deleted_part_is_seen(memory, read):
    ids = memory.add_documents([Document(MANUAL, id="manual")]).ids
    memory.forget([ids[0], ids[3]])
    assert read("manual").startswith("[…]\n\nStep ")
    assert read("manual").count("[…]") == 2
    memory.add_documents([Document(MANUAL, id="manual")])
    assert read("manual").split() == MANUAL.split()


def test_a_text_that_repeats_is_counted_and_kept_once(memory, read):
    text = "# Note\n\nMind the gap.\n\n# Other\n\nText.\n\n# Note\n\nMind the gap."
    document = Document(text, id="x", metadata={"content_type": "text/markdown"})
    report = memory.add_documents([document])
    assert (report.added, report.repeated) == (2, 1)
    assert "1 repeat the text of others" in str(report)
    assert read("x").split() == text.split()
    again = memory.add_documents([document])
    assert (again.unchanged, again.repeated) == (2, 1)
