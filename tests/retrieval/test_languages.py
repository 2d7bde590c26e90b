"""Texts of any language are found by their words, where vectors say nothing."""

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from tables import meta, terms

from crabpath_retrievers import CrabPath, Settings
from tests.seams import get_engine


class Blind(Embeddings):
    """Every text has the same vector."""

    def embed_query(self, text):
        return [1.0] * 8

    def embed_documents(self, texts):
        return [[1.0] * 8 for _ in texts]


PAGES = {
    "데이터베이스 백업은 매일 밤 실행된다": ["백업", "백업을 언제 합니까?"],
    "ต้องสำรองข้อมูลทุกวัน": ["สำรองข้อมูล"],
    "ຕ້ອງສຳຮອງຂໍ້ມູນທຸກມື້": ["ສຳຮອງຂໍ້ມູນ"],
    "Die Hamburgmühle wurde für alle geöffnet.": ["Hamburg Muehle", "Wo steht die Mühle?"],
    "Les chevaux de la ville sont dans le parc.": ["Où est le cheval de la ville?"],
    "ذهب الطالب إلى المدرسة": ["مدرسة"],
    "Backup 完了 🎉 und die Brücken sind fertig": ["完了", "Ist die Brücke fertig?"],
    "zzyzx": ["zzyzx"],
    "🚀": ["🚀"],
}
OTHERS = [f"Room {i} has chairs for {i * 3} people." for i in range(24)]


def add(memory, texts):
    documents = [Document(text, id=f"{i}") for i, text in enumerate(texts)]
    memory.add_documents(documents, split=False, progress=None)


def test_texts_of_every_language_are_found_by_their_words():
    """Also of several languages at once, and of one word; forgetting them leaves no word."""
    with CrabPath.open(embeddings=Blind()) as memory:
        add(memory, [*OTHERS, *PAGES])
        for page, questions in list(PAGES.items())[:-1]:  # emoji are no words
            for question in questions:
                assert memory.retrieve(question, k=1).documents[0].node.content == page
        memory.forget([str(i) for i in range(len(OTHERS) + len(PAGES))])
        with memory.store.connect() as connection:
            assert connection.scalar(sa.select(sa.func.count()).select_from(terms)) == 0
            counts = sa.select(meta.c.name, meta.c.value).where(
                meta.c.name.in_(["nodes", "tokens"])
            )
            assert dict(connection.execute(counts).all()) == {"nodes": "0", "tokens": "0"}


def find_first(memory, question):
    return memory.retrieve(question, k=1).documents[0].node.content


TEXTS = [*OTHERS, "Öffnungszeiten Hamburgmühle"]


def test_the_language_of_a_memory_is_kept(location, tmp_path):
    """It holds for texts and questions that show none, and after opening again without it."""
    options = {"embeddings": Blind(), "vectors": tmp_path / "vectors"}
    question = "Muehlen"  # shows no language, and is stemmed as German is
    with CrabPath.open(location, **options, settings=Settings(language="en")) as memory:
        add(memory, TEXTS)
        assert find_first(memory, question) != TEXTS[-1]
    with CrabPath.open(location, **options, settings=Settings(language="de")) as memory:
        memory.forget(str(len(OTHERS)))
        add(memory, TEXTS)
        assert find_first(memory, question) == TEXTS[-1]
    with CrabPath.open(location, **options) as memory:
        assert memory.store.language == "de"
        assert find_first(memory, question) == TEXTS[-1]


@pytest.mark.slow
def test_stores_from_before_are_indexed_again(location, tmp_path):
    """Words that a store has by former rules are replaced when it is opened."""
    options = {"embeddings": Blind(), "vectors": tmp_path / "vectors"}
    with CrabPath.open(location, **options, settings=Settings(language="en")) as memory:
        add(memory, TEXTS)
        with get_engine(memory.store).begin() as connection:
            connection.execute(meta.delete().where(meta.c.name == "language"))
            former = meta.update().where(meta.c.name == "schema_version").values(value="3")
            connection.execute(former)
            for table in ("crabpath_feedback", "crabpath_notes"):  # a column of version 6
                connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN token")
    with CrabPath.open(location, **options) as memory:
        assert find_first(memory, "Muehlen") == TEXTS[-1]
        memory.forget([str(i) for i in range(len(TEXTS))])
        with memory.store.connect() as connection:
            assert connection.scalar(sa.select(sa.func.count()).select_from(terms)) == 0
