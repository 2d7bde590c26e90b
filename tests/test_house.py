"""Names and citations follow the rules of the house (docs/architecture.md)."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.house import measure_house

ROOT = Path(__file__).parents[1]
FOLDERS = ("crabpath_retrievers", "adapters")
PARTICIPLES = frozenset(
    (
        *("told", "found", "known", "said", "sought", "taken", "held", "given", "owed", "kept"),
        *("left", "meant", "read", "made", "seen", "gone", "heard", "thought", "born", "spoken"),
        *("drawn", "shown", "written", "begun", "done", "put", "set", "won"),
    )
)
NO_PARTICIPLES = frozenset({"embed", "string", "ranking"})
# Each host's retriever has the name that its users expect, and each part joins by one.
SEVERAL = frozenset({"CrabPathRetriever", "register"})
INTERNAL_MODULES = 40  # that tests import
MOST_SEAMS = 10
RIDDLE = re.compile(r"(What|Those|The same|As there)\b")
ABSENT_TEXTS = re.compile(r"\bdocuments? 00[0-4]\b|\b00[0-4] §|\bdesign §")


def _modules() -> Iterator[tuple[Path, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_no_function_is_named_by_a_lone_participle():
    """A function's name says what it does: ``find_owner``, not ``found`` or ``_owed``."""
    lone = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_participle(node.name)
    ]
    assert lone == []


@pytest.mark.slow
def test_first_sentences_have_a_noun_or_a_verb():
    """A docstring does not begin with a pronoun that a reader has to resolve."""
    riddles = [
        f"{path}:{node.lineno} {said}"
        for path, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and RIDDLE.match(said := ast.get_docstring(node) or "")
    ]
    assert riddles == []


def _is_participle(name: str) -> bool:
    word = name.strip("_")
    ends = len(word) > 4 and word.endswith(("ed", "ing")) and word not in NO_PARTICIPLES
    return "_" not in word and (word in PARTICIPLES or ends)


@pytest.mark.slow
def test_a_public_name_has_one_meaning():
    """No public function or class has the name of another one in a different module."""
    places: dict[str, set[str]] = defaultdict(set)
    for path, tree in _modules():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                places[node.name].add(str(path))
    twice = {
        name: sorted(where)
        for name, where in places.items()
        if len(where) > 1 and not name.startswith("_") and name not in SEVERAL
    }
    assert twice == {}


def test_no_text_cites_what_is_not_in_the_repository():
    """Citations name published works (docs/bibliography.md) or pages of docs/."""
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    texts += [path for folder in (*FOLDERS, "tests") for path in (ROOT / folder).rglob("*.py")]
    cited = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in texts
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if ABSENT_TEXTS.search(line)
    ]
    assert cited == []


def test_the_architecture_page_names_what_exists():
    """Every linked step is a function of the linked file."""
    page = ROOT / "docs" / "architecture.md"
    steps = re.findall(r"\[`([\w.]+)`\]\(\.\./([\w/]+\.py)\)", page.read_text(encoding="utf-8"))
    assert len(steps) > 20
    missing = [(name, path) for name, path in steps if not _defines(ROOT / path, name)]
    assert missing == []


@pytest.mark.slow
def test_tests_reach_the_product_by_few_doors():
    """What is private they touch in ``tests/seams.py`` alone; the other numbers may only fall."""
    house = measure_house()
    assert house.private_files == ()
    assert len(house.internal_modules) <= INTERNAL_MODULES
    seams = ast.parse((ROOT / "tests" / "seams.py").read_text(encoding="utf-8")).body
    assert sum(isinstance(node, ast.FunctionDef) for node in seams) <= MOST_SEAMS


def _defines(path: Path, name: str) -> bool:
    if name == path.name:
        return path.exists()
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    for part in name.split("."):
        nodes = [
            child
            for node in nodes
            for child in ast.iter_child_nodes(node)
            if getattr(child, "name", None) == part
        ]
    return bool(nodes)
