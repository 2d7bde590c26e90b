"""The embedder of a memory is changed while it answers; kills leave the old one or the new one."""

import os
import shutil
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from word_sums import WordSums

from crabpath_retrievers import (
    ConfigurationError,
    CrabPath,
    CrabPathRetriever,
    EmbeddingMismatchError,
    InvalidInputError,
    StoreError,
    StoreLockedError,
)
from tests.seams import set_bounds, stop_after

TOPICS = ("ferry", "harbour", "tax", "oven", "goal", "comet", "violin", "court")
PAGES = [
    Document(f"Page {n} is about the {TOPICS[n % 8]} and number {n}.", id=f"d{n}")
    for n in range(40)
]
OLD, NEW = WordSums(16), WordSums(24, seed=1)
QUESTION = "Where is the harbour?"


@pytest.fixture(params=["directory", "pgvector", "server"])
def place(request, tmp_path):
    """Arguments that open a memory: Chroma embedded, pgvector, a Chroma server."""
    if request.param == "directory":
        return {"path": tmp_path / "memory"}
    if request.param == "pgvector":
        return {"path": request.getfixturevalue("pgvector_url"), "vectors": "pgvector"}
    url = request.getfixturevalue("postgres_url")
    server = request.getfixturevalue("server")
    return {"path": url, "vectors": f"http://127.0.0.1:{server.port}/{tmp_path.name[-40:]}"}


def fill(place):
    """A memory with documents, a note, and feedback for a question; and the turn of another."""
    memory = CrabPath.open(**place, embeddings=OLD)
    memory.add_documents(PAGES, progress=None)
    answer = memory.retrieve(QUESTION, k=4, namespace="ann")
    memory.record(answer, "up", used=[answer.documents[3].node.id])
    memory.teach("The harbour closes at nine.", namespace="ann")
    return memory, memory.retrieve("A comet?", namespace="ann").turn.id


def change(memory, embeddings=NEW):
    return memory.maintenance.change_embedder(embeddings, progress=None)


def is_under_way(memory):
    """Whether a change was begun and not ended: there is a table for it."""
    with memory.store.connect() as connection:
        return sa.inspect(connection).has_table("crabpath_reembedded")


def check(memory, embeddings):
    """All vectors are those of one embedder, in the graph store and in the index."""
    ids = sorted(memory.store.catalog.chunk_ids())
    assert sorted(one for page in memory.index.ids() for one in page) == ids
    assert not is_under_way(memory)
    texts = {document.id: document.page_content for document in memory.get_by_ids(ids)}
    for name, vector in memory.store.catalog.vectors(ids).items():
        wanted = np.array(embeddings.embed_query(texts[name]))
        assert vector.shape == wanted.shape
        assert float(vector.astype(float) @ wanted) / np.linalg.norm(wanted) > 0.99
    for name, text in list(texts.items())[:8]:
        assert memory.index.search(np.array(embeddings.embed_query(text)), 1) == [name]


@pytest.mark.slow
def test_what_was_learned_is_kept(place):
    memory, turn = fill(place)
    with memory:
        learned = memory.info()["learned_weights"]
        assert change(memory) == len(PAGES) + 4  # a note, its two questions, and two turns
        check(memory, NEW)
        assert memory.info()["learned_weights"] == learned
        used = memory.store.turns.find(turn).turn.returned[0].node
        assert memory.record(turn, "up", used=[used]).status == "applied"
        assert memory.retrieve("A comet?", namespace="ann").documents[0].node.id == used
        late = Document("A new page about a lighthouse.", id="late")
        memory.add_documents([late], progress=None)
        assert memory.retrieve("lighthouse").documents[0].node.id == "late"
        assert change(memory, WordSums(24, seed=1)) == 0
    with CrabPath.open(**place, embeddings=NEW) as memory:
        check(memory, NEW)
        found = memory.retrieve("When does the harbour close?", namespace="ann")
        assert any("closes at nine" in one.node.content for one in found.documents)
        again = memory.retrieve(QUESTION, namespace="ann").turn.returned
        assert max(returned.features.get("again", 0) for returned in again) > 0
    sentence = r"built with 24 dimensions, not 16.*crabpath reembed"
    with (
        CrabPath.open(**place, embeddings=OLD) as memory,
        pytest.raises(EmbeddingMismatchError, match=sentence),
    ):
        memory.retrieve("tax")


@pytest.mark.slow
def test_queries_and_documents_go_on_meanwhile(place, monkeypatch):
    """No query fails; documents that are added, edited and forgotten meanwhile are caught up."""
    set_bounds(monkeypatch, embedded_anew=8)
    memory, _ = fill(place)
    new, errors, answers = WordSums(24, seed=1), [], []
    ended = threading.Event()

    def ask():
        while not ended.is_set():
            try:
                answers.append(memory.retrieve("harbour", k=3, namespace="ann"))
            except Exception as error:
                errors.append(error)
                return

    steps = iter(
        [
            lambda: memory.add_documents([Document("A lighthouse.", id="late")], progress=None),
            lambda: memory.add_documents([Document("An oven, edited.", id="d3")], progress=None),
            lambda: memory.forget(ids=["d5"]),
            lambda: memory.teach("The harbour opens at six.", namespace="ann"),
        ]
    )

    def do_next():
        next(steps, str)()

    new.meanwhile = do_next
    askers = [threading.Thread(target=ask) for _ in range(3)]
    with memory:
        for asker in askers:
            asker.start()
        change(memory, new)
        count = len(answers)
        memory.retrieve("harbour")
        ended.set()
        for asker in askers:
            asker.join()
        assert errors == []
        assert count > 3
        assert next(steps, None) is None
        check(memory, new)
        assert {"late", "d3"} <= set(memory.store.catalog.chunk_ids())
        assert "d5" not in memory.store.catalog.chunk_ids()
        vectors = [memory.store.turns.find(answer.turn.id).vector for answer in answers]
        assert {vector.size for vector in vectors} == {24}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["pgvector", "server"], indirect=True)
def test_other_processes_refuse_from_the_switch_on(place):
    """One clear sentence, for reads and for writes."""
    memory, _ = fill(place)
    with memory, CrabPath.open(**place, embeddings=OLD) as other:
        other.retrieve("tax")
        change(memory)
        for use in (
            lambda: other.retrieve("tax"),
            lambda: other.add_documents([Document("Late.")], progress=None),
            lambda: other.teach("Late."),
        ):
            with pytest.raises(EmbeddingMismatchError, match=r"changed to 'words-24-1' while"):
                use()
        check(memory, NEW)


CHILD = """
import os, signal, sys
from word_sums import WordSums
from crabpath_retrievers import CrabPath
from tests.seams import stop_after

path, index, change, times = sys.argv[1:]
memory = CrabPath.open(path, vectors=index or None, embeddings=WordSums(16))
stop_after(change, int(times))
memory.maintenance.change_embedder(WordSums(24, seed=1), progress=None)
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["directory", "pgvector"], indirect=True)
@pytest.mark.parametrize(
    ("last", "times", "is_switched"),
    [
        ("begin_reembedding", 1, False),
        ("put_reembedded", 1, False),
        ("put_reembedded", 3, False),
        ("switch_embedder", 1, None),  # applied, and not yet committed
        ("end_reembedding", 1, True),
    ],
)
def test_a_kill_leaves_the_old_or_the_new_embedder(place, last, times, is_switched):
    memory, turn = fill(place)
    memory.close()
    arguments = [str(place["path"]), place.get("vectors", ""), last, str(times)]
    killed = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments],
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PATH": ""},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    if not is_switched:
        with CrabPath.open(**place, embeddings=OLD) as memory:
            assert memory.retrieve("tax").documents
            memory.add_documents([Document("A lighthouse.", id="late")], progress=None)
            assert (change(memory) < len(PAGES)) == (last != "begin_reembedding")
            check(memory, NEW)
    with CrabPath.open(**place, embeddings=NEW) as memory:
        check(memory, NEW)
        assert memory.record(turn, "up").status == "applied"


@pytest.mark.slow
def test_a_kill_between_switch_and_tidying_is_finished(tmp_path, monkeypatch):
    """Copies of the directory at each step after the switch: what a kill leaves."""
    place = {"path": tmp_path / "memory"}
    memory, _ = fill(place)
    copies = []

    def copy(name):
        own = getattr(memory.index, name)

        def copy_first(*given):
            copies.append(tmp_path / f"copy {len(copies)}")
            shutil.copytree(place["path"], copies[-1])
            return own(*given)

        monkeypatch.setattr(memory.index, name, copy_first)

    with memory:
        for name in ("use_next", "take_next", "_delete", "_rename"):
            copy(name)
        change(memory)
    assert len(copies) > 3
    for path in copies:
        with CrabPath.open(path, embeddings=NEW) as memory:
            check(memory, NEW)
            assert memory.retrieve(QUESTION, namespace="ann").documents


@pytest.mark.slow
def test_a_failing_embedder_changes_nothing_and_another_try_goes_on(place):
    memory, _ = fill(place)
    with memory:
        failing = WordSums(24, seed=1, fails_after=33 + 20)
        with pytest.raises(ConnectionError):
            change(memory, failing)
        assert memory.retrieve("tax").documents
        other = WordSums(16, seed=2)
        change(memory, other)  # what was begun with another embedder is given up
        check(memory, other)


@pytest.mark.slow
def test_the_present_embedder_gives_up_what_was_begun(place):
    memory, _ = fill(place)
    with memory:
        with pytest.raises(ConnectionError):
            change(memory, WordSums(24, seed=1, fails_after=33 + 20))
        assert is_under_way(memory)
        assert change(memory, OLD) == 0
        check(memory, OLD)


@pytest.mark.slow
def test_a_second_change_is_refused_while_one_is_under_way(place):
    memory, _ = fill(place)
    refused = []

    def begin_another():
        try:
            change(memory, WordSums(8))
        except StoreLockedError as error:
            refused.append(str(error))

    new = WordSums(24, seed=1)
    new.meanwhile = begin_another
    with memory:
        change(memory, new)
        assert "is being changed already" in refused[0]
        check(memory, new)


def test_an_interrupt_or_a_full_disk_leaves_the_old_embedder(tmp_path, monkeypatch):
    memory, _ = fill({"path": tmp_path / "memory"})
    with memory:
        for error in (KeyboardInterrupt(), StoreError("the disk is full")):

            def fail(error=error):
                raise error

            with monkeypatch.context() as patched:
                stop_after("switch_embedder", 1, fail, patched)
                with pytest.raises(type(error)):
                    change(memory)
            assert memory.retrieve("tax").documents[0].score
        change(memory)
        check(memory, NEW)


def test_unusable_embedders_are_refused(tmp_path):
    class Blank(WordSums):
        def embed_query(self, text):
            return [0.0] * 9 if "number 7" in text else super().embed_query(text)

    memory, _ = fill({"path": tmp_path / "memory"})
    with memory:
        with pytest.raises(InvalidInputError, match="d7"):
            change(memory, Blank(9))
        for wrong in (None, 7, "no model"):
            with pytest.raises(InvalidInputError, match="embeddings must be"):
                change(memory, wrong)
        assert memory.retrieve("tax").documents
    store = InMemoryVectorStore(OLD)
    store.add_documents(PAGES[:3])
    wrapped = CrabPathRetriever.from_vectorstore(store, documents=PAGES[:3])
    with wrapped.memory as memory, pytest.raises(ConfigurationError, match="wrap it again"):
        change(memory)


@pytest.mark.slow
def test_older_snapshots_are_refused_and_newer_ones_restored(tmp_path):
    """Their vectors are those of the former embedder."""
    memory, turn = fill({"path": tmp_path / "memory"})
    with memory:
        memory.namespaces.snapshot("ann", "before")
        change(memory)
        with pytest.raises(InvalidInputError, match="older than the embedder"):
            memory.namespaces.restore("before", namespace="ann")
        memory.namespaces.snapshot("ann", "after")
        memory.record(turn, "down")
        memory.namespaces.restore("after", namespace="ann")
        assert memory.retrieve(QUESTION, namespace="ann").documents


def test_a_memory_without_documents_changes_at_once(tmp_path):
    with CrabPath.open(tmp_path, embeddings=OLD) as memory:
        assert change(memory) == 0
        memory.add_documents(PAGES[:2], progress=None)
        check(memory, NEW)
