"""Optional parts, extras and objects of users, found by name or said to be missing."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from crabpath_retrievers.errors import ConfigurationError, MissingExtraError

PARTS: Mapping[str, str] = {"crabpath_lab": "lab", "crabpath_server": "server"}
"""Extra that installs each distribution beside this one, by the package that it brings."""

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
    """List which of some modules are not installed."""
    return [name for name in modules if find_spec(name) is None]


def require_extra(extra: str, what: str, *modules: str) -> None:
    """Refuse a feature, named ``what``, whose extra is not installed.

    These modules of the extra are needed; all of them if none is given.
    """
    if missing := list_missing(modules or EXTRAS[extra]):
        msg = f"{what} needs {', '.join(missing)}: pip install 'crabpath-retrievers[{extra}]'"
        raise MissingExtraError(msg)


def load_part(module: str) -> Any:
    """Import a module of an optional part: the base knows it by this name alone.

    Raises:
        MissingExtraError: The distribution that brings it is not installed.
        ConfigurationError: That distribution has another version.
    """
    package = module.partition(".")[0]
    if package in PARTS and find_spec(package) is None:
        raise MissingExtraError(explain_missing_part(package, PARTS[package]))
    return import_module(module)


def explain_missing_part(package: str, extra: str) -> str:
    """Say which extra brings a package that is not installed."""
    return f"this needs {package.replace('_', '-')}: pip install 'crabpath-retrievers[{extra}]'"


def require_same_version(package: str, version: str, base: str) -> None:
    """Refuse a part that was made for another version of this package."""
    if version == base:
        return
    from packaging.version import Version

    name, newer = package.replace("_", "-"), max(version, base, key=Version)
    older = name if newer == base else "crabpath-retrievers"
    msg = (
        f"{name} {version} does not work with crabpath-retrievers {base}: upgrade the older one, "
        f"pip install '{older}=={newer}'"
    )
    raise ConfigurationError(msg)


def import_attribute(name: str) -> Any:
    """Import the object that ``module:attribute`` names; None for a path or any other text.

    A module of the current folder is found, too. Importing may raise any error.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute.isidentifier() or Path(name).exists():
        return None
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    return getattr(import_module(module), attribute)


def load_attribute(name: str) -> Any:
    """Import the object that ``module:attribute`` names, and call it if it is callable.

    None for a path or any other text. Importing and calling may raise any error.
    """
    found = import_attribute(name)
    return found() if callable(found) else found
