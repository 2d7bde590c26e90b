"""Frames of a query, a feedback and an addition that only lead to the ones that work."""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from benchmarks.house import PACKAGE, ROOT
from crabpath_retrievers import CrabPathRetriever

PAGES = {
    "Deploy": "To deploy, run Check CI and then Inspect Manifest.",
    "Check CI": "All checks must be green before a release.",
    "Inspect Manifest": "Compare the manifest with the last release.",
    "Rollback": "If a deploy fails, roll back.",
    "Pasta": "Boil pasta for nine minutes.",
}
MORE = {"Mondays": "Deploy on Mondays only.", "Fridays": "Never deploy on a Friday."}
WARMING = ("how do I roll back?", "what is compared with the last release?")
CLOCKS = frozenset({"perf_counter", "monotonic", "time"})
SIMPLE = (
    *(ast.Name, ast.Attribute, ast.Constant, ast.Starred, ast.Lambda, ast.expr_context),
    *(ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop, ast.IfExp),
)


class Frames(NamedTuple):
    """The frames of one call in the package, each counted once however often it is resumed."""

    files: int
    functions: int
    frames: int
    passages: int
    """Frames that only open, check, time or pass on."""

    @property
    def share(self) -> float:
        """Share of the frames that only lead to others, in [0, 1]."""
        return self.passages / self.frames


def measure_ways() -> dict[str, Frames]:
    """Follow a cold query, a feedback, a learned query and an addition through the package.

    A frame is a passage if its body only opens a resource, checks, times, or passes on its
    arguments to one call. So a body consists of these alone, and has one call at most beside
    those of the first three: ``with``, and ``try`` around such a body; ``if`` that
    ends with ``raise``; clocks; and names, attributes, constants and comparisons of
    them, as arguments, results or values of local names. Loops, arithmetic, containers and
    comprehensions are work. A ``contextmanager`` is a passage whatever its body is.

    Calls before have had all statements compiled.
    """
    documents = [
        Document(text, metadata={"title": title, "source": f"{title}.md"})
        for title, text in PAGES.items()
    ]
    with TemporaryDirectory() as folder:
        retriever = CrabPathRetriever.from_documents(
            documents, DeterministicFakeEmbedding(size=32), path=folder, k=3
        )
        with retriever.memory:
            for question in WARMING:
                retriever.invoke(question)
            ways = {"cold query": _follow(lambda: retriever.invoke("how do I deploy?"))}
            for _ in range(4):
                found = retriever.invoke("how do I deploy the service?")
                turn, used = found[0].metadata["crabpath"]["turn_id"], [str(found[0].id)]
                ways["feedback"] = _follow(partial(retriever.record, turn, 1.0, used=used))
            for question in WARMING:
                retriever.invoke(question)
            ways["learned query"] = _follow(lambda: retriever.invoke("how do I deploy it?"))
            for title, text in MORE.items():
                page = Document(text, metadata={"title": title, "source": f"{title}.md"})
                ways["add one document"] = _follow(partial(retriever.add_documents, [page]))
    return ways


def _follow(job: Callable[[], object]) -> Frames:
    package, seen = str(ROOT / PACKAGE), dict[int, FrameType]()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        is_named = not re.match("<(?!lambda)", code.co_name)  # no comprehension
        if event == "call" and is_named and code.co_filename.startswith(package):
            seen[id(frame)] = frame  # kept, so that no other one gets its id

    sys.setprofile(note)
    try:
        job()
    finally:
        sys.setprofile(None)
    codes = [frame.f_code for frame in seen.values()]
    places = [(code.co_filename, code.co_firstlineno, code.co_name) for code in codes]
    return Frames(
        files=len({file for file, _, _ in places}),
        functions=len({*places}),
        frames=len(places),
        passages=sum((line, name) in _find_passages(file) for file, line, name in places),
    )


@cache
def _find_passages(file: str) -> set[tuple[int, str]]:
    """First line, as code objects have it, and name of the functions that only lead to others."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    found = set[tuple[int, str]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and is_passage([ast.Expr(node.body)]):
            found.add((node.lineno, "<lambda>"))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            opens = any(ast.unparse(mark) == "contextmanager" for mark in node.decorator_list)
            if opens or is_passage(node.body):
                found.add((min(part.lineno for part in (node, *node.decorator_list)), node.name))
    return found


def is_passage(body: Sequence[ast.stmt]) -> bool:
    """Tell whether a body only opens, checks, times or passes on, as in :func:`measure_ways`."""
    calls = [_count_calls(statement) for statement in body]
    return None not in calls and sum(filter(None, calls)) <= 1


def _count_calls(statement: ast.stmt) -> int | None:
    """Count the calls that pass on; None where the statement works."""
    match statement:
        case ast.With(body=body) | ast.AsyncWith(body=body) | ast.Try(body=body, orelse=[]):
            return _sum(map(_count_calls, body))
        case ast.If(body=[*_, ast.Raise()], orelse=[]):
            return 0
        case ast.Raise() | ast.Pass() | ast.FunctionDef():
            return 0
        case (
            ast.Assign(targets=[ast.Name()], value=value)
            | ast.AnnAssign(target=ast.Name(), value=value)
        ):
            return _count_in(value)
        case ast.Expr(value=value) | ast.Return(value=value):
            return _count_in(value)
    return None


def _sum(counts: Iterable[int | None]) -> int | None:
    found = list(counts)
    return None if None in found else sum(filter(None, found))


def _count_in(value: ast.expr | None) -> int | None:
    while isinstance(value, ast.Yield | ast.YieldFrom | ast.Await):
        value = value.value
    if not isinstance(value, ast.Call):
        return 0 if value is None or _is_simple(value) else None
    given = [*value.args, *(keyword.value for keyword in value.keywords)]
    if not all(map(_is_simple, given)):
        return None
    return int(ast.unparse(value.func).rpartition(".")[2] not in CLOCKS)


def _is_simple(value: ast.expr) -> bool:
    if isinstance(value, ast.Lambda):
        return True
    return all(isinstance(part, SIMPLE) for part in ast.walk(value))


def render_ways(ways: dict[str, Frames]) -> str:
    """Write the figures as a table of Markdown."""
    rows = [
        f"| {name} | {own.files} | {own.functions} | {own.frames} | {own.share:.0%} |"
        for name, own in ways.items()
    ]
    head = ["| way | files | functions | frames | only open, check, time or pass on |"]
    return "\n".join([*head, "|---|---|---|---|---|", *rows])
