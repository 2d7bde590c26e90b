"""Large ingests in two passes: the same edges as in one batch, whatever interrupts them."""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from corpora import make_linked_corpus, read_graph
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, InvalidInputError, examine
from crabpath_retrievers.config import IngestSettings, Settings
from crabpath_retrievers.ingest.chunking import Chunking, Part
from crabpath_retrievers.parts.bulk import ChunkEmbedder, PartMaker
from crabpath_retrievers.parts.ray import decode_part, encode_part
from tests.seams import set_bounds

pytestmark = pytest.mark.slow

EMBEDDINGS = DeterministicFakeEmbedding(size=16)
DOCUMENTS = make_linked_corpus(240)
FIRST_WORDS = DOCUMENTS[0].page_content[:20]


@pytest.fixture
def in_bulk(monkeypatch):
    """Ingests of a hundred chunks are large, and their batches small."""
    set_bounds(monkeypatch, in_bulk_from=100, published=50, linked=64)


def open_memory(path, **options):
    """Open a memory with the fake embedder."""
    return CrabPath.open(path, embeddings=EMBEDDINGS, **options)


def find_damage(place):
    """What `crabpath doctor` finds in a closed memory."""
    found = examine(place["path"], vectors=place.get("vectors"), embeddings=EMBEDDINGS)
    return list(found.findings)


@pytest.fixture
def place(location, tmp_path):
    """Arguments that open a memory on either database."""
    return {"path": location} | ({"vectors": str(tmp_path / "v")} if "://" in location else {})


def read_one_batch(place, monkeypatch):
    """The graph of the corpus when it is published and linked as one batch."""
    with monkeypatch.context() as patch:
        set_bounds(patch, in_bulk_from=10**9, first_batch=10**9)
        settings = Settings(ingest=IngestSettings(batch_size=10**6))
        with open_memory(place, settings=settings) as memory:
            memory.add_documents(DOCUMENTS)
            return read_graph(memory)


def test_a_large_ingest_has_the_edges_of_one_batch(place, tmp_path, in_bulk, monkeypatch):
    """Which edges there are does not depend on the size of batches."""
    expected = read_one_batch(tmp_path / "one", monkeypatch)
    kinds = {kind for _, _, kind in expected.edges}
    assert kinds >= {"sibling", "link", "linked_by", "mention", "mentioned_by", "shared_term"}
    with open_memory(**place) as memory:
        report = memory.add_documents(DOCUMENTS)
        assert read_graph(memory) == expected
        assert report.added == len(expected.nodes)
        assert memory.add_documents(DOCUMENTS).added == 0
        assert read_graph(memory) == expected


def test_a_large_ingest_into_a_store_with_documents_links_both_ways(tmp_path, in_bulk):
    """Stored documents that name new ones are linked to them, once."""
    old = Document(
        "Mind the Violet Harbour Treaty of Nowhere.", id="old", metadata={"title": "Old"}
    )
    new = Document("Signed by all.", id="new", metadata={"title": "Violet Harbour Treaty"})
    with open_memory(tmp_path) as memory:
        memory.add_documents([old])
        memory.add_documents([*DOCUMENTS, new])
        edges = read_graph(memory).edges
    assert ("old", "new", "mention") in edges
    assert ("new", "old", "mentioned_by") in edges


def test_all_chunks_are_found_by_vector_and_by_words(place, in_bulk):
    """Both indexes hold what was published in large batches."""
    with open_memory(**place) as memory:
        memory.add_documents(DOCUMENTS)
        title = DOCUMENTS[17].metadata["title"]
        found = memory.retrieve(title, k=3).documents
        assert title in {document.node.title for document in found}
    assert find_damage(place) == []


def test_pgvector_has_its_index_again(pgvector_url, in_bulk):
    """The index over vectors, which is built afterwards, is there at the end."""
    with open_memory(pgvector_url, vectors="pgvector") as memory:
        memory.add_documents(DOCUMENTS)
        with memory.store.connect() as connection:
            query = "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()"
            names = {name for (name,) in connection.exec_driver_sql(query)}
        assert {"crabpath_vectors_hnsw", "ix_crabpath_fulltext"} <= names
        assert memory.retrieve(DOCUMENTS[17].page_content, k=1).documents


KILL = """
    import sys
    sys.path[:0] = {paths!r}
    from corpora import make_linked_corpus
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from crabpath_retrievers import CrabPath
    from pytest import MonkeyPatch
    from tests.seams import set_bounds, stop_after

    set_bounds(MonkeyPatch(), in_bulk_from=100, published=50, linked=64)
    stop_after({change!r}, {left})
    with CrabPath.open(**{place!r}, embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        memory.add_documents(make_linked_corpus(240))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("change", "left"), [("publish_nodes", 3), ("put_edges", 2)])
def test_a_killed_ingest_goes_on_where_it_stopped(
    place, tmp_path, in_bulk, monkeypatch, change, left
):
    """After a kill in either pass the same call makes the graph of an ingest that went through."""
    expected = read_one_batch(tmp_path / "one", monkeypatch)
    script = textwrap.dedent(KILL).format(paths=sys.path, place=place, left=left, change=change)
    killed = subprocess.run([sys.executable, "-c", script], check=False, env=os.environ)
    assert killed.returncode == -signal.SIGKILL
    advice = [finding.fix for finding in find_damage(place) if finding.check == "unfinished"]
    assert ["run the ingest again" in fix for fix in advice] == [True]
    with open_memory(**place) as memory:
        assert 0 < len(read_graph(memory).edges) < len(expected.edges) or left == 3
        assert memory.store.catalog.has_unfinished_ingest()
        memory.add_documents(DOCUMENTS)
        assert read_graph(memory) == expected
        assert not memory.store.catalog.has_unfinished_ingest()
    assert find_damage(place) == []


def test_a_part_that_was_sent_is_the_same(tmp_path):
    """Texts, lists, metadata, vectors, words and numbers; also of a part without chunks."""
    with open_memory(tmp_path) as memory:
        chunking = Chunking(IngestSettings())
        maker = PartMaker(memory.store.catalog, chunking, ChunkEmbedder(memory.embedder), None)
        memory.add_documents(DOCUMENTS[:3])
        odd = Document("Öde ÿ \u2603", id="x", metadata={"title": "Ü", "k": [1, {"z": None}]})
        made = maker.make([*DOCUMENTS[:12], odd, Document(" ")], {"a.pdf": "broken"})
        assert {node.vector is None for node in made.nodes} == {True, False}
        sent = decode_part(*encode_part(made))
        empty = Part(skipped={"b.pdf": "gone"})
        assert decode_part(*encode_part(empty)) == empty
    vectors = [(a.vector, b.vector) for a, b in zip(made.nodes, sent.nodes, strict=True)]
    assert all(a is b is None or (a == b).all() for a, b in vectors)
    for part in (made, sent):
        part.nodes[:] = [replace(node, vector=None) for node in part.nodes]
    assert sent == made


def test_files_are_ingested_part_by_part(tmp_path, in_bulk):
    """Files give the documents of `add`; one that is gone when it is read is named."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number, document in enumerate(DOCUMENTS):
        (folder / f"{number:03}.md").write_text(document.page_content)
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 half of a")
    with open_memory(tmp_path / "added") as memory:
        paths = sorted(folder.glob("*.md"))
        memory.add_documents(
            [Document(p.read_text(), metadata={"source": p.as_posix()}) for p in paths]
        )
        plain = read_graph(memory)
    with open_memory(tmp_path / "ingested") as memory:
        report = memory.ingest(folder)
        graph = read_graph(memory)
        assert [name.rsplit("/", 1)[1] for name in report.skipped] == ["broken.pdf"]
        assert (report.documents, report.llm_tokens) == (240, 0)
        assert report.embedded_tokens > 0
        again = memory.ingest(folder)
        assert (again.chunks.added, again.embedded_tokens) == (0, 0)
        (folder / "003.md").write_text("Something else.")
        assert memory.ingest(folder).chunks.added == 1
    assert len(graph.nodes) == len(plain.nodes)
    assert len(graph.edges) == len(plain.edges)


def test_progress_counts_files(tmp_path):
    """A file of many documents is one, as is one of which nothing or a part was read."""
    folder, counts = tmp_path / "files", []
    folder.mkdir()
    (folder / "many.jsonl").write_text('{"a": "One."}\n{"a": "Two."}\n{"a"\n' * 300)
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 half of a")

    @contextmanager
    def count(total):
        yield lambda files: counts.append((files, total))

    with open_memory(tmp_path / "memory") as memory:
        memory.ingest(folder, progress=count)
    assert counts == [(2, 2)]


class EditingEmbedder(DeterministicFakeEmbedding):
    """Embeds, and lets somebody edit the files meanwhile, once."""

    size: int = 16
    edit: Any = None

    def embed_documents(self, texts):
        """Embed after the edit, which comes with the first chunks."""
        if self.edit is not None and any(FIRST_WORDS in text for text in texts):
            edit, self.edit = self.edit, None
            edit()
        return super().embed_documents(texts)


def test_files_that_change_during_the_run_are_right_after_the_next_one(
    tmp_path, in_bulk, monkeypatch
):
    """One already read, one read later, one deleted: no error, and the next run mends the rest."""
    set_bounds(monkeypatch, files=64)
    folder = tmp_path / "files"
    folder.mkdir()
    for number, document in enumerate(DOCUMENTS):
        (folder / f"{number:03}.md").write_text(document.page_content)

    def edit():
        (folder / "000.md").write_text("Read before it became this.")
        (folder / "200.md").write_text("Read when it was this already.")
        (folder / "201.md").unlink()

    embedder = EditingEmbedder()
    with CrabPath.open(tmp_path / "changing", embeddings=embedder) as memory:
        embedder.edit = edit
        report = memory.ingest(folder)
        assert embedder.edit is None
        assert [name.rsplit("/", 1)[1] for name in report.skipped] == ["201.md"]

        def read(name):
            return memory.documents(source=(folder / name).as_posix())[0].page_content

        assert read("000.md").startswith("Alma Abel met Dario Dorn")
        assert read("200.md") == "Read when it was this already."
        again = memory.ingest(folder)
        assert (again.chunks.added, again.chunks.removed) == (1, 2)
        assert read("000.md") == "Read before it became this."
        changing = read_graph(memory)
    with open_memory(tmp_path / "calm") as memory:
        memory.ingest(folder)
        calm = read_graph(memory)
    assert len(calm.nodes) == len(changing.nodes)
    assert {frozenset(e[:2]) for e in calm.edges} == {frozenset(e[:2]) for e in changing.edges}


def test_a_wrong_place_is_refused(tmp_path):
    """An empty folder and a path that does not exist are errors, not empty ingests."""
    with open_memory(tmp_path / "memory") as memory:
        (tmp_path / "empty").mkdir()
        with pytest.raises(InvalidInputError, match="no files to ingest"):
            memory.ingest(tmp_path / "empty")
        with pytest.raises(InvalidInputError, match="does not exist"):
            memory.ingest(tmp_path / "missing")


def test_after_a_large_ingest_postgresql_knows_its_tables(postgres_url, tmp_path):
    """Until it measured them by itself, it would read whole tables to find a few rows."""
    with open_memory(postgres_url, vectors=str(tmp_path / "v")) as memory:
        memory.add_documents([Document(f"Passage {number}") for number in range(1000)])
        with memory.store.connect() as connection:
            query = "SELECT reltuples FROM pg_class WHERE oid = 'crabpath_nodes'::regclass"
            assert connection.exec_driver_sql(query).scalar() == 1000
