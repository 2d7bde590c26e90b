"""Public data sets that figures were measured on: fetched, drawn, and compared with what we had.

``published.json`` is the table. Each file has the address of one version of it, and its checksum.
"""

import gzip
import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from crabpath_lab.datasets import DATASETS
from crabpath_lab.datasets.drawing import (
    PublishedFile,
    PublishedSet,
    compute_checksum,
    draw_sample,
    name_file,
)
from crabpath_lab.output import make_folder
from crabpath_retrievers.errors import CrabPathError, InvalidInputError, ServiceError

_TABLE = Path(__file__).with_suffix(".json")
_DOWNLOADS = "downloads"  # published files, kept for another sample of them
_SECONDS = 60.0  # without an answer


def read_published_sets() -> dict[str, PublishedSet]:
    """Read the table of published data sets, by name."""
    sets: dict[str, PublishedSet] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return sets


def fetch_set(
    published: PublishedSet,
    data: Path,
    source: str | None = None,
    tell: Callable[[str], object] = lambda _: None,
) -> Path:
    """Fetch a data set and draw its sample; one that is there already is checked.

    Args:
        published: Its row in the table.
        data: Folder of data sets; the sample has its place in it.
        source: Folder with the published files, or address of one, in place of their addresses.
        tell: Called with each address before it is fetched.

    Returns:
        The sample, in a form that ``crabpath eval`` reads.

    Raises:
        InvalidInputError: A file is not the measured one, or the place of the sample is taken.
            Nothing was written.
        ServiceError: An address cannot be fetched.
    """
    target = data / published["path"]
    if target.exists():
        if not _is_measured(published, target):
            msg = (
                f"{target} exists and is not what was measured: it is left as it is. Move it "
                "away, or give --data another folder"
            )
            raise InvalidInputError(msg)
        return target
    files = [_find_file(file, data / _DOWNLOADS, source, tell) for file in published["files"]]
    make_folder(target.parent, "hold data sets")
    with TemporaryDirectory(prefix=".drawing-", dir=data) as place:
        drawn = Path(place) / target.name
        draw_sample(published, files, drawn)
        if not _is_measured(published, drawn):
            msg = f"the sample drawn for {target} is not what was measured: nothing was written"
            raise InvalidInputError(msg)
        drawn.rename(target)
    return target


def _is_measured(published: PublishedSet, path: Path) -> bool:
    """Whether a sample is the measured one; whole files have checksums of their own."""
    try:
        if published["draw"] == "copy":
            return all(
                _hash(path / file.get("to", name_file(file))) == file["sha256"]
                for file in published["files"]
            )
        if "format" not in published:
            found = hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest()
        else:
            found = compute_checksum(DATASETS[published["format"]](path))
    except (CrabPathError, OSError):
        return False
    return found == published.get("checksum", found)


def _find_file(
    file: PublishedFile, downloads: Path, source: str | None, tell: Callable[[str], object]
) -> Path:
    """Find a published file; it is fetched unless it is there."""
    name, wanted = name_file(file), file["sha256"]
    if source is not None and "://" not in source:
        path = Path(source) / name
        if not path.is_file():
            msg = f"{path} does not exist: give --from the folder with {name}"
            raise InvalidInputError(msg)
        _require_hash(path, wanted, str(path))
        return path
    kept = downloads / wanted[:8] / name
    if kept.exists() and _hash(kept) == wanted:
        return kept
    url = file["url"] if source is None else f"{source.rstrip('/')}/{name}"
    tell(url)
    make_folder(kept.parent, "hold published files")
    part = kept.with_name(f"{name}.part")
    try:
        _download(url, part)
        _require_hash(part, wanted, url)
        part.replace(kept)
    finally:
        part.unlink(missing_ok=True)
        with suppress(OSError):  # of folders that hold nothing
            kept.parent.rmdir()
            downloads.rmdir()
    return kept


def _download(url: str, path: Path) -> None:
    try:
        with httpx.stream("GET", url, follow_redirects=True, timeout=_SECONDS) as answer:
            answer.raise_for_status()
            with path.open("wb") as file:
                for block in answer.iter_bytes():
                    file.write(block)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        msg = (
            f"{url} cannot be fetched ({reason}): try again, or fetch it with a browser and give "
            "its folder with --from"
        )
        raise ServiceError(msg) from error
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror}): give --data a folder with room"
        raise InvalidInputError(msg) from error


def _require_hash(path: Path, wanted: str, where: str) -> None:
    if (found := _hash(path)) != wanted:
        msg = (
            f"{where} is not the file that was measured (sha256 {found[:12]}…, not "
            f"{wanted[:12]}…): nothing was written. Find that version, and give its folder "
            "with --from"
        )
        raise InvalidInputError(msg)


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
