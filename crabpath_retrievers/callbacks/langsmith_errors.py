"""Translates errors of LangSmith's client."""

from collections.abc import Iterator
from contextlib import contextmanager

from crabpath_retrievers.errors import (
    ConfigurationError,
    CrabPathError,
    NotFoundError,
    ServiceError,
)

_MAX_CHARS = 300


@contextmanager
def translate_errors(project: str | None = None) -> Iterator[None]:
    """Translate errors of LangSmith's client to errors of this library.

    Args:
        project: Name of the requested project, for the message.

    Raises:
        ConfigurationError: LangSmith refuses the API key.
        NotFoundError: The project does not exist.
        ServiceError: LangSmith failed or cannot be reached.
    """
    try:
        yield
    except CrabPathError:
        raise
    except Exception as error:
        raise _to_error(error, project) from error


def _to_error(error: Exception, project: str | None) -> CrabPathError:
    from langsmith.utils import LangSmithAuthError, LangSmithNotFoundError

    text = " ".join(str(error).split())[:_MAX_CHARS]
    if isinstance(error, LangSmithAuthError) or "403" in text:
        msg = (
            "LangSmith refuses the API key: set LANGSMITH_API_KEY, and LANGSMITH_WORKSPACE_ID for "
            "a key of an organisation"
        )
        return ConfigurationError(msg)
    if isinstance(error, LangSmithNotFoundError) and project is not None:
        msg = f"LangSmith has no project {project!r}: check its name and LANGSMITH_ENDPOINT"
        return NotFoundError(msg)
    msg = f"LangSmith cannot be used, check LANGSMITH_ENDPOINT and try again later: {text}"
    return ServiceError(msg)
