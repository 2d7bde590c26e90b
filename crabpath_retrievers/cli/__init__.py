"""The command line: one file per group of commands."""

from crabpath_retrievers.cli.main import app

__all__ = ["app"]
