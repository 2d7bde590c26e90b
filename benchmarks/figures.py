"""One source for figures: ``docs/figures.json``, from which pages take every measured number.

A run of the file is a command with what it found, and when and where. A page names places in it:
``<!--f RUN/PLACE /PLACE-->.922 (.896 to .944)<!--/f-->``; the numbers between the marks are those
of the places, in order, and keep the form that they have there (places, sign, leading zero, %).
"""

import ast
import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from crabpath_retrievers.errors import InvalidInputError

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "figures.json"
# Decisions, laboratory and changelog tell what was measured then; experiments are generated.
PAGES = (
    *("README.md", "docs/index.md", "docs/tutorials", "docs/how-to", "docs/explanation"),
    "docs/research/reproduce.md",
)
# Their shared figures and tables are marked; text between them tells of single runs, by date.
DATED = tuple(f"docs/research/{name}.md" for name in ("evaluation", "learning", "contamination"))
DATED += ("docs/research/rfc-013.md",)
_RANKING = tuple(
    f"crabpath_retrievers/{name}" for name in ("core", "ingest", "rerank", "retrieval", "vectors")
)
# What a figure is about: what of the code it depends on.
ABOUT = {
    "ranking": _RANKING,
    "learning": (*_RANKING, "crabpath_retrievers/learning"),
    "attribution": (*_RANKING, "crabpath_retrievers/learning"),
    "regions": ("crabpath_retrievers/parts/region_mdp", "crabpath_retrievers/regions.py"),
    "speed": ("crabpath_retrievers",),
    "server": ("crabpath_retrievers", "adapters/crabpath_server"),
    "others": (),  # of other projects: not ours to measure
}
OUTPUT = "figures.json"  # in a command: the file that it writes; else it prints

_MARK = re.compile(r"<!--f ([^>]+?)-->(.*?)<!--/f-->", re.DOTALL)
_NUMBER = re.compile(
    r"(?<![\w@.,−-])[+−-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?!\w|\.\d)(?= ?(%)?)"
)
_NO_TEXT = re.compile(
    r"^```.*?^```|^(?: {4}|\t|>).*?$|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL | re.MULTILINE
)
_SIGNED = r"[+−-]?\d*\.\d+"
MEASURED = {
    "a score of three or four places": r"(?<![\w@.])[01]?\.\d{3,4}(?![\w.]*\d)",
    "an interval": rf"\({_SIGNED} to {_SIGNED}\)",
    "a rate": r"\d (?:queries|feedbacks?|documents|requests|searches) a second|\d \w+/s\b",
    "a time": r"\d ?(?:ms|milliseconds)\b|[\d.]+ times as long",
}
SHARES = {"README.md": r"\d ?%", "docs/index.md": r"\d ?%"}  # elsewhere most are settings
# By page, what looks measured and is not.
EXCEPTIONS: Mapping[str, tuple[str, ...]] = {
    "README.md": ("95% interval", "20% of the words left out"),  # what was done, not found
    "docs/research/reproduce.md": ("± .002 for retrieval",),  # a tolerance
}


def read_figures(file: Path = FILE) -> dict[str, Any]:
    """The runs by name.

    Raises:
        InvalidInputError: The file cannot be read.
    """
    try:
        runs: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{file} holds no figures ({error}): take the committed one"
        raise InvalidInputError(msg) from error
    return runs


def list_pages() -> Iterator[Path]:
    """The pages that take their figures from the file."""
    for name in (*PAGES, *DATED):
        path = ROOT / name
        yield from sorted(path.rglob("*.md")) if path.is_dir() else (path,)


def look_up(places: str, runs: Mapping[str, Any]) -> list[float]:
    """The numbers of places with spaces between, in their order; ``/x`` is of the run before.

    Raises:
        InvalidInputError: A place is not in the file.
    """
    found: list[float] = []
    name = ""
    for place in places.split():
        run, *path = place.split("/")
        name = run or name
        node = runs.get(name, {}).get("figures", {})
        numbers = [*chain.from_iterable(map(_list_leaves, _find_nodes(node, path)))]
        if not numbers:
            msg = f"docs/figures.json has no {name}/{'/'.join(path)}: enter it, or mend the mark"
            raise InvalidInputError(msg)
        found += numbers
    return found


def _find_nodes(node: Any, path: Sequence[str]) -> Iterator[Any]:
    if not path:
        yield node
        return
    children = node if isinstance(node, dict) else dict(enumerate(_as_list(node)))
    for key, child in children.items():
        if fnmatchcase(str(key), path[0].replace("[", "[[]")):
            yield from _find_nodes(child, path[1:])


def _as_list(node: Any) -> Sequence[Any]:
    return node if isinstance(node, list) else ()


def _list_leaves(node: Any) -> Iterator[float]:
    if isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from _list_leaves(child)
    elif node is not None:
        yield node


def render_page(text: str, runs: Mapping[str, Any]) -> str:
    """The page with the numbers of the file between its marks.

    Raises:
        InvalidInputError: A mark names no place, or stands around more or fewer numbers.
    """

    def rewrite(mark: re.Match[str]) -> str:
        places, old = mark.groups()
        numbers = look_up(places, runs)
        count = len(_NUMBER.findall(old))
        if count != len(numbers):
            msg = f"{places} has {len(numbers)} numbers, and the page {count} there: {old!r}"
            raise InvalidInputError(msg)
        rest = iter(numbers)
        return f"<!--f {places}-->{_NUMBER.sub(lambda one: _write(one, next(rest)), old)}<!--/f-->"

    return _MARK.sub(rewrite, text)


def _write(old: re.Match[str], number: float) -> str:
    shown, percent = old.group(0), old.group(1)
    digits = shown.lstrip("+−-")
    value = number * 100 if percent else number
    text = f"{abs(value):,.{len(digits.partition('.')[2])}f}"
    if not digits.startswith("0."):
        text = text.removeprefix("0") if text.startswith("0.") else text
    if value < 0:
        return ("-" if shown[0] == "-" else "−") + text
    return ("+" if shown != digits else "") + text


def list_hand_written(page: str, text: str) -> list[str]:
    """Numbers that look measured, and stand between no marks, with what each looks like."""
    text = _MARK.sub("", text)
    for allowed in EXCEPTIONS.get(page, ()):
        text = text.replace(allowed, "")
    text = _NO_TEXT.sub("", text)
    rules = MEASURED | ({"a share": SHARES[page]} if page in SHARES else {})
    found = ((kind, one) for kind, rule in rules.items() for one in re.finditer(rule, text))
    return [
        f"{page}: {text[max(one.start() - 40, 0) : one.end() + 20]!r} has {kind} without marks"
        for kind, one in found
    ]


def update_pages(*, check: bool = False) -> list[str]:
    """Write the figures into the pages, or only look; what is wrong, a sentence each."""
    runs, faults = read_figures(), []
    for path in list_pages():
        page, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        faults += [] if page in DATED else list_hand_written(page, text)
        try:
            new = render_page(text, runs)
        except InvalidInputError as error:
            faults.append(f"{page}: {error}")
            continue
        if new != text and check:
            faults.append(f"{page} shows other figures: run python -m benchmarks figures")
        elif new != text:
            path.write_text(new, encoding="utf-8")
    return faults


def list_old(runs: Mapping[str, Any]) -> list[str]:
    """Runs whose code has changed since they were measured."""
    return [name for name, run in runs.items() if run["code"] != hash_code(ABOUT[run["about"]])]


def hash_code(packages: Sequence[str], root: Path = ROOT) -> str:
    """A hash of Python code without comments and docstrings, and of the data beside it."""
    digest = hashlib.sha256()
    for package in packages:
        path = root / package
        for file in sorted(path.rglob("*")) if path.is_dir() else (path,):
            if file.suffix in {".py", ".json"}:
                digest.update(_read_code(file))
    return digest.hexdigest()[:16]


@cache
def _read_code(file: Path) -> bytes:
    if file.suffix == ".json":
        return file.read_bytes()
    return repr(_describe_code(ast.parse(file.read_text(encoding="utf-8")))).encode()


def _describe_code(node: Any) -> Any:
    """A syntax tree as tuples, the same in every version of Python."""
    if isinstance(node, list):
        return tuple(_describe_code(one) for one in node if not _is_docstring(one))
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
    return (type(node).__name__, *((name, _describe_code(value)) for name, value in fields))


def _is_docstring(node: Any) -> bool:
    alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return alone and isinstance(node.value.value, str)


def measure_run(name: str, data: Path, output: Path | None = None) -> None:
    """Run the command of a run in the folder of the data sets, and write what it found.

    Args:
        name: A run of the file.
        data: Where its command finds the data sets.
        output: What the command has written or printed already, with the code as it stands.

    Raises:
        InvalidInputError: There is no such run, or the output lacks a figure of it.
    """
    runs = read_figures()
    if name not in runs:
        msg = f"docs/figures.json has no run {name}: enter its command and its figures first"
        raise InvalidInputError(msg)
    run = runs[name]
    if not run["command"].startswith(("crabpath ", "python ")) and output is None:
        msg = f"the command of {name} is not known ({run['command']}): enter it in the file first"
        raise InvalidInputError(msg)
    text = _run_command(run["command"], data) if output is None else output.read_text("utf-8")
    run["figures"] = _take(run["figures"], _parse(text, run.get("labels", 1)), name)
    now = datetime.now(timezone.utc)
    run |= {"date": f"{now:%Y-%m-%d}", "commit": _read_commit(), "machine": describe_machine()}
    run |= {"code": hash_code(ABOUT[run["about"]])}
    write_figures(runs)


def write_figures(runs: Mapping[str, Any]) -> None:
    """Write the file: a line for each group of numbers, so that a change shows as one."""
    text = json.dumps(runs, indent=1, ensure_ascii=False)
    flat = re.compile(r"[\[{][^\[\]{}]*[\]}]")  # brackets without others in them
    text = flat.sub(lambda one: re.sub(r"\n\s*", " ", one.group(0)), text)
    FILE.write_text(text + "\n", encoding="utf-8")


def _run_command(command: str, data: Path) -> str:
    with TemporaryDirectory() as folder:
        file = Path(folder) / OUTPUT
        words = [str(file) if word == OUTPUT else word for word in shlex.split(command)]
        start = {"crabpath": ["-m", "crabpath_retrievers"], "python": []}[words[0]]
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(  # noqa: S603  a command of our own file
            [sys.executable, *start, *words[1:]],
            cwd=data,
            env=os.environ | {"PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode not in {0, 1}:  # 1: something is below what it should be
            msg = f"{command} ended with {done.returncode}: give --data, and see what it says"
            raise InvalidInputError(msg)
        return file.read_text("utf-8") if file.exists() else done.stdout


def _parse(text: str, labels: int) -> Any:
    """JSON, or the rows of Markdown tables by their first cells and the names of their columns."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    found: dict[str, Any] = {}
    columns: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            columns = []
        elif not columns:
            columns = cells
        elif not set(line) <= set("|-: "):
            row = found
            for cell in cells[:labels]:
                row = row.setdefault(name_row(cell), {})
            for column, cell in zip(columns[labels:], cells[labels:], strict=False):
                numbers = read_numbers(cell)
                if numbers:
                    row[name_row(column)] = numbers if len(numbers) > 1 else numbers[0]
    return found


def name_row(label: str) -> str:
    """The name of a row or column in a place."""
    return re.sub(r"[^\w@.+−-]+", "-", label.lower()).strip("-")


def read_numbers(text: str) -> list[float]:
    """The numbers of a text as the file has them; percentages as shares."""
    return [
        _round(float(one.group(0).replace("−", "-").replace(",", "")), bool(one.group(1)))
        for one in _NUMBER.finditer(text)
    ]


def _round(number: float, percent: bool) -> float:  # noqa: FBT001
    value = round(number / 100, 8) if percent else number
    return int(value) if value == int(value) and not percent else value


def _take(old: Any, new: Any, place: str) -> Any:
    """The same places as before with new numbers."""
    if isinstance(old, dict):
        missing = old.keys() - (new.keys() if isinstance(new, dict) else set())
        if missing:
            msg = f"the output has no {place}/{min(missing)}: give that of the run's command"
            raise InvalidInputError(msg)
        return {key: _take(value, new[key], f"{place}/{key}") for key, value in old.items()}
    return new


def _read_commit() -> str:
    git = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() or "unknown"


def describe_machine() -> str:
    """The class of this machine: its cores and its processor, no names."""
    try:
        about = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        about = ""
    model = re.search(r"model name\s*: (.+)", about)
    return f"{os.cpu_count()} cores, {model.group(1) if model else platform.machine()}"
