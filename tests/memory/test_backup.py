"""The commands of docs/how-to/backup.md bring back what was lost, with all that was learned."""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from databases import POSTGRES
from learned_memory import EMBEDDINGS, answered, corpus, rows, teach
from markdown_it import MarkdownIt

from crabpath_retrievers import CrabPath

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "backup.md"
BLOCKS = [t.content for t in MarkdownIt().parse(PAGE.read_text("utf-8")) if t.info == "sh"]
DUMP, RESTORE, COPY, ARCHIVE = BLOCKS


def run(block: str, folder: Path, **environment: str) -> str:
    """Run a block of the page in a folder; returns what it printed."""
    here = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", block],
        cwd=folder,
        env={**os.environ, "PATH": here, "PYTHONPATH": str(PAGE.parents[2]), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def server() -> Iterator[sa.Engine]:
    """The server of the tests, for making databases; skipped where it or its tools are missing."""
    engine = sa.create_engine(POSTGRES, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    missing = [tool for tool in ("pg_dump", "pg_restore", "createdb") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on the path")
    try:
        with engine.connect() as connection:
            major = str(connection.scalar(sa.text("SHOW server_version"))).split(".")[0]
    except sa.exc.OperationalError:
        pytest.skip("no PostgreSQL at CRABPATH_TEST_POSTGRES")
    tool = subprocess.run(["pg_dump", "--version"], capture_output=True, text=True, check=True)  # noqa: S607
    if int(tool.stdout.split()[2].split(".")[0]) < int(major):
        pytest.skip(f"pg_dump is older than the server, which is PostgreSQL {major}")
    yield engine
    engine.dispose()


@pytest.fixture
def databases(server) -> Iterator[tuple[str, str]]:
    """Names of a new database, and of one that is not made; both are dropped afterwards."""
    names = [f"crabpath_{uuid.uuid4().hex[:12]}" for _ in range(2)]
    with server.connect() as connection:
        connection.execute(sa.text(f'CREATE DATABASE "{names[0]}"'))
    yield names[0], names[1]
    with server.connect() as connection:
        for name in names:
            connection.execute(sa.text(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'))


def fill(path: str | Path, **options: object) -> tuple[CrabPath, list, dict]:
    """A memory of which two namespaces have learned; its answers, and all that it holds."""
    memory = CrabPath.open(path, embeddings=EMBEDDINGS, **options)
    memory.add_documents(corpus(), split=False)
    for namespace in ("default", "ann"):
        teach(memory, namespace, name=namespace)
    answers = [answered(memory, namespace) for namespace in ("default", "ann")]
    return memory, answers, rows(memory.store)


def check_restored(path: str | Path, answers: list, held: dict, **options: object) -> None:
    """The memory at a place is the one that was lost."""
    given = {"embeddings": EMBEDDINGS, "create": False, **options}
    with CrabPath.open(path, **given) as memory:
        assert rows(memory.store) == held
        assert [answered(memory, namespace) for namespace in ("default", "ann")] == answers
        assert memory.index.count() == memory.info()["nodes"] > 0
        memory.retrieve("What does Page 1 tell?")  # it goes on: keys are given anew
        teach(memory, "bob", name="bob", turns=2)


@pytest.mark.slow
@pytest.mark.parametrize("vectors_lost", [False, True])
def test_a_database_that_was_dropped(server, databases, tmp_path, vectors_lost):
    """Dumped while it is in use, dropped, and restored under another name."""
    url = sa.make_url(POSTGRES).set(drivername="postgresql")
    lost, restored = (
        url.set(database=name).render_as_string(hide_password=False) for name in databases
    )
    vectors = tmp_path / "vectors"
    memory, answers, held = fill(lost, vectors=vectors)
    run(DUMP, tmp_path, CRABPATH_STORE=lost)
    teach(memory, "late", name="late", turns=2)  # after the dump: not part of it
    memory.close()
    with server.connect() as connection:
        connection.execute(sa.text(f'DROP DATABASE "{databases[0]}" WITH (FORCE)'))
    if vectors_lost:
        shutil.rmtree(vectors)
    known = {"PGHOST": url.host, "PGPORT": url.port or 5432, "PGUSER": url.username}
    said = run(
        RESTORE,
        tmp_path,
        RESTORED=databases[1],
        RESTORED_URL=restored,
        CRABPATH_VECTORS=str(vectors),
        PGPASSWORD=url.password or "",
        **{name: str(value) for name, value in known.items() if value},
    )
    assert "broken" not in said
    check_restored(restored, answers, held, vectors=vectors)


@pytest.mark.sqlite
@pytest.mark.slow
@pytest.mark.parametrize("vectors_lost", [False, True])
def test_a_directory_that_was_deleted(tmp_path, vectors_lost):
    memory, answers, held = fill(tmp_path / "memory")
    memory.close()
    run(COPY, tmp_path)
    shutil.rmtree(tmp_path / "memory")
    if vectors_lost:
        shutil.rmtree(tmp_path / "memory-backup" / "vectors")
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "memory-backup").iterdir()} == {0}
    check_restored(tmp_path / "memory-backup", answers, held)


@pytest.mark.sqlite
@pytest.mark.slow
def test_an_archive_of_a_memory_in_use(tmp_path):
    memory, answers, held = fill(tmp_path / "memory")
    run(ARCHIVE, tmp_path)
    memory.close()
    shutil.rmtree(tmp_path / "memory")
    check_restored(tmp_path / "restored", answers, held)
