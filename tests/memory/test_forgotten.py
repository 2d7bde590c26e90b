"""What was forgotten is nowhere: in no table, file, free page and log; nobody writes it back."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from tables import namespaces, nodes

from benchmarks.soak.chroma_process import ChromaServer
from benchmarks.soak.stores import Words
from crabpath_retrievers import CrabPath, Feedback, Settings, examine
from crabpath_retrievers.errors import InvalidInputError, NotFoundError, StoreLockedError
from tests.seams import get_engine

SIZE = 64
ANN = "jane.doe@example.org"
TEXT = "Wilhelmina Oxenstierna was diagnosed with amyloidosis."
SECRET = Document(TEXT, id="s1", metadata={"title": "Letter Brevskrivelse", "mood": "sorgsenhet"})
OF_DOCUMENT = ("oxenstierna", "ilhelmina", "diagnosed", "amyloid", "revskrivelse", "sorgsenhet")
OF_NAMESPACE = (ANN, "itronenfalter", "uittenbrot", "kundin77", "firsichmus", "schnappschuss")


def page(number):
    return Document(f"Passage {number} about things.", id=f"d{number}")


def opened(place, vectors=None) -> CrabPath:
    return CrabPath.open(place, embeddings=Words(SIZE), vectors=vectors)


def live(memory) -> None:
    """A document that is asked for, answered from, and replaced; a namespace with everything."""
    memory.add_documents([SECRET], split=False, progress=None)
    found = memory.as_retriever(k=4).invoke("Who has it?", seed_ids=["s1"])
    assert "s1" in [document.id for document in found]
    turn = found[0].metadata["crabpath"]["turn_id"]
    memory.record(Feedback(turn, 1.0, answer=f"It says: {TEXT}", feedback_id="quoted"))
    memory.add_documents([Document("Harmless", id="s2")], split=False, progress=None)
    memory.add_documents([SECRET.model_copy(update={"id": "s2"})], split=False, progress=None)
    memory.add_documents([Document("Harmless again", id="s2")], split=False, progress=None)
    asked = memory.as_retriever(k=4, namespace=ANN)
    for correction in ("Quittenbrot", None):
        about = asked.invoke("Zitronenfalter?")
        asked.record(about, not correction, correction=correction, user="kundin77")
    memory.teach("Pfirsichmus", query="Zitronenfalter", namespace=ANN)
    memory.namespaces.snapshot(namespace=ANN, name="schnappschuss")
    memory.maintenance.run()


def vector_of(memory) -> np.ndarray:
    return memory.store.catalog.vectors(["s1"])["s1"].astype(np.float64)


def nearest(data: bytes, vector: np.ndarray) -> float:
    """Highest cosine of a vector and what stands anywhere in bytes, in single or half precision."""
    best, size = 0.0, len(vector)
    with np.errstate(all="ignore"):
        for kind in (np.dtype("<f4"), np.dtype("<f2")):
            for offset in range(kind.itemsize):
                count = max(0, len(data) - offset) // kind.itemsize
                if count < size:
                    continue
                read = np.frombuffer(data, kind, count, offset).astype(np.float64)
                read = np.where(np.abs(read) < 2, read, 0.0)
                sums = np.cumsum(np.r_[0.0, read * read])
                length = np.sqrt(np.maximum(sums[size:] - sums[:-size], 1e-9))
                alike = np.correlate(read, vector, "valid") / length / np.linalg.norm(vector)
                best = max(best, alike[(length > 0.3) & (length < 3)].max(initial=0.0))
    return best


def traces(files, vector) -> dict[str, list[str]]:
    """What of it stands in files."""
    found = {}
    for file in files:
        data = file.read_bytes()
        words = [w for w in (*OF_DOCUMENT, *OF_NAMESPACE) if w.encode() in data.lower()]
        words += ["vector"] if nearest(data, vector) > 0.95 else []
        if words:
            found[file.name] = words
    return found


def files_in(*places: Path) -> list[Path]:
    return sorted(file for place in places for file in place.rglob("*") if file.is_file())


@pytest.mark.parametrize("count", [0, 5, pytest.param(1100, marks=pytest.mark.slow)])
def test_no_file_of_an_embedded_memory_holds_it(tmp_path, count):
    """While the memory is open, and closed; what is left is found as before."""
    with opened(tmp_path) as memory:
        memory.add_documents([page(n) for n in range(count)], split=False, progress=None)
        live(memory)
        vector = vector_of(memory)
        before = traces(files_in(tmp_path), vector)
        assert {word for words in before.values() for word in words} >= {*OF_DOCUMENT[:4], "vector"}
        memory.forget("s1")
        memory.forget(namespace=ANN, erase=True)
        assert traces(files_in(tmp_path), vector) == {}
        retriever = memory.as_retriever(k=1)
        assert [retriever.invoke(f"Passage {n}")[0].id for n in range(min(count, 3))] == [
            f"d{n}" for n in range(min(count, 3))
        ]
        memory.add_documents([page(9000)], split=False, progress=None)
        assert retriever.invoke("Passage 9000")[0].id == "d9000"
    assert traces(files_in(tmp_path), vector) == {}
    found = examine(tmp_path, embeddings=Words(SIZE)).findings
    assert [one.message for one in found if one.severity != "info"] == []


def test_an_answer_that_may_quote_it_goes_and_its_outcome_stays(tmp_path):
    with opened(tmp_path) as memory:
        live(memory)
        memory.forget("s1", erase=True)
        said = memory.store.learned.get_feedback("quoted").feedback
        assert (said.answer, said.outcome) == (None, 1.0)


def rows_with(connection, word) -> list[str]:
    """Tables and statistics in which SQL can read a word."""
    tables = connection.execute(
        sa.text("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    ).scalars()
    found = []
    for table in tables.all():
        query = sa.text(f'SELECT count(*) FROM "{table}" t WHERE t::text ILIKE :word')
        found += [table] * connection.scalar(query, {"word": f"%{word}%"})
    known = sa.text(
        "SELECT count(*) FROM pg_stats s "
        "WHERE schemaname = current_schema() AND s::text ILIKE :word"
    )
    return found + ["pg_stats"] * connection.scalar(known, {"word": f"%{word}%"})


def table_files(connection) -> list[Path]:
    """Files of all tables and indexes, as far as this user may read them."""
    connection.execute(sa.text("CHECKPOINT"))
    paths = connection.execute(
        sa.text(
            "SELECT current_setting('data_directory') || '/' || pg_relation_filepath(c.oid) "
            "FROM pg_class c WHERE c.relkind IN ('r', 'i', 't') AND (c.relnamespace = "
            "current_schema()::regnamespace OR c.oid IN (SELECT reltoastrelid FROM pg_class "
            "WHERE relnamespace = current_schema()::regnamespace))"
        )
    ).scalars()
    try:
        return [Path(path) for path in paths.all() if Path(path).exists()]
    except PermissionError:
        return []


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["directory", "pgvector"])
def test_no_table_of_postgresql_holds_it(pgvector_url, tmp_path, vectors):
    """Neither rows, nor statistics, nor the files of tables and indexes."""
    place = vectors if vectors == "pgvector" else tmp_path
    with opened(pgvector_url, place) as memory:
        memory.add_documents([page(n) for n in range(5)], split=False, progress=None)
        live(memory)
        vector = vector_of(memory)
        engine = sa.create_engine(pgvector_url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            assert rows_with(connection, "oxenstierna")
            memory.forget("s1")
            memory.forget(namespace=ANN, erase=True)
            words = (*OF_DOCUMENT, *OF_NAMESPACE)
            assert {word: rows_with(connection, word) for word in words} == {
                word: [] for word in words
            }
            assert traces(table_files(connection), vector) == {}
        assert traces(files_in(tmp_path), vector) == {}
        assert len(memory.as_retriever(k=4).invoke("Passage")) == 4


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["directory", "pgvector"])
def test_no_statistic_of_an_emptied_table_holds_it(pgvector_url, tmp_path, vectors):
    """PostgreSQL measured all rows before the last ones went; the tables work as before.

    On a server of its own: transactions of other tests that are open hold up an erasure.
    """
    place = vectors if vectors == "pgvector" else tmp_path
    with opened(pgvector_url, place) as memory:
        live(memory)
        memory.forget(erase=True)
        engine = sa.create_engine(pgvector_url, poolclass=sa.NullPool)
        with engine.connect() as connection:
            assert "pg_stats" in rows_with(connection, "oxenstierna")
            before = described(connection)
            memory.forget([document.id for document in memory.documents()])
            memory.forget(namespace="default")
            memory.forget(namespace=ANN)
            connection.rollback()
            memory.forget(erase=True)
            words = (*OF_DOCUMENT, *OF_NAMESPACE, "harmless")
            assert {word: rows_with(connection, word) for word in words} == {
                word: [] for word in words
            }
            measured = sa.text(
                "SELECT count(*) FROM pg_stats WHERE attname = 'embedding' "
                "AND schemaname = current_schema()"
            )
            assert connection.scalar(measured) == 0
            assert described(connection) == before
        memory.add_documents([page(n) for n in range(5)], split=False, progress=None)
        assert memory.as_retriever(k=1).invoke("Passage 3")[0].id == "d3"


def described(connection) -> list[str]:
    """Columns and indexes of all tables of a schema."""
    text = (
        "SELECT concat(attrelid::regclass, ' ', attname, format_type(atttypid, atttypmod), "
        "attcollation, attnotnull, pg_get_expr(adbin, adrelid)) FROM pg_attribute LEFT JOIN "
        "pg_attrdef ON adrelid = attrelid AND adnum = attnum WHERE attrelid IN (SELECT oid FROM "
        "pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace) "
        "UNION ALL SELECT concat(pg_get_indexdef(indexrelid), indisclustered, indisvalid) "
        "FROM pg_index WHERE indrelid IN (SELECT oid FROM pg_class WHERE relkind = 'r' "
        "AND relnamespace = current_schema()::regnamespace) ORDER BY 1"
    )
    return list(connection.execute(sa.text(text)).scalars())


@pytest.mark.slow
@pytest.mark.parametrize("read", ["crabpath_nodes", "pg_class"])
def test_erasing_gives_up_on_a_long_reader_and_is_repeated(pgvector_url, tmp_path, read):
    """It says what is left to do; meanwhile questions are answered within their time limit."""
    settings = Settings(time_limit=2.0)
    with (
        CrabPath.open(
            pgvector_url, vectors=tmp_path, embeddings=Words(SIZE), settings=settings
        ) as memory,
        ThreadPoolExecutor() as pool,
    ):
        memory.add_documents([SECRET, page(1)], split=False, progress=None)
        engine = sa.create_engine(pgvector_url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        reading = engine.execution_options(isolation_level="REPEATABLE READ")
        with reading.connect() as reader:
            assert reader.execute(sa.text(f"SELECT count(*) FROM {read}")).scalar()
            erasing = pool.submit(memory.forget, "s1", erase=True)
            asked = 0
            while not erasing.done():
                assert memory.retrieve(f"Passage 1 about things, {asked}", k=2).documents
                asked += 1
            with pytest.raises(StoreLockedError, match=r"is deleted.*forget\(erase=True\) again"):
                erasing.result()
            assert asked > 1
        done = memory.forget("s1", erase=True)
        assert done.unknown == ("s1",)
        with engine.connect() as connection:
            assert rows_with(connection, "oxenstierna") == []
            files = table_files(connection)
            assert not [file for file in files if b"xenstierna" in file.read_bytes()]


@pytest.mark.slow
def test_a_chroma_server_holds_it_until_the_collection_is_made_anew(tmp_path):
    """Its API shows nothing at once; with what the page about privacy says its files do not."""
    served, path = tmp_path / "served", tmp_path / "memory"
    served.mkdir()
    server = ChromaServer(served)
    url = f"http://127.0.0.1:{server.port}"
    with opened(path, url) as memory:
        memory.add_documents([page(n) for n in range(5)], split=False, progress=None)
        live(memory)
        vector = vector_of(memory)
        memory.forget("s1")
        memory.forget(namespace=ANN, erase=True)
        for collection in server.client().list_collections():
            shown = collection.get(include=["metadatas", "documents", "embeddings"])
            assert not [w for w in (*OF_DOCUMENT, *OF_NAMESPACE) if w in str(shown).lower()]
            assert nearest(np.asarray(shown["embeddings"], "<f4").tobytes(), vector) < 0.95
        assert traces(files_in(path), vector) == {}
    CrabPath.open(path, embeddings=Words(SIZE), vectors=f"{url}/vectors-2", reindex=True).close()
    for collection in server.client().list_collections():
        if not collection.name.startswith("vectors-2"):
            server.client().delete_collection(collection.name)
    server.disconnect()
    server.stop()
    program = Path(sys.executable).with_name("chroma")
    subprocess.run([program, "vacuum", "--path", str(served), "--force"], check=True)
    assert traces(files_in(served), vector) == {}


def memory_at(location, tmp_path) -> CrabPath:
    return opened(location, tmp_path / "vectors" if "://" in location else None)


def orphans(place) -> set[str]:
    """Tables with rows that belong to nothing, as the doctor names them."""
    findings = [one for one in examine(place).findings if one.check == "references"]
    return {one.message.split()[3].removeprefix("crabpath_") for one in findings}


def test_what_it_takes_and_what_it_says(tmp_path):
    """Documents, ids, sources and namespaces; unknown ones are named, and all else is refused."""
    pages = [Document(f"Page {n}", metadata={"source": f"p{n}.md"}) for n in range(6)]
    with opened(tmp_path) as memory:
        memory.add_documents(pages, progress=None)
        retriever = memory.as_retriever(k=2)
        found = retriever.invoke("Page 2")
        retriever.record(found, outcome=True)
        note = memory.teach("A note")
        done = memory.forget([*found, "nope", note])
        assert (done.documents, done.chunks, done.notes, done) == (2, 2, 1, 3)
        assert done.unknown == ("nope",)
        assert "chunks=2" in repr(done)
        assert json.dumps(done) == "3"
        left = [one.metadata["source"] for one in memory.documents()]
        done = memory.forget(source=[*left[:3], "other.md"])
        assert (done.chunks, done.unknown) == (3, ("other.md",))
        assert memory.forget(memory.documents()[0]) == 1
        gone = memory.forget(namespace="default")
        assert (gone.turns, gone.feedback, gone.episodes, gone.unknown) == (1, 1, 1, ())
        assert memory.forget(namespace="default").unknown == ("default",)
        for wrong in (Document("no id"), [Document("no id")], [None], {"a": 1}, [1.5], True, [()]):
            with pytest.raises(InvalidInputError, match="ids must be"):
                memory.forget(wrong)
        for wrong in ({}, {"ids": "a", "source": "b"}, {"erase": "yes"}, {"source": 3}):
            with pytest.raises(InvalidInputError):
                memory.forget(**wrong)


def test_a_turn_that_is_written_late_does_not_come_back(location, tmp_path):
    """Another process had asked before, and writes after; feedback on it leaves nothing either."""
    with memory_at(location, tmp_path) as memory:
        memory.add_documents([page(1)], progress=None)
        memory.retrieve("first", namespace=ANN)
        assert len(memory.turns(namespace=ANN)) == 1
        late = memory.retrieve("Zitronenfalter", namespace=ANN, record=False).turn
        key = memory.store.walk.get_clock(ANN).key
        memory.forget(namespace=ANN)
        memory.store.record(late, None, key)
        assert memory.turns(namespace=ANN) == []
        said = Feedback(late.id, 1.0, answer="Zitronenfalter", namespace=ANN)
        assert memory.record(said).status == "refused"
        assert memory.learning.feedback(namespace=None) == []
        assert not memory.store.walk.get_clock(ANN).key
        assert orphans(location) == set()
        memory.store.record(late)  # of somebody new
        assert len(memory.turns(namespace=ANN)) == 1


@pytest.mark.parametrize("what", ["ids", "namespace"])
def test_feedback_that_is_learned_meanwhile_leaves_no_row(location, tmp_path, what):
    """It was read before, and is written after the document or the namespace is gone."""
    with memory_at(location, tmp_path) as memory:
        memory.add_documents([page(n) for n in range(6)], split=False, progress=None)
        retriever, apply = memory.as_retriever(k=4, namespace=ANN), memory.store.apply
        retriever.record(retriever.invoke("Passage"), outcome=True)
        found, forgotten = retriever.invoke("about things"), []

        def forget_first(changes):
            if type(changes[0]).__name__ == "ConsumeFeedback" and not forgotten:
                forgotten.append(True)
                memory.forget(**{what: found[0] if what == "ids" else ANN})
            return apply(changes)

        memory.store.apply = forget_first
        retriever.record(found, "up", used=found[:2], strict=False)
        memory.store.apply = apply
        assert forgotten
        assert orphans(location) == set()


def test_feedback_that_is_stored_as_its_namespace_goes_leaves_no_row(location, tmp_path):
    """Its row was not seen by the deletion, and the namespace is there again, as it was first."""
    with memory_at(location, tmp_path) as memory:
        memory.add_documents([page(n) for n in range(6)], split=False, progress=None)
        retriever, apply = memory.as_retriever(k=4, namespace=ANN), memory.store.apply
        found, kept = retriever.invoke("about things"), []

        def forget_first(changes):
            kind = type(changes[0]).__name__
            if kind == "KeepFeedback":
                kept.append(changes)
            elif kind == "ConsumeFeedback" and len(kept) == 1:
                memory.forget(namespace=ANN)
                apply(kept[0])
                kept.clear()
            return apply(changes)

        memory.store.apply = forget_first
        (receipt,) = retriever.record(found, "up", strict=False)
        memory.store.apply = apply
        assert (kept, receipt.status) == ([], "refused")
        assert orphans(location) == set()


def test_maintenance_deletes_what_an_older_version_left(location, tmp_path):
    """Doctor names rows without namespace, node, turn or feedback; maintenance deletes them."""
    with memory_at(location, tmp_path) as memory:
        memory.add_documents([page(n) for n in range(3)], split=False, progress=None)
        retriever = memory.as_retriever(k=2, namespace=ANN)
        retriever.record(retriever.invoke("Passage"), "down", correction="Quittenbrot")
        found = retriever.invoke("about things")
        retriever.record(found, "up", used=found[:1])
        memory.namespaces.snapshot(namespace=ANN)
        engine = get_engine(memory.store)
        with engine.begin() as connection:
            connection.execute(namespaces.delete())
            connection.execute(nodes.delete().where(nodes.c.id == "d0"))
        assert {"turns", "episodes", "usage", "notes", "snapshots", "contents"} <= orphans(location)
        (step,) = memory.maintenance.run(["compact"], dry_run=True).steps
        (done,) = memory.maintenance.run(["compact"]).steps
        assert step.detail["orphans"] == done.detail["orphans"] > 10
        memory.maintenance.run(["compact"])
        assert orphans(location) == set()
        with pytest.raises(NotFoundError):
            memory.namespaces.restore("nope", namespace=ANN)
