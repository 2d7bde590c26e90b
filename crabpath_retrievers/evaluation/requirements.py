"""Check that the optional packages for measuring are installed."""

from collections.abc import Sequence
from importlib.util import find_spec

from crabpath_retrievers.errors import MissingExtraError

EVAL_PACKAGES = (
    "bm25s",
    "ir_measures",
    "langchain",
    "langchain_chroma",
    "langchain_classic",
    "matplotlib",
    "scipy",
)
"""Modules of the ``eval`` extra."""


def require_eval_extra() -> None:
    """Refuse to start without the ``eval`` extra, rather than fail halfway.

    Raises:
        MissingExtraError: A package is missing.
    """
    require_packages(EVAL_PACKAGES, "pip install 'crabpath-retrievers[local,eval]'")


def require_packages(modules: Sequence[str], remedy: str) -> None:
    """Refuse to start without some packages.

    Args:
        modules: Names by which the packages are imported.
        remedy: Command that installs them.

    Raises:
        MissingExtraError: One of them is missing.
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        msg = f"measuring needs {', '.join(missing)}: {remedy}"
        raise MissingExtraError(msg)
