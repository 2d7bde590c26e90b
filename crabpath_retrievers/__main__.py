"""The program ``crabpath``, also ``python -m crabpath_retrievers``."""

import sys
from io import TextIOWrapper

from crabpath_retrievers.errors import MissingExtraError


def run_command_line() -> None:
    """Run the command line, or say how it is installed."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Titles may hold letters that a file or pipe in another encoding cannot.
            stream.reconfigure(errors="backslashreplace")
    try:
        from crabpath_retrievers.cli import app
    except MissingExtraError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.stderr.write("Stopped\n")
        sys.exit(130)
    app()


if __name__ == "__main__":
    run_command_line()
