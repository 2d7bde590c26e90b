"""Directories of any name beside others that look alike: each opens its own memory alone."""

import os
import random
import string
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, quote_plus, unquote, unquote_plus

import sqlalchemy as sa
from langchain_core.documents import Document

from benchmarks.soak.figures import Budget, Row
from benchmarks.soak.stores import Hashed
from crabpath_retrievers import CrabPath, CrabPathError
from crabpath_retrievers.parts.operation.maintenance.doctor import examine

NAMES = (
    *("a b", "a%20b", "a?b", "a#b", "a+b", "a&b=c", "a;b", "a%00b", "%", "%%", "100%", "a%2Fb"),
    *(
        "ann@x.org",
        "a:b",
        "sqlite:x",
        "file:x",
        "file:",
        "a:",
        "postgresql:",
        ":memory:",
        "?mode=ro",
    ),
    *("x\ny", "x\r", "\t", " ", " x", "x ", "x.", "...", "-x", "--store", "~", "~root", "$HOME"),
    *("*", "[a]", "{a}", "a\\b", "a'b", 'a"b', "a`b", "a|b", "NUL", "ü", "u\u0308", "ﬁ", "日本語"),
    *("\u202ea", "\u200b", "\x01", "\x7f", "é" * 100, "x" * 200, "x" * 255, "x" * 256),
    *(os.fsdecode(b"\xff"), os.fsdecode(b"a\x80b"), os.fsdecode("é".encode("latin-1"))),
)
"""Names that something once took for more than a name."""

_LONGEST = 255  # bytes, of common file systems
_ALIKE = 2  # look-alikes beside a name
_DOORS = ("text", "path", "url")


def check_paths(budget: Budget, seed: int) -> Row:
    """Fill a memory in a directory and in its look-alikes, and ask each what it was told."""
    row, rng, tried = Row("directories with odd names, beside look-alikes"), random.Random(seed), 0
    with TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as base:
        for run in budget:
            row.runs += 1
            name = NAMES[run] if run < len(NAMES) else make_name(rng)
            others = list(find_look_alikes(name))
            names = [name, *rng.sample(others, min(_ALIKE, len(others)))]
            tried += len(names)
            top = Path(base, f"{run}")
            top.mkdir()
            row.acknowledged += try_names(top, names, row, rng)
    row.remark = f"{tried} directories, {row.acknowledged} of them were opened"
    return row


def make_name(rng: random.Random) -> str:
    """A name of up to 200 characters that is no longer than file systems allow."""
    kind = rng.randrange(5)
    length = 200 if rng.random() < 0.02 else rng.randint(1, 24)
    if kind == 0:
        raw = bytes(rng.choices([n for n in range(1, 256) if n != ord("/")], k=length))
    elif kind == 1:
        signs = "%?#+&=;:@!$'\"()*,<>[]\\^`{|}~ .-_\n\t" + string.ascii_letters + string.digits
        raw = "".join(rng.choices(signs, k=length)).encode()
    elif kind == 2:
        escapes = [f"%{rng.randrange(256):02x}" for _ in range(8)]
        raw = "".join(rng.choices([*escapes, "a", "b", "%", "+", "?"], k=length)).encode()
    elif kind == 3:
        ranges = (
            (0xC0, 0x250),
            (0x300, 0x370),
            (0xAC00, 0xAC80),
            (0x3040, 0x30FF),
            (0x1F300, 0x1F320),
        )
        raw = "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(length)).encode()
    else:
        raw = "".join(rng.sample(NAMES, 2)).encode("utf-8", "surrogateescape")
    name = os.fsdecode(raw[:_LONGEST]).replace("/", "").replace("\0", "")
    return name if name not in {"", ".", ".."} else "a"


def find_look_alikes(name: str) -> Iterator[str]:
    """Other names that a careless program could take for this one, or make of it."""
    found = [
        *(change(name) for change in (quote, quote_plus) if _is_text(name)),
        *(change(name) for change in (unquote, unquote_plus, os.path.expandvars, str.strip)),
        *(unicodedata.normalize(form, name) for form in ("NFC", "NFD", "NFKC")),
        *(name.partition(sign)[0] for sign in "?#%;\n"),
        *(f"{name}{more}" for more in ("?", "%", " ", ".", "#x", "?mode=ro", "%20", "\n")),
        *(name.swapcase(), name.rstrip("."), name.removeprefix("file:"), f"file:{name}"),
        *(name.replace("\\", ""), name.replace("+", " "), name.replace(" ", "+")),
    ]
    known = {name, "", ".", ".."}
    for one in found:
        if one not in known and "/" not in one and "\0" not in one:
            known.add(one)
            yield one


def try_names(top: Path, names: list[str], row: Row, rng: random.Random) -> int:
    """Fill, close and open again a memory in each directory; how many were opened."""
    opened: list[str] = []
    for name in names:
        before = _list(top)
        try:
            with _open(top, name, rng) as memory:
                memory.add_documents([Document(_tell(name), id="d")], progress=None)
            opened.append(name)
        except CrabPathError as error:
            if _is_usable(top, name):
                row.blame("unopenable", f"{name!r} is refused: {error}")
            if _list(top) != before:
                row.blame("other", f"{name!r} is refused after something was written")
        except Exception as error:
            row.blame("foreign", f"{name!r}: {error!r}")
        if extra := _list(top) - {*before, name}:
            row.blame("other", f"{name!r} made {extra} beside it")
    for name in opened:
        _look_again(top, name, row, rng)
    return len(opened)


def _look_again(top: Path, name: str, row: Row, rng: random.Random) -> None:
    try:
        with _open(top, name, rng, create=False) as memory:
            found = [one.node.content for one in memory.retrieve("what was told?", k=9).documents]
        if found != [_tell(name)]:
            row.blame("leaks" if found else "lost", f"{name!r} answers {found}")
        if not rng.randrange(9):
            for one in examine(top / name, embeddings=Hashed()).findings:
                if one.severity != "info":
                    row.blame("other", f"doctor about {name!r}: {one.message}")
    except CrabPathError as error:
        row.blame("unopenable", f"{name!r} cannot be opened again: {error}")
    except Exception as error:
        row.blame("foreign", f"{name!r}, again: {error!r}")


def _open(top: Path, name: str, rng: random.Random, *, create: bool = True) -> CrabPath:
    path, door = top / name, rng.choice(_DOORS)
    if door == "url" and _is_text(name):
        url = sa.URL.create("sqlite", database=str(path / "graph.sqlite")).render_as_string()
        return CrabPath.open(url, vectors=path / "vectors", embeddings=Hashed(), create=create)
    place = path if door == "path" else str(path)
    return CrabPath.open(place, embeddings=Hashed(), create=create)


def _list(top: Path) -> set[str]:
    return {entry.name for entry in top.iterdir()}


def _tell(name: str) -> str:
    return f"This was told to {name!a}."


def _is_text(name: str) -> bool:
    return name.isprintable() or not any("\ud800" <= sign <= "\udfff" for sign in name)


def _is_usable(top: Path, name: str) -> bool:
    """Whether the file system and the stores can keep files in a directory of this name."""
    return _is_text(name) and len(os.fsencode(name)) <= _LONGEST and len(os.fsencode(top)) < 200
