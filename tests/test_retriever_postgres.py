"""The retriever over PostgreSQL with its vectors in a directory, end to end."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import CrabPath, CrabPathRetriever

SAMPLE = Path(__file__).parents[1] / "examples" / "hotpotqa_sample"


def read(name, count):
    """The first rows of a file of the HotpotQA sample."""
    lines = (SAMPLE / name).read_text(encoding="utf-8").splitlines()[:count]
    return [json.loads(line) for line in lines]


@pytest.fixture
def passages() -> list[Document]:
    """The passages of four questions, ten per question."""
    return [
        Document(id=row["_id"], page_content=row["text"], metadata={"title": row["title"]})
        for row in read("corpus.jsonl", 40)
    ]


@pytest.fixture
def retriever(postgres_url, tmp_path, embeddings, passages) -> Iterator[CrabPathRetriever]:
    """A retriever whose graph is in PostgreSQL."""
    made = CrabPathRetriever.from_documents(
        passages, embeddings, path=postgres_url, vectors=tmp_path / "vectors"
    )
    yield made
    made.memory.close()


def ids(documents):
    """Ids in order."""
    return [document.id for document in documents]


async def test_ranks_as_on_sqlite(retriever, embeddings, passages):
    """Every question gets the same two best documents as from SQLite, and exactly k of them."""
    small = CrabPathRetriever.from_documents(passages, embeddings)
    for row in read("queries.jsonl", 4):
        here, there = small.invoke(row["text"]), retriever.invoke(row["text"])
        # PostgreSQL's lexical scores do not count repetitions, so near ties may change places.
        assert set(ids(there)[:2]) == set(ids(here)[:2])
        assert len(there) == 4
        assert ids(await retriever.ainvoke(row["text"])) == ids(there)
    small.memory.close()


def test_same_graph_as_on_sqlite(retriever, embeddings, passages):
    """The same edges are read off the text, whichever database holds them."""
    small = CrabPathRetriever.from_documents(passages, embeddings)
    assert retriever.memory.info()["edges"] == small.memory.info()["edges"]
    small.memory.close()


def test_records_turns(retriever):
    """Turns are recorded, and explained, per namespace."""
    found = retriever.invoke("Who played Corliss Archer?", namespace="müller 🦀")
    shown = retriever.memory.explain(found[0].metadata["crabpath"]["turn_id"])
    assert [reason.id for reason in shown.documents] == ids(found)
    assert retriever.memory.info()["namespaces"] == {"müller 🦀": 1}


def test_opens_again(retriever, postgres_url, tmp_path, embeddings):
    """A second retriever on the same database and directory answers alike."""
    question = "Were Scott Derrickson and Ed Wood of the same nationality?"
    again = CrabPathRetriever.from_existing(postgres_url, embeddings, vectors=tmp_path / "vectors")
    assert ids(again.invoke(question)) == ids(retriever.invoke(question))
    again.memory.close()


def test_updates_and_forgets(retriever):
    """A changed document is updated in place, and a forgotten one goes from both stores."""
    memory = retriever.memory
    report = memory.add_documents([Document("Ed Wood is somebody else.", id="h4")])
    assert (report.updated, report.added) == (1, 0)
    assert memory.forget("h4") == 1
    assert memory.info()["nodes"] == memory.index.count() == 39


@pytest.mark.parametrize(
    "text", ["nul \x00 in \ud83d text 🦀", "quote ' and \\ backslash", "a:b & !c"]
)
def test_odd_text(retriever, text):
    """Text and questions with characters that SQL and tsvector treat specially are found."""
    (node_id,) = retriever.add_documents(
        [Document(text, metadata={"odd": text.replace("\ud83d", "")})]
    )
    assert node_id in ids(retriever.invoke(text, k=3))


def test_two_workers(retriever, postgres_url, tmp_path, embeddings):
    """What one worker adds, another one with the same vectors finds."""
    with CrabPath.open(postgres_url, embeddings=embeddings, vectors=tmp_path / "vectors") as other:
        other.add_documents([Document("Crabs walk sideways.", id="crab")])
    assert ids(retriever.invoke("How do crabs walk?", k=1)) == ["crab"]
