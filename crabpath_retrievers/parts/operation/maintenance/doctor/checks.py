"""Checks of the graph store.

Findings of the doctor.

Checks of the embedder that a store was built with.

Checks of the directory of a memory: files, permissions, disk space.
"""

import os
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from crabpath_retrievers.core.processes import raise_interruption
from crabpath_retrievers.core.records import compute_hub_level
from crabpath_retrievers.errors import CrabPathError, EmbeddingMismatchError
from crabpath_retrievers.ingest.linking import UNFINISHED_SINCE
from crabpath_retrievers.parts.operation.maintenance.doctor.queries import Checks
from crabpath_retrievers.storage.store import (
    SCHEMA_VERSION,
    UNRELEASED,
    ReadOnlyStore,
    read_schema_version,
)
from crabpath_retrievers.vectors.embedder import (
    DEFAULT_MODEL,
    Embedder,
    EmbedderIdentity,
    parse_identity,
    require_same_embedder,
)
from crabpath_retrievers.vectors.opening import vectors_in

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        check: Name of the check.
        severity: ``error`` is broken, ``warning`` should be fixed, ``info`` is good to know.
        message: The problem, in one sentence.
        fix: What to do about it, in one sentence.
    """

    check: str
    severity: Severity
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings of one store.

    Attributes:
        place: Location of the store, without password.
        checked: Names of the checks that were completed.
        findings: Findings, the worst first.
    """

    place: str
    checked: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> bool:
        """Whether there is a finding of severity ``error``."""
        return any(finding.severity == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Convert the diagnosis to plain, JSON-safe data."""
        return {**asdict(self), "broken": self.broken}


_DAY = 86_400.0
_READD = "forget these documents and add them again (`crabpath forget`, `crabpath add`)"
_SWEEP = "run `crabpath maintain`, which deletes them"
_RERUN = "run the ingest again: it goes on, and links what it published"
_REOPEN = "open the memory once, for example with `crabpath info`: it finishes the work"


def check_version(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check that this release can read the schema; if not, nothing else is checked."""
    with store.connect() as connection:
        found = read_schema_version(connection)
    if found == SCHEMA_VERSION:
        return
    if found is None:
        message = "the database contains no memory, or an incomplete one"
        fix = "check the path or URL; if the first `crabpath add` was interrupted, run it again"
    elif found > SCHEMA_VERSION:
        message = (
            f"the store has schema version {found}, but this release supports {SCHEMA_VERSION}"
        )
        fix = "upgrade crabpath-retrievers"
    elif found != UNRELEASED:
        message = f"the store has schema version {found}, and this release {SCHEMA_VERSION}"
        fix = "open the memory once, for example with `crabpath info`: it upgrades the store"
        yield Finding("schema", "warning", message, fix)
        return
    else:
        message = "the store was written before the first release and its schema is not supported"
        fix = "add the documents to a new store"
    yield Finding("schema", "error", message, fix)


def check_integrity(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check that the database file is intact and has all tables."""
    damage, missing = Checks(store).find_damage(), Checks(store).find_missing_tables()
    messages = [f"the database file is damaged ({damage})"] if damage else []
    messages += [f"the database lacks {', '.join(missing)}"] if missing else []
    fix = "restore it from a backup, or add the documents again to a new directory"
    for message in messages:
        yield Finding("integrity", "error", message, fix)


def check_references(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check that the owner of each row is there."""
    for table, count in Checks(store).count_dangling_rows().items():
        fix = _READD if table == "crabpath_nodes" else _SWEEP
        message = f"{count} rows of {table} belong to nothing that is left"
        yield Finding("references", "error", message, fix)


def check_unfinished(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check for an interrupted ingest."""
    staged, trash = Checks(store).get_staged_ids(), store.catalog.get_index_deletions()
    count = sum(map(len, staged.values())) + len(trash)
    if count:
        message = f"an ingest was interrupted or is still running: {count} chunks are waiting"
        is_bulk = store.catalog.meta().get(UNFINISHED_SINCE)
        yield Finding("unfinished", "warning", message, _RERUN if is_bulk else _REOPEN)


def check_drift(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check that indexes and counters of the graph store agree with its documents."""
    chunks, texts = Checks(store).chunks(), Checks(store).get_fulltext_keys()
    meta = store.catalog.meta()
    if unread := sum(chunk.key not in texts for chunk in chunks):
        message = f"{unread} chunks are missing in the full-text index: no word finds them"
        yield Finding("full text", "error", message, _READD)
    counted = int(meta.get("nodes", 0))
    if counted != len(chunks):
        message = (
            f"the counter says {counted} chunks, there are {len(chunks)}: BM25 weights are wrong"
        )
        yield Finding("statistics", "warning", message, _READD)
    wrong = sum(compute_hub_level(chunk.id) != chunk.level for chunk in chunks)
    if wrong:
        message = f"{wrong} chunks have a level that does not match their id: regions are wrong"
        yield Finding("regions", "warning", message, _READD)
    if any(chunk.level for chunk in chunks) and not int(meta.get("hubs", 0)):
        message = "there are region hubs, but their counter is 0, so queries ignore them"
        fix = "add a few more documents: the next hub among them corrects the counter"
        yield Finding("regions", "warning", message, fix)


def check_orphans(store: ReadOnlyStore) -> Iterator[Finding]:
    """List isolated chunks, which only search finds."""
    if count := Checks(store).count_isolated_chunks():
        message = f"{count} chunks have no text edges: only search finds them"
        fix = "nothing needs to be done; titles, links and aliases in the documents would join them"
        yield Finding("orphans", "info", message, fix)


def check_namespaces(store: ReadOnlyStore) -> Iterator[Finding]:
    """List frozen namespaces, which do not learn."""
    if frozen := Checks(store).get_frozen_namespaces():
        shown = ", ".join(frozen[:5]) + (" …" if frozen[5:] else "")
        message = f"{len(frozen)} namespaces are frozen and learn nothing: {shown}"
        fix = "run `crabpath history unfreeze --namespace NAME` if one should learn again"
        yield Finding("namespaces", "info", message, fix)


def check_feedback(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check for feedback that is waiting or was refused."""
    found = Checks(store).count_open_feedback()
    if found.waiting:
        late = found.since is not None and time.time() - found.since > _DAY
        since = ", the oldest for more than a day" if late else ""
        message = f"{found.waiting} feedback records wait to be applied{since}"
        yield Finding("feedback", "warning" if late else "info", message, "run `crabpath learn`")
    if found.refused:
        message = f"{found.refused} feedback records were refused, each with a note that says why"
        fix = "to read the note, send the same feedback again (`crabpath feedback ... --id ID`)"
        yield Finding("feedback", "info", message, fix)


CHECKS = {
    "references": check_references,
    "unfinished": check_unfinished,
    "drift": check_drift,
    "orphans": check_orphans,
    "namespaces": check_namespaces,
    "feedback": check_feedback,
}
"""Checks by name; each needs an intact store of this release's schema."""


_REBUILD = "add the documents again to a new directory, with one embedder"


def check_embedder(store: ReadOnlyStore, embeddings: Any = None) -> Iterator[Finding]:
    """Check that the stored fingerprint fits the stored vectors and the embedder in use.

    Args:
        store: The store, opened for reading.
        embeddings: The embedder to use with it, or its ``"provider:model"``; None for the
            remembered one, else for the default one.
    """
    meta = store.catalog.meta()
    if not {"nodes", "notes"} & set(meta):  # nothing was ever embedded
        return
    try:
        identity = parse_identity(meta["embedder"])
    except (KeyError, TypeError, ValueError):
        message = "the store does not record which embedder it was built with"
        yield Finding("embedder", "error", message, _REBUILD)
        return
    if other := Checks(store).count_other_dimensions(identity.probe.size):
        message = (
            f"the dimension of {other} vectors is not {identity.probe.size}, that of "
            f"{identity.model!r}"
        )
        yield Finding("embedder", "error", message, _REBUILD)
    embeddings = identity.name if embeddings is None else embeddings
    if embeddings is None and identity.model != DEFAULT_MODEL:
        yield Finding(
            "embedder",
            "warning",
            f"the store was built with {identity.model!r}; `crabpath add` and `crabpath query` "
            f"use {DEFAULT_MODEL!r} and refuse this store",
            "name its embedder: --embeddings PROVIDER:MODEL, CrabPath.open(path, embeddings=...)",
        )
        return
    yield from _compare(identity, embeddings)


def _compare(identity: EmbedderIdentity, embeddings: Any) -> Iterator[Finding]:
    try:
        at_hand = Embedder(embeddings)
        at_hand.use_by_default(identity)
        require_same_embedder(identity, at_hand.identify())
    except EmbeddingMismatchError as error:
        fix = "open the store with the embedder that it was built with"
        yield Finding("embedder", "error", str(error), fix)
    except CrabPathError as error:
        yield Finding(
            "embedder", "info", f"the embedder was not checked: {error}", "see the message"
        )
    except Exception as error:
        raise_interruption(error)
        message = f"the embedder does not answer ({type(error).__name__}: {error!s:.200})"
        yield Finding("embedder", "warning", message, "check its service and its key")


_CRITICAL_SPACE, _LOW_SPACE = 10 * 2**20, 100 * 2**20  # bytes


def check_location(file: Path, vectors: Path | None = None) -> Iterator[Finding]:
    """Check that the file of the graph store exists and is accessible.

    Args:
        file: File of the graph store, in the directory of the memory.
        vectors: Directory of the vectors; None if they are not in a directory.
    """
    if problem := _find_location_problem(file, vectors):
        yield Finding("place", "error", *problem)


def _find_location_problem(file: Path, vectors: Path | None) -> tuple[str, str] | None:
    """Return what is wrong, and what to do about it."""
    place = file.parent
    held = vectors_in(vectors) if vectors is not None else 0
    some = "vectors" if held < 0 else f"{held} vectors"
    restore = (
        f"restore {file.name} from a backup; or, to start over, move {vectors} away and add the "
        "documents"
    )
    allow = "run as the user who owns it, or give that user its permissions back with chmod"
    problem: tuple[str, str] | None = None
    if not place.exists():
        fix = "check the path, or create a memory there with `crabpath add`"
        problem = f"there is no memory at {place}", fix
    elif not place.is_dir():
        problem = f"{place} is not a directory", "give the directory of a memory"
    elif not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        problem = f"this user cannot read and write {place}", allow
    elif not file.is_file():
        others = ", but other files" if any(place.iterdir()) else ""
        others += f", among them {some}" if held else ""
        fix = "check the path; if the file was lost, restore it or add the documents again"
        problem = f"{place} holds no {file.name}{others}", restore if held else fix
    elif not os.access(file, os.R_OK | os.W_OK):
        problem = f"this user cannot read and write {file}", allow
    elif file.stat().st_size == 0 and held:
        problem = f"{file} is empty, but there are {some}", restore
    elif file.stat().st_size == 0:
        problem = f"{file} is empty: creating the memory was interrupted", "add the documents"
    return problem


def check_permissions(place: Path) -> Iterator[Finding]:
    """Check that only the owner can open the files."""
    if exposed := sorted(_find_exposed(place)):
        more = f" and {len(exposed) - 1} more" if exposed[1:] else ""
        message = f"other users of this machine can read or change {exposed[0]}{more}"
        yield Finding("permissions", "warning", message, f"run `chmod -R go-rwx {place}`")


def check_disk(place: Path) -> Iterator[Finding]:
    """Check that there is enough disk space."""
    free = shutil.disk_usage(place).free
    if free < _LOW_SPACE:
        severity: Severity = "error" if free < _CRITICAL_SPACE else "warning"
        message = f"only {free / 2**20:.0f} MiB of disk space are free at {place}"
        fix = "free some space, or move the memory to a larger disk"
        yield Finding("disk", severity, message, fix)


def _find_exposed(path: Path) -> Iterator[Path]:
    """Yield files that other users can open; a private directory protects its content."""
    mode = path.lstat().st_mode
    if stat.S_ISDIR(mode):
        if mode & (stat.S_IXGRP | stat.S_IXOTH) and os.access(path, os.R_OK):
            for entry in path.iterdir():
                yield from _find_exposed(entry)
    elif stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield path
