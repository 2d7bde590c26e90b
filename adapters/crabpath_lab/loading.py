"""Loads what an option names by ``module:attribute``."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from crabpath_retrievers.core.extras import import_attribute
from crabpath_retrievers.errors import CrabPathError, InvalidInputError


def import_named(name: str, known: Mapping[str, Any], what: str) -> Any:
    """Find the object of a name: a known one, or the callable that ``module:attribute`` names.

    Anything else raises InvalidInputError, which calls it ``what``.
    """
    if name in known:
        return known[name]
    try:
        found = import_attribute(name)
    except Exception as error:  # whatever a module of others raises
        msg = f"the {what} {name!r} cannot be imported ({type(error).__name__}: {error})"
        raise InvalidInputError(msg) from error
    if found is None:
        choice = f"choose among {', '.join(known)}, or give module:attribute"
        msg = f"there is no {what} {name!r}: {choice}, with commas between"
        raise InvalidInputError(msg)
    if not callable(found):
        msg = f"the {what} {name!r} is of type {type(found).__name__}: give one that can be called"
        raise InvalidInputError(msg)
    return found


@contextmanager
def explain_failure(what: str, name: str, must: str) -> Iterator[None]:
    """Turn any error of ``module:attribute`` into a sentence that says what it must be.

    What is named otherwise is not of others: its errors are left as they are.
    """
    try:
        yield
    except CrabPathError:
        raise
    except Exception as error:
        if ":" not in name:
            raise
        msg = f"the {what} {name!r} failed ({type(error).__name__}: {error}): it must be {must}"
        raise InvalidInputError(msg) from error


def require_items(found: Any, kind: type) -> None:
    """Raise TypeError unless ``found`` is a list of items of that kind."""
    if not isinstance(found, list) or not all(isinstance(one, kind) for one in found):
        msg = f"it returned {found!r:.80}"
        raise TypeError(msg)
