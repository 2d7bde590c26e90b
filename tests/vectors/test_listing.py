"""Documents that stores hold already are listed under any ids, each collection for itself."""

import uuid

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from milvus_store import open_milvus

from crabpath_retrievers import CrabPathRetriever
from crabpath_retrievers.testing import WIDTH, NumberEmbeddings

NUMBERS = NumberEmbeddings()
IDS = ["7", "a%b %s", "x'y\"z\\n", str(uuid.uuid4()), "100%"]
NESTED = [{}, {"n": {"deep": [1, {"a": 2}]}}, {"title": "T %s"}, {"tags": ["a"]}, {"n": 1}]
DOCUMENTS = [
    Document(str(number), id=name, metadata=metadata)
    for number, (name, metadata) in enumerate(zip(IDS, NESTED, strict=True), 1)
]


def check(store, path, names):
    """Taken over, found, learned about, and unchanged at the next opening."""
    retriever = CrabPathRetriever.from_vectorstore(store, path=path, k=9)
    found = retriever.invoke("1")
    assert {one.id for one in found} == set(names)
    assert retriever.record(found, outcome=True, used=found[1:2])[0].status == "applied"
    retriever.memory.close()
    retriever = CrabPathRetriever.from_vectorstore(store, path=path, k=9)
    assert {one.id for one in retriever.invoke("1")} == set(names)
    assert retriever.refresh().unchanged == len(names)
    retriever.memory.close()


@pytest.mark.slow
@pytest.mark.parametrize("counts", [True, False])
def test_milvus_with_ids_of_both_types(counts, tmp_path):
    stores = [open_milvus(tmp_path, name, counts=counts) for name in ("mine", "other")]
    given = {} if counts else {"ids": IDS}
    added = stores[0].add_documents(DOCUMENTS, **given)
    stores[1].add_documents(DOCUMENTS[:1], **({} if counts else {"ids": IDS[:1]}))
    check(stores[0], tmp_path / "memory", [str(name) for name in added])


def test_faiss_with_numbers_as_ids(tmp_path):
    stores = pytest.importorskip("langchain_community.vectorstores")
    store = stores.FAISS.from_texts(["1", "2", "3"], NUMBERS, ids=[1, 2, 3])
    check(store, tmp_path / "memory", ["1", "2", "3"])


@pytest.mark.slow
def test_two_collections_of_one_table(pgvector, tmp_path):
    postgres = pytest.importorskip("langchain_postgres")
    mine, other = (
        postgres.PGVector(NUMBERS, connection=pgvector, collection_name=uuid.uuid4().hex)
        for _ in range(2)
    )
    mine.add_documents(DOCUMENTS, ids=IDS)
    other.add_documents([Document("1")], ids=["other"])
    check(mine, tmp_path / "memory", IDS)
    empty = postgres.PGVector(NUMBERS, connection=pgvector, collection_name=uuid.uuid4().hex)
    opened = CrabPathRetriever.from_vectorstore(empty, path=tmp_path / "empty")
    assert opened.invoke("1") == []
    opened.memory.close()
    for store in (mine, other, empty):
        store.session_maker().get_bind().dispose()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "names"), [("BIGINT", [1, 2]), ("UUID", [uuid.uuid4()])])
def test_a_table_with_ids_of_other_types(kind, names, pgvector, langchain_postgres, tmp_path):
    postgres = pytest.importorskip("langchain_postgres")
    table = f"t_{uuid.uuid4().hex}"
    column = postgres.Column("langchain_id", kind)
    langchain_postgres.init_vectorstore_table(table, WIDTH, id_column=column)
    store = postgres.PGVectorStore.create_sync(langchain_postgres, NUMBERS, table)
    vector = str([float(number) for number in NUMBERS.embed_query("1")])
    engine = sa.create_engine(pgvector, poolclass=sa.NullPool)
    insert = f"INSERT INTO {table} (langchain_id, content, embedding) VALUES (:id, :text, :vector)"
    with engine.begin() as connection:
        for name in names:
            connection.execute(
                sa.text(insert), {"id": name, "text": f"Text {name}", "vector": vector}
            )
    check(store, tmp_path / "memory", [str(name) for name in names])
