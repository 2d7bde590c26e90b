"""Hostile archives: real ones with odd contents and check sums that agree."""

import json
import random
import resource
import shutil
import traceback
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.documents import Document

from benchmarks.soak.figures import Budget, Row
from benchmarks.soak.stores import Hashed, Raised, last_line, result
from crabpath_retrievers import CrabPath, CrabPathError, Feedback

Members = dict[str, bytes]
_MOST = 200  # MiB that an import may need above what the process has
_VALUES = [
    *(None, -1, 0, 2**31, 2**63, 2**70, 1.5, float("nan"), float("inf"), "x", "", "\ud83d"),
    *("'; DROP TABLE crabpath_nodes;--", [], {}, True, "a" * 3000, {"a": 1}, "../../x", "\x00"),
    *([[1]], {"x": [1, {}]}, -(2**63), 1e308, "9" * 400, "\x1b[31m"),
]
_PAGES = [
    Document(
        f"Passage {n} mentions Title {n // 3} word{n % 20}",
        id=f"d{n}",
        metadata={"title": f"Title {n}"},
    )
    for n in range(40)
]


def check_archives(budget: Budget, seed: int) -> Row:
    """Imports of archives with odd contents are refused in a sentence, or the memory works on."""
    row, rng = Row("hostile archives"), random.Random(seed)
    with TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as base:
        importing = _Importing(row, rng, Path(base))
        for run in budget:
            row.runs += 1
            importing.attempt(run)
        importing.end()
        beside = {path.name for path in Path(base).iterdir()} - importing.ours
        if beside:
            row.blame("leaks", f"files outside of the memories: {sorted(beside)[:5]}")
        row.remark = f"{importing.accepted} accepted and used"
    return row


def members(path: Path) -> Members:
    """All members of an archive by name."""
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def write(path: Path, held: Members) -> None:
    """Write an archive."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, data in held.items():
            file.writestr(name, data)


def exported(place: Path) -> tuple[Members, Members]:
    """Archives of a whole memory, and of one of its namespaces."""
    with CrabPath.open(place / "source", embeddings=Hashed()) as memory:
        memory.add_documents(_PAGES, progress=None)
        for name in ("alice", "bob"):
            memory.teach(f"SECRET of {name}", namespace=name, query="secret?")
            for n in range(10):
                turn = memory.retrieve(f"word{n}", namespace=name).turn.id
                memory.record(Feedback(turn, 1.0, used=[f"d{n}"], correction=f"right {n}"))
            memory.namespaces.snapshot(name, "before")
        memory.transfer.export(place / "whole.crabpath")
        memory.transfer.export(place / "mind.crabpath", namespace="alice")
    return members(place / "whole.crabpath"), members(place / "mind.crabpath")


def _in_manifest(rng: random.Random, held: Members) -> Members:
    """Something odd in the manifest."""
    chance, text = rng.random(), held["manifest.json"]
    if chance < 0.05:
        return {**held, "manifest.json": rng.choice([b"[" * 100_000, b"{", b"[1]", b""])}
    if chance < 0.1:
        odd = text.replace(b'"version": 1', b'"version": Infinity')
        return {**held, "manifest.json": odd}
    manifest = json.loads(text)
    manifest[rng.choice(list(manifest))] = rng.choice(_VALUES)
    if rng.random() < 0.6 and isinstance(manifest.get("rows"), dict):
        manifest = json.loads(text)
        manifest["rows"][rng.choice([*manifest["rows"], "sqlite_master"])] = rng.choice(_VALUES)
    elif rng.random() < 0.3 and isinstance(manifest.get("last"), dict):
        manifest["last"][rng.choice([*manifest["last"], "sqlite_master"])] = rng.choice(_VALUES)
    return {**held, "manifest.json": json.dumps(manifest).encode()}


def _in_rows(rng: random.Random, held: Members, name: str) -> Members:
    """Something odd in a row."""
    rows = held[name].splitlines()
    at, chance = rng.randrange(len(rows)), rng.random()
    row = json.loads(rows[at])
    keys = list(row) if isinstance(row, dict) else list(range(len(row)))
    if chance < 0.6:
        row[rng.choice(keys)] = rng.choice(_VALUES)
    elif chance < 0.7:
        rows.append(rows[at])
    elif chance < 0.8:
        key = rng.choice(keys)
        if isinstance(row[key], str):
            row[key] = row[key][::-1]
        elif isinstance(row[key], (int, float)):
            row[key] = -(row[key] or 1)
    elif chance < 0.82:
        return {**held, name: b"[" * 100_000 + b"\n"}
    elif chance < 0.9:
        rows.pop(at)
        return {**held, name: b"\n".join(rows) + b"\n" * bool(rows)}
    rows[at] = json.dumps(row).encode()
    return {**held, name: b"\n".join(rows) + b"\n"}


def mutated(rng: random.Random, held: Members) -> Members:
    """An archive with something odd in it."""
    if rng.random() < 0.15:
        return _in_manifest(rng, held)
    names = [name for name in held if name.endswith(".jsonl") and held[name]]
    return _in_rows(rng, held, rng.choice(names))


class _Importing:
    """Memories into which archives are read."""

    def __init__(self, row: Row, rng: random.Random, base: Path) -> None:
        self.row, self.rng, self.base, self.accepted = row, rng, base, 0
        self.whole, self.mind = exported(base)
        self.filled = CrabPath.open(base / "filled", embeddings=Hashed())
        self.filled.add_documents(_PAGES, progress=None)
        self.empty = CrabPath.open(base / "empty", embeddings=Hashed())
        self.ours = {
            *("source", "filled", "empty", "whole.crabpath", "mind.crabpath", "odd.crabpath")
        }

    def attempt(self, run: int) -> None:
        """Read one odd archive, and use what came of it."""
        whole, odd = self.rng.random() < 0.5, self.base / "odd.crabpath"
        write(odd, mutated(self.rng, self.whole if whole else self.mind))
        memory, name = (self.empty, "alice") if whole else (self.filled, f"n{run}")
        options: dict[str, Any] = {} if whole else {"rename": name}
        if self._tried("import", lambda: memory.transfer.import_archive(odd, **options)):
            self.accepted += 1
            for what, call in _uses(memory, name).items():
                self._tried(f"{what} after the import", call)
            if whole or run % 500 == 499:
                self._again(whole=whole)
        elif whole and memory.info()["nodes"]:
            self.row.blame("other", "a refused archive left something behind")
            self._again(whole=True)

    def _again(self, *, whole: bool) -> None:
        """Close a memory and open it again; the empty one is made anew."""
        name = "empty" if whole else "filled"
        memory: CrabPath = getattr(self, name)
        try:
            memory.close()
            memory = CrabPath.open(self.base / name, embeddings=Hashed())
            memory.retrieve("word3", namespace="carol")
        except Exception as error:
            self.row.blame("unopenable", f"after an accepted archive: {error!r}")
        if whole:
            memory.close()
            shutil.rmtree(self.base / name)
            memory = CrabPath.open(self.base / name, embeddings=Hashed())
        setattr(self, name, memory)

    def _tried(self, what: str, call: Callable[[], Any]) -> bool:
        try:
            call()
        except CrabPathError as error:
            if what != "import":
                self.row.blame("other", f"accepted, then {what} fails: {error!r}")
            return False
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            ours = [f for f in frames if "crabpath_retrievers" in f.filename]
            at = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "?"
            self.row.blame("foreign", f"{what}: {type(error).__name__} at {at}: {error!s:.150}")
            return False
        return True

    def end(self) -> None:
        """Close all."""
        self._again(whole=False)
        self.filled.close()
        self.empty.close()


def _uses(memory: CrabPath, name: str) -> dict[str, Callable[[], Any]]:
    """What is done with a namespace that was taken over."""

    def record() -> None:
        turn = memory.retrieve("word4", namespace=name).turn.id
        memory.record(Feedback(turn, 1.0, correction="right"))

    return {
        "retrieve": lambda: memory.retrieve("word3 secret?", namespace=name, k=9),
        "record": record,
        "health": lambda: memory.maintenance.health(name),
        "snapshots": lambda: memory.namespaces.snapshots(name),
        "graph_search": lambda: memory.graph.search("word3", 5, namespace=name),
        "knobs": lambda: memory.maintenance.knobs(name),
        "info": memory.info,
        "forget": lambda: memory.forget(namespace=name),
    }


def check_bomb(budget: Budget, seed: int, mebibytes: int = 1536) -> Row:
    """A small archive with one very long line: it is refused, and little memory is needed."""
    row = Row("archive bomb")
    with TemporaryDirectory(prefix="soak-") as base:
        _bomb(Path(base), mebibytes)
        size = Path(base, "bomb.crabpath").stat().st_size / 2**20
        for run in budget:
            if run == 1 and budget.runs is None:
                break
            row.runs += 1
            found = result(_swallow, base)
            if isinstance(found, Raised):
                row.blame("foreign", last_line(found))
                continue
            row.remark = f"{size:.1f} MiB that hold {mebibytes} MiB took {found:.0f} MiB"
            if found > _MOST:
                row.blame("other", row.remark)
    return row


def _swallow(say: Callable[[Any], None], base: str) -> None:
    """Import the bomb; how many MiB the process grew."""
    with CrabPath.open(Path(base, "memory"), embeddings=Hashed()) as memory:
        memory.info()
        before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        with suppress(CrabPathError):
            memory.transfer.import_archive(Path(base, "bomb.crabpath"))
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    say((most - before) / 2**20)


def _bomb(base: Path, mebibytes: int) -> None:
    """An archive with one line of so many MiB."""
    whole, _ = exported(base)
    piece = b" " * 2**20
    path = base / "bomb.crabpath"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, data in whole.items():
            if name != "turns.jsonl":
                file.writestr(name, data)
        with file.open("turns.jsonl", "w", force_zip64=True) as line:
            for _ in range(mebibytes):
                line.write(piece)
