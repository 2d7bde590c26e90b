"""The command line: one file per group of commands."""

from crabpath_retrievers.errors import MissingExtraError

try:
    import rich  # noqa: F401  only to say which extra is missing
    import typer  # noqa: F401
except ImportError as error:
    msg = f"the command line needs {error.name}: pip install 'crabpath-retrievers[cli]'"
    raise MissingExtraError(msg) from error

from crabpath_retrievers.cli.main import app

__all__ = ["app"]
