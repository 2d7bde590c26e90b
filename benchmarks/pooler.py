"""PgBouncer before a PostgreSQL server: a transaction has whatever connection is free."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
"""The program; None where it is not installed."""


@contextmanager
def serve_pooler(url: str, *, size: int = 4, settings: str = "") -> Iterator[sa.URL]:
    """Run a pooler of transactions; yields the URL of the same database behind it.

    Args:
        url: Of a database; other databases of its server are reached by their names. Its options
            are left out, since poolers refuse them.
        size: Connections to each database.
        settings: More lines of its configuration.
    """
    assert PGBOUNCER is not None, "install pgbouncer"  # noqa: S101
    direct = sa.make_url(url)
    where = str(direct.query.get("host") or direct.host)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the pooler refuses to run as root
        target = f"host={where} port={direct.port or 5432} user={direct.username}"
        lines = (
            f"[databases]\n* = {target}\n[pgbouncer]\nlisten_addr = 127.0.0.1",
            f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction",
            f"default_pool_size = {size}\nmax_client_conn = 1000\nserver_idle_timeout = 5",
        )
        file = Path(folder, "pooler.ini")
        file.write_text("\n".join((*lines, settings, "")), encoding="utf-8")
        # It may read the directory of the server's socket, and must not be root.
        socket_owner = Path(where).stat().st_uid if where.startswith("/") else 0
        owner = {"user": socket_owner or "nobody"} if os.getuid() == 0 else {}
        command = [PGBOUNCER, "-q", file]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, **owner) as process:  # type: ignore[call-overload]  # noqa: S603
            try:
                _await_answer(port, process)
                yield sa.URL.create(
                    "postgresql+psycopg", direct.username, None, "127.0.0.1", port, direct.database
                )
            finally:
                process.kill()


def _await_answer(port: int, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return
