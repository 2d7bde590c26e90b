"""The command line: one file per group of commands."""

from crabpath_retrievers.core.extras import require_extra

require_extra("cli", "the command line")

from crabpath_retrievers.cli.main import app  # noqa: E402  the sentence comes first

__all__ = ["app"]
