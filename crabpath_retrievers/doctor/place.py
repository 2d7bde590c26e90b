"""Checks of the directory of a memory: files, permissions, disk space."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from crabpath_retrievers.doctor.finding import Finding
from crabpath_retrievers.opening import vectors_in

_CRITICAL_SPACE, _LOW_SPACE = 10 * 2**20, 100 * 2**20  # bytes


def check_location(file: Path, vectors: Path | None = None) -> Iterator[Finding]:
    """Check that the file of the graph store exists and is accessible.

    Args:
        file: File of the graph store, in the directory of the memory.
        vectors: Directory of the vectors; None if they are not in a directory.
    """
    place = file.parent
    held = vectors_in(vectors) if vectors is not None else 0
    some = "vectors" if held < 0 else f"{held} vectors"
    if not place.exists():
        message = f"there is no memory at {place}"
        yield _make_error(message, "check the path, or create a memory there with `crabpath add`")
    elif not place.is_dir():
        yield _make_error(f"{place} is not a directory", "give the directory of a memory")
    elif not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        yield _make_permission_error(place)
    elif not file.is_file():
        half = any(place.iterdir())
        yield _make_error(
            f"{place} holds no {file.name}"
            + (", but other files" if half else "")
            + (f", among them {some}" if held else ""),
            _advise_restore(file, vectors)
            if held
            else "check the path; if the file was lost, restore it or add the documents again",
        )
    elif not os.access(file, os.R_OK | os.W_OK):
        yield _make_permission_error(file)
    elif file.stat().st_size == 0:
        if held:
            yield _make_error(
                f"{file} is empty, but there are {some}", _advise_restore(file, vectors)
            )
        else:
            yield _make_error(
                f"{file} is empty: creating the memory was interrupted", "add the documents"
            )


def check_permissions(place: Path) -> Iterator[Finding]:
    """Check that only the owner can open the files."""
    exposed = sorted(_find_exposed(place))
    if exposed:
        more = f" and {len(exposed) - 1} more" if exposed[1:] else ""
        yield Finding(
            "permissions",
            "warning",
            f"other users of this machine can read or change {exposed[0]}{more}",
            f"run `chmod -R go-rwx {place}`",
        )


def check_disk(place: Path) -> Iterator[Finding]:
    """Check that there is enough disk space."""
    free = shutil.disk_usage(place).free
    if free < _LOW_SPACE:
        yield Finding(
            "disk",
            "error" if free < _CRITICAL_SPACE else "warning",
            f"only {free / 2**20:.0f} MiB of disk space are free at {place}",
            "free some space, or move the memory to a larger disk",
        )


def _find_exposed(path: Path) -> Iterator[Path]:
    """Yield files that other users can open; a private directory protects its content."""
    mode = path.lstat().st_mode
    if stat.S_ISDIR(mode):
        if mode & (stat.S_IXGRP | stat.S_IXOTH) and os.access(path, os.R_OK):
            for entry in path.iterdir():
                yield from _find_exposed(entry)
    elif stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield path


def _advise_restore(file: Path, vectors: Path | None) -> str:
    return (
        f"restore {file.name} from a backup; or, to start over, move {vectors} away and add the "
        "documents"
    )


def _make_error(message: str, fix: str) -> Finding:
    return Finding("place", "error", message, fix)


def _make_permission_error(path: Path) -> Finding:
    fix = "run as the user who owns it, or give that user its permissions back with chmod"
    return _make_error(f"this user cannot read and write {path}", fix)
