"""The same documents make the same graph and the same answers, whichever way they came."""

import random
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa
from langchain_chroma import Chroma
from langchain_core.documents import Document
from passages import read_passages, read_questions

from crabpath_retrievers import CrabPath, CrabPathRetriever, EdgeKind
from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.storage.schema import contents, edges
from tests.seams import set_bounds

pytestmark = pytest.mark.slow

PASSAGES = read_passages(150)
PAGES = sorted((Path(__file__).parents[2] / "docs" / "how-to").glob("*.md"))[:8]
QUESTIONS = read_questions(12)
ALL = 10**9
TIGHT = LinkSettings(max_mentions=3, max_back_links=2, max_owners=1, max_chunks_per_term=3)
"""Bounds that many names of the sample exceed."""

WAYS = [
    *((None, ALL, ALL), (0, ALL, ALL), (1, 50, ALL), (2, 7, ALL), (3, 1, ALL)),
    *((4, ALL, 10), (5, 60, 10)),
]
"""Seed of the order, documents of a call, and chunks from which a call is done in bulk."""


@pytest.fixture
def folder(tmp_path) -> Path:
    """Files of Markdown: one for each passage, and pages of several sections."""
    made = tmp_path / "files"
    made.mkdir()
    for number, passage in enumerate(PASSAGES):
        text = f"# {passage.metadata['title']}\n\n{passage.page_content}"
        (made / f"{number:03}.md").write_text(text, encoding="utf-8")
    for page in PAGES:
        (made / page.name).write_bytes(page.read_bytes())
    return made


def load(folder: Path) -> list[Document]:
    """The files as documents."""
    paths = sorted(folder.iterdir())
    return [Document(path.read_text(), metadata={"source": path.as_posix()}) for path in paths]


def read_state(memory: CrabPath) -> tuple[Counter, list]:
    """All edges between texts with their weights, and the answers to the questions."""
    source, target = contents.alias(), contents.alias()
    query = (
        sa.select(source.c.content, target.c.content, edges.c.kind, edges.c.prior, edges.c.floor)
        .join(source, source.c.node == edges.c.source)
        .join(target, target.c.node == edges.c.target)
    )
    with memory.store.connect() as connection:
        rows = connection.execute(query).all()
    found = Counter((a, b, EdgeKind(k).label, round(p, 9), round(f, 9)) for a, b, k, p, f in rows)
    answers = [
        [
            (document.node.content, round(document.score, 9))
            for document in memory.retrieve(question, k=6, record=False).documents
        ]
        for question in QUESTIONS
    ]
    return found, answers


@pytest.mark.slow
@pytest.mark.parametrize("links", [LinkSettings(), TIGHT], ids=["default", "tight"])
def test_neither_order_nor_batches_matter(open_memory, folder, links, monkeypatch):
    """One call, and batches of 1, 7 and 50 in other orders, also in bulk."""
    documents = load(folder)
    set_bounds(monkeypatch, published=64, linked=64)
    states = []
    for seed, size, least in WAYS:
        set_bounds(monkeypatch, in_bulk_from=least)
        given = list(documents)
        if seed is not None:
            random.Random(seed).shuffle(given)  # noqa: S311
        memory = open_memory(links=links)
        for start in range(0, len(given), size):
            memory.add_documents(given[start : start + size])
        states.append(read_state(memory))
    kinds = {kind for _, _, kind, *_ in states[0][0]}
    assert kinds == {"sibling", "link", "linked_by", "mention", "mentioned_by", "shared_term"}
    assert [edges == states[0][0] for edges, _ in states] == [True] * len(states)
    assert [answers == states[0][1] for _, answers in states] == [True] * len(states)


@pytest.mark.slow
def test_what_is_deleted_leaves_no_trace(open_memory, folder, monkeypatch):
    """Names and terms that are rare again join what they did not."""
    documents = load(folder)
    kept, gone = documents[::2], documents[1::2]
    states = []
    for way in ("none", "delete", "sync", "bulk"):
        set_bounds(monkeypatch, in_bulk_from=10 if way == "bulk" else ALL)
        memory = open_memory(links=TIGHT)
        memory.add_documents(kept if way == "none" else documents)
        if way == "delete":
            memory.forget(source=[document.metadata["source"] for document in gone])
        elif way == "sync":
            for path in sorted(folder.iterdir())[1::2]:
                path.unlink()
            memory.sync(folder)
        elif way == "bulk":
            memory.add_documents(kept, cleanup="full")
        states.append(read_state(memory))
    assert [edges == states[0][0] for edges, _ in states] == [True] * len(states)
    assert [answers == states[0][1] for _, answers in states] == [True] * len(states)


def test_what_a_text_said_before_leaves_no_trace(open_memory, folder):
    """As where it is deleted."""
    documents = load(folder)
    kept, gone = documents[::2], documents[1::2]
    former = [
        Document(f"{text.page_content}\n\n{more.page_content}", metadata=text.metadata)
        for text, more in zip(kept, gone, strict=False)
    ]
    ids = [f"{number:03}" for number in range(len(kept))]
    plain, changed = open_memory(links=TIGHT), open_memory(links=TIGHT)
    plain.add_documents(kept, ids=ids)
    for texts in (former, kept):
        changed.add_documents(texts, ids=ids[: len(texts)])
    assert read_state(changed) == read_state(plain)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["sync", "sync in parts", "ingest"])
def test_files_make_the_graph_of_their_documents(open_memory, folder, by):
    """However they are read."""
    plain, other = open_memory(), open_memory()
    plain.add_documents(load(folder))
    if by == "ingest":
        other.ingest(folder)
    else:
        if by == "sync in parts":
            other.sync(sorted(folder.iterdir())[::3])
        other.sync(folder)
    assert read_state(other) == read_state(plain)


def test_a_wrapped_store_makes_the_same_graph(open_memory, embedder):
    """Whose documents come in another order; its own measure of distance decides what is found."""
    plain = open_memory()
    plain.add_documents(PASSAGES, split=False)
    store = Chroma(collection_name="passages", embedding_function=embedder)
    store.add_documents(PASSAGES[::-1])
    with CrabPathRetriever.from_vectorstore(store) as wrapped:
        assert read_state(wrapped.memory)[0] == read_state(plain)[0]


def chain(memory):
    """Pairs of chunks that stand side by side."""
    source, target = contents.alias(), contents.alias()
    query = (
        sa.select(source.c.content, target.c.content)
        .join(edges, source.c.node == edges.c.source)
        .join(target, target.c.node == edges.c.target)
        .where(edges.c.kind == EdgeKind.SIBLING.value)
    )
    with memory.store.connect() as connection:
        return Counter(map(tuple, connection.execute(query)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_neighbours_are_the_same_where_a_source_is_not_read_whole(open_memory, seed, monkeypatch):
    """Rows of a table that come and go one by one, some of several chunks, some growing."""
    rng = random.Random(seed)  # noqa: S311
    many, few = open_memory(), open_memory()
    texts = {}
    for step in range(60):
        source, name = rng.choice("aab"), f"row {rng.randrange(40)}"
        if rng.random() < 0.2 and texts:
            gone = texts.pop(rng.choice(sorted(texts)))
            for memory in (many, few):
                memory.forget(gone)
            continue
        given = [
            Document(f"Line {step} of {name}, part {part}.", metadata={"source": source})
            for part in range(rng.choice((1, 1, 3)))
        ]
        ids = None if rng.random() < 0.5 else [f"{source} {name} {n}" for n in range(len(given))]
        for memory, bound in ((many, ALL), (few, 0)):
            set_bounds(monkeypatch, chunks_of_sources=bound, keys_beside=rng.choice((2, 4, 8, 64)))
            added = memory.add_documents(given, ids=ids).ids
        texts[source + name] = added
        assert chain(few) == chain(many), step
