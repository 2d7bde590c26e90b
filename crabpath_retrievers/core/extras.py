"""The modules of the package's extras, and the sentence that says which one is missing."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from crabpath_retrievers.errors import MissingExtraError

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "cli": ("rich", "typer"),
    "client": ("httpx",),
    "eval": ("bm25s", "ir_measures", "langchain_chroma", "langchain_classic", "matplotlib"),
    "files": ("bs4", "mammoth", "markdownify", "openpyxl", "pypdf", "striprtf"),
    "graph": ("networkx",),
    "influence": ("statsmodels",),
    "ray": ("ray",),
    "server": ("mcp", "starlette", "uvicorn"),
    "sync": ("scipy",),
}
"""Modules that each extra brings."""


def list_missing(modules: Sequence[str]) -> list[str]:
    """Select the modules that are not installed."""
    return [name for name in modules if find_spec(name) is None]


def require_extra(extra: str, what: str, *modules: str) -> None:
    """Refuse what needs an extra that is not installed.

    Args:
        extra: Name of the extra.
        what: What needs it.
        modules: Those that are needed; all of the extra, if not given.

    Raises:
        MissingExtraError: One of them is missing.
    """
    if missing := list_missing(modules or EXTRAS[extra]):
        msg = f"{what} needs {', '.join(missing)}: pip install 'crabpath-retrievers[{extra}]'"
        raise MissingExtraError(msg)
