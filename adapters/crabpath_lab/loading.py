"""Loads what an option names by ``module:attribute``."""

from importlib import import_module
from pathlib import Path
from typing import Any


def load_attribute(name: str) -> Any:
    """Object that ``module:attribute`` names, called if callable; None for a path or other name.

    Importing or making it may raise any error.
    """
    module, _, attribute = name.partition(":")
    if not attribute or Path(name).exists():
        return None
    found = getattr(import_module(module), attribute)
    return found() if callable(found) else found
