"""The house in figures: its size, and by how many doors tests reach what is inside of it."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = "crabpath_retrievers"
PACKAGES = (PACKAGE, "adapters/crabpath_server", "adapters/crabpath_lab")
# Where users may import from, beside the packages themselves: docs/reference/stability.md.
PUBLIC_PARTS = (
    *("callbacks", "config", "errors", "integration", "parts.langsmith", "testing"),
    *("vectors.base", "cli"),  # the latter for the program itself
)
PUBLIC = frozenset(
    {
        *(PACKAGE, "crabpath_server", "crabpath_server.client", "crabpath_server.mcp"),
        *("crabpath_lab", "crabpath_lab.ab", "crabpath_lab.testing"),
        *(f"{PACKAGE}.{name}" for name in PUBLIC_PARTS),
    }
)
OF_TRIALS = frozenset({"ab", "commands", "shadow.py"})  # not of evaluation
OPTIONAL = frozenset({"callbacks", "parts", "testing"})  # which the base never imports
SEAMS = ROOT / "tests" / "seams.py"
RECORDS = frozenset({"NamedTuple", "TypedDict", "BaseModel", "dataclass"})
OF_NAMED_TUPLES = frozenset({"_replace", "_asdict", "_make", "_fields"})
NO_CODE = frozenset(
    {
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
        *(tokenize.ENCODING, tokenize.ENDMARKER),
    }
)


class Size(NamedTuple):
    """Figures of some files."""

    files: int
    lines: int
    code_lines: int
    """Without blank lines, comments and docstrings."""


class House(NamedTuple):
    """Figures of the packages, and of the tests without their seams."""

    base: Size
    """The base: what no optional part, test suite for authors or other distribution brings."""
    shipped: Size
    """All distributions without evaluation."""
    record_classes: int
    """Of all distributions without evaluation."""
    private_files: tuple[str, ...]
    """Files of tests that touch private attributes of the product."""
    internal_modules: tuple[str, ...]
    """Modules that tests import, and users should not."""


def measure_house() -> House:
    """Read the sources and count; nothing of them is run."""
    tests = {path: tree for path, tree in _parse("tests").items() if path != SEAMS}
    product = {**_parse(PACKAGE), **_parse("adapters")}
    shipped = {path: tree for path, tree in product.items() if not _is_of_evaluation(path)}
    private = {name for tree in product.values() for name in _list_private_names(tree)}
    modules = {
        _name_module(path): {*_list_imported_names(tree)}
        for folder in PACKAGES
        for path, tree in _parse(folder).items()
    }
    return House(
        base=_measure({path: tree for path, tree in shipped.items() if _is_of_base(path)}),
        shipped=_measure(shipped),
        record_classes=sum(
            _is_record(node) for tree in shipped.values() for node in ast.walk(tree)
        ),
        private_files=tuple(
            str(path.relative_to(ROOT))
            for path, tree in tests.items()
            if _list_attributes(tree) & private - OF_NAMED_TUPLES - {*_list_private_names(tree)}
        ),
        internal_modules=tuple(
            sorted({name for tree in tests.values() for name in _list_imports(tree, modules)})
        ),
    )


def _is_of_base(path: Path) -> bool:
    package, *rest = path.relative_to(ROOT).parts
    return package == PACKAGE and rest[0] not in OPTIONAL


def _is_of_evaluation(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return "crabpath_lab" in parts and parts[2] not in OF_TRIALS


def _measure(sources: Mapping[Path, ast.Module]) -> Size:
    return Size(
        len(sources),
        sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sources),
        sum(_count_code_lines(path, tree) for path, tree in sources.items()),
    )


def _parse(folder: str) -> dict[Path, ast.Module]:
    paths = sorted((ROOT / folder).rglob("*.py"))
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def _name_module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts).removeprefix("adapters.").removesuffix(".__init__")


def _count_code_lines(path: Path, tree: ast.Module) -> int:
    text = path.read_text(encoding="utf-8")
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        # A string that stands alone is a docstring, of an attribute too.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def _is_record(node: ast.AST) -> bool:
    if not isinstance(node, ast.ClassDef):
        return False
    marks = [*node.bases, *node.decorator_list]
    names = (re.split(r"[(\[]", ast.unparse(mark))[0] for mark in marks)
    return any(name.rpartition(".")[2] in RECORDS for name in names)


def _list_private_names(tree: ast.Module) -> Iterator[str]:
    """Names with one leading underscore that a file defines, wherever."""
    for node in ast.walk(tree):
        name: Any = None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr if ast.unparse(node.value) in {"self", "cls"} else None
        if name is not None and re.match(r"_[a-zA-Z]\w*[a-zA-Z]$", name):
            yield name


def _list_attributes(tree: ast.Module) -> set[str]:
    """Attributes of anything but the object itself."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in {"self", "cls"}
    }


def _list_imported_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def _list_imports(tree: ast.Module, modules: Mapping[str, set[str]]) -> Iterator[str]:
    """Internal modules that a file imports, or names where it replaces something in them."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            exported = modules.get(module, ())  # a function may have the name of its module
            names += [
                module if alias.name in exported else f"{module}.{alias.name}"
                for alias in node.names
            ]
        elif isinstance(node, ast.Call) and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                names += re.findall(r"^crabpath_(?:\w+\.)+\w+$", first.value)
    for name in names:
        parts = name.split(".")
        longer = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
        found = next((each for each in longer if each in modules), PACKAGE)
        if found not in PUBLIC:
            yield found


def render_house(house: House) -> str:
    """Write the figures as Markdown, and what the last two of them are."""
    sizes = [("base", house.base), ("all that ships, without evaluation", house.shipped)]
    rows: list[tuple[str, object]] = [
        (
            f"{name}: lines / lines of code / files",
            f"{size.lines} / {size.code_lines} / {size.files}",
        )
        for name, size in sizes
    ]
    rows += [
        ("record classes", house.record_classes),
        ("files of tests that touch private attributes", len(house.private_files)),
        ("internal modules that tests import", len(house.internal_modules)),
    ]
    lines = ["| what | count |", "|---|---|", *(f"| {name} | {count} |" for name, count in rows)]
    return "\n".join([*lines, "", *house.private_files, "", *house.internal_modules])
