"""Loads what an option names by ``module:attribute``."""

from importlib import import_module
from pathlib import Path
from typing import Any


def import_attribute(name: str) -> Any:
    """Object that ``module:attribute`` names; None for a path or other name.

    Importing it may raise any error.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute or Path(name).exists():
        return None
    return getattr(import_module(module), attribute)


def load_attribute(name: str) -> Any:
    """As :func:`import_attribute`, but called if it is callable, which may raise any error."""
    found = import_attribute(name)
    return found() if callable(found) else found
