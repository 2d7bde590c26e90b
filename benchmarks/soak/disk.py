"""A disk that is full while documents are added, while feedback is recorded, and in mixed work.

The disk is a tmpfs in a mount namespace of a process of its own: nothing is left behind.
"""

import json
import logging
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.documents import Document

from benchmarks.soak.figures import Budget, Row, Skipped
from benchmarks.soak.stores import Hashed, status_of
from crabpath_retrievers import CrabPath, CrabPathError, Feedback
from crabpath_retrievers.parts.operation.maintenance.doctor import examine

_LONGEST = 300.0  # seconds; a run takes a few
_MOUNTED = 'mount -t tmpfs -o size=16m tmpfs "$0" && exec "$@"'


def check_disk(budget: Budget, seed: int) -> Row:
    """A full disk says so, loses nothing acknowledged, and all goes on when there is room."""
    row = Row("disk full in ingest, in feedback and in mixed work")
    alone = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    for run in budget:
        with TemporaryDirectory(prefix="soak-") as folder:
            if shutil.which("unshare") is None or (
                run == 0 and _fails([*alone, "sh", "-c", _MOUNTED, folder, "true"])
            ):
                msg = "mounting a small disk needs root, or user namespaces"
                raise Skipped(msg)
            mode = ("ingest", "mixed", "feedback", "mixed")[run % 4]
            command = [*alone, "sh", "-c", _MOUNTED, folder, sys.executable, "-m", __spec__.name]
            paths = os.pathsep.join(path for path in sys.path if path)
            row.runs += 1
            try:
                ended = subprocess.run(
                    [*command, folder, mode, str(seed + run)],
                    capture_output=True,
                    text=True,
                    env={**os.environ, "PYTHONPATH": paths},
                    timeout=_LONGEST,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                row.blame("other", f"{mode} work on a full disk did not end, seed {seed + run}")
                continue
        if ended.returncode:
            row.blame("foreign", ended.stderr[-400:])
            continue
        found = json.loads(ended.stdout.splitlines()[-1])
        row.acknowledged += found["acknowledged"]
        for column, text, number in found["faults"]:
            row.blame(column, text, number)
    return row


def _fails(command: list[str]) -> bool:
    return bool(subprocess.run(command, capture_output=True, check=False).returncode)


class Small:
    """A memory on the small disk, and what went wrong with it."""

    def __init__(self, disk: Path, seed: int) -> None:
        """Nothing is there yet."""
        self.disk, self.place = disk, disk / "memory"
        self.choose = random.Random(seed)
        self.faults: list[tuple[str, str, int]] = []
        self.documents: list[str] = []
        self.given: list[str] = []

    def open(self) -> CrabPath:
        """Open it."""
        return CrabPath.open(self.place, embeddings=Hashed())

    def attempt(self, what: str, call: Callable[[], Any]) -> bool:
        """Whether a call succeeds; it must fail with an exception of CrabPath that tells why."""
        try:
            call()
        except CrabPathError as error:
            if "is the database running" in str(error):
                self.faults.append(("other", f"{what} on a full disk says: {error}", 1))
            return False
        except Exception as error:
            self.faults.append(("foreign", f"{what} on a full disk: {error!r}", 1))
            return False
        return True

    def add(self, memory: CrabPath, first: int, number: int = 20) -> None:
        """Add some documents."""
        pages = [page(n) for n in range(first, first + number)]
        memory.add_documents(pages, split=False, progress=None)
        self.documents += [f"d{n}" for n in range(first, first + number)]

    def record(self, memory: CrabPath, name: str) -> None:
        """Ask, and record feedback."""
        turn = memory.retrieve(f"word{len(self.given) % 50} {name}").turn.id
        memory.record(Feedback(turn, 1.0, feedback_id=name))
        self.given.append(name)

    def compare(self) -> None:
        """After there is room again, everything that was acknowledged is there, and doctor glad."""
        try:
            with self.open() as memory:
                self._compare(memory)
        except Exception as error:
            self.faults.append(("unopenable", f"the first open after room was made: {error!r}", 1))
            return
        for found in examine(self.place, embeddings=Hashed()).findings:
            if found.severity != "info":
                self.faults.append(("other", f"doctor after a full disk: {found.message}", 1))

    def _compare(self, memory: CrabPath) -> None:
        self.add(memory, 10**6)
        self.record(memory, "afterwards")
        memory.learning.learn_waiting()
        known, held = set(memory.store.catalog.documents(self.documents)), memory.index
        vectors = held.find_existing(self.documents) or ()
        for name in self.documents:
            if name not in known or name not in vectors:
                self.faults.append(("lost", f"document {name}", 1))
        for name in self.given:
            if status_of(memory, name) is None:
                self.faults.append(("lost", f"feedback {name}", 1))


def page(number: int) -> Document:
    """A document of some length."""
    text = f"Passage {number} mentions Title {number // 3} and word{number % 50} " + "filler " * 300
    return Document(text, id=f"d{number}", metadata={"title": f"Title {number}"})


def ingest(small: Small) -> None:
    """Add documents until the disk is full."""
    memory, number = small.open(), 0
    while small.attempt("add_documents", lambda: small.add(memory, number)):  # noqa: B023
        number += 20
    for name in ("full-1", "full-2", "full-3"):
        small.attempt("retrieve and record", partial(small.record, memory, name))
    small.attempt("close", memory.close)


def feedback(small: Small) -> None:
    """Record feedback until the disk is full."""
    memory = small.open()
    small.add(memory, 0, 100)
    free = shutil.disk_usage(small.disk).free
    (small.disk / "filler").write_bytes(b"x" * max(0, free - 1_200_000))
    for number in range(600):
        name = f"full-{number}"
        if not small.attempt("retrieve and record", partial(small.record, memory, name)):
            break
    small.attempt("retrieve and record", lambda: small.record(memory, "full-once-more"))
    small.attempt("close", memory.close)


def mixed(small: Small) -> None:
    """Do all kinds of work on a full disk; a little room is left, from nothing to 6 MB."""
    memory, choose = small.open(), small.choose
    small.add(memory, 0, 40)
    room = choose.randrange(choose.choice([300_000, 1_500_000, 6_000_000]))
    free = shutil.disk_usage(small.disk).free
    (small.disk / "filler").write_bytes(b"x" * max(0, free - room))

    def record(number: int) -> None:
        answer = memory.retrieve(f"Passage {number}")
        used, name = [answer.documents[0].node.id], f"mixed-{number}"
        given = Feedback(answer.turn.id, 1.0, used=used, correction=name, feedback_id=name)
        if memory.record(given).status != "refused":
            small.given.append(name)

    def forget(number: int) -> None:
        if f"d{number}" in small.documents:  # where it fails, it may have been forgotten
            small.documents.remove(f"d{number}")
        memory.forget([f"d{number}"])

    work: dict[str, Callable[[int], Any]] = {
        "add_documents": lambda number: small.add(memory, 1000 + 20 * number),
        "record": record,
        "teach": lambda number: memory.teach(f"note {number}"),
        "forget": forget,
        "export": lambda number: memory.transfer.export(small.disk / f"{number}.crabpath"),
        "maintain": lambda _: memory.maintenance.run(),
    }
    for number in range(40):
        what = choose.choice([*work, "add_documents", "record"])
        small.attempt(what, partial(work[what], number))
    (small.disk / "filler").unlink()
    if not small.attempt("add_documents", partial(small.add, memory, 9000)):
        small.faults.append(("other", "add_documents fails after room was made", 1))
    small.attempt("close", memory.close)


def main(disk: str, mode: str, seed: str) -> None:
    """Fill the disk, look, make room, look again."""
    logging.disable(logging.ERROR)
    small = Small(Path(disk), int(seed))
    {"ingest": ingest, "feedback": feedback, "mixed": mixed}[mode](small)
    small.attempt("open", lambda: small.open().close())
    subprocess.run(["mount", "-o", "remount,size=2g", disk], check=True)
    small.compare()
    acknowledged = len(small.documents) + len(small.given)
    sys.stdout.write(json.dumps({"acknowledged": acknowledged, "faults": small.faults}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
