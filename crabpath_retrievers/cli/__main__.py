"""``python -m crabpath_retrievers.cli``."""

from crabpath_retrievers.cli.main import app

app()
