"""A full disk says so, loses nothing that was acknowledged, and is no matter once there is room."""

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Feedback, StoreFullError
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.engine import translate_database_errors

pytestmark = pytest.mark.slow


class Disk:
    """A disk that SQLite finds full while it is told so: the database may not grow by a page."""

    def __init__(self, store: GraphStore) -> None:
        """Of this store."""
        self.full = False
        sa.event.listen(store._engine, "begin", self._limit)

    def _limit(self, connection: sa.Connection) -> None:
        pages = 1 if self.full else 2**30  # never fewer than there are
        connection.connection.dbapi_connection.execute(f"PRAGMA max_page_count={pages}")


def test_what_is_acknowledged_is_kept_and_goes_on_once_there_is_room(tmp_path):
    """Answers still come; feedback is refused with what to do; turns wait and are written later."""
    embeddings = DeterministicFakeEmbedding(size=16)
    given = {"embeddings": embeddings, "vectors": InMemoryVectorStore(embeddings)}
    with CrabPath.open(tmp_path, **given) as memory:
        memory.add_documents([Document(f"The sky is blue {n}.", id=f"d{n}") for n in range(20)])
        kept = memory.record(Feedback(memory.retrieve("sky").turn.id, 1.0, feedback_id="one"))
        disk = Disk(memory.store)
        disk.full = True
        turns = [memory.retrieve("sky", k=20).turn.id for _ in range(5)]
        with pytest.raises(StoreFullError, match=r"the disk of .* is full: make room"):
            memory.record(Feedback(turns[0], 1.0, correction="word " * 3000))
        with pytest.raises(StoreFullError, match="is full"):
            memory.add_documents([Document("word " * 3000, id="long")])
        disk.full = False
        assert [memory.explain(turn).turn.id for turn in turns] == turns
        assert memory.record(Feedback(turns[0], 1.0)).status == "applied"
    with CrabPath.open(tmp_path, **given) as memory:
        assert memory.store.learned.get_feedback("one").status == kept.status == "applied"


def test_a_full_disk_of_postgresql_is_named(postgres_url):
    """Its own code for it, raised by a function as the server would."""
    engine = sa.create_engine(postgres_url)
    full = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
    with pytest.raises(StoreFullError, match="make room"):
        run(engine, full)
    engine.dispose()


def run(engine: sa.Engine, statement: str) -> None:
    """Run one statement as stores do."""
    with translate_database_errors(engine), engine.begin() as connection:
        connection.exec_driver_sql(statement)
