"""Power loss: files fall back to what stood in them when they were synced last.

A process adds documents and records feedback under ``strace``, which tells when the WAL of
``graph.sqlite`` was written and when it was synced. At random moments the process is stopped, its
files are copied, and of the copy's WAL only what was synced is kept. (The database file itself may
stay as it is: SQLite writes to it only what the synced WAL holds as well.) The vector index is as
it was at that moment, or at an earlier one.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.documents import Document

from benchmarks.soak.figures import Budget, Row, Skipped
from benchmarks.soak.stores import Hashed, Raised, last_line, result, status_of
from crabpath_retrievers import CrabPath, Feedback

_WRITE = re.compile(r"pwrite64\(\d+<[^>]*>, .*, (\d+), (\d+)( <unfinished|\) += )")
_SYNC = re.compile(r"\b(?:fsync|fdatasync)\(\d+<[^>]*>")
_DONE = re.compile(r"<\.\.\. (?:fsync|fdatasync) resumed>")


class Synced:
    """How many bytes of the WAL would be there after a power loss, read off strace's log."""

    def __init__(self, log: Path) -> None:
        """Begin at the start of the log."""
        self._log, self._read = log, 0
        self._written = self._asked = self.length = 0

    def update(self) -> int:
        """Read on, and tell."""
        with self._log.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode("utf-8", "replace").splitlines():
            self._take(line)
        return self.length

    def _take(self, line: str) -> None:
        if found := _WRITE.search(line):
            size, offset = int(found[1]), int(found[2])
            if offset == 0:  # from the beginning again, after a checkpoint
                self._written = self._asked = self.length = 0
            self._written = max(self._written, offset + size)
        elif _SYNC.search(line):
            self._asked = self._written
            if "<unfinished" not in line:
                self.length = max(self.length, self._asked)
        elif _DONE.search(line):
            self.length = max(self.length, self._asked)
        elif "ftruncate(" in line:
            self._written = self._asked = self.length = 0


def check_power(budget: Budget, seed: int) -> Row:
    """What was acknowledged survives a power loss; SQLite, embedded Chroma."""
    row, rng = Row("power loss, SQLite, by files of the last sync"), random.Random(seed)
    if shutil.which("strace") is None:
        msg = "strace is not installed"
        raise Skipped(msg)
    with TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as base:
        working = _Working(Path(base).resolve(), seed)
        try:
            for _ in budget:
                row.runs += 1
                _lose(row, rng, working)
        finally:
            working.end()
    return row


def _lose(row: Row, rng: random.Random, working: "_Working") -> None:
    """One power loss."""
    acknowledged = working.stopped(rng.uniform(0.2, 1.2))
    older = rng.random() < 0.3 and working.earlier.exists()
    working.play(older=older)
    row.acknowledged += len(acknowledged)
    found = result(compare, str(working.played), acknowledged)
    if isinstance(found, Raised):
        row.blame("unopenable", last_line(found))
        return
    if found["lost"]:
        row.blame("lost", f"acknowledged: {found['lost'][:6]}", len(found["lost"]))
    for text in found["other"]:
        row.blame("other", text + (" (vectors of an earlier moment)" if older else ""))


class _Working:
    """The process under strace, and the files of its memory."""

    def __init__(self, base: Path, seed: int) -> None:
        self.place, self.played, self.earlier = base / "at", base / "played", base / "earlier"
        self._acks, self._log, self._seen = base / "acks", base / "log", 0
        self._acks.touch()
        self._log.touch()
        self._synced = Synced(self._log)
        command = ["strace", "-f", "-y", "-s", "0", "-o", str(self._log), "-P"]
        command += [str(self.place / "graph.sqlite-wal")]
        command += ["-e", "trace=pwrite64,ftruncate,fsync,fdatasync", "-e", "signal=none"]
        child = [sys.executable, "-m", __spec__.name, str(self.place), str(self._acks), str(seed)]
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": paths}
        self._process = subprocess.Popen(
            [*command, *child], env=environment, stderr=subprocess.PIPE, text=True
        )

    def stopped(self, seconds: float) -> list[str]:
        """Let it work, stop it, copy its files; what it had acknowledged since the last time."""
        before, end = len(self._lines()), time.monotonic() + 60
        while len(self._lines()) < max(2, before + 1):
            if self._process.poll() is not None or time.monotonic() > end:
                errors = self._process.stderr
                told = errors.read() if errors and self._process.poll() is not None else ""
                msg = f"strace cannot trace here: {last_line(told)}"
                raise Skipped(msg)
            time.sleep(0.02)
        time.sleep(seconds)
        pid = int(self._lines()[0])
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.1)
        try:
            lines, length = self._lines(), self._synced.update()
            if self.played.exists():
                shutil.rmtree(self.earlier, ignore_errors=True)
                shutil.copytree(self._whole, self.earlier)
            shutil.rmtree(self._whole, ignore_errors=True)
            shutil.copytree(self.place, self._whole)
        finally:
            os.kill(pid, signal.SIGCONT)
        wal = self._whole / "graph.sqlite-wal"
        if wal.exists():
            os.truncate(wal, min(length, wal.stat().st_size))
        (self._whole / "graph.sqlite-shm").unlink(missing_ok=True)
        acknowledged, self._seen = lines[max(1, self._seen) :], len(lines)
        return acknowledged

    @property
    def _whole(self) -> Path:
        return self.played.with_name("whole")

    def play(self, *, older: bool) -> None:
        """Lay down the files as they are after the power loss."""
        shutil.rmtree(self.played, ignore_errors=True)
        shutil.copytree(self._whole, self.played)
        if older:
            shutil.rmtree(self.played / "vectors")
            shutil.copytree(self.earlier / "vectors", self.played / "vectors")

    def end(self) -> None:
        """Kill it."""
        lines = self._lines()
        if lines:
            with suppress(ProcessLookupError):
                os.kill(int(lines[0]), signal.SIGKILL)
        self._process.kill()
        self._process.communicate()

    def _lines(self) -> list[str]:
        text = self._acks.read_text(encoding="utf-8")
        return text[: text.rfind("\n") + 1].split()


def compare(say: Callable[[Any], None], place: str, acknowledged: list[str]) -> None:
    """Open the memory that lost its power, and look for what was acknowledged."""
    with CrabPath.open(place, embeddings=Hashed()) as memory:
        pages = [name for name in acknowledged if name.startswith("d")]
        known = set(memory.store.catalog.documents(pages))
        lost = [name for name in pages if name not in known]
        given = [name for name in acknowledged if name.startswith("f")]
        lost += [name for name in given if status_of(memory, name) is None]
        nodes, vectors = memory.info()["nodes"], memory.index.count()
        other = [f"{vectors} vectors of {nodes} documents"] if nodes != vectors else []
        answers = [len(memory.retrieve(f"Passage {n}", k=4).documents) for n in range(5)]
        if set(answers) != {4}:
            other.append(f"questions found {answers} documents, not 4 each")
    say({"lost": lost, "other": other})


def work(place: str, acks: str, seed: str) -> None:
    """Add documents and record feedback without end; a line in the file acknowledges each."""
    rng, file = random.Random(int(seed)), os.open(acks, os.O_WRONLY | os.O_APPEND)
    memory = CrabPath.open(place, embeddings=Hashed())
    memory.add_documents([Document(f"Passage {n}", id=f"p{n}") for n in range(100)], progress=None)
    os.write(file, f"{os.getpid()}\n".encode())
    for step in range(10**9):
        if step % 20 == 19:
            pages = [Document(f"Passage {step} {n}", id=f"d{step}-{n}") for n in range(5)]
            memory.add_documents(pages, progress=None)
            os.write(file, "".join(f"{page.id}\n" for page in pages).encode())
        turn = memory.retrieve(f"Passage {rng.randrange(100)}").turn.id
        memory.record(Feedback(turn, 1.0, used=["p1"], feedback_id=f"f{step}"))
        os.write(file, f"f{step}\n".encode())


if __name__ == "__main__":
    work(*sys.argv[1:])
